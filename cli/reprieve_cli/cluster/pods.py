"""Single pods, with the objects that decisions about them depend on: their Jobs and PodGroups."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from reprieve_policy import keys
from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs import disruption, pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.jobs import Job, owning_job_of
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path


def progress_of(pod: Pod, tightest: Walltime | None) -> WorkProgress:
    """Return the pod's progress; `tightest` is the walltime that ends first."""
    saved_at = timestamp.parse(annotations_of(pod.metadata).get(keys.LAST_CHECKPOINT_AT))
    return WorkProgress(
        started_at=timestamp.parse(pod.status.startTime), saved_at=saved_at, walltime=tightest
    )


T = TypeVar("T")


class PodContext:
    """Reads the objects that pods depend on, each once. Reports what cannot be read and goes on."""

    def __init__(self, api: Api, report: Callable[[str], None]) -> None:
        self._api = api
        self._report = report
        self._walltimes: dict[str, Walltime | None] = {}
        self._groups: dict[str, PodGroupInfo | None] = {}

    async def walltime_of(self, pod: Pod, now: datetime) -> Walltime | None:
        """Return the walltime of the pod or of its Job, whichever ends first."""
        own, owner = walltime.read(pod), owning_job_of(pod.metadata)
        if owner is None:
            return own
        path = object_path("jobs", pod.metadata.namespace, owner.name)
        if path not in self._walltimes:
            job = await self.get(path, Job)
            self._walltimes[path] = None if job is None else walltime.read(job)
        return walltime.tightest([own, self._walltimes[path]], now)

    async def native_group_of(self, pod: Pod, found: Gang | None) -> PodGroupInfo | None:
        """Return the native PodGroup that the pod names; `None` if there is none."""
        if found is None or not found.is_native:
            return None
        path = object_path("podgroups", pod.metadata.namespace, found.name)
        if path not in self._groups:
            group = await self.get(path, PodGroup)
            self._groups[path] = None if group is None else pod_group.read(group)
        return self._groups[path]

    async def mode_of(self, pod: Pod, found: Gang | None) -> DisruptionMode:
        """Return how the pod's gang is disrupted; a native PodGroup defines it itself."""
        mode = (
            DisruptionMode.SINGLE
            if found is None
            else disruption.disruption_mode_of(found, pod.metadata)
        )
        if mode is not DisruptionMode.FROM_POD_GROUP:
            return mode
        group = await self.native_group_of(pod, found)
        return DisruptionMode.SINGLE if group is None else group.disruption_mode

    async def get(self, path: str, decode_as: type[T]) -> T | None:
        """Return an object; `None` if it does not exist or cannot be read."""
        try:
            return await self._api.get(path, decode_as)
        except ApiError as error:
            if error.is_unreachable:
                raise
            if not error.is_not_found:
                self._report(f"{path}: {error.message}")
            return None
