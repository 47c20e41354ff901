"""Elastic reclamation (document 001): the owner of a lent node, and which pods leave it.

A reclaim is a preemption: non-preemptible pods stay, nearly complete pods may finish, and the mark
is in a scheduler's dialect, so that the operator decides both once more when it sees the mark.
Tolerations (document 002) apply to a preemptor's priority; a reclaim by command has none. What the
operator reclaims by itself, for a pod that waits, is in `automatic_reclaim`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.config.namespace import EXEMPT
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import (
    ObjectMeta,
    PodView,
    annotations_of,
    controller_of,
    is_of_kind,
)
from reprieve_policy.kube.pods import MIRROR_ANNOTATION
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.mark import Mark
from reprieve_policy.verdict import Violation, ViolationKind, label_path

from . import first_refusal, protection

_REASON = "reclaim: the node was lent, and is wanted back"
"""`cause` recognises its first word. It names no namespace, so as not to reveal the lender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod that occupies the node, or another one of its gang; not one that has ended."""

    metadata: ObjectMeta
    view: PodView
    walltime: Walltime | None = None
    """The tightest that bounds it."""
    is_leaving: bool = False
    """It is a victim already, or being deleted."""


class ReclaimAction(Enum):
    """What becomes of a pod when its node is reclaimed."""

    EVICT = auto()
    LEAVING = auto()
    """It is already being evicted or deleted."""
    STAYS = auto()


class ReclaimResult(NamedTuple):
    """What happens to one pod, and why."""

    action: ReclaimAction
    reason: str = ""
    until: datetime | None = None
    """When a pod that is evicted is notified; `None`: at once."""


def home_namespace_of(
    labels: Mapping[str, str], taints: Iterable[tuple[str, str]]
) -> str | Violation:
    """Return the Namespace that a node belongs to, by its label or its taints (`(key, value)`)."""
    path = label_path("", keys.HOME_NAMESPACE)
    label = labels.get(keys.HOME_NAMESPACE, "")
    taint_values = sorted({value for key, value in taints if key == keys.HOME_NAMESPACE and value})
    if not label and not taint_values:
        return Violation(
            path,
            ViolationKind.REQUIRED,
            None,
            "without it the node belongs to all namespaces, and no pod on it is a borrower",
        )
    if len({label or taint_values[0], *taint_values}) > 1:
        others = " and ".join(f'"{value}"' for value in taint_values if value != label)
        return Violation(
            path, ViolationKind.INVALID, label, f"the node's taint of that name says {others}"
        )
    return label or taint_values[0]


def decide_reclaim(
    pod: NodePod, others: Sequence[NodePod], home: str, facts: Facts, now: datetime
) -> ReclaimResult:
    """Decide about one pod on a node of `home`; `others` are the gang members evicted with it."""
    exempt = exempt_reason(pod.metadata, home)
    if exempt:
        return ReclaimResult(ReclaimAction.STAYS, exempt)
    if pod.is_leaving:
        return ReclaimResult(ReclaimAction.LEAVING)
    members = (pod, *others)
    protections = [
        protection.decide_protection(
            member.view, facts, member.walltime, now, refused_since=_refused_since(member)
        )
        for member in members
    ]
    protection_of_all = protection.protection_of_gang(protections)
    if protection_of_all is None:
        return ReclaimResult(ReclaimAction.EVICT)
    protected = members[protections.index(protection_of_all)]
    reason = (
        protection_of_all.reason
        if protected is pod
        else f"{protected.metadata.name} of its gang is {protection_of_all.reason}"
    )
    return ReclaimResult(
        ReclaimAction.STAYS if protection_of_all.until is None else ReclaimAction.EVICT,
        reason,
        protection_of_all.until,
    )


def build_mark(now: datetime) -> str:
    """Return the mark of a reclaimed pod, as the text of Koordinator's annotation."""
    return mark.render(Mark(initiator=mark.RECLAIM_INITIATOR, reason=_REASON, requested_at=now))


def _refused_since(pod: NodePod) -> datetime | None:
    return first_refusal.read(pod.view.annotations, pod.metadata.uid or "")


def exempt_reason(metadata: ObjectMeta, home: str) -> str:
    """Return why a pod does not borrow the node, empty if it does."""
    owner = controller_of(metadata)
    if metadata.namespace == home:
        return "it is at home"
    if metadata.namespace in EXEMPT:
        return f"{metadata.namespace} is exempt"
    if is_of_kind(owner, "apps", "DaemonSet"):
        return f"DaemonSet {owner.name} would create it again on this node"
    return "it is a static pod of the node" if MIRROR_ANNOTATION in annotations_of(metadata) else ""
