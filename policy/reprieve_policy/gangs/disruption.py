"""Which gangs are evicted as a unit, and which pods a decision includes (documents 000 and 003).

The annotation `reprieve.dev/disruption-mode` of its pods states it, `pod` or `gang`. Without one,
every gang that a user or a controller named is all-or-nothing, as it was started. There are two
exceptions: a batch Job that is in no other gang, whose pods are replaced one by one, and the group
that Volcano names for pods that declare none.

A native PodGroup states it itself, by the same annotation or by `spec.disruptionMode` of KEP-5710.
By default its pods are evicted one by one.

All of it is decided from what the pods carry, so that an operator that was killed in the middle of
a gang continues.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto

from reprieve_policy.config.annotation_values import OneOf
from reprieve_policy.keys import DISRUPTION_MODE
from reprieve_policy.kube.objects import ObjectMeta, annotations_of, controller_of
from reprieve_policy.lifecycle import cleanup, termination
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL

from .membership import Gang

MAX_MEMBERS = 5000
"""Members of a gang that one mark can include: a pod for each node of the largest cluster that
Kubernetes supports."""

POD, GANG = "pod", "gang"
STATED_MODE = OneOf((POD, GANG))
"""What the annotation accepts."""

_VOLCANO, _VOLCANOS_PREFIX = "volcano", "podgroup-"
"""volcano pkg/controllers/util, `GeneratePodgroupName`: the prefix and the uid of the controller,
or of the pod."""

_NOT_NOTIFIED = (Phase.REQUESTED, Phase.REPRIEVED)
_READY_TO_DELETE = (Phase.SETTLED, Phase.SAVED, Phase.TERMINATING, *TERMINAL)


class DisruptionMode(Enum):
    """How the pods of a gang may be disrupted."""

    SINGLE = auto()
    ALL = auto()
    FROM_POD_GROUP = auto()
    """The native PodGroup of that name decides; the caller must read it."""


def stated_mode(annotations: Mapping[str, str]) -> str:
    """Return the mode that the annotation states, `pod` or `gang`; empty if that is unreadable.

    Callers keep it: an annotation may have a quarter of a megabyte.
    """
    text = annotations.get(DISRUPTION_MODE, "")
    return text if text in _STATED_MODES else ""


def disruption_mode_of(gang: Gang, metadata: ObjectMeta) -> DisruptionMode:
    """Return how the gang of a pod with this metadata may be disrupted."""
    if gang.is_native:
        return DisruptionMode.FROM_POD_GROUP
    stated = stated_mode(annotations_of(metadata))
    if stated:
        return _STATED_MODES[stated]
    return (
        DisruptionMode.SINGLE
        if gang.is_batch_job or _is_generated_by_volcano(gang, metadata)
        else DisruptionMode.ALL
    )


def read_disruption_mode(
    mode: Mapping[str, object] | None, annotations: Mapping[str, str]
) -> DisruptionMode:
    """Read a native PodGroup's `spec.disruptionMode`, a union of `single` and `all`, or annotation.

    A group that states `all` in either is evicted as a unit.
    """
    is_whole = is_evicted_whole(mode) or annotations.get(DISRUPTION_MODE) == GANG
    return DisruptionMode.ALL if is_whole else DisruptionMode.SINGLE


def is_evicted_whole(mode: Mapping[str, object] | None) -> bool:
    """True if a native PodGroup's `spec.disruptionMode` is `all`."""
    return mode is not None and "all" in mode


def protected_minimum(gang: Gang) -> int:
    """Return below how many pods a gang that is evicted pod by pod must not fall, 0 for no limit.

    Only as the gang itself declares: without this, a label that any user may add to the pods of a
    Job would protect them.
    """
    if not gang.is_declared or gang.is_native:
        return 0
    return gang.min_available or gang.min_member or 0


def identity_of(gang: Gang) -> str:
    """Return the gang's unique name in its namespace, as one word: `train`, or `jobset/train`."""
    return "/".join(part for part in gang.key if part)


def staying_pods(members: Iterable["GangMemberState"]) -> set[str]:
    """Return the uids of the pods of a gang that are not leaving."""
    return {member.uid for member in members if not member.is_leaving}


def can_spare(uid: str, staying: AbstractSet[str], minimum: int) -> bool:
    """True if `minimum` of the gang's staying pods are left when this pod goes."""
    return len(staying) - (uid in staying) >= minimum


def is_ready_to_delete(state: Eviction) -> bool:
    """True if the rest of the gang does not wait for a pod in this state."""
    return state.phase in _READY_TO_DELETE and not cleanup.waits_for_cleaners(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMemberState:
    """A pod of the gang, as it is now."""

    uid: str
    created_at: datetime | None = None
    is_terminating: bool = False
    """It has ended, or is being deleted."""
    state: Eviction | None = None
    is_marked: bool = False
    """It carries a mark that its state does not show yet, or the phase of a state that cannot be
    read. Also a pod whose earlier eviction is over: it may be marked again."""
    is_gated: bool = False
    """The gang gate holds it: it has never run."""

    @property
    def is_leaving(self) -> bool:
        """True for a victim, from its mark on, and for a pod that ends."""
        is_in_progress = self.state is not None and self.state.phase not in TERMINAL
        return self.is_terminating or self.is_marked or is_in_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDecision:
    """The decision from one observation of all pods of a gang."""

    origin: Eviction
    """The eviction that began it: its request counts for all members."""
    decision_ids: frozenset[str]
    """What its members' states have as `decision_id`: of this decision, and of earlier ones that it
    continues."""
    is_in_progress: bool
    """True if members had been notified before this observation."""
    is_cancelled: bool
    is_held: bool
    """True if it was cancelled because a budget held one of its pods."""
    newly_included: frozenset[str]
    """The pods that leave because of `origin` and were not part of the decision before."""
    awaited: frozenset[str]
    """All pods that the others wait for."""


def decide_gang(identity: str, begun: Eviction, members: Iterable[GangMemberState]) -> GangDecision:
    """Decide what the gang does.

    `begun` is the state of the pod that leads to this call, as it is or as it begins.
    """
    members = list(members)
    states = [member.state for member in members if member.state is not None]
    current = [state for state in states if _is_in_gang_eviction(state, identity)]
    # A pod that another client deleted may be of a decision before this one.
    is_of_current = begun.decision_id in {state.decision_id for state in current}
    is_older = begun.phase is Phase.TERMINATING and bool(current) and not is_of_current
    earlier = [*current, begun] if begun.gang and not is_older else current
    decision_ids = {state.decision_id for state in earlier}
    before = [state for state in states if state.decision_id in decision_ids]
    cancelled = [state for state in before if state.phase is Phase.CANCELLED]
    is_cancelled = bool(cancelled)
    origin = min(earlier, key=lambda state: state.requested_at, default=begun)
    notified = [state for state in earlier if state.phase not in _NOT_NOTIFIED]
    # Both cases are needed. Without the second, evicting a pod that a scheduler was refused would
    # delete the others. With only the second, it would hold back pods that the scheduler may have.
    must_evict = (
        all(state.must_evict for state in notified)
        if notified
        else any(state.must_evict for state in (*earlier, begun))
    )
    is_in_progress = bool(notified)
    requested_at = origin.requested_at if is_in_progress else None
    unanswered = [member.uid for member in members if _is_awaited(member, identity)]
    was_released = not unanswered and any(_was_released(state) for state in before)
    is_over = is_cancelled or was_released
    included = [
        member.uid
        for member in members
        if not is_over and _is_newly_included(member, decision_ids, requested_at)
    ]
    return GangDecision(
        origin=replace(origin, must_evict=must_evict),
        decision_ids=frozenset((*decision_ids, decision_id_of(origin))),
        is_in_progress=is_in_progress,
        is_cancelled=is_cancelled,
        is_held=is_cancelled and all(map(termination.was_held_by_budget, cancelled)),
        newly_included=frozenset(included),
        awaited=frozenset([*included, *unanswered]),
    )


def may_have_left_pods_out(state: Eviction) -> bool:
    """True for a pod of a gang whose eviction may not have reached all of its pods yet.

    An operator may be killed after another client has deleted the first pod that was notified.
    """
    is_overtaken = state.outcome is CheckpointOutcome.OVERTAKEN and state.hinted_at is not None
    return bool(state.gang) and (state.phase is not Phase.TERMINATING or is_overtaken)


def decision_id_of(origin: Eviction) -> str:
    """Return the id of the decision that an eviction began, or is a part of."""
    return origin.decision_id or origin.eviction_id


def as_gang_member(state: Eviction, identity: str, origin: Eviction) -> Eviction:
    """Return the first state of a pod, as part of its gang's decision.

    If the gang's decision ends with a deletion, an eviction of one pod changes nothing.
    """
    must_evict = state.must_evict and origin.must_evict
    return replace(
        state,
        gang=identity,
        decision_id=decision_id_of(origin),
        must_evict=must_evict,
    )


_STATED_MODES: Mapping[str, DisruptionMode] = {
    POD: DisruptionMode.SINGLE,
    GANG: DisruptionMode.ALL,
}


def _is_generated_by_volcano(gang: Gang, metadata: ObjectMeta) -> bool:
    owner = controller_of(metadata)
    uid = metadata.uid if owner is None else owner.uid
    return gang.dialect == _VOLCANO and gang.name == f"{_VOLCANOS_PREFIX}{uid}"


def _is_in_gang_eviction(state: Eviction, identity: str) -> bool:
    """True for a pod that is evicted with this gang and was not released."""
    return state.gang == identity and state.phase not in (Phase.TERMINATING, *TERMINAL)


def _is_newly_included(
    member: GangMemberState, decision_ids: set[str], requested_at: datetime | None
) -> bool:
    """True for a live pod that is no victim and was not part of this decision before.

    A pod created after the gang's request replaces one of its pods, and belongs to the next
    decision. So does a pod that the gang gate holds.
    """
    state = member.state
    is_taken = state is not None and (
        state.phase not in TERMINAL or state.decision_id in decision_ids
    )
    is_younger = (
        requested_at is not None
        and member.created_at is not None
        and member.created_at > requested_at
    )
    return not (member.is_terminating or is_taken or is_younger or member.is_gated)


def _is_awaited(member: GangMemberState, identity: str) -> bool:
    state = member.state
    is_member = (
        state is not None
        and _is_in_gang_eviction(state, identity)
        and not is_ready_to_delete(state)
    )
    return is_member and not member.is_terminating


def _was_released(state: Eviction) -> bool:
    """True for a pod that is deleted with its gang, or by another client after its save."""
    return state.phase is Phase.TERMINATING and state.outcome is not CheckpointOutcome.OVERTAKEN
