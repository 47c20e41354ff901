"""Who may be a victim of whom, and why not: one table of grounds, the first that holds is the one that is told.

| document | ground |
|---|---|
| upstream | the preemptor never preempts; the victim's priority is not lower |
| 000 | the preemptor may not preempt, the victim is not preemptible, their quotas differ |
| 001 | going already, non-preemptible, near completion, the class rule, a service on a node not lent |
| 002 | the victim tolerates the preemptor, exactly as the shipped plugin has it |
| 003 | the victim's priority is the one that it is defended with |

What a gang as a whole protects is `units`' to say.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from reprieve_policy import preemption_class, timestamp, toleration
from reprieve_policy.keys import CAN_PREEMPT, HOME_NAMESPACE

from .scene import Preemptor, Scene, Tenant


class Ground(StrEnum):
    """On what a pod is refused as a victim, in the order in which they are asked."""

    NEVER_PREEMPTS = "never-preempts"
    MAY_NOT_PREEMPT = "may-not-preempt"
    PRIORITY = "priority"
    OWN_GANG = "own-gang"
    GOING = "going"
    NO_PRIORITY_CLASS = "no-priority-class"
    NON_PREEMPTIBLE = "non-preemptible"
    NEAR_COMPLETION = "near-completion"
    CLASS = "class"
    TOLERATION = "toleration"
    HOME = "home"
    QUOTA = "quota"
    GANG = "gang"
    MIN_AVAILABLE = "min-available"


class Refusal(NamedTuple):
    """Why a pod is no victim."""

    ground: Ground
    detail: str


def ground_against(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> Ground | None:
    """Return the first ground on which the tenant, taken by itself, is no victim of the preemptor."""
    for ground, holds in _CHECKS:
        if holds(preemptor, tenant, scene):
            return ground
    return None


def describe(ground: Ground, preemptor: Preemptor, tenant: Tenant, scene: Scene) -> str:
    """Return one sentence about a ground that holds; the preemptor's name is not in it, nor anything of its namespace."""
    return _SENTENCES[ground](preemptor, tenant, scene)


def _never_preempts(preemptor: Preemptor, _tenant: Tenant, _scene: Scene) -> bool:
    return preemptor.never_preempts


def _may_not_preempt(preemptor: Preemptor, _tenant: Tenant, _scene: Scene) -> bool:
    return not preemptor.can_preempt


def _is_not_lower(preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> bool:
    return tenant.defence >= preemptor.guest.priority


def _is_of_its_gang(preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> bool:
    return preemptor.group is not None and tenant.group == preemptor.group


def _is_going(_preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> bool:
    return tenant.is_going


def _lacks_priority_class(_preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> bool:
    return tenant.lacks_priority_class


def _is_non_preemptible(_preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> bool:
    return tenant.is_non_preemptible


def _is_near_completion(_preemptor: Preemptor, tenant: Tenant, scene: Scene) -> bool:
    walltime = tenant.work.walltime
    threshold = min(scene.settings.near_completion_seconds, scene.settings.ceiling_seconds)
    return walltime is not None and 0 < walltime.left(scene.now) <= threshold


def _is_above_in_class(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> bool:
    mine, its, default = preemptor.preemption_class, tenant.preemption_class, scene.settings.default_class
    # Nobody has said anything. Without this, installing Reprieve would end all preemption where no classes are used.
    if mine == its == default:
        return False
    return not preemption_class.may_preempt(mine, its, scene.settings.class_rule)


def _tolerates(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> bool:
    return toleration.tolerates(
        tenant.toleration, preemptor.guest.priority, preemptor_never_preempts=False, now=scene.now
    )


def _is_at_home(_preemptor: Preemptor, tenant: Tenant, scene: Scene) -> bool:
    if not tenant.is_service:
        return False
    room = scene.rooms.get(tenant.node)
    # A node that nobody labelled is home to all.
    home = "" if room is None else room.labels.get(HOME_NAMESPACE, "")
    return home in ("", tenant.namespace)


def _is_of_another_quota(preemptor: Preemptor, tenant: Tenant, _scene: Scene) -> bool:
    return preemptor.quota is not None and tenant.quota != preemptor.quota


_Check = Callable[[Preemptor, Tenant, Scene], bool]

_CHECKS: tuple[tuple[Ground, _Check], ...] = (
    (Ground.NEVER_PREEMPTS, _never_preempts),
    (Ground.MAY_NOT_PREEMPT, _may_not_preempt),
    (Ground.PRIORITY, _is_not_lower),
    (Ground.OWN_GANG, _is_of_its_gang),
    (Ground.GOING, _is_going),
    (Ground.NO_PRIORITY_CLASS, _lacks_priority_class),
    (Ground.NON_PREEMPTIBLE, _is_non_preemptible),
    (Ground.NEAR_COMPLETION, _is_near_completion),
    (Ground.CLASS, _is_above_in_class),
    (Ground.TOLERATION, _tolerates),
    (Ground.HOME, _is_at_home),
    (Ground.QUOTA, _is_of_another_quota),
)


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
    policy, since = tenant.toleration.toleration, tenant.toleration.scheduled_at
    assert policy is not None
    mine, minimum = preemptor.guest.priority, policy.minimum_preemptable_priority
    refused = f"its PriorityClass tolerates priorities below {minimum}, and the preemptor's is {mine}"
    if policy.seconds < 0 or since is None:
        return refused
    return f"{refused}, until {timestamp.render(since + timedelta(seconds=policy.seconds))}"


def _say(text: str) -> Callable[[Preemptor, Tenant, Scene], str]:
    return lambda _preemptor, _tenant, _scene: text


_SENTENCES: Mapping[Ground, Callable[[Preemptor, Tenant, Scene], str]] = {
    Ground.NEVER_PREEMPTS: _say("the preemptor's preemptionPolicy is Never"),
    Ground.MAY_NOT_PREEMPT: _say(
        f"the preemptor may take no victims: label {CAN_PREEMPT}, or the policy's default for it"
    ),
    Ground.PRIORITY: _tell_priority,
    Ground.OWN_GANG: _say("it is of the preemptor's own gang"),
    Ground.GOING: _say("it is going already"),
    Ground.NO_PRIORITY_CLASS: _say("its PriorityClass does not exist, so nobody knows what it tolerates"),
    Ground.NON_PREEMPTIBLE: _say("it is not preemptible: by its class and checkpoint, or by its label"),
    Ground.NEAR_COMPLETION: _tell_completion,
    Ground.CLASS: _tell_class,
    Ground.TOLERATION: _tell_toleration,
    Ground.HOME: _say("it is a service, and its node is not lent"),
    Ground.QUOTA: _say("it uses another quota than the preemptor"),
}
