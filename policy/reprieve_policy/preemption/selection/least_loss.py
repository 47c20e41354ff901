"""The victims on one node with `victimOrder: loss`: the set that loses the least work.

Of all sets of units that make enough room, `maxVictims` units at most, the first by this order:

| criterion | first is the set | from |
|---|---|---|
| budgets | that violates the fewest PodDisruptionBudgets | upstream |
| loss | with the least expected loss, in whole device-seconds (`preemption.loss`) | |
| importance | without the most important unit that only one of them takes | upstream |

The importance of units is the order of `victimOrder: priority`, so between equal losses the lower
priority goes. A gang that is evicted as a unit counts with the loss of all its pods, wherever they
run; a gang that is disrupted one by one never loses more pods than it can spare. No set has a
needless unit, because the set without it comes first.

With up to ten units on a node the search is exact. With more it is greedy: as many as possible are
reprieved, the greatest loss first, the greatest loss for its size first, and in the order of
`victimOrder: priority`; the best of the three sets is taken.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter, sub
from typing import NamedTuple

from . import pdb_usage, priority_order, victim_units
from .eligibility import Eligibility
from .node_fit import CombinedDemand, MissingCapacity, RemainingCapacity
from .node_status import DryRunStatus
from .snapshot import GangKey, ScheduledPod
from .victim_units import Selection, SortKey, VictimUnit

MAX_EXACT_UNITS = 10
"""Units of which all sets are compared: at most 1,023."""

_SetKey = tuple[int, int, int]
"""The order of sets: violated budgets, loss, importance."""
_first = itemgetter(0)
_loss_and_weight = itemgetter(0, 1)


def select(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
    most_loss: int | None,
) -> Selection | DryRunStatus | None:
    """Return the victims; `None` if none are needed, with all pods counted in `capacity`.

    No possible victim is counted there yet. `spare`: how many pods each gang can lose. `most_loss`:
    another node has victims that lose so little and violate no budget.
    """
    if not capacity.fits:
        return DryRunStatus.TOO_SMALL if possible else DryRunStatus.NO_VICTIMS
    for pod in possible:
        capacity.add_pod(pod)
    if capacity.fits:
        return None
    units = victim_units.units_of(possible, eligibility)
    missing = capacity.missing()
    released = [capacity.released_by(unit.on_node, missing) for unit in units]
    max_victims = eligibility.snapshot.settings.max_victims
    least = _least_number(released, missing)
    if least > max_victims:
        return DryRunStatus.TOO_MANY_VICTIMS
    if most_loss is not None and sum(sorted([unit.loss for unit in units])[:least]) > most_loss:
        return DryRunStatus.LOSES_MORE
    if len(units) > MAX_EXACT_UNITS:
        capacity.remove_pods(*possible)
        return _select_greedily(possible, spare, demand, capacity, eligibility)
    search = _Search(units, released, missing, eligibility, spare)
    found = search.run(max_victims, most_loss)
    if found is not None:
        return found
    if most_loss is not None:
        return DryRunStatus.LOSES_MORE
    is_possible = search.run(len(units), None) is not None
    return DryRunStatus.TOO_MANY_VICTIMS if is_possible else DryRunStatus.TOO_SMALL


def _least_number(released: Sequence[tuple[int, ...]], missing: MissingCapacity) -> int:
    """Return the number of victims below which no set is enough."""
    # All of them together are enough, so each missing resource is released by at least one.
    largest = [max(column) for column in zip(*released, strict=True)]
    return max([-(-amount // most) for (_, amount), most in zip(missing, largest, strict=True)])


class _Item(NamedTuple):
    """A unit in the search."""

    loss: int
    weight: int
    """A power of two, the higher the more important: sums of weights order sets by importance."""
    released: tuple[int, ...]
    unit: VictimUnit
    is_free: bool
    """No budget covers it, and its gang can spare it: it may take the place of any other unit."""


class _Search:
    """The exact search on one node: depth first, the least loss first."""

    def __init__(
        self,
        units: Sequence[VictimUnit],
        released: Sequence[tuple[int, ...]],
        missing: MissingCapacity,
        eligibility: Eligibility,
        spare: Mapping[GangKey, int],
    ) -> None:
        self._snapshot, self._spare = eligibility.snapshot, spare
        self._missing = tuple([amount for _, amount in missing])
        self._largest = [max(column) for column in zip(*released, strict=True)]
        weights = _weights(units, eligibility)
        has_limits = bool(self._snapshot.budgets or spare)
        self._items = [
            _Item(unit.loss, weight, row, unit, not (has_limits and self._is_limited(unit)))
            for unit, row, weight in zip(units, released, weights, strict=True)
        ]
        self._items.sort(key=_loss_and_weight)
        self._best: tuple[_SetKey, Sequence[_Item]] | None = None
        self._most_loss: int | None = None

    def run(self, most_units: int, most_loss: int | None) -> Selection | None:
        """Return the first set of at most so many units; `None`: there is none."""
        self._best, self._most_loss = None, most_loss
        self._extend(0, (), self._missing, 0, most_units)
        if self._best is None:
            return None
        (violations, _, _), items = self._best
        return Selection(tuple([item.unit for item in items]), violations)

    def _extend(
        self, start: int, taken: tuple[_Item, ...], missing: tuple[int, ...], loss: int, left: int
    ) -> None:
        """Try each further unit with the ones taken; `left`: how many may still be added."""
        seen: set[tuple[int, ...]] = set()
        for index in range(start, len(self._items)):
            item = self._items[index]
            total = loss + item.loss
            if self._most_loss is not None and total > self._most_loss:
                # So do all that follow.
                return
            if item.released in seen:
                # An earlier unit releases the same, and comes before this one.
                continue
            if item.is_free:
                seen.add(item.released)
            after = tuple(map(sub, missing, item.released))
            if max(after) <= 0:
                self._offer((*taken, item), total)
            elif left > 1 and self._is_within_reach(after, left - 1):
                self._extend(index + 1, (*taken, item), after, total, left - 1)

    def _is_within_reach(self, missing: tuple[int, ...], left: int) -> bool:
        return all([lack <= most * left for lack, most in zip(missing, self._largest, strict=True)])

    def _offer(self, items: tuple[_Item, ...], loss: int) -> None:
        """Keep the set if it comes before the best one."""
        if self._spare and not _is_spared(self._spare, items):
            return
        ordered = sorted(items, key=lambda item: -item.weight)
        violations = pdb_usage.violations_of([item.unit for item in ordered], self._snapshot)
        key = violations, loss, sum([item.weight for item in items])
        if self._best is None or key < self._best[0]:
            self._best = key, ordered
            if violations == 0:
                self._most_loss = loss

    def _is_limited(self, unit: VictimUnit) -> bool:
        """True for a unit that a budget covers, or whose gang can spare only some of its pods."""
        budgets = self._snapshot.budgets
        return unit.members[0].gang in self._spare or any(
            pdb_usage.covers(budget, pod)
            for pod in unit.members
            for budget in budgets.get(pod.namespace, ())
        )


def _is_spared(spare: Mapping[GangKey, int], items: Iterable[_Item]) -> bool:
    """True if no gang that is disrupted one by one loses more pods than it can spare."""
    lost = Counter(item.unit.members[0].gang for item in items)
    return all(lost[gang] <= number for gang, number in spare.items())


def _weights(units: Sequence[VictimUnit], eligibility: Eligibility) -> list[int]:
    """Return a power of two for each unit, the highest for the most important."""
    now = eligibility.snapshot.now
    states_preferences = any([pod.states_preferences for unit in units for pod in unit.on_node])
    order = victim_units.costliest_first if states_preferences else victim_units.scheduler_order
    ranked = sorted(
        [(order(unit, now), number) for number, unit in enumerate(units)], key=_first, reverse=True
    )
    weights = [0] * len(units)
    for position, (_, number) in enumerate(ranked):
        weights[number] = 1 << position
    return weights


def _select_greedily(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
) -> Selection | DryRunStatus:
    """Return the best of three sets; no possible victim is counted in `capacity`."""
    snapshot = eligibility.snapshot
    units = victim_units.units_of(possible, eligibility)
    weights = {
        _uid(unit): weight for unit, weight in zip(units, _weights(units, eligibility), strict=True)
    }

    def by(loss: Callable[[VictimUnit], float]) -> "_Reprieve":
        def reprieve(left: RemainingCapacity) -> Selection | None:
            needed = victim_units.needed_members(
                possible, spare, lambda pod: victim_units.loss_as_member(pod, snapshot.now)
            )
            kept = {pod.uid for pod in needed}
            for pod in needed:
                left.add_pod(pod)
            ranked: list[tuple[SortKey, VictimUnit]] = [
                ((-loss(unit), -weights[_uid(unit)]), unit)
                for unit in units
                if _uid(unit) not in kept
            ]
            fits = left.fits
            return priority_order.reprieve_units(ranked, left, eligibility) if fits else None

        return reprieve

    def by_priority(left: RemainingCapacity) -> Selection | DryRunStatus | None:
        return priority_order.select(possible, spare, demand, left, eligibility)

    orders: Sequence[_Reprieve] = (
        by(lambda unit: unit.loss),
        by(lambda unit: unit.loss / (victim_units.share_of(unit, demand.amounts) or 1.0)),
        by_priority,
    )
    results = [order(capacity.copy()) for order in orders]
    sets = [
        sorted(result.units, key=lambda unit: -weights[_uid(unit)])
        for result in results
        if isinstance(result, Selection)
    ]

    def key(units: Sequence[VictimUnit]) -> _SetKey:
        loss, weight = sum(unit.loss for unit in units), sum(weights[_uid(unit)] for unit in units)
        return pdb_usage.violations_of(units, snapshot), loss, weight

    few = [one for one in sets if len(one) <= snapshot.settings.max_victims]
    if not few:
        return DryRunStatus.TOO_MANY_VICTIMS if sets else DryRunStatus.TOO_SMALL
    best = min(few, key=key)
    return Selection(tuple(best), key(best)[0])


_Reprieve = Callable[[RemainingCapacity], Selection | DryRunStatus | None]


def _uid(unit: VictimUnit) -> str:
    """Return what identifies a unit on its node."""
    return unit.on_node[0].uid
