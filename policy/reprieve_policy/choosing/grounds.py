"""Who may be a victim of whom, and why not: one table of grounds, the first that holds is the one that is told.

| document | ground |
|---|---|
| upstream | the preemptor never preempts; the victim's priority is not lower |
| 000 | the preemptor may not preempt, the victim is not preemptible, their quotas differ |
| 001 | going already, non-preemptible, near completion, the class rule, a service on a node not lent |
| 002 | the victim tolerates the preemptor, exactly as the shipped plugin has it |
| 003 | the victim's priority is the one that it is defended with |

What a gang as a whole protects is `court`'s to say; how each is told, `telling`'s.
"""

from collections.abc import Callable
from enum import StrEnum

from reprieve_policy import preemption_class, toleration
from reprieve_policy.keys import HOME_NAMESPACE

from .scene import Preemptor, Scene, Tenant


class Ground(StrEnum):
    """On what a pod is refused as a victim, in the order in which they are asked."""

    NEVER_PREEMPTS = "never-preempts"
    MAY_NOT_PREEMPT = "may-not-preempt"
    UNFINISHED = "unfinished"
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


def ground_against(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> Ground | None:
    """Return the first ground on which the tenant, taken by itself, is no victim of the preemptor."""
    for ground, holds in _CHECKS:
        if holds(preemptor, tenant, scene):
            return ground
    return None


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
