"""Which pods depend on which Jobs and native groups, and what is known of those."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.jobs import owning_job_of
from reprieve_policy.kube.objects import pod_group_name_of
from reprieve_policy.kube.pods import Pod
from reprieve_runtime.client.reflector import Key

V = TypeVar("V")
Dependency = tuple[str, ...]
"""What a pod depends on: `Job`, its namespace and uid, or a native group's namespace and name.

The uid alone would not do: a pod of another tenant may name it as its owner's.
"""

_JOB = "Job"


class PodDependencies:
    """The Jobs and native groups of the cached pods."""

    def __init__(self) -> None:
        self._dependents: dict[Dependency, set[Key]] = {}
        self._jobs: dict[Dependency, Walltime] = {}
        self._groups: dict[Dependency, PodGroupInfo] = {}
        self._changed: set[Dependency] = set()

    def put_job(self, namespace: str, uid: str, bound: Walltime | None) -> None:
        """Record the walltime of a Job."""
        self._put(self._jobs, (_JOB, namespace, uid), bound)

    def put_group(self, key: Key, group: PodGroupInfo | None) -> None:
        """Record a native group."""
        self._put(self._groups, key, group)

    def take_changed(self) -> list[Key]:
        """Return the pods of the Jobs and groups that have changed since the last call.

        Each once, however often its Job or group has changed.
        """
        changed, self._changed = self._changed, set()
        return [pod for dependency in changed for pod in self._dependents.get(dependency, ())]

    def link(self, pod: Key, dependencies: Iterable[Dependency]) -> None:
        """Record what a pod depends on."""
        for dependency in dependencies:
            self._dependents.setdefault(dependency, set()).add(pod)

    def unlink(self, pod: Key, dependencies: Iterable[Dependency]) -> None:
        """Forget what a pod depends on."""
        for dependency in dependencies:
            dependents = self._dependents[dependency]
            dependents.discard(pod)
            if not dependents:
                del self._dependents[dependency]

    def job_walltime(self, dependencies: Iterable[Dependency]) -> Walltime | None:
        """Return the walltime of the Job among these; `None` if none is known."""
        return next((self._jobs[key] for key in dependencies if key in self._jobs), None)

    def group(self, dependencies: Iterable[Dependency]) -> PodGroupInfo | None:
        """Return the native group among these; `None` if none is known."""
        return next((self._groups[key] for key in dependencies if key in self._groups), None)

    def _put(self, known: dict[Dependency, V], dependency: Dependency, value: V | None) -> None:
        if known.get(dependency) == value:
            return
        if value is None:
            del known[dependency]
        else:
            known[dependency] = value
        if dependency in self._dependents:
            self._changed.add(dependency)


def dependencies_of(pod: Pod) -> Iterator[Dependency]:
    """Yield the Job and the native group of a pod, also if nothing is known of them.

    The Job only of a pod on a node: a walltime bounds what runs.
    """
    job, group = owning_job_of(pod.metadata), pod_group_name_of(pod.spec.schedulingGroup)
    if job is not None and pod.occupies_node:
        yield _JOB, pod.metadata.namespace or "", job.uid
    if group:
        yield pod.metadata.namespace or "", group
