# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The fields of pods that the guard reads, beyond those that rules read."""

from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from reprieve_policy import keys
from reprieve_policy.kube.objects import SchedulingGroup, VersionedMeta, annotations_of, labels_of
from reprieve_policy.kube.pods import Pod, PodSpec, PodStatus
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.preemption import first_refusal
from reprieve_runtime import deep
from reprieve_webhooks.snapshot import pod_pruning


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

    @property
    def state_before_mark(self) -> str | None:
        """The eviction before its pending mark and its phase, or ""; `None` without a pending mark.

        They tell the mark from those that the operator handled. The mark itself would not do: who
        may write it could write it anew all the time.
        """
        if not self.has_pending_mark:
            return None
        state = self.state
        return "" if state is None else f"{state.eviction_id} {state.phase}"


def prune(pod: GuardedPod) -> GuardedPod:
    """Return the pod without what no decision reads.

    Budgets no longer select a pod that is still too large by its own labels: it gets notice, and
    the API server asks them before it is evicted.
    """
    ready = pod_pruning.first_conditions(pod, {"Ready"})
    kept, _ = pod_pruning.prune(pod)
    conditions = [*(kept.status.conditions or ()), *ready]
    return replace(kept, status=replace(kept.status, conditions=conditions))


class _MarkLabels(msgspec.Struct, gc=False, omit_defaults=True):
    soft_eviction: str | None = msgspec.field(default=None, name=keys.SOFT_EVICTION)
    koordinators: str | None = msgspec.field(default=None, name=keys.KOORDINATOR_SOFT_EVICTION)


class _MarkAnnotations(msgspec.Struct, gc=False, omit_defaults=True):
    eviction: str | None = msgspec.field(default=None, name=keys.EVICTION)
    koordinators: str | None = msgspec.field(default=None, name=keys.KOORDINATOR_SOFT_EVICTION)
    preemptor: str | None = msgspec.field(default=None, name=keys.PREEMPTOR)


class _MarkedMeta(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: _MarkLabels | None = None
    annotations: _MarkAnnotations | None = None
    deletion_timestamp: str | None = None


class _MarkedStatus(msgspec.Struct, gc=False):
    phase: str = ""


class _MarkedPod(msgspec.Struct, gc=False):
    metadata: _MarkedMeta = msgspec.field(default_factory=_MarkedMeta)
    spec: Placement = msgspec.field(default_factory=Placement)
    status: _MarkedStatus = msgspec.field(default_factory=_MarkedStatus)


class _MarkedPodList(msgspec.Struct, gc=False):
    items: list[_MarkedPod] | None = None


_MAX_BRACKETS = 2_000_000
"""Of a list with very deep values, where Python has the decoder end at them (3.12)."""


def read_marked_pods(text: bytes) -> list[GuardedPod]:
    """Decode a list of pods under eviction: their marks, states and places.

    Nothing else is decoded. Without this, a user who marks some dozens of pods with very many
    labels would have the webhooks killed for their memory at the next preemption of any pod.
    """
    return [_guarded(pod) for pod in deep.decode(text, _MarkedPodList, _MAX_BRACKETS).items or ()]


def _guarded(pod: _MarkedPod) -> GuardedPod:
    meta = pod.metadata
    metadata = VersionedMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=msgspec.to_builtins(meta.labels),
        annotations=msgspec.to_builtins(meta.annotations),
        deletionTimestamp=meta.deletion_timestamp,
    )
    spec = PodSpec(nodeName=pod.spec.nodeName, schedulingGroup=pod.spec.schedulingGroup)
    return GuardedPod(metadata=metadata, spec=spec, status=PodStatus(phase=pod.status.phase))
