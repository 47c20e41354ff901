"""Units of eviction, a pod or a gang evicted as a unit, and their order of importance.

Mirrors kube-scheduler 1.37 `MoreImportantVictim` if no pod states preferences: priority, gangs
before single pods, larger gangs before smaller, the longest running first. If one does, class and
cost come before age (document 001).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.preemption import cost

from .eligibility import Eligibility
from .snapshot import GangInfo, GangKey, ScheduledPod

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


def units_of(pods: Iterable[ScheduledPod], eligibility: Eligibility) -> list[VictimUnit]:
    """Return the units of the possible victims on one node."""
    units: list[VictimUnit] = []
    gangs_as_units: dict[GangKey, tuple[GangInfo, list[ScheduledPod]]] = {}
    for pod in pods:
        gang = None if pod.gang is None else eligibility.evicted_gang(pod)
        if gang is None:
            units.append(VictimUnit((pod,), (pod,), None, pod.preemption_priority))
        else:
            gangs_as_units.setdefault(gang.key, (gang, []))[1].append(pod)
    for gang, here in gangs_as_units.values():
        members = eligibility.affected_members(gang)
        priority = max(member.preemption_priority for member in members)
        units.append(VictimUnit(tuple(here), members, gang.key, priority))
    return units


def scheduler_order(unit: VictimUnit, now: datetime) -> SortKey:
    """Order units as kube-scheduler does."""
    if unit.gang is None:
        pod = unit.members[0]
        return -unit.priority, 0, 0, pod.progress.started_at or now, pod.uid
    return -unit.priority, -1, -len(unit.members), earliest_start(unit.members, now), _uid(unit)


def costliest_first(unit: VictimUnit, now: datetime) -> SortKey:
    """Order the costliest of a class first, so that the cheapest are evicted."""
    stated, estimated = total_cost(unit.members, now)
    return (
        -unit.priority,
        -bool(unit.gang),
        -_class(unit),
        -stated,
        -estimated,
        earliest_start(unit.members, now),
        _uid(unit),
    )


def smallest_first(unit: VictimUnit, wanted: Mapping[str, int], now: datetime) -> SortKey:
    """Order the smallest of a class first, so that few large units are evicted."""
    share = sum(
        [
            pod.amounts.get(name, 0) / amount
            for pod in unit.on_node
            for name, amount in wanted.items()
        ]
    )
    return (
        -unit.priority,
        -bool(unit.gang),
        -_class(unit),
        share,
        earliest_start(unit.members, now),
        _uid(unit),
    )


def earliest_start(pods: Sequence[ScheduledPod], now: datetime) -> datetime:
    """Return when the first pod started; an unstarted one starts now, as upstream."""
    if len(pods) == 1:
        return pods[0].progress.started_at or now
    return min(pod.progress.started_at or now for pod in pods)


def total_cost(pods: Sequence[ScheduledPod], now: datetime) -> tuple[int, float]:
    """Return what the pods cost together; see `cost.sort_key_of`."""
    if len(pods) == 1:
        return cost.sort_key_of(pods[0].cost_inputs, pods[0].progress, now)
    stated, estimated = zip(
        *(cost.sort_key_of(pod.cost_inputs, pod.progress, now) for pod in pods), strict=True
    )
    return sum(stated), sum(estimated)


def _class(unit: VictimUnit) -> int:
    if len(unit.members) == 1:
        return unit.members[0].preemption_class
    return max(member.preemption_class for member in unit.members)


def _uid(unit: VictimUnit) -> str:
    return min([member.uid for member in unit.members])
