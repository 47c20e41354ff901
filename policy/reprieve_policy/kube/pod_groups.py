"""Native PodGroups (`scheduling.k8s.io/v1beta1`, GenericWorkload), as far as they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .objects import Unread, VersionedMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPolicy:
    """`spec.schedulingPolicy.gang`."""

    minCount: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """`spec.schedulingPolicy`: a gang's, or `basic`, where pods are placed one by one."""

    gang: GangPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupSpec:
    """The part of a PodGroup's spec that is read."""

    priority: int | None = None
    priorityClassName: str | None = None
    """The PriorityClass from which admission sets the priority."""
    disruptionMode: Mapping[str, Unread | None] | None = None
    schedulingPolicy: SchedulingPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupStatus:
    """A PodGroup's status. Conditions keep all their fields, because a patch replaces all of them.

    Their values are those that an API server accepts, not any: a very deep object is decoded at
    once only if nothing of it is decoded that may have any depth (`reprieve_runtime.deep`).
    """

    conditions: Sequence[dict[str, str | int | None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A PodGroup."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: PodGroupSpec | None = None
    status: PodGroupStatus = field(default_factory=PodGroupStatus)

    @property
    def priority(self) -> int | None:
        """The priority of all its pods; `None` if it states none."""
        return None if self.spec is None else self.spec.priority
