"""Victim selection: which pods may be victims of a preemptor, on which nodes, in which order.

Pure, like all of the core: from a `snapshot.Snapshot` (what a watch, a live cluster or a dump has
seen) to a `PreemptionDecision`. The extender, the guard and the command line call the same two
functions, so that explanations match decisions.
"""

from .evaluator import (
    PreemptionCandidate,
    PreemptionDecision,
    decide,
    gang_evicted_with,
    refusal_for,
    renewably_refused,
)
from .node_status import PLANNED_IN_VAIN, STATUS_MESSAGES, WAITING_IS_ENOUGH, DryRunStatus
from .reasons import REASON_MESSAGES, Refusal, RefusalReason
from .room_claim import RoomClaim

__all__ = [
    "PLANNED_IN_VAIN",
    "REASON_MESSAGES",
    "STATUS_MESSAGES",
    "WAITING_IS_ENOUGH",
    "DryRunStatus",
    "PreemptionCandidate",
    "PreemptionDecision",
    "Refusal",
    "RefusalReason",
    "RoomClaim",
    "decide",
    "gang_evicted_with",
    "refusal_for",
    "renewably_refused",
]
