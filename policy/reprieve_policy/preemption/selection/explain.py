"""Who may preempt a pod, and from when: for a person (`reprieve explain`).

Asked of `why_not`, for preemptors of every class, so that what is explained is what would be decided.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reprieve_policy.config.preemption_class import HIGHEST, LOWEST
from reprieve_policy.config.toleration import Candidate

from . import Ground, Refusal, why_not
from .eligibility import Court
from .snapshot import Guest, Preemptor, Scene, Tenant

_HIGHEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerated:
    """Preemptors of a priority below `minimum` are refused (document 002) until then; `None`: for as long as it lives."""

    minimum: int
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """Of whom a pod may be a victim."""

    preemption_class: int
    preemptor_classes: tuple[int, ...]
    """Once nothing protects it any more; empty where that is never."""
    preemption_priority: int
    """Only a higher priority preempts it."""
    protected: Refusal | None
    """On what everybody is refused now, whatever its class and priority."""
    until: datetime | None
    """When that ends; `None`: not with time."""
    tolerated: Tolerated | None


def foretell(tenant: Tenant, scene: Scene) -> Prospect:
    """Return who may preempt the tenant."""
    protected, until = _ask(HIGHEST, tenant, scene), _completion_of(tenant, scene)
    if until is not None:
        scene = replace(scene, now=until)
    return Prospect(
        preemption_class=tenant.preemption_class,
        preemptor_classes=tuple(value for value in range(LOWEST, HIGHEST + 1) if _ask(value, tenant, scene) is None),
        preemption_priority=tenant.defence,
        protected=protected,
        until=until,
        tolerated=_tolerated(tenant.toleration, tenant.defence, scene.now),
    )


def _ask(preemption_class: int, tenant: Tenant, scene: Scene) -> Refusal | None:
    """Ask for a preemptor that nobody's priority holds against: the highest class is refused for other grounds only."""
    return why_not(_preemptor(preemption_class, tenant), tenant, scene)


def _preemptor(preemption_class: int, tenant: Tenant) -> Preemptor:
    guest = Guest(uid="", priority=max(_HIGHEST_PRIORITY, tenant.defence + 1))
    return Preemptor(guest=guest, preemption_class=preemption_class, quota=tenant.quota)


def _completion_of(tenant: Tenant, scene: Scene) -> datetime | None:
    """Return when who is let finish has: the pod, or the last of a gang that goes as a whole; `None` where nobody is."""
    court = Court(_preemptor(HIGHEST, tenant), scene)
    ground, group = court.ground(tenant), court.whole(tenant)
    if ground is Ground.GANG and group is not None:
        tenant, ground = court.protector(group) or (tenant, ground)
    if ground is not Ground.NEAR_COMPLETION:
        return None
    assert tenant.work.walltime is not None
    return scene.now + timedelta(seconds=tenant.work.walltime.left(scene.now))


def _tolerated(candidate: Candidate, defence: int, now: datetime) -> Tolerated | None:
    """Return which preemptors the tenant's PriorityClass refuses, and until when."""
    found, since = candidate.toleration, candidate.scheduled_at
    # Nobody below the pod's own priority would preempt it anyway.
    if not candidate.has_priority_class or found is None or found.minimum_preemptable_priority <= defence + 1:
        return None
    if found.seconds < 0 or since is None:
        return Tolerated(minimum=found.minimum_preemptable_priority, until=None)
    until = since + timedelta(seconds=found.seconds)
    return Tolerated(minimum=found.minimum_preemptable_priority, until=until) if now < until else None
