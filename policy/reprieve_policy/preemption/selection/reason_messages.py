"""The refusal reasons as sentences, as the command line and the guard show them.

They contain no more of the preemptor than its priority and class: the victim's owner sees them.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from reprieve_policy.keys import CAN_PREEMPT
from reprieve_policy.kube import timestamp

from .reasons import RefusalReason
from .snapshot import Preemptor, ScheduledPod, Snapshot


class Refusal(NamedTuple):
    """Why a pod is no victim."""

    reason: RefusalReason
    detail: str
    until: datetime | None = None
    """When a toleration ends; `None` if it is unknown how long the reason holds."""


def build_refusal(
    reason: RefusalReason, preemptor: Preemptor, pod: ScheduledPod, snapshot: Snapshot
) -> Refusal:
    """Return a reason that concerns this pod itself, as a sentence."""
    message = _DETAILED_MESSAGES.get(reason)
    until = _toleration_end(pod) if reason is RefusalReason.TOLERATION else None
    return Refusal(
        reason,
        REASON_MESSAGES[reason] if message is None else message(preemptor, pod, snapshot),
        until,
    )


def _describe_priority(preemptor: Preemptor, pod: ScheduledPod, _snapshot: Snapshot) -> str:
    own, other = pod.preemption_priority, preemptor.demand.priority
    return f"it is defended with priority {own}; the preemptor's is {other}"


def _describe_completion(_preemptor: Preemptor, pod: ScheduledPod, snapshot: Snapshot) -> str:
    assert pod.progress.walltime is not None
    end = snapshot.now + timedelta(seconds=pod.progress.walltime.left(snapshot.now))
    return f"its walltime ends at {timestamp.render(end)}: it may finish"


def _describe_class(preemptor: Preemptor, pod: ScheduledPod, snapshot: Snapshot) -> str:
    mine, its, rule = preemptor.preemption_class, pod.preemption_class, snapshot.settings.class_rule
    return f"a preemptor of class {mine} takes no victim of class {its}, by the {rule} rule"


def _describe_toleration(preemptor: Preemptor, pod: ScheduledPod, _snapshot: Snapshot) -> str:
    policy, until = pod.toleration.policy, _toleration_end(pod)
    assert policy is not None
    mine, minimum = preemptor.demand.priority, policy.minimum_preemptable_priority
    refused = (
        f"its PriorityClass tolerates priorities below {minimum}, and the preemptor's is {mine}"
    )
    return refused if until is None else f"{refused}, until {timestamp.render(until)}"


def _toleration_end(pod: ScheduledPod) -> datetime | None:
    policy, since = pod.toleration.policy, pod.toleration.scheduled_at
    if policy is None or policy.seconds < 0 or since is None:
        return None
    return since + timedelta(seconds=policy.seconds)


_DETAILED_MESSAGES: Mapping[RefusalReason, Callable[[Preemptor, ScheduledPod, Snapshot], str]] = {
    RefusalReason.PRIORITY: _describe_priority,
    RefusalReason.NEAR_COMPLETION: _describe_completion,
    RefusalReason.CLASS: _describe_class,
    RefusalReason.TOLERATION: _describe_toleration,
}

REASON_MESSAGES: Mapping[RefusalReason, str] = {
    RefusalReason.EXEMPT: "the preemptor is system-critical or exempt: "
    "the scheduler's own choice stands",
    RefusalReason.NEVER_PREEMPTS: "the preemptor's preemptionPolicy is Never",
    RefusalReason.MAY_NOT_PREEMPT: f"the preemptor may not preempt: label {CAN_PREEMPT}, "
    "or its default in the policy",
    RefusalReason.VICTIMS_LEAVING: "the preemptor's earlier victims are still leaving",
    RefusalReason.PRIORITY: "its priority is not lower than the preemptor's",
    RefusalReason.OWN_GANG: "it belongs to the preemptor's own gang",
    RefusalReason.ALREADY_LEAVING: "it is already leaving",
    RefusalReason.NO_PRIORITY_CLASS: "its PriorityClass does not exist, "
    "so its toleration is unknown",
    RefusalReason.NON_PREEMPTIBLE: "it is not preemptible: by its class and checkpoint, "
    "or by its label",
    RefusalReason.NEAR_COMPLETION: "it is nearly complete and may finish",
    RefusalReason.CLASS: "its class is not low enough for the preemptor's",
    RefusalReason.TOLERATION: "its PriorityClass tolerates the preemptor's priority",
    RefusalReason.NODE_NOT_LENT: "it is a service, and its node is not lent",
    RefusalReason.QUOTA: "it uses another quota than the preemptor",
    RefusalReason.GANG: "its gang is evicted as a unit, and one member may not be a victim",
    RefusalReason.MIN_AVAILABLE: "its gang has no more pods than it needs",
}
"""Without figures, for a pod that is not named."""
