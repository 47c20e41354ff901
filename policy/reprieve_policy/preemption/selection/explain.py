"""Which preemptors may take a pod, and from when; why a pod takes no victims: for `explain`.

Calls `refusal_for` with preemptors of every class, so that the explanation matches the decision.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reprieve_policy.config.preemption_class import HIGHEST, LOWEST
from reprieve_policy.config.toleration import VictimToleration

from . import REASON_MESSAGES, Refusal, RefusalReason, refusal_for
from .eligibility import Eligibility
from .snapshot import PodDemand, Preemptor, ScheduledPod, Snapshot

_HIGHEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleratedPriorities:
    """Lower priorities than `minimum` are refused until then; `None`: while the pod lives (002)."""

    minimum: int
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimExplanation:
    """Which preemptors may take a pod."""

    preemption_class: int
    preemptor_classes: tuple[int, ...]
    """Once nothing protects it any more; empty if it is always protected."""
    preemption_priority: int
    """Only a higher priority preempts it."""
    protected_by: Refusal | None
    """Why every preemptor is refused now, whatever its class and priority."""
    until: datetime | None
    """When that ends; `None`: not with time."""
    tolerated: ToleratedPriorities | None


def explain_victim(pod: ScheduledPod, snapshot: Snapshot) -> VictimExplanation:
    """Return which preemptors may take the pod."""
    protected, until = _refusal_of_class(HIGHEST, pod, snapshot), _completion_of(pod, snapshot)
    if until is not None:
        snapshot = replace(snapshot, now=until)
    return VictimExplanation(
        preemption_class=pod.preemption_class,
        preemptor_classes=tuple(
            value
            for value in range(LOWEST, HIGHEST + 1)
            if _refusal_of_class(value, pod, snapshot) is None
        ),
        preemption_priority=pod.preemption_priority,
        protected_by=protected,
        until=until,
        tolerated=_tolerated(pod.toleration, pod.preemption_priority, snapshot.now),
    )


def explain_preemptor(preemptor: Preemptor, snapshot: Snapshot) -> Refusal | None:
    """Return why the preemptor takes no victims at all, `None` if it may take some."""
    reason = Eligibility(preemptor, snapshot).pod_eligibility.preemptor_reason()
    return None if reason is None else Refusal(reason, REASON_MESSAGES[reason])


def _refusal_of_class(
    preemption_class: int, pod: ScheduledPod, snapshot: Snapshot
) -> Refusal | None:
    """Return why a preemptor of that class and of the highest priority is refused, if it is."""
    return refusal_for(_preemptor(preemption_class, pod), pod, snapshot)


def _preemptor(preemption_class: int, pod: ScheduledPod) -> Preemptor:
    demand = PodDemand(uid="", priority=max(_HIGHEST_PRIORITY, pod.preemption_priority + 1))
    return Preemptor(demand=demand, preemption_class=preemption_class, quota=pod.quota)


def _completion_of(pod: ScheduledPod, snapshot: Snapshot) -> datetime | None:
    """Return when the pod, or the last of a gang evicted as a unit, completes.

    `None` if none of them is nearly complete.
    """
    eligibility = Eligibility(_preemptor(HIGHEST, pod), snapshot)
    reason, gang = eligibility.reason(pod), eligibility.evicted_gang(pod)
    if reason is RefusalReason.GANG and gang is not None:
        pod, reason = eligibility.protecting_member(gang) or (pod, reason)
    if reason is not RefusalReason.NEAR_COMPLETION:
        return None
    assert pod.progress.walltime is not None
    return snapshot.now + timedelta(seconds=pod.progress.walltime.left(snapshot.now))


def _tolerated(
    toleration: VictimToleration, preemption_priority: int, now: datetime
) -> ToleratedPriorities | None:
    """Return which preemptors the pod's PriorityClass refuses, and until when."""
    policy, since = toleration.policy, toleration.scheduled_at
    # A lower priority than the pod's own would not preempt it anyway.
    if (
        not toleration.has_priority_class
        or policy is None
        or policy.minimum_preemptable_priority <= preemption_priority + 1
    ):
        return None
    if policy.seconds < 0 or since is None:
        return ToleratedPriorities(minimum=policy.minimum_preemptable_priority, until=None)
    until = since + timedelta(seconds=policy.seconds)
    return (
        ToleratedPriorities(minimum=policy.minimum_preemptable_priority, until=until)
        if now < until
        else None
    )
