"""Resumes Jobs that Reprieve has suspended, once their back-off is over.

All state is in the Job's own annotations.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.namespace_rests import NamespaceRests
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube.jobs import Job
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import SuspendedJobAction
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)

_RECORD_REMOVAL: dict[str, object] = {
    "annotations": {keys.SUSPENDED: None},
    "labels": {keys.SUSPENDED: None},
}


class SuspendedJob(NamedTuple):
    """A Job that waits for the end of its back-off."""

    namespace: str
    name: str
    until: datetime


class JobResumer:
    """Periodically reconciles all Jobs with Reprieve's label; decides by what they carry."""

    def __init__(
        self, writes: Writes, recorder: EventRecorder, clock: Clock, *, interval_seconds: float
    ) -> None:
        self._writes = writes
        self._recorder = recorder
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._rests = NamespaceRests(clock)
        self.suspended: Sequence[SuspendedJob] = ()
        """The Jobs that stayed suspended when all were last looked at."""

    async def run(self) -> None:
        """Reconcile until cancelled, or until this replica no longer leads."""
        while True:
            try:
                await self._reconcile_all()
            except ApiError as error:
                _log.warning("could not list suspended jobs", extra={"error": str(error)})
            await asyncio.sleep(self._interval_seconds)

    async def _reconcile_all(self) -> None:
        params = {"labelSelector": keys.SUSPENDED}
        suspended: list[SuspendedJob] = []
        async for jobs in self._writes.list_pages(object_path("jobs"), Job, params=params):
            for job in jobs:
                action = suspension.decide(job, self._clock.now())
                if action is SuspendedJobAction.KEEP and (known := _suspended(job)):
                    suspended.append(known)
                await self._reconcile(job, action)
        self._rests.end_round()
        self.suspended = suspended

    async def _reconcile(self, job: Job, action: SuspendedJobAction) -> None:
        namespace, uid = job.metadata.namespace or "", job.metadata.uid or ""
        if action is SuspendedJobAction.KEEP or not self._rests.is_due(namespace, uid):
            return
        try:
            with self._rests.noting_slow(namespace, uid):
                await self._apply(job, action)
        except ApiError as error:
            if not error.is_gone_or_changed:
                _log.warning(
                    "could not reconcile suspended job",
                    extra={"job": job.metadata.key, "error": str(error)},
                )

    async def _apply(self, job: Job, action: SuspendedJobAction) -> None:
        path = object_path("jobs", job.metadata.namespace, job.metadata.name)
        await self._writes.patch_job(
            path,
            job.metadata,
            _RECORD_REMOVAL,
            suspend=False if action is SuspendedJobAction.RESUME else None,
        )
        if action in _EVENTS:
            self._recorder.event(ObjectReference.for_job(job.metadata), *_EVENTS[action])


def _suspended(job: Job) -> SuspendedJob | None:
    record = suspension.parse(annotations_of(job.metadata).get(keys.SUSPENDED, ""))
    if record is None:
        return None
    return SuspendedJob(job.metadata.namespace or "", job.metadata.name or "", record.until)


_EVENTS = {
    SuspendedJobAction.RESUME: event_messages.job_resumed(),
    SuspendedJobAction.RELEASE_OWNERSHIP: event_messages.job_not_resumed(),
}
