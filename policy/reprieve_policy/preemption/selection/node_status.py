"""Why no victims are taken on a node, and how that is told."""

from collections.abc import Mapping
from enum import StrEnum


class Obstacle(StrEnum):
    """What stands against victims on a node."""

    UNKNOWN_NODE = "unknown-node"
    UNSUITABLE = "unsuitable"
    NO_PRIORITY_CLASS = "no-priority-class"
    """Upstream's plugin passes such a node over, too."""
    NO_VICTIMS = "no-victims"
    TOO_SMALL = "too-small"
    HAS_ROOM = "has-room"
    WILL_HAVE_ROOM = "will-have-room"
    """Waiting is enough, and costs nobody anything."""
    OUTDATED = "outdated"
    """So is it here: the scheduler comes again once it sees what it has not seen yet."""
    CLEARING = "clearing"
    """Waiting may be enough: nobody has promised it."""
    BESIDE_OTHERS = "beside-others"
    TOO_MANY = "too-many"
    TOO_DEAR = "too-dear"
    GANG = "gang"


WAITING_IS_ENOUGH = frozenset({Obstacle.HAS_ROOM, Obstacle.WILL_HAVE_ROOM, Obstacle.OUTDATED})
"""On any node: nobody goes, on no node."""

OBSTACLES: Mapping[Obstacle, str] = {
    Obstacle.UNKNOWN_NODE: "there is no such node",
    Obstacle.UNSUITABLE: "its labels, its taints or its cordon keep the preemptor out",
    Obstacle.NO_PRIORITY_CLASS: "a pod there names a PriorityClass that does not exist",
    Obstacle.NO_VICTIMS: "nobody there may be a victim",
    Obstacle.TOO_SMALL: "there is no room even without all that may be victims",
    Obstacle.HAS_ROOM: "it has room",
    Obstacle.WILL_HAVE_ROOM: "it will have room once those have gone that were told to go",
    Obstacle.OUTDATED: "somebody has left it, and the scheduler has yet to see that",
    Obstacle.CLEARING: "it will have room once those have gone that are being deleted",
    Obstacle.BESIDE_OTHERS: "only the scheduler knows what fits there, and of its own victims some have left or may be none",
    Obstacle.TOO_MANY: "it would take more victims than one decision may",
    Obstacle.TOO_DEAR: "its victims would cost more than the preemptor is worth",
    Obstacle.GANG: "the rest of the preemptor's gang could not be placed",
}
"""Of a node."""
