"""The victims of one preemptor on one node: a set, which is deleted together.

A scheduler takes several pods of a node to make room for one. If the first is deleted minutes
before the last has saved, its room lies idle, or another pod takes it. So a victim that is ready is
not deleted before the slowest of its set is. Each waits until its own ceiling at the latest. And a
victim whose preemptor no longer needs its room stays.

The guard names the preemptor beside its mark. A mark that names none (a person's, a descheduler's,
a synchronous scheduler's) is in no set. All of it is decided from what the pods carry, so that an
operator that was killed in the middle of a set continues.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from . import cleanup
from .eviction import AWAITING_WORKLOAD, CheckpointOutcome, Eviction, Phase

OPEN_ENDED = datetime.max.replace(tzinfo=UTC)
_NOT_ASKED = (CheckpointOutcome.SKIPPED, CheckpointOutcome.LOSES_LESS)
_NOTICE_PENDING = (Phase.REQUESTED, *AWAITING_WORKLOAD)


class VictimSetKey(NamedTuple):
    """Identifies a set of victims."""

    preemptor_uid: str
    node: str


def key_of(preemptor_uid: str, node: str) -> VictimSetKey | None:
    """Return the set of a pod with this preemptor on this node; `None` if one is not known."""
    return VictimSetKey(preemptor_uid, node) if preemptor_uid and node else None


def awaited_until(state: Eviction | None, grace_ends_at: datetime | None) -> datetime | None:
    """Return until when the other victims of the set wait for a marked pod that runs.

    `OPEN_ENDED`: until its state changes; `None`: they do not wait. Without a state, its eviction
    has not begun, so its notice is due. `grace_ends_at`: when it is killed, if it is being deleted.
    A workload that saves on SIGTERM saves from its DELETE until then. A pod that was reprieved is
    not awaited: that may last for as long as the pod's work.
    """
    saves_on_sigterm = state is not None and state.outcome is CheckpointOutcome.ON_SIGTERM
    if grace_ends_at is not None:
        return grace_ends_at if saves_on_sigterm else None
    may_still_save = state is None or state.phase in _NOTICE_PENDING or saves_on_sigterm
    waits_for_cleaners = state is not None and cleanup.waits_for_cleaners(state)
    return OPEN_ENDED if may_still_save or waits_for_cleaners else None


def waits_for_set(eviction: Eviction, *, is_set_ready: bool, may_set_grow: bool) -> bool:
    """True if a victim that is ready waits for the other victims of its set.

    One that saves on SIGTERM does not: it saves from its DELETE on, and they wait for it. One that
    needs no notice waits also while others are being marked. Without this, it would be gone before
    the next one is marked.
    """
    if eviction.outcome is CheckpointOutcome.ON_SIGTERM:
        return False
    may_be_early = may_set_grow and eviction.outcome in _NOT_ASKED
    return may_be_early or not is_set_ready


def is_not_needed(eviction: Eviction, *, has_preemptor_left: bool, is_node_wanted: bool) -> bool:
    """True for a scheduler's victim whose preemptor left its node, if no pod wants that.

    A gang that is evicted as a unit goes on: other pods of it may be needed. So does a pod whose
    node another preemptor waits for. It may count on the same victims, and would not be woken if
    they stayed.
    """
    is_free = has_preemptor_left and not is_node_wanted
    return is_free and eviction.source.is_preemption and not eviction.gang
