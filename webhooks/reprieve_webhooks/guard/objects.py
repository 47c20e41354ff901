# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The fields of pods that the guard reads, beyond those that rules read."""

from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.kube.objects import SchedulingGroup, VersionedMeta, annotations_of, labels_of
from reprieve_policy.kube.pods import Pod
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.preemption import first_refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The node of a pod and its native group.

    The pods of a node are read in a fraction of a second, so nothing else of them is decoded.
    """

    nodeName: str | None = None
    schedulingGroup: SchedulingGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod with only its placement."""

    spec: Placement = field(default_factory=Placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPod(Pod):
    """A pod whose deletion or eviction is under review, with the version for a precondition."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)

    @property
    def uid(self) -> str:
        """The identity of the pod: its name may later belong to another pod."""
        return self.metadata.uid or ""

    @property
    def node(self) -> str:
        """The node of the pod; empty if it has none."""
        return self.spec.nodeName or ""

    @property
    def state(self) -> Eviction | None:
        """The state of its soft eviction; `None` also if it cannot be parsed."""
        text = annotations_of(self.metadata).get(keys.EVICTION)
        return None if text is None else eviction.parse(text)

    @property
    def refused_since(self) -> datetime | None:
        """When it was first refused on a ground that its owner can renew."""
        return first_refusal.read(annotations_of(self.metadata), self.uid)

    @property
    def has_pending_mark(self) -> bool:
        """True where the pod carries a mark that the operator will handle."""
        labels, annotations = labels_of(self.metadata), annotations_of(self.metadata)
        if labels.get(keys.SOFT_EVICTION) == mark.MARKED:
            return isinstance(mark.read(labels, annotations), mark.Mark)
        return labels.get(keys.SOFT_EVICTION) in mark.REQUESTING_VALUES
