# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""What the guard reads of pods, beyond what rules read of them."""

from dataclasses import dataclass, field

from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta, SchedulingGroup, annotations_of, labels_of
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.preemption.selection.api_objects import Pod

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a pod is, and with which native group."""

    nodeName: str | None = None
    schedulingGroup: SchedulingGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod of which nothing else matters."""

    spec: Placement = field(default_factory=Placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPodMeta(ObjectMeta):
    """Metadata with what a precondition needs."""

    resourceVersion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPod(Pod):
    """A pod that somebody wants gone."""

    metadata: GuardedPodMeta = field(default_factory=GuardedPodMeta)

    @property
    def uid(self) -> str:
        """Which pod it is: a name alone may be another pod's tomorrow."""
        return self.metadata.uid or ""

    @property
    def node(self) -> str:
        """Where it runs; empty where it does not."""
        return self.spec.nodeName or ""

    @property
    def is_terminating(self) -> bool:
        """True for one that has ended, or is being deleted."""
        return self.metadata.deletionTimestamp is not None or self.status.phase in _ENDED

    @property
    def state(self) -> Eviction | None:
        """The soft eviction that it carries; one that cannot be read counts as none."""
        text = annotations_of(self.metadata).get(keys.EVICTION)
        return None if text is None else eviction.parse(text)

    @property
    def has_pending_mark(self) -> bool:
        """True where it carries a mark that the operator will take up."""
        labels, annotations = labels_of(self.metadata), annotations_of(self.metadata)
        if labels.get(keys.SOFT_EVICTION) == mark.MARKED:
            return isinstance(mark.read(labels, annotations), mark.Mark)
        return labels.get(keys.SOFT_EVICTION) in mark.REQUESTING_VALUES
