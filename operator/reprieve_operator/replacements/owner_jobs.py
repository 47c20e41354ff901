"""The Jobs that own victims: the readiness of their pods, and their suspension.

A Job is read at most once a second for all its victims. Without this, each of a thousand victims
would list a thousand pods.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube.jobs import Job, owning_job_of
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.kube.pods import is_terminating
from reprieve_policy.lifecycle import suspension, termination
from reprieve_policy.lifecycle.suspension import SuspensionReadiness, SuspensionRecord
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.single_flight import SingleFlight

_SNAPSHOT_TTL_SECONDS = 1.0
_MAX_SNAPSHOTS = 256
"""Jobs whose state is cached."""
_LABEL = "true"


@dataclass(frozen=True, slots=True)
class _JobSnapshot:
    may_suspend: bool
    is_suspended: bool
    readiness: dict[str, SuspensionReadiness]
    """The readiness of its active pods, by uid."""


class OwnerJobs:
    """Reads Jobs with their pods, with a short cache, and suspends them."""

    def __init__(self, writes: Writes, clock: Clock) -> None:
        self._writes = writes
        self._clock = clock
        self._snapshots: SingleFlight[tuple[str, str], _JobSnapshot | None] = SingleFlight(
            _ttl_of, limits=None, max_results=_MAX_SNAPSHOTS, monotonic=clock.monotonic
        )

    async def get(self, pod: VictimPod) -> termination.OwnerJobState | None:
        """Return the Job that owns the pod, `None` if no Job does; raises `ApiError`."""
        snapshot = await self._get_snapshot(pod)
        if snapshot is None:
            return None
        others = frozenset(
            each for uid, each in snapshot.readiness.items() if uid != pod.metadata.uid
        )
        return termination.OwnerJobState(snapshot.may_suspend, snapshot.is_suspended, others)

    async def suspend(self, pod: VictimPod, backoff: timedelta) -> datetime | None:
        """Suspend the Job that owns the pod; return the end of its back-off, which the Job stores.

        Returns `None` if there is nothing to suspend. Raises `ApiError`; 409: another client
        changed the Job, read it again.
        """
        path = _path_of(pod)
        job = None if path is None else await self._read_job(path, _owner_uid(pod))
        if path is None or job is None or job.is_suspended or not suspension.may_suspend(job):
            return None
        now = self._clock.now().replace(microsecond=0)
        record = SuspensionRecord(
            since=now, until=now + backoff, generation=job.metadata.generation + 1
        )
        changes = {
            "annotations": {keys.SUSPENDED: suspension.render(record)},
            "labels": {keys.SUSPENDED: _LABEL},
        }
        await self._writes.patch_job(path, job.metadata, changes, suspend=True)
        return record.until

    async def _get_snapshot(self, pod: VictimPod) -> _JobSnapshot | None:
        path, uid = _path_of(pod), _owner_uid(pod)
        if path is None:
            return None
        read = partial(self._read_snapshot, path, pod.metadata.namespace or "", uid)
        # Not by the uid alone: a pod of another tenant may name it as its owner's.
        return await self._snapshots.do((path, uid), read)

    async def _read_snapshot(self, path: str, namespace: str, uid: str) -> _JobSnapshot | None:
        job = await self._read_job(path, uid)
        if job is None:
            return None
        # Not the Job itself: with very many labels, one takes ten times its 1.5 MB.
        snapshot = _JobSnapshot(suspension.may_suspend(job), job.is_suspended, {})
        del job
        params = {"labelSelector": f"{keys.JOB_UID}={uid}"}
        async for pods in self._writes.list_pages(
            object_path("pods", namespace), VictimPod, params=params
        ):
            snapshot.readiness.update(
                (pod.metadata.uid or "", self._readiness(pod)) for pod in pods if _is_active(pod)
            )
        return snapshot

    def _readiness(self, pod: VictimPod) -> SuspensionReadiness:
        state = pod_state.state_of(pod.metadata)
        if not pod_state.is_in_progress(state):
            state = pod_state.initial_state(pod, self._clock.now())
        return suspension.readiness_of(
            state, has_disruption_condition=pod_state.has_disruption_target(pod)
        )

    async def _read_job(self, path: str, uid: str) -> Job | None:
        job = await self._writes.get(path, Job)
        return job if job is not None and job.metadata.uid == uid else None


def _ttl_of(snapshot: _JobSnapshot | None) -> float:
    """Return how long a snapshot is reused; a Job that does not exist is looked for each time."""
    return 0.0 if snapshot is None else _SNAPSHOT_TTL_SECONDS


def _path_of(pod: VictimPod) -> str | None:
    owner = owning_job_of(pod.metadata)
    return None if owner is None else object_path("jobs", pod.metadata.namespace, owner.name)


def _owner_uid(pod: VictimPod) -> str:
    owner = controller_of(pod.metadata)
    return "" if owner is None else owner.uid


def _is_active(pod: VictimPod) -> bool:
    return not is_terminating(pod)
