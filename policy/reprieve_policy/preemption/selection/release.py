"""Which pods are leaving, and whether to wait for their room: deletion, mark and operator's state.

A user with the right to delete or mark a pod controls these fields. So every wait is bounded, and
the whole cluster waits only for pods that the operator has notified: it makes sure that they leave.
Without this, one pod with a grace period of years, or with an unreadable mark, would end all
preemption. For pods that were marked for no preemptor, it waits until the preemptor has found no
node for as long as the `ceiling`; from then on, only their own nodes do.

A pod that was evicted through the API and waits for a PodDisruptionBudget leaves when the budget
allows: only its own node waits for it. After the `ceiling` it counts as staying, also if it is
evicted again. Without this, a user who evicts a pod and holds it by a budget would make it
immune to preemption. Other nodes do not wait for it either once it is deleted: the rest of its
gang does not leave with it.
"""

from datetime import datetime
from enum import IntEnum

from reprieve_policy import keys
from reprieve_policy.kube.conditions import DISRUPTION_TARGET
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.kube.pods import PodWithStatus
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction, mark, termination
from reprieve_policy.lifecycle.eviction import Eviction, Phase, Source
from reprieve_policy.lifecycle.transitions import TERMINAL

from .snapshot import Release

UNKNOWN_PREEMPTOR = "unknown"
"""The preemptor of a scheduler's own victim, which is unknown here. No uid has this value."""
_PREEMPTED_BY_SCHEDULER = (DISRUPTION_TARGET, "True", "PreemptionByScheduler")


class ReleaseCertainty(IntEnum):
    """How surely a pod's room becomes free soon."""

    NOT_SOON = 0
    """It stays, or leaves at an unknown time: its room is occupied."""
    HELD_BY_BUDGET = 1
    """A budget does not allow its eviction yet."""
    BEING_DELETED = 2
    """It is being deleted, or the preemptor has waited long enough for pods like it."""
    NOTIFIED = 3
    """The operator evicts it, or it leaves for the preemptor's own gang."""


def read(pod: PodWithStatus) -> Release | None:
    """Return how a pod is leaving, `None` if it is not."""
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    is_requested = labels.get(keys.SOFT_EVICTION) in mark.REQUESTING_VALUES
    state = eviction.parse(annotations.get(keys.EVICTION, ""))
    notified = state is not None and _is_leaving_by_state(state)
    if is_requested and not notified:
        # The eviction starts again; for a leaving pod, a mark changes nothing.
        state = None
    is_held = state is not None and termination.is_held_by_budget(state)
    preemptor_uid = preemptor_uid_of(pod)
    leaves_for_none = _is_for_no_preemptor(pod)
    if pod.metadata.deletionTimestamp is not None:
        return Release(
            expected_at=timestamp.parse(pod.metadata.deletionTimestamp),
            notified=notified and not is_held,
            is_being_deleted=True,
            preemptor_uid=preemptor_uid,
            leaves_for_none=leaves_for_none,
        )
    if state is not None and is_held:
        return Release(
            expected_at=termination.budget_held_since(state),
            is_held_by_budget=True,
            preemptor_uid=preemptor_uid,
            leaves_for_none=leaves_for_none,
        )
    if state is not None:
        return (
            Release(
                expected_at=state.requested_at,
                notified=True,
                preemptor_uid=preemptor_uid,
                leaves_for_none=leaves_for_none,
                leaves_with_gang=state.source is Source.GANG,
            )
            if notified
            else None
        )
    # The operator finds a mark by our label, and an unreadable mark requests nothing. Without the
    # former, a user who sets a mark without the label, and takes it back before each sweep of the
    # operator, would make their pod immune to preemption.
    is_seen = is_requested or labels.get(keys.SOFT_EVICTION) == mark.MARKED
    is_marked = is_seen and isinstance(mark.read(labels, annotations), mark.Mark)
    if not is_marked:
        return None
    return Release(preemptor_uid=preemptor_uid, leaves_for_none=leaves_for_none)


def preemptor_uid_of(pod: PodWithStatus) -> str:
    """Return the uid of the preemptor for which a pod leaves; empty without a credible one.

    Users cannot set it on their own pods: the guard sets the annotation, and a scheduler the
    condition.
    """
    found = annotations_of(pod.metadata).get(keys.PREEMPTOR, "")
    conditions = ((one.type, one.status, one.reason) for one in pod.status.conditions or ())
    return found or (UNKNOWN_PREEMPTOR if _PREEMPTED_BY_SCHEDULER in conditions else "")


def _is_for_no_preemptor(pod: PodWithStatus) -> bool:
    # The annotation is empty where the guard has marked the pod for a preemptor that is not known.
    return keys.PREEMPTOR not in annotations_of(pod.metadata) and not preemptor_uid_of(pod)


def certainty_of(release: Release | None, ceiling_seconds: int, now: datetime) -> ReleaseCertainty:
    """Return how certainly the pod's room becomes free soon, by its own deletion or state."""
    # The operator waits no longer than the ceiling; a pod that is overdue by more does not count
    # either, as on a node that does not answer.
    if (
        release is None
        or release.expected_at is None
        or abs((now - release.expected_at).total_seconds()) > ceiling_seconds
    ):
        return ReleaseCertainty.NOT_SOON
    if release.notified:
        return ReleaseCertainty.NOTIFIED
    if release.is_held_by_budget:
        return ReleaseCertainty.HELD_BY_BUDGET
    return ReleaseCertainty.BEING_DELETED


def is_leaving(release: Release | None, ceiling_seconds: int, now: datetime) -> bool:
    """True for a leaving pod, however late, unless a budget holds it beyond the ceiling."""
    if release is None or not release.is_held_by_budget:
        return release is not None
    return certainty_of(release, ceiling_seconds, now) is not ReleaseCertainty.NOT_SOON


def _is_leaving_by_state(state: Eviction) -> bool:
    # A reprieved pod stays for now; its protection is evaluated on its own.
    return state.phase not in (Phase.REPRIEVED, *TERMINAL)
