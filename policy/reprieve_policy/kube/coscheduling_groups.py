"""PodGroups of the Coscheduling plugin (`scheduling.x-k8s.io/v1alpha1`), as far as they are read.

Their status is written by the controller of that project.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .objects import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class CoschedulingGroupSpec:
    """The spec of a PodGroup; the CustomResourceDefinition checks the types."""

    minMember: int | None = None
    minResources: Mapping[str, object] | None = None
    scheduleTimeoutSeconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoschedulingGroup:
    """A PodGroup."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CoschedulingGroupSpec = field(default_factory=CoschedulingGroupSpec)
