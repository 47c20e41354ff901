"""What goes or stays as one: a pod, or a gang that goes as a whole. And which of them matter more.

Mirrors kube-scheduler 1.37 `MoreImportantVictim` where nobody says anything of its preemption: priority, gangs before single
pods, larger gangs before smaller, whoever has run longest. Where somebody does, class and cost go before age (document 001).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.preemption import cost

from .eligibility import Court
from .snapshot import Group, GroupKey, Tenant

Rank = tuple[float | datetime | str, ...]
"""The most important first. At last a uid, so that whoever is asked the same says the same."""


class Unit(NamedTuple):
    """A victim, as a decision counts them."""

    here: tuple[Tenant, ...]
    """Of it, on the node that is looked at."""
    members: tuple[Tenant, ...]
    """All of it, wherever they run."""
    group: GroupKey | None
    """Of a gang that goes as a whole."""
    priority: int
    """That it is defended with."""


def of(tenants: Iterable[Tenant], court: Court) -> list[Unit]:
    """Return the units of pods on one node that may be victims."""
    units: list[Unit] = []
    wholes: dict[GroupKey, tuple[Group, list[Tenant]]] = {}
    for tenant in tenants:
        group = None if tenant.group is None else court.whole(tenant)
        if group is None:
            units.append(Unit((tenant,), (tenant,), None, tenant.defence))
        else:
            wholes.setdefault(group.key, (group, []))[1].append(tenant)
    for group, here in wholes.values():
        members = court.members(group)
        priority = max(member.defence for member in members)
        units.append(Unit(tuple(here), members, group.key, priority))
    return units


def upstreams(unit: Unit, now: datetime) -> Rank:
    """Rank a unit as kube-scheduler does."""
    if unit.group is None:
        pod = unit.members[0]
        return -unit.priority, 0, 0, pod.work.started_at or now, pod.uid
    return -unit.priority, -1, -len(unit.members), age(unit.members, now), _uid(unit)


def dearest(unit: Unit, now: datetime) -> Rank:
    """Rank the dearest of a class first, so that the cheapest go."""
    stated, estimated = cost_of(unit.members, now)
    return -unit.priority, -bool(unit.group), -_class(unit), -stated, -estimated, age(unit.members, now), _uid(unit)


def smallest(unit: Unit, wanted: Mapping[str, int], now: datetime) -> Rank:
    """Rank the smallest of a class first, so that few large ones go rather than many small ones."""
    share = sum([tenant.amounts.get(name, 0) / amount for tenant in unit.here for name, amount in wanted.items()])
    return -unit.priority, -bool(unit.group), -_class(unit), share, age(unit.members, now), _uid(unit)


def age(pods: Sequence[Tenant], now: datetime) -> datetime:
    """Return when the first of the pods started; who has not yet starts now, as in kube-scheduler."""
    if len(pods) == 1:
        return pods[0].work.started_at or now
    return min(pod.work.started_at or now for pod in pods)


def cost_of(pods: Sequence[Tenant], now: datetime) -> tuple[int, float]:
    """Return what the pods cost together; see `cost.order_of`."""
    if len(pods) == 1:
        return cost.order_of(pods[0].stake, pods[0].work, now)
    stated, estimated = zip(*(cost.order_of(pod.stake, pod.work, now) for pod in pods), strict=True)
    return sum(stated), sum(estimated)


def _class(unit: Unit) -> int:
    if len(unit.members) == 1:
        return unit.members[0].preemption_class
    return max(member.preemption_class for member in unit.members)


def _uid(unit: Unit) -> str:
    return min([member.uid for member in unit.members])
