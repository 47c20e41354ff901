"""Who may preempt a pod, and from when: for a person (`reprieve explain`).

Asked of `why_not`, for preemptors of every class, so that what is explained is what would be decided.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reprieve_policy.config.preemption_class import HIGHEST, LOWEST
from reprieve_policy.config.toleration import VictimToleration

from . import Refusal, RefusalReason, refusal_for
from .eligibility import Eligibility
from .snapshot import PodDemand, Preemptor, ScheduledPod, Snapshot

_HIGHEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleratedPriorities:
    """Preemptors of a priority below `minimum` are refused (document 002) until then; `None`: for as long as it lives."""

    minimum: int
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimExplanation:
    """Of whom a pod may be a victim."""

    preemption_class: int
    preemptor_classes: tuple[int, ...]
    """Once nothing protects it any more; empty where that is never."""
    preemption_priority: int
    """Only a higher priority preempts it."""
    protected_by: Refusal | None
    """On what everybody is refused now, whatever its class and priority."""
    until: datetime | None
    """When that ends; `None`: not with time."""
    tolerated: ToleratedPriorities | None


def explain_victim(tenant: ScheduledPod, scene: Snapshot) -> VictimExplanation:
    """Return who may preempt the tenant."""
    protected, until = _ask(HIGHEST, tenant, scene), _completion_of(tenant, scene)
    if until is not None:
        scene = replace(scene, now=until)
    return VictimExplanation(
        preemption_class=tenant.preemption_class,
        preemptor_classes=tuple(
            value for value in range(LOWEST, HIGHEST + 1) if _ask(value, tenant, scene) is None
        ),
        preemption_priority=tenant.preemption_priority,
        protected_by=protected,
        until=until,
        tolerated=_tolerated(tenant.toleration, tenant.preemption_priority, scene.now),
    )


def _ask(preemption_class: int, tenant: ScheduledPod, scene: Snapshot) -> Refusal | None:
    """Ask for a preemptor that nobody's priority holds against: the highest class is refused for other grounds only."""
    return refusal_for(_preemptor(preemption_class, tenant), tenant, scene)


def _preemptor(preemption_class: int, tenant: ScheduledPod) -> Preemptor:
    guest = PodDemand(uid="", priority=max(_HIGHEST_PRIORITY, tenant.preemption_priority + 1))
    return Preemptor(demand=guest, preemption_class=preemption_class, quota=tenant.quota)


def _completion_of(tenant: ScheduledPod, scene: Snapshot) -> datetime | None:
    """Return when who is let finish has: the pod, or the last of a gang that goes as a whole; `None` where nobody is."""
    court = Eligibility(_preemptor(HIGHEST, tenant), scene)
    ground, group = court.reason(tenant), court.evicted_gang(tenant)
    if ground is RefusalReason.GANG and group is not None:
        tenant, ground = court.protecting_member(group) or (tenant, ground)
    if ground is not RefusalReason.NEAR_COMPLETION:
        return None
    assert tenant.progress.walltime is not None
    return scene.now + timedelta(seconds=tenant.progress.walltime.left(scene.now))


def _tolerated(
    candidate: VictimToleration, defence: int, now: datetime
) -> ToleratedPriorities | None:
    """Return which preemptors the tenant's PriorityClass refuses, and until when."""
    found, since = candidate.policy, candidate.scheduled_at
    # Nobody below the pod's own priority would preempt it anyway.
    if (
        not candidate.has_priority_class
        or found is None
        or found.minimum_preemptable_priority <= defence + 1
    ):
        return None
    if found.seconds < 0 or since is None:
        return ToleratedPriorities(minimum=found.minimum_preemptable_priority, until=None)
    until = since + timedelta(seconds=found.seconds)
    return (
        ToleratedPriorities(minimum=found.minimum_preemptable_priority, until=until)
        if now < until
        else None
    )
