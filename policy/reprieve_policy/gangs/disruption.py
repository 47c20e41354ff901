"""Which gangs go as a whole, and which pods one decision about such a gang reaches (documents 000 and 003).

A native PodGroup says it itself: `spec.disruptionMode` of KEP-5710, `single` where nothing is said. Every other gang that
somebody or a controller named is all-or-nothing, as it was started. Two are not: a batch Job that is in no other gang,
whose pods are replaced one by one, and the group that Volcano names for the pods of whoever declared none.

All of it is decided from what the pods carry, so that an operator that was killed while it reached for a gang goes on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto

from reprieve_policy.kube.objects import ObjectMeta, controller_of
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.transitions import TERMINAL

from .membership import Gang

MAX_MEMBERS = 5000
"""Of a gang that one mark can reach: a pod for each node of the largest cluster that Kubernetes supports."""

_VOLCANO, _VOLCANOS_PREFIX = "volcano", "podgroup-"
"""volcano pkg/controllers/util, `GeneratePodgroupName`: the prefix and the uid of the controller, or of the pod."""

_NOT_NOTIFIED = (Phase.REQUESTED, Phase.REPRIEVED)
_READY_TO_DELETE = (Phase.SETTLED, Phase.SAVED, Phase.TERMINATING, *TERMINAL)


class DisruptionMode(Enum):
    """How the pods of a gang may be disrupted."""

    SINGLE = auto()
    ALL = auto()
    FROM_POD_GROUP = auto()
    """The native PodGroup of that name has to be asked."""


def disruption_mode_of(gang: Gang, metadata: ObjectMeta) -> DisruptionMode:
    """Return how the gang of a pod with this metadata goes."""
    if gang.is_native:
        return DisruptionMode.FROM_POD_GROUP
    return (
        DisruptionMode.SINGLE
        if gang.is_batch_job or _is_generated_by_volcano(gang, metadata)
        else DisruptionMode.ALL
    )


def read_disruption_mode(said: Mapping[str, object] | None) -> DisruptionMode:
    """Read a native PodGroup's `spec.disruptionMode`, a union of `single` and `all`."""
    return DisruptionMode.ALL if said is not None and "all" in said else DisruptionMode.SINGLE


def identity_of(gang: Gang) -> str:
    """Return what tells the gang from the others of its namespace, as one word: `train`, or `jobset/train`."""
    return "/".join(part for part in gang.key if part)


def is_ready_to_delete(phase: Phase) -> bool:
    """True where nobody waits for this pod any more."""
    return phase in _READY_TO_DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMemberState:
    """A pod of the gang, as it is now."""

    uid: str
    created_at: datetime | None = None
    is_terminating: bool = False
    """It has ended, or is being deleted."""
    state: Eviction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDecision:
    """What one look at all pods of a gang says."""

    origin: Eviction
    """The eviction that began it: whoever asked for that one asked for all."""
    is_in_progress: bool
    """True where pods of it had been told before this look."""
    is_cancelled: bool
    newly_included: frozenset[str]
    """The pods that go because of `origin`, and were not told before this look."""
    awaited: frozenset[str]
    """All that the others wait for."""


def decide_gang(identity: str, begun: Eviction, members: Iterable[GangMemberState]) -> GangDecision:
    """Decide what the gang does; `begun` is the state of the pod for which it is asked, as it is or as it begins."""
    known = list(members)
    states = [member.state for member in known if member.state is not None]
    going = [state for state in states if _is_in_gang_eviction(state, identity)]
    earlier = [*going, begun] if begun.gang else going
    decision_ids = {state.decision_id for state in earlier}
    before = [state for state in states if state.decision_id in decision_ids]
    is_cancelled = any(state.phase is Phase.CANCELLED for state in before)
    origin = min(earlier, key=lambda state: state.requested_at, default=begun)
    told = [state for state in earlier if state.phase not in _NOT_NOTIFIED]
    # Without the second half, an eviction of one that a scheduler was refused would have the others deleted; with nothing but
    # that, it would hold back those that the scheduler may have.
    must_evict = (
        all(state.must_evict for state in told)
        if told
        else any(state.must_evict for state in (*earlier, begun))
    )
    is_under_way = bool(told)
    asked_at = origin.requested_at if is_under_way else None
    is_over = is_cancelled or any(_was_released(state) for state in before)
    reached = [
        member.uid
        for member in known
        if not is_over and _is_newly_included(member, decision_ids, asked_at)
    ]
    unheard = [member.uid for member in known if _is_awaited(member, identity)]
    return GangDecision(
        origin=replace(origin, must_evict=must_evict),
        is_in_progress=is_under_way,
        is_cancelled=is_cancelled,
        newly_included=frozenset(reached),
        awaited=frozenset([*reached, *unheard]),
    )


def as_gang_member(state: Eviction, identity: str, origin: Eviction) -> Eviction:
    """Return the first state of a pod, as part of its gang's decision.

    Where that ends with a deletion, an eviction of one pod changes nothing.
    """
    must_evict = state.must_evict and origin.must_evict
    return replace(
        state,
        gang=identity,
        decision_id=origin.decision_id or origin.eviction_id,
        must_evict=must_evict,
    )


def _is_generated_by_volcano(gang: Gang, metadata: ObjectMeta) -> bool:
    owner = controller_of(metadata)
    uid = metadata.uid if owner is None else owner.uid
    return gang.dialect == _VOLCANO and gang.name == f"{_VOLCANOS_PREFIX}{uid}"


def _is_in_gang_eviction(state: Eviction, identity: str) -> bool:
    """True for one that goes with this gang, and was not released."""
    return state.gang == identity and state.phase not in (Phase.TERMINATING, *TERMINAL)


def _is_newly_included(
    member: GangMemberState, decision_ids: set[str], asked_at: datetime | None
) -> bool:
    """True for one that is there, is nobody's victim, and was not part of this decision before.

    What was made after the gang was asked to go replaces a pod of it, and belongs to what comes next.
    """
    state = member.state
    is_taken = state is not None and (
        state.phase not in TERMINAL or state.decision_id in decision_ids
    )
    is_younger = (
        asked_at is not None and member.created_at is not None and member.created_at > asked_at
    )
    return not (member.is_terminating or is_taken or is_younger)


def _is_awaited(member: GangMemberState, identity: str) -> bool:
    state = member.state
    is_asked = (
        state is not None
        and _is_in_gang_eviction(state, identity)
        and not is_ready_to_delete(state.phase)
    )
    return is_asked and not member.is_terminating


def _was_released(state: Eviction) -> bool:
    """True where the gang had been heard to the last, and began to be deleted."""
    return state.phase is Phase.TERMINATING and state.outcome is not CheckpointOutcome.OVERTAKEN
