"""Elastic reclamation (document 001): whose a lent node is, and which pods on it begin to go when their lender wants it back.

It is a preemption, not a person's wish: what nobody may preempt stays, what is nearly complete is let finish, and the mark is
in a scheduler's dialect, so that the operator decides both once more when it sees it. Tolerations (document 002) are held
against a preemptor of some priority; here there is none.
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
from reprieve_policy.kube.objects import ObjectMeta, PodView, annotations_of, controller_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.mark import Mark
from reprieve_policy.verdict import Violation, ViolationKind, label_path

from . import protection

_REASON = "reclaim: the node was lent, and is wanted back"
"""`cause` knows it by its first word. It names no namespace: a victim's tenant does not learn whose pods want its place."""

_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of what a kubelet runs from a file of its own: deleting it only makes it appear again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod that has a place on the node, or another one of its gang. Those that have ended have none."""

    metadata: ObjectMeta
    view: PodView
    walltime: Walltime | None = None
    """The tightest that bounds it."""
    is_leaving: bool = False
    """It is a victim already, or being deleted."""


class ReclaimAction(Enum):
    """What becomes of a pod when its node is reclaimed."""

    GOES = auto()
    GOING = auto()
    STAYS = auto()


class ReclaimResult(NamedTuple):
    """One pod's fate, and why."""

    action: ReclaimAction
    reason: str = ""
    until: datetime | None = None
    """When one that goes is asked; `None`: at once."""


def home_namespace_of(
    labels: Mapping[str, str], taints: Iterable[tuple[str, str]]
) -> str | Violation:
    """Return the Namespace that a node belongs to, by its label or its taints (`(key, value)`)."""
    path = label_path("", keys.HOME_NAMESPACE)
    said = labels.get(keys.HOME_NAMESPACE, "")
    tainted = sorted({value for key, value in taints if key == keys.HOME_NAMESPACE and value})
    if not said and not tainted:
        return Violation(
            path,
            ViolationKind.REQUIRED,
            None,
            "without it the node is home to all, and nothing on it is borrowed",
        )
    if len({said or tainted[0], *tainted}) > 1:
        others = " and ".join(f'"{value}"' for value in tainted if value != said)
        return Violation(
            path, ViolationKind.INVALID, said, f"the node's taint of that name says {others}"
        )
    return said or tainted[0]


def decide_reclaim(
    lodger: NodePod, others: Sequence[NodePod], home: str, facts: Facts, now: datetime
) -> ReclaimResult:
    """Decide about one pod on a node of `home`; `others` are the pods of its gang that have to go with it."""
    spared = _exempt_reason(lodger, home)
    if spared:
        return ReclaimResult(ReclaimAction.STAYS, spared)
    if lodger.is_leaving:
        return ReclaimResult(ReclaimAction.GOING)
    members = (lodger, *others)
    reprieves = [
        protection.decide_protection(member.view, facts, member.walltime, now) for member in members
    ]
    found = protection.protection_of_gang(reprieves)
    if found is None:
        return ReclaimResult(ReclaimAction.GOES)
    whose = members[reprieves.index(found)]
    why = (
        found.reason if whose is lodger else f"{whose.metadata.name} of its gang is {found.reason}"
    )
    return ReclaimResult(
        ReclaimAction.STAYS if found.until is None else ReclaimAction.GOES, why, found.until
    )


def build_mark(now: datetime) -> str:
    """Return the mark of a pod that begins to go, as the text of Koordinator's annotation."""
    return mark.render(Mark(initiator=mark.RECLAIM_INITIATOR, reason=_REASON, requested_at=now))


def _exempt_reason(lodger: NodePod, home: str) -> str:
    """Return why a pod is no borrower at all, empty where it is one."""
    metadata, owner = lodger.metadata, controller_of(lodger.metadata)
    if metadata.namespace == home:
        return "it is at home"
    if metadata.namespace in EXEMPT:
        return f"{metadata.namespace} is exempt"
    if owner is not None and owner.kind == "DaemonSet":
        return f"DaemonSet {owner.name} would make it anew right here"
    return "it is the node's own" if _MIRROR in annotations_of(metadata) else ""
