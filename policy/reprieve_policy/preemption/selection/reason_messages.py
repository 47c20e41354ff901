"""How grounds are told to a person: one sentence each, as the command line and the guard say it.

Nothing of the preemptor is in them but its priority and class: they are shown to whoever owns the victim.
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
    """When a toleration ends; `None` where nobody knows for how long the ground holds."""


def build_refusal(
    ground: RefusalReason, preemptor: Preemptor, tenant: ScheduledPod, scene: Snapshot
) -> Refusal:
    """Return a ground that holds against this pod itself, in a sentence."""
    told = _DETAILED_MESSAGES.get(ground)
    until = _toleration_end(tenant) if ground is RefusalReason.TOLERATION else None
    return Refusal(
        ground, REASON_MESSAGES[ground] if told is None else told(preemptor, tenant, scene), until
    )


def _describe_priority(preemptor: Preemptor, tenant: ScheduledPod, _scene: Snapshot) -> str:
    return f"it is defended with priority {tenant.preemption_priority}; the preemptor's is {preemptor.demand.priority}"


def _describe_completion(_preemptor: Preemptor, tenant: ScheduledPod, scene: Snapshot) -> str:
    assert tenant.progress.walltime is not None
    end = scene.now + timedelta(seconds=tenant.progress.walltime.left(scene.now))
    return f"its walltime ends at {timestamp.render(end)}: it is let finish"


def _describe_class(preemptor: Preemptor, tenant: ScheduledPod, scene: Snapshot) -> str:
    mine, its, rule = preemptor.preemption_class, tenant.preemption_class, scene.settings.class_rule
    return f"a preemptor of class {mine} takes no victim of class {its}, by the {rule} rule"


def _describe_toleration(preemptor: Preemptor, tenant: ScheduledPod, _scene: Snapshot) -> str:
    policy, until = tenant.toleration.policy, _toleration_end(tenant)
    assert policy is not None
    mine, minimum = preemptor.demand.priority, policy.minimum_preemptable_priority
    refused = (
        f"its PriorityClass tolerates priorities below {minimum}, and the preemptor's is {mine}"
    )
    return refused if until is None else f"{refused}, until {timestamp.render(until)}"


def _toleration_end(tenant: ScheduledPod) -> datetime | None:
    policy, since = tenant.toleration.policy, tenant.toleration.scheduled_at
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
    RefusalReason.EXEMPT: "the preemptor is Kubernetes' own, or of an exempt Namespace: its victims are the scheduler's choice",
    RefusalReason.NEVER_PREEMPTS: "the preemptor's preemptionPolicy is Never",
    RefusalReason.MAY_NOT_PREEMPT: f"the preemptor may take no victims: label {CAN_PREEMPT}, or the policy's default for it",
    RefusalReason.VICTIMS_LEAVING: "the preemptor has victims that are still going",
    RefusalReason.PRIORITY: "its priority is not lower than the preemptor's",
    RefusalReason.OWN_GANG: "it is of the preemptor's own gang",
    RefusalReason.ALREADY_LEAVING: "it is going already",
    RefusalReason.NO_PRIORITY_CLASS: "its PriorityClass does not exist, so nobody knows what it tolerates",
    RefusalReason.NON_PREEMPTIBLE: "it is not preemptible: by its class and checkpoint, or by its label",
    RefusalReason.NEAR_COMPLETION: "it is nearly complete, and let finish",
    RefusalReason.CLASS: "its class is not low enough for the preemptor's",
    RefusalReason.TOLERATION: "its PriorityClass tolerates the preemptor's priority",
    RefusalReason.NODE_NOT_LENT: "it is a service, and its node is not lent",
    RefusalReason.QUOTA: "it uses another quota than the preemptor",
    RefusalReason.GANG: "its gang goes as a whole, and one of it may not",
    RefusalReason.MIN_AVAILABLE: "its gang has no more pods than it needs",
}
"""Without figures: of a pod that is not named."""
