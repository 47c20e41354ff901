"""A gang's victims are taken together or not at all: where its other pods would go, judged over all nodes (document 000).

Greedy: pod after pod goes to the node that takes the least more for it, as Koordinator's job preemption does. What a gang
that goes as a whole leaves behind on other nodes is free for the next. At last whoever turns out not to be needed is let
back. Pods are placed by requests, host ports, taints and selectors: nothing here sees the affinities of the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import select_victims, victim_units
from .eligibility import Court
from .node_capacity import Load
from .node_dry_run import NOBODY, Scale, Survey, helps, scale_for
from .node_status import Obstacle
from .select_victims import Selection, Taken
from .snapshot import GroupKey, Guest, Tenant
from .victim_units import Rank, Unit

MOST_KINDS = 8
"""Of pods that differ in what they ask for, in one gang: all nodes are looked at for each, 0.5 s of 5,000."""
_SLACK = 2
"""Times `maxVictims` before a plan is given up: some may turn out not to be needed, but not most of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a gang would go, and at whose cost."""

    node: str
    """The preemptor's."""
    here: tuple[Unit, ...]
    """Victims of whom some are on that node, most important first."""
    others: tuple[Unit, ...]
    """Those that the rest of the gang needs on other nodes."""
    violations: int
    """Of PodDisruptionBudgets, on that node."""

    @property
    def units(self) -> tuple[Unit, ...]:
        """All of them."""
        return (*self.here, *self.others)


def alone(node: str, selection: Selection) -> Plan:
    """Return the plan for a pod that has no gang to wait for."""
    return Plan(node, selection.units, (), selection.violations)


class Planner:
    """Plans for one preemptor. What it has found of the nodes is kept from plan to plan."""

    def __init__(self, survey: Survey, court: Court, is_over: Callable[[], bool]) -> None:
        """`is_over`: nobody waits for a plan any more."""
        self._court, self._is_over = court, is_over
        self._surveys = [survey]
        self._kinds = [self._survey_for(guest) for guest in court.preemptor.rest]
        self._orders: dict[int, tuple[Scale, Sequence[tuple[Rank, str]]]] = {}

    def plan(self, node: str, selection: Selection) -> Plan | None:
        """Return a plan that begins with these victims on that node; `None` where the rest cannot be placed."""
        preemptor = self._court.preemptor
        if len(self._surveys) > MOST_KINDS:
            return None
        # The scheduler's own victims are not ours to let back: why they have to go, only it knows.
        is_proposed = selection is not self._surveys[0].on(node)
        draft = _Draft(self._court, frozenset({node} if is_proposed else ()))
        draft.put(node, preemptor.guest, selection)
        most = _SLACK * self._court.scene.settings.max_victims
        for guest, index in zip(preemptor.rest, self._kinds, strict=True):
            if self._is_over() or draft.count() > most or not self._place(guest, index, draft):
                return None
        draft.let_back()
        return draft.plan(node, selection.violations)

    def _place(self, guest: Guest, index: int, draft: "_Draft") -> bool:
        scale, order = self._order(index)
        untouched = ((rank, node) for rank, node in order if node not in draft.touched)
        tried = draft.weigh(guest, index, self._surveys[index], scale)
        best = min([*tried, *_first(untouched)], default=None)
        if best is None:
            return False
        node = best[1]
        found = draft.look(node, guest) if node in draft.touched else self._surveys[index].on(node)
        draft.put(node, guest, found)
        return True

    def _order(self, index: int) -> tuple[Scale, Sequence[tuple[Rank, str]]]:
        """Return all nodes that help pods of a kind, the best first."""
        if index not in self._orders:
            found = self._surveys[index].all_that_help(self._is_over)
            scale = scale_for(found.values(), self._court.scene.now)
            self._orders[index] = scale, sorted((scale.weigh(one), node) for node, one in found.items())
        return self._orders[index]

    def _survey_for(self, guest: Guest) -> int:
        for index, survey in enumerate(self._surveys):
            if survey.is_for(guest):
                return index
        # One more than are looked at is enough to know.
        if len(self._surveys) > MOST_KINDS:
            return MOST_KINDS
        self._surveys.append(Survey(guest, self._court))
        return len(self._surveys) - 1


class _Draft:
    """A plan in the making."""

    def __init__(self, court: Court, settled: frozenset[str]) -> None:
        self._court = court
        self._settled = settled
        self._loads: dict[str, Load] = {}
        self._wholes: dict[GroupKey, Unit] = {}
        self._singles: dict[str, tuple[Unit, ...]] = {}
        self.touched: set[str] = set()
        """Nodes on which something is no longer as it was found: a pod was placed there, or a gang has gone."""
        self._weighed: dict[tuple[int, str], Rank | None] = {}
        """What is more to be taken there for one more pod of a kind; `None`: it would not help."""

    def put(self, node: str, guest: Guest, found: Selection | Obstacle) -> None:
        """Place a pod, and take whom that takes."""
        self._loads[node] = self._loads.get(node, Load()).plus(guest)
        self._take(node, found)
        changed = {node, *(member.node for member in self._gangs_of(found))}
        self.touched |= changed
        self._weighed = {key: rank for key, rank in self._weighed.items() if key[1] not in changed}

    def look(self, node: str, guest: Guest) -> Selection | Obstacle:
        """Return whom one more pod on the node would take."""
        return self._select(node, self._loads.get(node, Load()).plus(guest), self._wholes)

    def weigh(self, guest: Guest, kind: int, survey: Survey, scale: Scale) -> Iterator[tuple[Rank, str]]:
        """Yield what is more to be taken on each node that was touched, where a pod would have room then."""
        # Beside the scheduler's own victims nobody is placed: what else fits there is not ours to tell.
        for node in self.touched - self._settled:
            if (kind, node) not in self._weighed:
                found = self.look(node, guest) if survey.suits(node) else Obstacle.UNSUITABLE
                self._weighed[kind, node] = self._weigh_more(node, found, scale) if helps(found) else None
            rank = self._weighed[kind, node]
            if rank is not None:
                yield rank, node

    def count(self) -> int:
        """Count who goes, as a decision counts them."""
        return len(self._wholes) + sum(map(len, self._singles.values()))

    def let_back(self) -> None:
        """Let back whoever is not needed any more: later victims made room for earlier pods, too."""
        ours = [node for node in self._loads if node not in self._settled]
        for node in ours:
            self._take(node, self._again(node, self._wholes))
        now = self._court.scene.now
        for key, unit in sorted(self._wholes.items(), key=lambda item: victim_units.upstreams(item[1], now)):
            without = {other: kept for other, kept in self._wholes.items() if other != key}
            is_settled = any(member.node in self._settled for member in unit.members)
            if not is_settled and all(self._is_enough(node, without) for node in ours):
                self._wholes = without

    def plan(self, node: str, violations: int) -> Plan:
        wholes = [unit for unit in self._wholes.values() if _is_on(unit, node)]
        far = [unit for unit in self._wholes.values() if not _is_on(unit, node)]
        now = self._court.scene.now
        here = [*self._singles.get(node, ()), *(_seen_from(node, unit) for unit in wholes)]
        others = [unit for other, found in self._singles.items() if other != node for unit in found]
        return Plan(
            node, tuple(sorted(here, key=lambda unit: victim_units.upstreams(unit, now))), (*far, *others), violations
        )

    def _take(self, node: str, found: Selection | Obstacle) -> None:
        taken = found.units if isinstance(found, Selection) else ()
        self._singles[node] = tuple(unit for unit in taken if unit.group is None)
        self._wholes |= {unit.group: unit for unit in taken if unit.group is not None}

    def _gangs_of(self, found: Selection | Obstacle) -> Iterator[Tenant]:
        """Yield all pods of the gangs of those who are taken: they go with them, or can be spared less."""
        for unit in found.units if isinstance(found, Selection) else ():
            key = unit.members[0].group
            group = None if key is None else self._court.scene.groups.get(key)
            yield from () if group is None else group.members

    def _weigh_more(self, node: str, found: Selection | Obstacle, scale: Scale) -> Rank:
        if not isinstance(found, Selection):
            return NOBODY
        before = _uids(self._singles.get(node, ()))
        return scale.rank((unit for unit in found.units if unit.here[0].uid not in before), found.violations)

    def _again(self, node: str, wholes: Mapping[GroupKey, Unit]) -> Selection | Obstacle:
        return self._select(node, self._loads[node], wholes)

    def _is_enough(self, node: str, wholes: Mapping[GroupKey, Unit]) -> bool:
        """True where the node needs nobody beside those, and the single pods that are taken there already."""
        found = self._again(node, wholes)
        needed = _uids(found.units) if isinstance(found, Selection) else set()
        return helps(found) and needed <= _uids(self._singles[node])

    def _select(self, node: str, load: Load, wholes: Mapping[GroupKey, Unit]) -> Selection | Obstacle:
        singles = (tenant for other, found in self._singles.items() if other != node for tenant in _pods(found))
        lost = Counter(tenant.group for tenant in singles if tenant.group is not None)
        return select_victims.select(self._court.scene.rooms[node], load, self._court, Taken(frozenset(wholes), lost))


def _first(found: Iterator[tuple[Rank, str]]) -> list[tuple[Rank, str]]:
    first = next(found, None)
    return [] if first is None else [first]


def _uids(found: Iterable[Unit]) -> set[str]:
    """Return what tells units on one node from each other."""
    return {unit.here[0].uid for unit in found}


def _pods(found: Iterable[Unit]) -> Iterator[Tenant]:
    return (tenant for unit in found for tenant in unit.members)


def _is_on(unit: Unit, node: str) -> bool:
    return any(member.node == node for member in unit.members)


def _seen_from(node: str, unit: Unit) -> Unit:
    return unit._replace(here=tuple(member for member in unit.members if member.node == node))
