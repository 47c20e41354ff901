"""What goes or stays as one: a pod, or a gang that goes as a whole. And which of them matter more.

Mirrors kube-scheduler 1.37 `MoreImportantVictim` where nobody says anything of its preemption: priority, gangs before single
pods, larger gangs before smaller, whoever has run longest. Where somebody does, class and cost go before age (document 001).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.preemption import cost

from .eligibility import Eligibility
from .snapshot import GangInfo, GangKey, ScheduledPod

SortKey = tuple[float | datetime | str, ...]
"""The most important first. At last a uid, so that whoever is asked the same says the same."""


class VictimUnit(NamedTuple):
    """A victim, as a decision counts them."""

    on_node: tuple[ScheduledPod, ...]
    """Of it, on the node that is looked at."""
    members: tuple[ScheduledPod, ...]
    """All of it, wherever they run."""
    gang: GangKey | None
    """Of a gang that goes as a whole."""
    priority: int
    """That it is defended with."""


def units_of(tenants: Iterable[ScheduledPod], court: Eligibility) -> list[VictimUnit]:
    """Return the units of pods on one node that may be victims."""
    units: list[VictimUnit] = []
    wholes: dict[GangKey, tuple[GangInfo, list[ScheduledPod]]] = {}
    for tenant in tenants:
        group = None if tenant.gang is None else court.evicted_gang(tenant)
        if group is None:
            units.append(VictimUnit((tenant,), (tenant,), None, tenant.preemption_priority))
        else:
            wholes.setdefault(group.key, (group, []))[1].append(tenant)
    for group, here in wholes.values():
        members = court.affected_members(group)
        priority = max(member.preemption_priority for member in members)
        units.append(VictimUnit(tuple(here), members, group.key, priority))
    return units


def scheduler_order(unit: VictimUnit, now: datetime) -> SortKey:
    """Rank a unit as kube-scheduler does."""
    if unit.gang is None:
        pod = unit.members[0]
        return -unit.priority, 0, 0, pod.progress.started_at or now, pod.uid
    return -unit.priority, -1, -len(unit.members), earliest_start(unit.members, now), _uid(unit)


def costliest_first(unit: VictimUnit, now: datetime) -> SortKey:
    """Rank the dearest of a class first, so that the cheapest go."""
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
    """Rank the smallest of a class first, so that few large ones go rather than many small ones."""
    share = sum(
        [
            tenant.amounts.get(name, 0) / amount
            for tenant in unit.on_node
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
    """Return when the first of the pods started; who has not yet starts now, as in kube-scheduler."""
    if len(pods) == 1:
        return pods[0].progress.started_at or now
    return min(pod.progress.started_at or now for pod in pods)


def total_cost(pods: Sequence[ScheduledPod], now: datetime) -> tuple[int, float]:
    """Return what the pods cost together; see `cost.order_of`."""
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
