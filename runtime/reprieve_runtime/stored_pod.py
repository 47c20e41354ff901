"""A stored pod: the fields that rules read, and whether it is terminating."""

from dataclasses import dataclass, field, replace

from reprieve_policy.kube.objects import PodView, Resource, pod_views

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPhaseStatus:
    """The phase in a pod's status."""

    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPod(Resource):
    """One pod, or an item of a list of them."""

    status: PodPhaseStatus = field(default_factory=PodPhaseStatus)

    @property
    def is_terminating(self) -> bool:
        """True if the pod has ended or is being deleted."""
        return self.metadata.deletionTimestamp is not None or self.status.phase in _ENDED

    @property
    def view(self) -> PodView:
        """The pod as rules read it; items of a list have no kind."""
        return next(pod_views(replace(self, kind="Pod")))
