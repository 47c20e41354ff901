"""A pod as the API server stores it: what rules read of one, and whether it is on its way out."""

from dataclasses import dataclass, field, replace

from reprieve_policy.kube.objects import PodView, Resource, pod_views

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPhaseStatus:
    """Of a pod's status, its phase."""

    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPod(Resource):
    """One pod, or an item of a list of them."""

    status: PodPhaseStatus = field(default_factory=PodPhaseStatus)

    @property
    def is_terminating(self) -> bool:
        """True for one that has ended, or is being deleted."""
        return self.metadata.deletionTimestamp is not None or self.status.phase in _ENDED

    @property
    def view(self) -> PodView:
        """What rules read; in a list, items don't say their kind."""
        return next(pod_views(replace(self, kind="Pod")))
