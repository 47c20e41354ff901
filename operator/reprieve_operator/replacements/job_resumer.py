"""Resumes Jobs that Reprieve has suspended, once their back-off is over: what it needs is on the Job."""

import asyncio
import logging

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import Announcer, Regarding
from reprieve_operator.cluster.writes import Effects
from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import Fate
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .owner_jobs import Job

_log = logging.getLogger(__name__)

_GONE_OR_CHANGED = (404, 409)
_CLEARED: dict[str, object] = {"annotations": {keys.SUSPENDED: None}, "labels": {keys.SUSPENDED: None}}


class Resumer:
    """Looks at all Jobs with our label, again and again; holds nothing itself."""

    def __init__(self, effects: Effects, announcer: Announcer, clock: Clock, *, interval_seconds: float) -> None:
        self._effects = effects
        self._announcer = announcer
        self._clock = clock
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Look until cancelled, or until this replica no longer leads."""
        while True:
            try:
                await self._look()
            except ApiError as error:
                _log.warning("suspended jobs not looked at", extra={"error": str(error)})
            await asyncio.sleep(self._interval_seconds)

    async def _look(self) -> None:
        params = {"labelSelector": keys.SUSPENDED}
        async for jobs in self._effects.pages(object_path("jobs"), Job, params=params):
            for job in jobs:
                await self._take_care(job)

    async def _take_care(self, job: Job) -> None:
        try:
            await self._settle(job, self._fate_of(job))
        except ApiError as error:
            if error.status not in _GONE_OR_CHANGED:
                _log.warning("suspended job not settled", extra={"job": job.metadata.key, "error": str(error)})

    def _fate_of(self, job: Job) -> Fate:
        hold = suspension.parse(annotations_of(job.metadata).get(keys.SUSPENDED, ""))
        found = (each for each in job.status.conditions or () if (each.type, each.status) == ("Suspended", "True"))
        since = next((timestamp.parse(each.lastTransitionTime) for each in found), None)
        return suspension.decide(
            hold,
            since=since,
            generation=job.metadata.generation,
            is_suspended=job.is_suspended,
            now=self._clock.now(),
        )

    async def _settle(self, job: Job, fate: Fate) -> None:
        if fate is Fate.KEEP:
            return
        path = object_path("jobs", job.metadata.namespace, job.metadata.name)
        await self._effects.patch_job(path, job.metadata, _CLEARED, suspend=False if fate is Fate.RESUME else None)
        if fate in _TOLD:
            self._announcer.announce(Regarding.job(job.metadata), *_TOLD[fate])


_TOLD = {Fate.RESUME: event_messages.resumed(), Fate.DISOWN: event_messages.not_resumed()}
