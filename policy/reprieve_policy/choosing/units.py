"""What goes or stays as one: a pod, or a gang that goes as a whole. And which of them matter more.

Mirrors kube-scheduler 1.37 `MoreImportantVictim` where nobody says anything of its preemption: priority, gangs before single
pods, larger gangs before smaller, whoever has run longest. Where somebody does, class and cost go before age (document 001).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.cost import Cost

from .court import Court
from .scene import Group, GroupKey, Tenant

Rank = tuple[float, ...]
"""The most important first."""


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
        group = court.whole(tenant)
        if group is None:
            units.append(Unit((tenant,), (tenant,), None, tenant.defence))
        else:
            wholes.setdefault(group.key, (group, []))[1].append(tenant)
    for group, here in wholes.values():
        priority = max(member.defence for member in group.members)
        units.append(Unit(tuple(here), tuple(group.members), group.key, priority))
    return units


def upstreams(unit: Unit, now: datetime) -> Rank:
    """Rank a unit as kube-scheduler does."""
    size = 0 if unit.group is None else len(unit.members)
    return -unit.priority, -bool(unit.group), -size, age(unit.members, now)


def dearest(unit: Unit, now: datetime) -> Rank:
    """Rank the dearest of a class first, so that the cheapest go."""
    stated, hours = total(costs(unit.members, now))
    return -unit.priority, -bool(unit.group), -_class(unit), -stated, -hours, age(unit.members, now)


def smallest(unit: Unit, wanted: Mapping[str, int], now: datetime) -> Rank:
    """Rank the smallest of a class first, so that few large ones go rather than many small ones."""
    share = sum(tenant.amounts.get(name, 0) / amount for tenant in unit.here for name, amount in wanted.items())
    return -unit.priority, -bool(unit.group), -_class(unit), share, age(unit.members, now)


def age(pods: Iterable[Tenant], now: datetime) -> float:
    """Return when the first of the pods started; who has not yet starts now, as in kube-scheduler."""
    return min((pod.work.started_at or now for pod in pods), default=now).timestamp()


def costs(pods: Iterable[Tenant], now: datetime) -> list[Cost]:
    """Return what each of the pods costs."""
    return [pod.cost(now) for pod in pods]


def total(found: Sequence[Cost]) -> tuple[int, float]:
    """Return all costs together, in the order of `Cost.order`."""
    return sum(cost.stated for cost in found), sum(cost.hours for cost in found)


def _class(unit: Unit) -> int:
    return max(member.preemption_class for member in unit.members)
