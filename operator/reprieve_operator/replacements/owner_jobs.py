# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The Jobs that own victims: how far their pods are, and their suspension where all of them may go.

Read once a second at most for all victims of a Job: each of a thousand would otherwise list a thousand pods.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VersionedMeta, VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle import suspension, termination
from reprieve_policy.lifecycle.suspension import SuspensionReadiness, SuspensionRecord
from reprieve_runtime.client.paths import object_path

_SNAPSHOT_TTL_SECONDS = 1.0
_MAX_SNAPSHOTS = 256
"""Jobs remembered at once."""
LABEL_VALUE = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeta(VersionedMeta):
    """A Job's metadata."""

    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Whether it runs, and whose it is."""

    suspend: bool | None = None
    managedBy: str | None = None
    manualSelector: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCondition:
    """One of a Job's conditions."""

    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What the job controller says."""

    conditions: Sequence[JobCondition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerJob:
    """The few fields of a Job that its suspension depends on."""

    metadata: JobMeta = field(default_factory=JobMeta)
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def is_suspended(self) -> bool:
        """True whoever suspended it."""
        return bool(self.spec.suspend)

    @property
    def may_be_suspended(self) -> bool:
        """True where nobody else decides on it."""
        selects_by_hand = bool(self.spec.manualSelector)
        return suspension.may_suspend(
            self.metadata, self.spec.managedBy, selects_by_hand=selects_by_hand
        )


@dataclass(frozen=True, slots=True)
class _JobSnapshot:
    read_at: float
    job: OwnerJob
    standings: dict[str, SuspensionReadiness]
    """Of its living pods, by uid."""


class OwnerJobs:
    """What is known of Jobs for a moment."""

    def __init__(self, effects: Writes, clock: Clock) -> None:
        self._effects = effects
        self._clock = clock
        self._snapshots: dict[str, asyncio.Task[_JobSnapshot | None]] = {}

    async def get(self, pod: VictimPod) -> termination.OwnerJobState | None:
        """Return the Job that owns the pod, `None` where none does; raises `ApiError`."""
        known = await self._get_snapshot(pod)
        if known is None:
            return None
        others = frozenset(
            found for uid, found in known.standings.items() if uid != pod.metadata.uid
        )
        return termination.OwnerJobState(known.job.may_be_suspended, known.job.is_suspended, others)

    async def suspend(self, pod: VictimPod, backoff: timedelta) -> datetime | None:
        """Suspend the Job that owns the pod, and keep on it until when; `None` where there is nothing left to do.

        Raises `ApiError`; 409: somebody else changed the Job, look again.
        """
        path = _path_of(pod)
        job = None if path is None else await self._read_job(path, _owner_uid(pod))
        if path is None or job is None or job.is_suspended or not job.may_be_suspended:
            return None
        now = self._clock.now().replace(microsecond=0)
        hold = SuspensionRecord(
            since=now, until=now + backoff, generation=job.metadata.generation + 1
        )
        changes = {
            "annotations": {keys.SUSPENDED: suspension.render(hold)},
            "labels": {keys.SUSPENDED: LABEL_VALUE},
        }
        await self._effects.patch_job(path, job.metadata, changes, suspend=True)
        return hold.until

    async def _get_snapshot(self, pod: VictimPod) -> _JobSnapshot | None:
        path, uid = _path_of(pod), _owner_uid(pod)
        if path is None:
            return None
        task = self._snapshots.get(uid)
        if task is None or self._is_stale(task):
            while len(self._snapshots) >= _MAX_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            # Whoever asks meanwhile waits for the same answer, also where the one who asked first is cancelled.
            task = self._snapshots[uid] = asyncio.create_task(
                self._read_snapshot(path, pod.metadata.namespace or "", uid)
            )
        return await asyncio.shield(task)

    def _is_stale(self, task: "asyncio.Task[_JobSnapshot | None]") -> bool:
        if not task.done():
            return False
        if task.cancelled() or task.exception() is not None:
            return True
        known = task.result()
        return known is None or self._clock.monotonic() >= known.read_at + _SNAPSHOT_TTL_SECONDS

    async def _read_snapshot(self, path: str, namespace: str, uid: str) -> _JobSnapshot | None:
        at, job = self._clock.monotonic(), await self._read_job(path, uid)
        if job is None:
            return None
        standings: dict[str, SuspensionReadiness] = {}
        params = {"labelSelector": f"{keys.JOB_UID}={uid}"}
        async for pods in self._effects.list_pages(
            object_path("pods", namespace), VictimPod, params=params
        ):
            standings |= {
                pod.metadata.uid or "": self._standing(pod) for pod in pods if _is_active(pod)
            }
        return _JobSnapshot(at, job, standings)

    def _standing(self, pod: VictimPod) -> SuspensionReadiness:
        state = pod_state.state_of(pod.metadata)
        if not pod_state.is_in_progress(state):
            state = pod_state.initial_state(pod, self._clock.now())
        return suspension.readiness_of(state, is_announced=pod_state.has_disruption_target(pod))

    async def _read_job(self, path: str, uid: str) -> OwnerJob | None:
        job = await self._effects.get(path, OwnerJob)
        return job if job is not None and job.metadata.uid == uid else None


def _path_of(pod: VictimPod) -> str | None:
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind != "Job" or not owner.apiVersion.startswith("batch/"):
        return None
    return object_path("jobs", pod.metadata.namespace, owner.name)


def _owner_uid(pod: VictimPod) -> str:
    owner = controller_of(pod.metadata)
    return "" if owner is None else owner.uid


def _is_active(pod: VictimPod) -> bool:
    return pod.metadata.deletionTimestamp is None and not pod_state.has_ended(pod)
