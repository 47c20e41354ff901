"""Jobs: what bounds how long their pods run, and what their suspension depends on.

Also which Job a pod belongs to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .conditions import Condition
from .objects import ObjectMeta, OwnerReference, VersionedMeta, controller_of, is_of_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A Job's time limit, whether it is suspended, and which controller manages it."""

    activeDeadlineSeconds: int | None = None
    suspend: bool | None = None
    managedBy: str | None = None
    manualSelector: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What the job controller reports."""

    startTime: str | None = None
    conditions: Sequence[Condition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch Job."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def is_suspended(self) -> bool:
        """True if the Job is suspended, by Reprieve or by others."""
        return bool(self.spec.suspend)


def owning_job_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the batch Job that controls an object, `None` if none does.

    Other projects have a kind of the same name: a Volcano Job does not count.
    """
    owner = controller_of(metadata)
    return owner if is_of_kind(owner, "batch", "Job") else None
