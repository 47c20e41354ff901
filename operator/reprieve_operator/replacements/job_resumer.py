"""Resumes Jobs that Reprieve has suspended, once their back-off is over: what it needs is on the Job."""

import asyncio
import logging

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import SuspendedJobAction
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .owner_jobs import OwnerJob

_log = logging.getLogger(__name__)

_GONE_OR_CHANGED = (404, 409)
_HOLD_REMOVAL: dict[str, object] = {
    "annotations": {keys.SUSPENDED: None},
    "labels": {keys.SUSPENDED: None},
}


class JobResumer:
    """Looks at all Jobs with our label, again and again; holds nothing itself."""

    def __init__(
        self, effects: Writes, announcer: EventRecorder, clock: Clock, *, interval_seconds: float
    ) -> None:
        self._effects = effects
        self._announcer = announcer
        self._clock = clock
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Look until cancelled, or until this replica no longer leads."""
        while True:
            try:
                await self._reconcile_all()
            except ApiError as error:
                _log.warning("suspended jobs not looked at", extra={"error": str(error)})
            await asyncio.sleep(self._interval_seconds)

    async def _reconcile_all(self) -> None:
        params = {"labelSelector": keys.SUSPENDED}
        async for jobs in self._effects.list_pages(object_path("jobs"), OwnerJob, params=params):
            for job in jobs:
                await self._reconcile(job)

    async def _reconcile(self, job: OwnerJob) -> None:
        try:
            await self._apply(job, self._decide(job))
        except ApiError as error:
            if error.status not in _GONE_OR_CHANGED:
                _log.warning(
                    "suspended job not settled",
                    extra={"job": job.metadata.key, "error": str(error)},
                )

    def _decide(self, job: OwnerJob) -> SuspendedJobAction:
        hold = suspension.parse(annotations_of(job.metadata).get(keys.SUSPENDED, ""))
        found = (
            each
            for each in job.status.conditions or ()
            if (each.type, each.status) == ("Suspended", "True")
        )
        since = next((timestamp.parse(each.lastTransitionTime) for each in found), None)
        return suspension.decide(
            hold,
            since=since,
            generation=job.metadata.generation,
            is_suspended=job.is_suspended,
            now=self._clock.now(),
        )

    async def _apply(self, job: OwnerJob, fate: SuspendedJobAction) -> None:
        if fate is SuspendedJobAction.KEEP:
            return
        path = object_path("jobs", job.metadata.namespace, job.metadata.name)
        await self._effects.patch_job(
            path,
            job.metadata,
            _HOLD_REMOVAL,
            suspend=False if fate is SuspendedJobAction.RESUME else None,
        )
        if fate in _EVENTS:
            self._announcer.event(ObjectReference.for_job(job.metadata), *_EVENTS[fate])


_EVENTS = {
    SuspendedJobAction.RESUME: event_messages.job_resumed(),
    SuspendedJobAction.RELEASE_OWNERSHIP: event_messages.job_not_resumed(),
}
