"""Choosing victims: who may be a victim of whom, which on a node, which nodes, in what order.

Pure, like all of the core: from a `scene.Scene`, which is what a watch, a live cluster or a dump has seen, to a `Decision`.
The extender, the guard and the command line ask the same two functions, so that what is explained is what is done.
"""

from .evaluator import PreemptionCandidate, PreemptionDecision, decide, refusal_for
from .node_status import STATUS_MESSAGES, WAITING_IS_ENOUGH, DryRunStatus
from .reason_messages import REASON_MESSAGES, Refusal
from .reasons import RefusalReason

__all__ = [
    "REASON_MESSAGES",
    "STATUS_MESSAGES",
    "WAITING_IS_ENOUGH",
    "DryRunStatus",
    "PreemptionCandidate",
    "PreemptionDecision",
    "Refusal",
    "RefusalReason",
    "decide",
    "refusal_for",
]
