"""Units of eviction, a pod or a gang evicted as a unit, and their order of importance.

Mirrors kube-scheduler 1.37 `MoreImportantVictim` if no pod states preferences: priority, gangs
before single pods, larger gangs before smaller, the longest running first. If one does, class and
cost come before age (document 001).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from reprieve_policy.config.settings import LOSS

from . import totals
from .eligibility import Eligibility
from .node_fit import RemainingCapacity
from .snapshot import GangInfo, GangKey, ScheduledPod
from .totals import GangTotals

SortKey = tuple[float | datetime | str, ...]
"""The most important first. The last element is a uid, so that equal inputs give equal results."""


class VictimUnit(NamedTuple):
    """A victim, as a decision counts them."""

    on_node: tuple[ScheduledPod, ...]
    """Its pods on the evaluated node."""
    members: tuple[ScheduledPod, ...]
    """All of its pods, wherever they run."""
    gang: GangKey | None
    """The key of a gang evicted as a unit."""
    priority: int
    """The priority that it is defended with."""
    loss: int = 0
    """The expected loss of all its pods, in device-seconds; 0 with `victimOrder: priority`.

    Whole numbers add up exactly, and a difference of less than a second is none.
    """
    totals: GangTotals | None = None
    """Of all its pods; `None`: it is a single pod."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The victims on one node, most important first."""

    units: tuple[VictimUnit, ...]
    violations: int

    @property
    def loss(self) -> int:
        """The expected loss of all of them."""
        return sum([unit.loss for unit in self.units])


def units_of(pods: Iterable[ScheduledPod], eligibility: Eligibility) -> list[VictimUnit]:
    """Return the units of the possible victims on one node."""
    units: list[VictimUnit] = []
    now = eligibility.snapshot.now
    by_loss = eligibility.snapshot.settings.victim_order == LOSS
    gangs_as_units: dict[GangKey, tuple[GangInfo, list[ScheduledPod]]] = {}
    for pod in pods:
        gang = None if pod.gang is None else eligibility.evicted_gang(pod)
        if gang is None:
            own = (pod,)
            lost = totals.loss_of(pod, now) if by_loss else 0
            units.append(VictimUnit(own, own, None, pod.preemption_priority, lost))
        else:
            gangs_as_units.setdefault(gang.key, (gang, []))[1].append(pod)
    for gang, here in gangs_as_units.values():
        its = eligibility.totals_of(gang)
        lost = its.loss if by_loss else 0
        units.append(VictimUnit(tuple(here), its.members, gang.key, its.priority, lost, its))
    return units


def beside_needed_members(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    capacity: RemainingCapacity,
    order: Callable[[ScheduledPod], SortKey],
) -> Iterator[tuple[list[ScheduledPod], RemainingCapacity]]:
    """Yield which pods may go, and the room beside those that their gangs need.

    Once with the first needed by `order`, and once with the smallest. Without the second, a gang of
    a large and a tiny pod that may lose one of them would keep its large one from all preemptors.
    `spare`: how many pods each gang can lose. Nothing where not enough of them fit.
    """
    sizes = sizes_of(possible, capacity)
    for by in (order, lambda pod: (sizes[pod.uid], *order(pod))):
        left = capacity.copy()
        kept = keep_needed_members(possible, spare, left, by)
        if kept is not None:
            yield without(possible, kept), left


def keep_needed_members(
    possible: Iterable[ScheduledPod],
    spare: Mapping[GangKey, int],
    capacity: RemainingCapacity,
    order: Callable[[ScheduledPod], SortKey],
) -> list[ScheduledPod] | None:
    """Return the pods that their gangs need, though each could lose one; count them in `capacity`.

    The first by `order` that fit beside the demand, whatever their gangs; `None` if not enough fit.
    """
    of_gangs = [pod for pod in possible if pod.gang in spare]
    needed = Counter(pod.gang for pod in of_gangs)
    needed.subtract(spare)
    kept: list[ScheduledPod] = []
    for pod in sorted(of_gangs, key=order):
        if needed[pod.gang] and capacity.try_add((pod,)):
            needed[pod.gang] -= 1
            kept.append(pod)
    if not any(needed.values()):
        return kept
    capacity.remove_pods(*kept)
    return None


def without(pods: Iterable[ScheduledPod], kept: Iterable[ScheduledPod]) -> list[ScheduledPod]:
    """Return the pods that are not kept."""
    uids = {pod.uid for pod in kept}
    return [pod for pod in pods if pod.uid not in uids]


def sizes_of(pods: Sequence[ScheduledPod], capacity: RemainingCapacity) -> Mapping[str, float]:
    """Return by uid how much of what is missing with all of them each pod releases.

    Summed over what is missing. None of them is counted in `capacity`.
    """
    with_all = capacity.copy()
    for pod in pods:
        with_all.add_pod(pod)
    missing = with_all.missing()
    if not missing:
        return dict.fromkeys([pod.uid for pod in pods], 0.0)
    released = with_all.released_by([(pod,) for pod in pods], missing)
    return {
        pod.uid: sum([amount / most for amount, (_, most) in zip(row, missing, strict=True)])
        for pod, row in zip(pods, released, strict=True)
    }


def scheduler_order(unit: VictimUnit, now: datetime) -> SortKey:
    """Order units as kube-scheduler does."""
    if unit.gang is None:
        pod = unit.members[0]
        return -unit.priority, 0, 0, pod.progress.started_at or now, pod.uid
    return -unit.priority, -1, -len(unit.members), earliest_start(unit, now), _uid(unit)


def costliest_first(unit: VictimUnit, now: datetime) -> SortKey:
    """Order the costliest of a class first, so that the cheapest are evicted."""
    stated, estimated = total_cost((unit,), now)
    return (
        -unit.priority,
        -bool(unit.gang),
        -preemption_class(unit),
        -stated,
        -estimated,
        earliest_start(unit, now),
        _uid(unit),
    )


def smallest_first(unit: VictimUnit, wanted: Mapping[str, int], now: datetime) -> SortKey:
    """Order the smallest of a class first, so that few large units are evicted."""
    return (
        -unit.priority,
        -bool(unit.gang),
        -preemption_class(unit),
        share_of(unit, wanted),
        earliest_start(unit, now),
        _uid(unit),
    )


def share_of(unit: VictimUnit, wanted: Mapping[str, int]) -> float:
    """Return how much of what is wanted the unit releases on the node, summed over resources."""
    return sum(
        [
            pod.amounts.get(name, 0) / amount
            for pod in unit.on_node
            for name, amount in wanted.items()
        ]
    )


def importance_as_member(pod: ScheduledPod, now: datetime) -> SortKey:
    """Order the pods of gangs, the most important first."""
    return -pod.preemption_priority, pod.progress.started_at or now


def loss_as_member(pod: ScheduledPod, now: datetime) -> SortKey:
    """Order the pods of gangs, the greatest loss first."""
    return -totals.loss_of(pod, now), *importance_as_member(pod, now), pod.uid


def earliest_start(unit: VictimUnit, now: datetime) -> datetime:
    """Return when the first of its pods started; an unstarted one starts now, as upstream."""
    if unit.totals is None:
        return unit.members[0].progress.started_at or now
    return unit.totals.earliest_start


def earliest_start_of_highest(unit: VictimUnit, now: datetime) -> datetime:
    """Return when the first of its pods with the highest priority started."""
    if unit.totals is None:
        return unit.members[0].progress.started_at or now
    return unit.totals.earliest_start_of_highest


def sum_of_priorities(unit: VictimUnit) -> int:
    """Return the sum of the priorities that its pods are defended with."""
    return unit.priority if unit.totals is None else unit.totals.priorities


def preemption_class(unit: VictimUnit) -> int:
    """Return the highest class of its pods."""
    if unit.totals is None:
        return unit.members[0].preemption_class
    return unit.totals.preemption_class


def total_cost(units: Sequence[VictimUnit], now: datetime) -> tuple[int, float]:
    """Return what the units cost together; see `cost.sort_key_of`."""
    if len(units) == 1:
        return _cost(units[0], now)[:2]
    stated, _, estimated = zip(*[_cost(unit, now) for unit in units], strict=True)
    # Pod by pod: a sum of sums may differ in its last digit.
    return sum(stated), sum(chain.from_iterable(estimated))


def _cost(unit: VictimUnit, now: datetime) -> tuple[int, float, Sequence[float]]:
    """Return what the unit costs, and the estimated cost of each pod."""
    its = unit.totals
    if its is None:
        stated, estimated = totals.cost_of(unit.members[0], now)
        return stated, estimated, (estimated,)
    return *its.cost, its.estimated_costs


def _uid(unit: VictimUnit) -> str:
    return unit.members[0].uid if unit.totals is None else unit.totals.uid
