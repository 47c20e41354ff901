"""Why no victims are selected on a node, as status and as message."""

from collections.abc import Mapping
from enum import StrEnum


class DryRunStatus(StrEnum):
    """The result of a dry run without victims."""

    UNKNOWN_NODE = "unknown-node"
    UNSUITABLE = "unsuitable"
    NO_PRIORITY_CLASS = "no-priority-class"
    """The upstream plugin skips such a node, too."""
    NO_VICTIMS = "no-victims"
    TOO_SMALL = "too-small"
    HAS_ROOM = "has-room"
    ROOM_BEING_RELEASED = "will-have-room"
    """Waiting is enough, and has no cost."""
    PROPOSAL_OUTDATED = "proposal-outdated"
    """Waiting is enough here, too: the scheduler comes again once its cache is up to date."""
    ROOM_MAY_BE_RELEASED = "may-have-room"
    """Waiting may be enough, but this is not certain: the room may be held, or for another pod."""
    PROPOSAL_REJECTED = "proposal-rejected"
    TOO_MANY_VICTIMS = "too-many-victims"
    TOO_EXPENSIVE = "too-expensive"
    QUOTA_EXCEEDED = "quota-exceeded"
    LOSES_MORE = "loses-more"
    """Only where the caller wants no more than the best candidate."""
    GANG_NOT_PLACED = "gang-not-placed"
    LOSES_MUCH = "loses-much"
    """Only where the caller may wait for room that comes by itself."""


WAITING_IS_ENOUGH = frozenset(
    {DryRunStatus.HAS_ROOM, DryRunStatus.ROOM_BEING_RELEASED, DryRunStatus.PROPOSAL_OUTDATED}
)
"""On any node: no victims are selected on any node."""

PLANNED_IN_VAIN = frozenset(
    {
        DryRunStatus.TOO_MANY_VICTIMS,
        DryRunStatus.TOO_EXPENSIVE,
        DryRunStatus.QUOTA_EXCEEDED,
        DryRunStatus.GANG_NOT_PLACED,
        DryRunStatus.LOSES_MUCH,
    }
)
"""Victims would make room there, but are not taken: the plan for all of the gang fails or waits."""

STATUS_MESSAGES: Mapping[DryRunStatus, str] = {
    DryRunStatus.UNKNOWN_NODE: "there is no such node",
    DryRunStatus.UNSUITABLE: "its labels, its taints or its cordon keep the preemptor out",
    DryRunStatus.NO_PRIORITY_CLASS: "a pod there names a PriorityClass that does not exist",
    DryRunStatus.NO_VICTIMS: "no pod there may be a victim",
    DryRunStatus.TOO_SMALL: "the preemptor does not fit even without all possible victims",
    DryRunStatus.HAS_ROOM: "it has room",
    DryRunStatus.ROOM_BEING_RELEASED: "it will have room once the notified victims are gone",
    DryRunStatus.PROPOSAL_OUTDATED: "a pod has left it, and the scheduler has not seen that yet",
    DryRunStatus.ROOM_MAY_BE_RELEASED: "it may have room once the pods that are leaving are gone",
    DryRunStatus.PROPOSAL_REJECTED: "only the scheduler knows what fits there, "
    "and some of its victims are gone or not eligible",
    DryRunStatus.TOO_MANY_VICTIMS: "it would take more victims than one decision allows",
    DryRunStatus.TOO_EXPENSIVE: "its victims would cost more than the preemptor is worth",
    DryRunStatus.QUOTA_EXCEEDED: "its victims free too little of the preemptor's ElasticQuota",
    DryRunStatus.LOSES_MORE: "its victims would lose more work than those of another node",
    DryRunStatus.GANG_NOT_PLACED: "the rest of the preemptor's gang could not be placed",
    DryRunStatus.LOSES_MUCH: "its victims would lose more work than the preemptor loses by waiting",
}
"""Of a node."""
