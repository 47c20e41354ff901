"""Who may be a victim of whom, and why not: of all grounds, the first that holds is the one that is told.

| document | ground |
|---|---|
| upstream | the preemptor never preempts; the victim's priority is not lower |
| 000 | the preemptor may not preempt, the victim is not preemptible, their quotas differ |
| 001 | going already, non-preemptible, near completion, the class rule, a service on a node not lent |
| 002 | the victim tolerates the preemptor, exactly as the shipped plugin has it |
| 003 | the victim's priority is the one that it is defended with |

What a gang as a whole protects is `court`'s to say; how each is told, `telling`'s.
"""

from dataclasses import replace
from enum import StrEnum

from reprieve_policy.config import preemption_class, toleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.keys import HOME_NAMESPACE

from . import release
from .release import ReleaseCertainty
from .snapshot import Preemptor, ScheduledPod, Snapshot


class RefusalReason(StrEnum):
    """On what a pod is refused as a victim, in the order in which they are asked."""

    EXEMPT = "exempt"
    NEVER_PREEMPTS = "never-preempts"
    MAY_NOT_PREEMPT = "may-not-preempt"
    VICTIMS_LEAVING = "unfinished"
    PRIORITY = "priority"
    OWN_GANG = "own-gang"
    ALREADY_LEAVING = "going"
    NO_PRIORITY_CLASS = "no-priority-class"
    NON_PREEMPTIBLE = "non-preemptible"
    NEAR_COMPLETION = "near-completion"
    CLASS = "class"
    TOLERATION = "toleration"
    NODE_NOT_LENT = "home"
    QUOTA = "quota"
    GANG = "gang"
    MIN_AVAILABLE = "min-available"


_CLASSES = range(preemption_class.LOWEST, preemption_class.HIGHEST + 1)


class PodEligibility:
    """What one preemptor is refused on; every pod is asked about by itself."""

    def __init__(self, preemptor: Preemptor, scene: Snapshot) -> None:
        settings, own = scene.settings, preemptor.preemption_class
        self._preemptor, self._scene = preemptor, scene
        self._priority, self._group, self._quota = (
            preemptor.demand.priority,
            preemptor.gang,
            preemptor.quota,
        )
        self._operator_is_there = scene.operator_is_live
        self._near_completion_seconds = min(
            settings.near_completion_seconds, settings.ceiling_seconds
        )
        takes = {
            its for its in _CLASSES if preemption_class.may_preempt(own, its, settings.class_rule)
        }
        # Where both are in the cluster's default class, nobody has said anything. Without this, installing Reprieve would
        # end all preemption where no classes are used.
        self._preemptible_classes = frozenset(takes | ({own} & {settings.default_class}))

    def preemptor_reason(self) -> RefusalReason | None:
        """Return why no victims are chosen for the preemptor at all."""
        if self._preemptor.is_exempt:
            return RefusalReason.EXEMPT
        if self._preemptor.never_preempts:
            return RefusalReason.NEVER_PREEMPTS
        return None if self._preemptor.can_preempt else RefusalReason.MAY_NOT_PREEMPT

    def has_leaving_victims(self) -> bool:
        """True while victims are going where the preemptor is nominated to, as in kube-scheduler.

        Without this, each time it is tried it would take more.
        """
        room = self._scene.nodes.get(self._preemptor.nominated_node or "")
        return room is not None and any(map(self.is_current_victim, room.pods))

    def is_current_victim(self, tenant: ScheduledPod) -> bool:
        """True for one that is going and may be a victim of this round, unless nobody waits for it.

        What a budget holds was asked for by an eviction: it is of no round.
        """
        if not self._is_marked_as_leaving(tenant) or tenant.preemption_priority >= self._priority:
            return False
        if tenant.is_only_marked:
            return True
        return self.release_certainty(tenant) not in (
            ReleaseCertainty.NOT_SOON,
            ReleaseCertainty.HELD_BY_BUDGET,
        )

    def release_certainty(self, tenant: ScheduledPod) -> ReleaseCertainty:
        """Return how surely the room of this pod becomes free soon, by itself."""
        return release.certainty_of(tenant, self._scene.settings.ceiling_seconds, self._scene.now)

    def is_leaving(self, tenant: ScheduledPod) -> bool:
        """True for one that goes, and is no victim again."""
        return self._is_marked_as_leaving(tenant) and release.is_leaving(
            tenant, self._scene.settings.ceiling_seconds, self._scene.now
        )

    def reason(self, tenant: ScheduledPod) -> RefusalReason | None:  # noqa: C901, PLR0911  # see the first line
        """Return the first ground on which the tenant, taken by itself, is no victim."""
        # A chain, not a table: to call a function for each ground would be most of a decision about 150,000 pods.
        if tenant.preemption_priority >= self._priority:
            return RefusalReason.PRIORITY
        if self._group is not None and tenant.gang == self._group:
            return RefusalReason.OWN_GANG
        if tenant.is_leaving and self.is_leaving(tenant):
            return RefusalReason.ALREADY_LEAVING
        if tenant.lacks_priority_class:
            return RefusalReason.NO_PRIORITY_CLASS
        if tenant.is_non_preemptible:
            return RefusalReason.NON_PREEMPTIBLE
        if tenant.progress.walltime is not None and self._is_near_completion(
            tenant.progress.walltime
        ):
            return RefusalReason.NEAR_COMPLETION
        if tenant.preemption_class not in self._preemptible_classes:
            return RefusalReason.CLASS
        if tenant.toleration.has_priority_class and self._is_tolerated_by(tenant):
            return RefusalReason.TOLERATION
        if tenant.is_service and self._is_at_home(tenant):
            return RefusalReason.NODE_NOT_LENT
        if self._quota is not None and tenant.quota != self._quota:
            return RefusalReason.QUOTA
        return None

    def reason_as_gang_member(self, tenant: ScheduledPod) -> RefusalReason | None:
        """Return the first ground beside its own completion: its gang, with which it goes, is not as far."""
        return self.reason(replace(tenant, progress=replace(tenant.progress, walltime=None)))

    def _is_marked_as_leaving(self, tenant: ScheduledPod) -> bool:
        # With no operator only who is being deleted goes: whoever was marked or told waits for it, as if Reprieve were not there.
        return tenant.is_leaving and (self._operator_is_there or tenant.is_being_deleted)

    def _is_near_completion(self, walltime: Walltime) -> bool:
        return 0 < walltime.left(self._scene.now) <= self._near_completion_seconds

    def _is_tolerated_by(self, tenant: ScheduledPod) -> bool:
        return toleration.tolerates(
            tenant.toleration, self._priority, preemptor_never_preempts=False, now=self._scene.now
        )

    def _is_at_home(self, tenant: ScheduledPod) -> bool:
        room = self._scene.nodes.get(tenant.node)
        # A node that nobody labelled is home to all.
        home = "" if room is None else room.labels.get(HOME_NAMESPACE, "")
        return home in ("", tenant.namespace)
