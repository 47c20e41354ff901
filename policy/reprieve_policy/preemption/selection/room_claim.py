"""Room that pods are leaving already, and that a waiting preemptor is nominated to.

A preemptor that only hears "wait" is nominated to no node. kube-scheduler tries waiting pods in the
order in which their back-off ends, not by priority, so less important pods would take the room
first. As victims it is given one pod that is leaving that node already: kube-scheduler sends no
DELETE for a pod that is being deleted, and the guard answers one for a notified pod with 404.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from .eligibility import Eligibility
from .reasons import RefusalReason
from .release import UNKNOWN_PREEMPTOR, ReleaseCertainty
from .snapshot import NodeInfo, ScheduledPod

_NEVER = datetime.max.replace(tzinfo=UTC)


class RoomClaim(NamedTuple):
    """A node whose room is being released, for a preemptor that is to be nominated to it."""

    node: str
    leaving_pod: ScheduledPod
    """A pod that is leaving the node already, and stands for all of them."""


def find(released: Iterable[str], eligibility: Eligibility) -> RoomClaim | None:
    """Return the room that pods have been leaving for longest, of the nodes that are released."""
    node_infos = eligibility.snapshot.nodes
    claims = [
        RoomClaim(node, pod)
        for node in released
        if (pod := _pod_to_name(node_infos[node], eligibility)) is not None
    ]
    return min(
        claims, key=lambda claim: (_expected_at(claim.leaving_pod), claim.node), default=None
    )


def _pod_to_name(node_info: NodeInfo, eligibility: Eligibility) -> ScheduledPod | None:
    """Return the pod to name as the victim, `None` if the preemptor may not claim the room."""
    leaving = [
        pod
        for pod in node_info.pods
        if pod.is_leaving and eligibility.release_certainty(pod) is ReleaseCertainty.NOTIFIED
    ]
    # Without this, a nomination would keep victims from being taken back that the preemptor itself
    # may not take.
    if not all(_is_being_deleted(pod) or _may_be_victim(pod, eligibility) for pod in leaving):
        return None
    named = [pod for pod in leaving if _can_be_named(pod, eligibility)]
    return min(
        named,
        key=lambda pod: (not _is_being_deleted(pod), _expected_at(pod), pod.uid),
        default=None,
    )


def _is_being_deleted(pod: ScheduledPod) -> bool:
    return pod.release is not None and pod.release.is_being_deleted


def _may_be_victim(pod: ScheduledPod, eligibility: Eligibility) -> bool:
    """True if the preemptor might take the pod if that stayed; not of a gang that leaves."""
    return eligibility.reason(replace(pod, release=None)) is None


def _can_be_named(pod: ScheduledPod, eligibility: Eligibility) -> bool:
    """True if a scheduler may preempt the pod by priority, and its DELETE is answered with 404.

    The guard names a preemptor only where that is nominated by the time of the DELETE. Without
    this, a synchronous scheduler would be refused again and again, and would nominate no pod.
    """
    if eligibility.reason(pod) is not RefusalReason.ALREADY_LEAVING:
        return False
    preemptor_uid = "" if pod.release is None else pod.release.preemptor_uid
    is_named_by_guard = pod.is_guarded and preemptor_uid not in ("", UNKNOWN_PREEMPTOR)
    return is_named_by_guard or _is_being_deleted(pod)


def _expected_at(pod: ScheduledPod) -> datetime:
    return (pod.release.expected_at if pod.release is not None else None) or _NEVER
