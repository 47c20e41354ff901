"""Who is going, and whose room is waited for: what a pod's deletion, its mark and the operator's state say.

Whoever may delete or mark a pod of their own says by that what they like. So nobody is waited for without a bound, and only
for those whom the operator has told does the whole cluster wait: it sees to it that they go. Without this, one pod with a
grace of years, or with a mark that nobody can read, would end all preemption.

What waits for a PodDisruptionBudget, because an eviction asked for it, goes when the budget lets it: nobody waits for it but on
its node, and after the `ceiling` it is one that stays, also where it is asked anew. Without this, whoever may evict a pod of his
own and holds it by a budget would have made it nobody's victim. Nor is it waited for elsewhere once somebody deletes it: the rest
of its gang does not go with it.
"""

from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle import eviction, mark, termination
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL

from .api_objects import Pod
from .snapshot import ScheduledPod

UNKNOWN_PREEMPTOR = "somebody"
"""For whom a scheduler's own victim goes, which nobody else knows. No uid is that."""
_PREEMPTED_BY_SCHEDULER = ("DisruptionTarget", "True", "PreemptionByScheduler")


class ReleaseCertainty(IntEnum):
    """How surely a pod's room becomes free soon."""

    NOT_SOON = 0
    """It stays, or goes nobody knows when: its room is taken."""
    HELD_BY_BUDGET = 1
    """A budget does not let it go yet."""
    BEING_DELETED = 2
    """Somebody deletes it."""
    NOTIFIED = 3
    """The operator has it go, or it goes for the preemptor's own gang."""


class Release(NamedTuple):
    """A pod that is going; see the fields of `Tenant`."""

    expected_at: datetime | None
    notified: bool
    is_held_by_budget: bool = False
    is_being_deleted: bool = False


def read(pod: Pod) -> Release | None:
    """Return how a pod is going, `None` where it is not."""
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    is_asked = labels.get(keys.SOFT_EVICTION) in mark.REQUESTING_VALUES
    state = eviction.parse(annotations.get(keys.EVICTION, ""))
    is_told = state is not None and _is_leaving_by_state(state)
    if is_asked and not is_told:
        # It begins anew; of one that goes, a mark changes nothing.
        state = None
    is_held = state is not None and termination.is_held_by_budget(state)
    if pod.metadata.deletionTimestamp is not None:
        ends_at = timestamp.parse(pod.metadata.deletionTimestamp)
        return Release(ends_at, is_told and not is_held, is_being_deleted=True)
    if state is not None and is_held:
        return Release(termination.budget_held_since(state), notified=False, is_held_by_budget=True)
    if state is not None:
        return Release(state.requested_at, is_told) if is_told else None
    # A mark that nobody can read asks for nothing.
    return (
        Release(None, notified=False)
        if isinstance(mark.read(labels, annotations), mark.Mark)
        else None
    )


def preemptor_uid_of(pod: Pod) -> str:
    """Return the uid of the preemptor for which a pod goes; empty where that is nobody, as far as it can be believed.

    Nobody may say so of a pod of his own: the guard sets the annotation, and a scheduler the condition.
    """
    found = annotations_of(pod.metadata).get(keys.PREEMPTOR, "")
    conditions = ((one.type, one.status, one.reason) for one in pod.status.conditions or ())
    return found or (UNKNOWN_PREEMPTOR if _PREEMPTED_BY_SCHEDULER in conditions else "")


def certainty_of(tenant: ScheduledPod, ceiling_seconds: int, now: datetime) -> ReleaseCertainty:
    """Return how surely the pod's room becomes free soon, as its own deletion or state has it."""
    # The operator lets nobody wait longer; nor is one waited for that is overdue by so much, as on a node that does not answer.
    if (
        tenant.release_expected_at is None
        or abs((now - tenant.release_expected_at).total_seconds()) > ceiling_seconds
    ):
        return ReleaseCertainty.NOT_SOON
    if tenant.notified:
        return ReleaseCertainty.NOTIFIED
    return (
        ReleaseCertainty.HELD_BY_BUDGET
        if tenant.is_held_by_budget
        else ReleaseCertainty.BEING_DELETED
    )


def is_leaving(tenant: ScheduledPod, ceiling_seconds: int, now: datetime) -> bool:
    """True for one that goes, however late; not for one that a budget has held for longer than anybody waits."""
    if not tenant.is_held_by_budget:
        return tenant.is_leaving
    return certainty_of(tenant, ceiling_seconds, now) is not ReleaseCertainty.NOT_SOON


def _is_leaving_by_state(state: Eviction) -> bool:
    # One that is reprieved stays for now, and says so by itself where it is judged.
    return state.phase not in (Phase.REPRIEVED, *TERMINAL)
