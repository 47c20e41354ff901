"""Whether one pod may be a victim of a preemptor, and why not: the first reason that holds.

| document | reason |
|---|---|
| upstream | the preemptor never preempts; the victim's priority is not lower |
| 000 | the preemptor may not preempt, its quota would not admit it |
| 000 | the victim is not preemptible, their quotas differ |
| 001 | leaving, non-preemptible, near completion, the class rule, a service on a node not lent |
| 002 | the victim tolerates the preemptor, exactly as in the shipped plugin |
| 003 | the victim's preemption priority takes the place of its priority |

A preemptor that takes back a node of its own Namespace (001) also takes pods of its own priority,
and pods of other quotas.

What protects a gang as a whole is in `eligibility`; the messages are below.
The command line and the guard show them: they contain no more of the preemptor than its priority
and class, because the victim's owner sees them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from reprieve_policy.config import preemption_class, toleration
from reprieve_policy.keys import CAN_PREEMPT
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import first_refusal, reclaim
from reprieve_policy.verdict import Violation

from . import release
from .quota.limit import QuotaLimit
from .release import ReleaseCertainty
from .snapshot import Preemptor, ScheduledPod, Snapshot


class RefusalReason(StrEnum):
    """Why a pod is refused as a victim, in the order of the checks."""

    EXEMPT = "exempt"
    NEVER_PREEMPTS = "never-preempts"
    MAY_NOT_PREEMPT = "may-not-preempt"
    QUOTA_EXCEEDED = "quota-exceeded"
    VICTIMS_LEAVING = "victims-leaving"
    PRIORITY = "priority"
    OWN_GANG = "own-gang"
    ALREADY_LEAVING = "already-leaving"
    NO_PRIORITY_CLASS = "no-priority-class"
    NON_PREEMPTIBLE = "non-preemptible"
    NEAR_COMPLETION = "near-completion"
    CLASS = "class"
    TOLERATION = "toleration"
    NODE_NOT_LENT = "node-not-lent"
    QUOTA = "quota"
    GANG = "gang"
    MIN_AVAILABLE = "min-available"


_CLASSES = range(preemption_class.LOWEST, preemption_class.HIGHEST + 1)


class PodEligibility:
    """Decides about single pods for one preemptor."""

    def __init__(self, preemptor: Preemptor, snapshot: Snapshot) -> None:
        settings, own = snapshot.settings, preemptor.preemption_class
        self._preemptor, self._snapshot = preemptor, snapshot
        self._priority, self._gang = preemptor.demand.priority, preemptor.gang
        takes_back = preemptor.takes_back_nodes
        self._protecting_priority = self._priority + takes_back
        # Victims need not free quota: the node is the home's, whatever the quotas of its borrowers.
        self._quota = None if takes_back else preemptor.quota
        self._operator_is_live = snapshot.operator_is_live
        since = preemptor.unschedulable_since
        self._has_waited_long = (
            since is not None
            and (snapshot.now - since).total_seconds() >= snapshot.settings.ceiling_seconds
        )
        self.quota_limit = QuotaLimit(preemptor, snapshot, self.is_leaving)
        self._near_completion_seconds = min(
            settings.near_completion_seconds, settings.ceiling_seconds
        )
        takes = {
            its for its in _CLASSES if preemption_class.may_preempt(own, its, settings.class_rule)
        }
        # If both are in the cluster's default class, neither states a preference. Without this,
        # installing Reprieve would end all preemption in clusters that use no classes.
        self._preemptible_classes = frozenset(takes | ({own} & {settings.default_class}))

    def preemptor_reason(self) -> RefusalReason | None:
        """Return why no victims are selected for the preemptor at all."""
        if self._preemptor.is_exempt:
            return RefusalReason.EXEMPT
        if self._preemptor.never_preempts:
            return RefusalReason.NEVER_PREEMPTS
        if not self._preemptor.can_preempt:
            return RefusalReason.MAY_NOT_PREEMPT
        return None if self.quota_limit.may_admit else RefusalReason.QUOTA_EXCEEDED

    def has_leaving_victims(self) -> bool:
        """True while victims are leaving the node that the preemptor is nominated to.

        As in kube-scheduler. Without this, each attempt would take more victims. Those that leave
        for another preemptor do not count: it gets their room. Nor does a pod that leaves for none,
        once the preemptor has waited long: a user who deletes one small pod after another, or a
        node whose pods end all the time, would keep it from all victims.
        """
        node_info = self._snapshot.nodes.get(self._preemptor.nominated_node or "")
        return node_info is not None and any(
            self.is_current_victim(pod)
            and not self._leaves_for_another(pod)
            and not (self._has_waited_long and pod.release and pod.release.leaves_for_none)
            for pod in node_info.pods
        )

    def is_current_victim(self, pod: ScheduledPod) -> bool:
        """True for a leaving pod that may be a victim of this round, unless it leaves too late.

        A pod that a budget holds was evicted through the API: it belongs to no round.
        """
        if not self._is_marked_as_leaving(pod) or (
            pod.preemption_priority >= self._protecting_priority
        ):
            return False
        if pod.release is not None and pod.release.is_only_marked:
            return True
        return self.release_certainty(pod) not in (
            ReleaseCertainty.NOT_SOON,
            ReleaseCertainty.HELD_BY_BUDGET,
        )

    def release_certainty(self, pod: ScheduledPod) -> ReleaseCertainty:
        """Return how certainly the room of this pod becomes free soon without further action."""
        found = release.certainty_of(
            pod.release, self._snapshot.settings.ceiling_seconds, self._snapshot.now
        )
        # Without this, a user who keeps marking pods of their own, each in the room of the one
        # before, would keep the preemptor from all other victims.
        is_requested = pod.release is not None and pod.release.is_requested
        if self._has_waited_long and is_requested and found is ReleaseCertainty.NOTIFIED:
            return ReleaseCertainty.BEING_DELETED
        return found

    def is_leaving(self, pod: ScheduledPod) -> bool:
        """True for a pod that is leaving, and is no victim again."""
        return self._is_marked_as_leaving(pod) and release.is_leaving(
            pod.release, self._snapshot.settings.ceiling_seconds, self._snapshot.now
        )

    def reason(self, pod: ScheduledPod) -> RefusalReason | None:  # noqa: C901, PLR0911 - see below
        """Return the first reason why the pod, taken by itself, is no victim."""
        # A chain, not a table: one call per reason would dominate a decision about 150,000 pods.
        if pod.preemption_priority >= self._protecting_priority:
            return RefusalReason.PRIORITY
        if self._gang is not None and pod.gang == self._gang:
            return RefusalReason.OWN_GANG
        if pod.release is not None and self.is_leaving(pod):
            return RefusalReason.ALREADY_LEAVING
        if pod.lacks_priority_class:
            return RefusalReason.NO_PRIORITY_CLASS
        if pod.is_non_preemptible:
            return RefusalReason.NON_PREEMPTIBLE
        if pod.progress.walltime is not None and self._is_near_completion(pod):
            return RefusalReason.NEAR_COMPLETION
        if pod.preemption_class not in self._preemptible_classes:
            return RefusalReason.CLASS
        if pod.toleration.has_priority_class and self._is_tolerated_by(pod):
            return RefusalReason.TOLERATION
        if pod.is_service and self._is_at_home(pod):
            return RefusalReason.NODE_NOT_LENT
        if self._quota is not None and pod.quota != self._quota:
            return RefusalReason.QUOTA
        return None

    def reason_as_gang_member(self, pod: ScheduledPod) -> RefusalReason | None:
        """Return the first reason other than its own completion: the rest of its gang runs on."""
        return self.reason(replace(pod, progress=replace(pod.progress, walltime=None)))

    def _is_marked_as_leaving(self, pod: ScheduledPod) -> bool:
        # Without an operator only a pod that is being deleted leaves: marked or notified pods wait
        # for an operator, as if Reprieve were not there.
        leaving = pod.release
        return leaving is not None and (self._operator_is_live or leaving.is_being_deleted)

    def _leaves_for_another(self, pod: ScheduledPod) -> bool:
        # Victims that leave for one member of a gang leave for all of it.
        own = ("", release.UNKNOWN_PREEMPTOR, self._preemptor.demand.uid)
        return (
            self._gang is None and pod.release is not None and pod.release.preemptor_uid not in own
        )

    def _is_near_completion(self, pod: ScheduledPod) -> bool:
        walltime, now = pod.progress.walltime, self._snapshot.now
        return (
            walltime is not None
            and 0 < walltime.left(now) <= self._near_completion_seconds
            and not first_refusal.is_over(
                pod.refused_since, self._snapshot.settings.ceiling_seconds, now
            )
        )

    def _is_tolerated_by(self, pod: ScheduledPod) -> bool:
        return toleration.tolerates(
            pod.toleration, self._priority, preemptor_never_preempts=False, now=self._snapshot.now
        )

    def _is_at_home(self, pod: ScheduledPod) -> bool:
        node_info = self._snapshot.nodes.get(pod.node)
        if node_info is None:
            return True
        taints = ((taint.key, taint.value) for taint in node_info.taints)
        home = reclaim.home_namespace_of(node_info.labels, taints)
        # A node without a home, or with several, is home to all namespaces.
        return isinstance(home, Violation) or home == pod.namespace


class Refusal(NamedTuple):
    """Why a pod is no victim."""

    reason: RefusalReason
    detail: str
    until: datetime | None = None
    """When a toleration ends; `None` if it is unknown how long the reason holds."""
    is_renewable: bool = False
    """The pod's owner can renew the reason (`first_refusal`)."""


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
    RefusalReason.QUOTA_EXCEEDED: "the preemptor's ElasticQuota would not admit it, "
    "whatever its victims",
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
