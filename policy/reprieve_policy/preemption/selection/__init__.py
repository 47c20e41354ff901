"""Choosing victims: who may be a victim of whom, which on a node, which nodes, in what order.

Pure, like all of the core: from a `scene.Scene`, which is what a watch, a live cluster or a dump has seen, to a `Decision`.
The extender, the guard and the command line ask the same two functions, so that what is explained is what is done.
"""

from .evaluator import Choice, Decision, decide, why_not
from .node_status import OBSTACLES, WAITING_IS_ENOUGH, Obstacle
from .reason_messages import SENTENCES, Refusal
from .reasons import Ground

__all__ = [
    "OBSTACLES",
    "SENTENCES",
    "WAITING_IS_ENOUGH",
    "Choice",
    "Decision",
    "Ground",
    "Obstacle",
    "Refusal",
    "decide",
    "why_not",
]
