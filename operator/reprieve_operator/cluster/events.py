"""Events before they are written: each reason with its action and type, and what one is about."""

from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy.kube.objects import VersionedMeta, controller_of

NORMAL, _WARNING = "Normal", "Warning"
REASONS: dict[str, tuple[str, str]] = {
    "PreemptionRefused": ("Refuse", NORMAL),
    "CheckpointRequested": ("Hint", NORMAL),
    "CheckpointNotRequested": ("Delete", NORMAL),
    "CheckpointAcknowledged": ("Wait", NORMAL),
    "CheckpointExtended": ("Wait", NORMAL),
    "CheckpointDeferred": ("Wait", NORMAL),
    "CheckpointSaved": ("Delete", NORMAL),
    "CheckpointNotSent": ("Delete", _WARNING),
    "CheckpointUnanswered": ("Delete", _WARNING),
    "CheckpointTimedOut": ("Delete", _WARNING),
    "CheckpointRefused": ("Delete", _WARNING),
    "CheckpointAnswerUnreadable": ("Hint", _WARNING),
    "CheckpointHintByAnnotation": ("Hint", _WARNING),
    "SoftEvictionWaiting": ("Wait", NORMAL),
    "SoftEvictionDeleting": ("Delete", NORMAL),
    "SoftEvictionOvertaken": ("Wait", _WARNING),
    "SoftEvictionFinished": ("Finish", NORMAL),
    "SoftEvictionCancelled": ("Cancel", NORMAL),
    "SoftEvictionCompleted": ("Complete", NORMAL),
    "PodPreempted": ("Delete", NORMAL),
    "PodEvicted": ("Delete", NORMAL),
    "PodEndedWithoutCheckpoint": ("Delete", _WARNING),
    "SoftEvictionUnreadable": ("Read", _WARNING),
    "SoftEvictionLeftOver": ("Read", _WARNING),
    "SoftEvictionWithoutNotice": ("Delete", _WARNING),
    "GangGoesAsAWhole": ("Hint", NORMAL),
    "GangTooLarge": ("Hint", _WARNING),
    "SoftEvictionRequeued": ("Create", NORMAL),
    "SoftEvictionRequeueRefused": ("Create", _WARNING),
    "SoftEvictionNotRequeued": ("Create", _WARNING),
    "SoftEvictionNotCounted": ("Delete", _WARNING),
    "GangDiverges": ("Read", _WARNING),
    "WaitingForBudget": ("Wait", _WARNING),
    "JobSuspended": ("Suspend", NORMAL),
    "JobResumed": ("Resume", NORMAL),
    "JobNotResumed": ("Resume", _WARNING),
    "WaitingForFinalizers": ("Wait", _WARNING),
    "WaitingForCleaners": ("Wait", NORMAL),
    "CleanersTimedOut": ("Delete", _WARNING),
    "CleanupCeilingReached": ("Release", _WARNING),
    "ProtectionUnchecked": ("Read", _WARNING),
    "PolicyUnreadable": ("Read", _WARNING),
    "LostNodesUnreadable": ("Read", _WARNING),
    "LentNodesUnreadable": ("Read", _WARNING),
    "LentNodeReclaimed": ("Reclaim", NORMAL),
    "GangWaiting": ("Wait", NORMAL),
    "GangWaitingForRoom": ("Wait", NORMAL),
    "GangReleased": ("Release", NORMAL),
    "GangIncomplete": ("Wait", _WARNING),
    "GangHeldBack": ("Delete", _WARNING),
    "GangNotReplaced": ("Wait", _WARNING),
    "GangRoomUnknown": ("Read", _WARNING),
}
"""Every reason, with its action and type."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an Event is about; `namespace` is empty for a node."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    controller: "ObjectReference | None" = field(default=None, compare=False)
    """Of a pod: what a user looks at after the pod is gone."""

    @classmethod
    def for_pod(cls, metadata: VersionedMeta) -> "ObjectReference":
        """Return the reference to a pod, with its controller."""
        return cls(
            "Pod",
            metadata.namespace or "",
            metadata.name or "",
            metadata.uid or "",
            controller=cls.for_controller(metadata),
        )

    @classmethod
    def for_namespace(cls, name: str) -> "ObjectReference":
        """Return the reference to a Namespace, for what is said of several objects of it."""
        return cls("Namespace", name, name, "")

    @classmethod
    def for_controller(cls, metadata: VersionedMeta) -> "ObjectReference | None":
        """Return the reference to a pod's controller; `None` if it has none."""
        owner = controller_of(metadata)
        if owner is None:
            return None
        return cls(owner.kind, metadata.namespace or "", owner.name, owner.uid, owner.apiVersion)

    @classmethod
    def for_job(cls, metadata: VersionedMeta) -> "ObjectReference":
        """Return the reference to a Job."""
        return cls(
            "Job", metadata.namespace or "", metadata.name or "", metadata.uid or "", "batch/v1"
        )


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """One Event that waits; as a JSON document, it would take three times the memory."""

    regarding: ObjectReference
    reason: str
    note: str
    event_time: datetime
    once: bool = False
    """No replica repeats the same note on the same object."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Reasons and notes of the pod's steps before, which have no Event of their own; newest first.
    """
    count: int = 1
    """How many alike it stands for; `first_time` is the first one's time."""
    first_time: datetime | None = None

    @property
    def namespace(self) -> str:
        """Where the Event is written: those about nodes are in `default`, as the kubelet's."""
        return self.regarding.namespace or "default"

    @property
    def is_normal(self) -> bool:
        """True if it asks for nothing."""
        return REASONS[self.reason][1] == NORMAL
