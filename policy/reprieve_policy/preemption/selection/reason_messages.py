"""How grounds are told to a person: one sentence each, as the command line and the guard say it.

Nothing of the preemptor is in them but its priority and class: they are shown to whoever owns the victim.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from reprieve_policy.keys import CAN_PREEMPT
from reprieve_policy.kube import timestamp

from .reasons import Ground
from .snapshot import Preemptor, Scene, Tenant


class Refusal(NamedTuple):
    """Why a pod is no victim."""

    ground: Ground
    detail: str
    until: datetime | None = None
    """When a toleration ends; `None` where nobody knows for how long the ground holds."""


def refusal(ground: Ground, preemptor: Preemptor, tenant: Tenant, scene: Scene) -> Refusal:
    """Return a ground that holds against this pod itself, in a sentence."""
    told = _WITH_FIGURES.get(ground)
    until = _toleration_end(tenant) if ground is Ground.TOLERATION else None
    return Refusal(ground, SENTENCES[ground] if told is None else told(preemptor, tenant, scene), until)


def _tell_priority(preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> str:
    return f"it is defended with priority {tenant.defence}; the preemptor's is {preemptor.guest.priority}"


def _tell_completion(_preemptor: Preemptor, tenant: Tenant, scene: Scene) -> str:
    assert tenant.work.walltime is not None
    end = scene.now + timedelta(seconds=tenant.work.walltime.left(scene.now))
    return f"its walltime ends at {timestamp.render(end)}: it is let finish"


def _tell_class(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> str:
    mine, its, rule = preemptor.preemption_class, tenant.preemption_class, scene.settings.class_rule
    return f"a preemptor of class {mine} takes no victim of class {its}, by the {rule} rule"


def _tell_toleration(preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> str:
    policy, until = tenant.toleration.toleration, _toleration_end(tenant)
    assert policy is not None
    mine, minimum = preemptor.guest.priority, policy.minimum_preemptable_priority
    refused = f"its PriorityClass tolerates priorities below {minimum}, and the preemptor's is {mine}"
    return refused if until is None else f"{refused}, until {timestamp.render(until)}"


def _toleration_end(tenant: Tenant) -> datetime | None:
    policy, since = tenant.toleration.toleration, tenant.toleration.scheduled_at
    if policy is None or policy.seconds < 0 or since is None:
        return None
    return since + timedelta(seconds=policy.seconds)


_WITH_FIGURES: Mapping[Ground, Callable[[Preemptor, Tenant, Scene], str]] = {
    Ground.PRIORITY: _tell_priority,
    Ground.NEAR_COMPLETION: _tell_completion,
    Ground.CLASS: _tell_class,
    Ground.TOLERATION: _tell_toleration,
}

SENTENCES: Mapping[Ground, str] = {
    Ground.EXEMPT: "the preemptor is Kubernetes' own, or of an exempt Namespace: its victims are the scheduler's choice",
    Ground.NEVER_PREEMPTS: "the preemptor's preemptionPolicy is Never",
    Ground.MAY_NOT_PREEMPT: f"the preemptor may take no victims: label {CAN_PREEMPT}, or the policy's default for it",
    Ground.UNFINISHED: "the preemptor has victims that are still going",
    Ground.PRIORITY: "its priority is not lower than the preemptor's",
    Ground.OWN_GANG: "it is of the preemptor's own gang",
    Ground.GOING: "it is going already",
    Ground.NO_PRIORITY_CLASS: "its PriorityClass does not exist, so nobody knows what it tolerates",
    Ground.NON_PREEMPTIBLE: "it is not preemptible: by its class and checkpoint, or by its label",
    Ground.NEAR_COMPLETION: "it is nearly complete, and let finish",
    Ground.CLASS: "its class is not low enough for the preemptor's",
    Ground.TOLERATION: "its PriorityClass tolerates the preemptor's priority",
    Ground.HOME: "it is a service, and its node is not lent",
    Ground.QUOTA: "it uses another quota than the preemptor",
    Ground.GANG: "its gang goes as a whole, and one of it may not",
    Ground.MIN_AVAILABLE: "its gang has no more pods than it needs",
}
"""Without figures: of a pod that is not named."""
