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

With up to ten units on a node, and 200 budgets of all their pods together, the search is exact; of
alike pods that no budget covers (`alike_pods`), only the first `maxVictims` count, because no other
is ever in the first set. With more it is greedy: as many as possible are reprieved, the greatest
loss first, the greatest loss for its size first, and in the order of `victimOrder: priority`; the
best of the three sets is taken. Where these have more than `maxVictims` units, few large ones go
(`few_large`). Where a gang can lose only some of its pods, each set is made twice: the others stay
that lose the most, or the smallest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter, sub
from typing import NamedTuple

from . import few_large, pdb_usage, priority_order, totals, victim_units
from .budget_uses import BudgetUses
from .eligibility import Eligibility
from .node_fit import CombinedDemand, MissingCapacity, RemainingCapacity
from .node_status import DryRunStatus
from .snapshot import GangKey, ScheduledPod
from .victim_units import Selection, SortKey, VictimUnit

MAX_EXACT_UNITS = 10
"""Units of which all sets are compared: at most 1,023."""
MAX_EXACT_BUDGET_USES = 200
"""Budgets of all pods of these units together: counted for each set that is enough. Without this,
large gangs with many budgets would have one node searched for seconds."""

_SetKey = tuple[int, int, int]
"""The order of sets: violated budgets, loss, importance."""
_first = itemgetter(0)
_loss_and_weight = itemgetter(0, 1)
_loss_of = attrgetter("loss")


@dataclass(slots=True)
class BestSoFar:
    """What is known of the other nodes, for a caller that wants no more than the best victims."""

    loss: int | None = None
    """The least loss of victims that violate no budget; `None`: there are none yet."""


def select(
    possible: Sequence[Sequence[ScheduledPod]],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
    best: BestSoFar | None,
) -> Selection | DryRunStatus | None:
    """Return the victims; `None` if none are needed, with all pods counted in `capacity`.

    No possible victim is counted there yet; they come in groups (`alike_pods`). `spare`: how many
    pods each gang can lose. `best`: worse victims, or too many of them, are of no use.
    """
    if not capacity.fits:
        return DryRunStatus.TOO_SMALL if possible else DryRunStatus.NO_VICTIMS
    for pods in possible:
        capacity.add_alike(pods)
    return None if capacity.fits else _choose(possible, spare, demand, capacity, eligibility, best)


def _choose(
    possible: Sequence[Sequence[ScheduledPod]],
    spare: Mapping[GangKey, int],
    demand: CombinedDemand,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
    best: BestSoFar | None,
) -> Selection | DryRunStatus | None:
    """Return the victims, which are needed: all pods are counted in `capacity`."""
    missing = capacity.missing()
    if best is not None and _are_clearly_worse(possible, missing, capacity, eligibility, best):
        return DryRunStatus.LOSES_MORE
    units = victim_units.units_of(_first_of_each(possible, eligibility), eligibility)
    released = capacity.released_by([unit.on_node for unit in units], missing)
    least = _least_number(released, missing)
    most_loss = None if best is None else best.loss
    if most_loss is not None and _lose_more(units, released, missing, least, most_loss):
        return DryRunStatus.LOSES_MORE
    every = [pod for pods in possible for pod in pods]
    found: Selection | None = None
    is_within_limit = least <= eligibility.snapshot.settings.max_victims
    if is_within_limit and _are_of_one_size(released, spare, eligibility):
        found = _select_of_one_size(units, least, eligibility)
    elif is_within_limit and _are_few(units, eligibility.budget_uses):
        found = _Search(units, released, missing, eligibility, spare).run(most_loss)
    elif is_within_limit:
        without = capacity.copy()
        without.remove_pods(*every)
        found = _select_greedily(every, spare, demand, without, eligibility)
    if found is not None:
        return found
    if best is not None and (best.loss is not None or not spare):
        return DryRunStatus.TOO_MANY_VICTIMS if best.loss is None else DryRunStatus.LOSES_MORE
    # Any set is beyond `maxVictims`, and the decision is rejected, whatever the victims lose.
    capacity.remove_pods(*every)
    return priority_order.choose(every, spare, demand, capacity, eligibility)


def _are_clearly_worse(
    possible: Sequence[Sequence[ScheduledPod]],
    missing: MissingCapacity,
    capacity: RemainingCapacity,
    eligibility: Eligibility,
    best: BestSoFar,
) -> bool:
    """True if the fewest victims, each at the least loss of any, lose more: for most nodes."""
    if best.loss is None:
        return False
    now = eligibility.snapshot.now
    least_loss = min([totals.loss_of(pods[0], now) for pods in possible])
    if least_loss > best.loss:
        return True
    released = capacity.released_by([pods[:1] for pods in possible], missing)
    return least_loss * _least_number(released, missing) > best.loss


def _first_of_each(
    possible: Sequence[Sequence[ScheduledPod]], eligibility: Eligibility
) -> list[ScheduledPod]:
    """Return the pods that may be in the first set: of alike pods, as many as may be victims."""
    budgets, most = eligibility.snapshot.budgets, eligibility.snapshot.settings.max_victims
    return [
        pod for pods in possible for pod in (pods if pods[0].namespace in budgets else pods[:most])
    ]


def _are_of_one_size(
    released: Sequence[tuple[int, ...]], spare: Mapping[GangKey, int], eligibility: Eligibility
) -> bool:
    """True if any unit may take the place of any other."""
    return not spare and not eligibility.snapshot.budgets and len(set(released)) == 1


def _are_few(units: Sequence[VictimUnit], uses: BudgetUses) -> bool:
    """True if all sets of these units can be compared."""
    if len(units) > MAX_EXACT_UNITS:
        return False
    if uses.are_none:
        return True
    runs = (run for unit in units for run in uses.runs_of(unit.members))
    return sum(len(run.budgets) * run.pods for run in runs) <= MAX_EXACT_BUDGET_USES


def _select_of_one_size(
    units: Sequence[VictimUnit], least: int, eligibility: Eligibility
) -> Selection:
    """Return the first set of units that all release the same: a short way, for many nodes."""
    order, now = _importance(units), eligibility.snapshot.now
    ranked = sorted([(order(unit, now), unit) for unit in units], key=_first, reverse=True)
    ranked.sort(key=_loss_of_ranked)
    victims = sorted(ranked[:least], key=_first)
    return Selection(tuple([unit for _, unit in victims]), 0)


def _loss_of_ranked(ranked: tuple[SortKey, VictimUnit]) -> int:
    return ranked[1].loss


def _least_number(released: Sequence[tuple[int, ...]], missing: MissingCapacity) -> int:
    """Return the number of victims below which no set is enough."""
    # All of them together are enough, so each missing resource is released by at least one.
    largest: list[int] = [max(column) for column in zip(*released, strict=True)]
    return max([-(-amount // most) for (_, amount), most in zip(missing, largest, strict=True)])


def _lose_more(
    units: Sequence[VictimUnit],
    released: Sequence[tuple[int, ...]],
    missing: MissingCapacity,
    least: int,
    most_loss: int,
) -> bool:
    """True if any set certainly loses more: a cheap check before the search."""
    if sum(sorted([unit.loss for unit in units])[:least]) > most_loss:
        return True
    # Losses are whole numbers; the bound is not exact.
    return len(set(released)) > 1 and _least_loss(units, released, missing) >= most_loss + 1


def _least_loss(
    units: Sequence[VictimUnit], released: Sequence[tuple[int, ...]], missing: MissingCapacity
) -> float:
    """Return a loss below which no set is enough: as if units could go in parts."""
    return max(
        _least_loss_for(
            amount, [(row[column], unit.loss) for row, unit in zip(released, units, strict=True)]
        )
        for column, (_, amount) in enumerate(missing)
    )


def _least_loss_for(missing: int, parts: Sequence[tuple[int, int]]) -> float:
    """Return it for one resource; each part releases an amount, and has a loss."""
    total = 0.0
    for amount, loss in sorted(
        [part for part in parts if part[0]], key=lambda part: part[1] / part[0]
    ):
        total += loss * min(1.0, max(0, missing) / amount)
        missing -= amount
    return total


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
        self._max_victims = eligibility.snapshot.settings.max_victims
        self._budget_uses, self._spare = eligibility.budget_uses, spare
        self._missing = tuple([amount for _, amount in missing])
        self._largest = [max(column) for column in zip(*released, strict=True)]
        weights = _weights(units, eligibility)
        has_limits = bool(spare) or not self._budget_uses.are_none
        self._items = [
            _Item(unit.loss, weight, row, unit, not (has_limits and self._is_limited(unit)))
            for unit, row, weight in zip(units, released, weights, strict=True)
        ]
        self._items.sort(key=_loss_and_weight)
        self._best: tuple[_SetKey, Sequence[_Item]] | None = None
        self._most_loss: int | None = None

    def run(self, most_loss: int | None) -> Selection | None:
        """Return the first set of at most `maxVictims` units; `None`: there is none.

        `most_loss`: a set that loses more does not matter.
        """
        self._most_loss = most_loss
        self._extend(0, (), self._missing, 0, self._max_victims)
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
        return all(lack <= most * left for lack, most in zip(missing, self._largest, strict=True))

    def _offer(self, items: tuple[_Item, ...], loss: int) -> None:
        """Keep the set if it comes before the best one."""
        if self._spare and not _is_spared(self._spare, items):
            return
        ordered = sorted(items, key=lambda item: -item.weight)
        violations = pdb_usage.violations_of([item.unit for item in ordered], self._budget_uses)
        key = violations, loss, sum([item.weight for item in items])
        if self._best is None or key < self._best[0]:
            self._best = key, ordered
            if violations == 0:
                self._most_loss = loss

    def _is_limited(self, unit: VictimUnit) -> bool:
        """True for a unit that a budget covers, or whose gang can spare only some of its pods."""
        return unit.members[0].gang in self._spare or any(
            run.budgets for run in self._budget_uses.runs_of(unit.members)
        )


def _is_spared(spare: Mapping[GangKey, int], items: Iterable[_Item]) -> bool:
    """True if no gang that is disrupted one by one loses more pods than it can spare."""
    lost = Counter(item.unit.members[0].gang for item in items)
    return all(lost[gang] <= number for gang, number in spare.items())


def _importance(units: Iterable[VictimUnit]) -> Callable[[VictimUnit, datetime], SortKey]:
    """Return the order of `victimOrder: priority`, the most important first."""
    for unit in units:
        for pod in unit.on_node:
            if pod.states_preferences:
                return victim_units.costliest_first
    return victim_units.scheduler_order


def _weights(units: Sequence[VictimUnit], eligibility: Eligibility) -> list[int]:
    """Return a power of two for each unit, the highest for the most important."""
    order, now = _importance(units), eligibility.snapshot.now
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
) -> Selection | None:
    """Return the best of a few sets; no possible victim is counted in `capacity`, which changes.

    `None` if all have more than `maxVictims` units.
    """
    snapshot = eligibility.snapshot
    units = victim_units.units_of(possible, eligibility)
    numbers = _weights(units, eligibility)
    weights = {_uid(unit): weight for unit, weight in zip(units, numbers, strict=True)}
    attempts: Iterable[tuple[Sequence[ScheduledPod], RemainingCapacity]] = (
        victim_units.beside_needed_members(
            possible,
            spare,
            capacity,
            lambda pod: victim_units.loss_as_member(pod, snapshot.now),
        )
        if spare
        else [(possible, capacity)]
    )

    def reprieve(
        rest: Sequence[ScheduledPod],
        left: RemainingCapacity,
        loss: Callable[[VictimUnit], float],
    ) -> Selection:
        uids = {pod.uid for pod in rest}
        ranked: list[tuple[SortKey, VictimUnit]] = [
            ((-loss(unit), -weights[_uid(unit)]), unit) for unit in units if _uid(unit) in uids
        ]
        return priority_order.reprieve_units(ranked, left.copy(), eligibility)

    def loss_for_size(unit: VictimUnit) -> float:
        return unit.loss / (victim_units.share_of(unit, demand.amounts) or 1.0)

    def key(units: Sequence[VictimUnit]) -> _SetKey:
        weight = sum(weights[_uid(unit)] for unit in units)
        return (
            pdb_usage.violations_of(units, eligibility.budget_uses),
            sum(map(_loss_of, units)),
            weight,
        )

    results = (
        *(
            reprieve(rest, left, loss)
            for rest, left in attempts
            for loss in (_loss_of, loss_for_size)
        ),
        priority_order.choose(possible, spare, demand, capacity.copy(), eligibility),
    )
    sets = [
        sorted(result.units, key=lambda unit: -weights[_uid(unit)])
        for result in results
        if isinstance(result, Selection) and len(result.units) <= snapshot.settings.max_victims
    ]
    if not sets:
        return few_large.select(possible, spare, capacity, eligibility, _loss_of)
    best = min(sets, key=key)
    return Selection(tuple(best), key(best)[0])


def _uid(unit: VictimUnit) -> str:
    """Return what identifies a unit on its node."""
    return unit.on_node[0].uid
