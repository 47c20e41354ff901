"""Why no victims are taken on a node, and how that is told."""

from collections.abc import Mapping
from enum import StrEnum


class DryRunStatus(StrEnum):
    """What stands against victims on a node."""

    UNKNOWN_NODE = "unknown-node"
    UNSUITABLE = "unsuitable"
    NO_PRIORITY_CLASS = "no-priority-class"
    """Upstream's plugin passes such a node over, too."""
    NO_VICTIMS = "no-victims"
    TOO_SMALL = "too-small"
    HAS_ROOM = "has-room"
    ROOM_BEING_RELEASED = "will-have-room"
    """Waiting is enough, and costs nobody anything."""
    PROPOSAL_OUTDATED = "outdated"
    """So is it here: the scheduler comes again once it sees what it has not seen yet."""
    ROOM_MAY_BE_RELEASED = "clearing"
    """Waiting may be enough: nobody has promised it."""
    PROPOSAL_REJECTED = "beside-others"
    TOO_MANY_VICTIMS = "too-many"
    TOO_EXPENSIVE = "too-dear"
    GANG_NOT_PLACED = "gang"


WAITING_IS_ENOUGH = frozenset(
    {DryRunStatus.HAS_ROOM, DryRunStatus.ROOM_BEING_RELEASED, DryRunStatus.PROPOSAL_OUTDATED}
)
"""On any node: nobody goes, on no node."""

STATUS_MESSAGES: Mapping[DryRunStatus, str] = {
    DryRunStatus.UNKNOWN_NODE: "there is no such node",
    DryRunStatus.UNSUITABLE: "its labels, its taints or its cordon keep the preemptor out",
    DryRunStatus.NO_PRIORITY_CLASS: "a pod there names a PriorityClass that does not exist",
    DryRunStatus.NO_VICTIMS: "nobody there may be a victim",
    DryRunStatus.TOO_SMALL: "there is no room even without all that may be victims",
    DryRunStatus.HAS_ROOM: "it has room",
    DryRunStatus.ROOM_BEING_RELEASED: "it will have room once those have gone that were told to go",
    DryRunStatus.PROPOSAL_OUTDATED: "somebody has left it, and the scheduler has yet to see that",
    DryRunStatus.ROOM_MAY_BE_RELEASED: "it will have room once those have gone that are being deleted",
    DryRunStatus.PROPOSAL_REJECTED: "only the scheduler knows what fits there, and of its own victims some have left or may be none",
    DryRunStatus.TOO_MANY_VICTIMS: "it would take more victims than one decision may",
    DryRunStatus.TOO_EXPENSIVE: "its victims would cost more than the preemptor is worth",
    DryRunStatus.GANG_NOT_PLACED: "the rest of the preemptor's gang could not be placed",
}
"""Of a node."""
