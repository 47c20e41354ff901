"""Writes to a pod when its preemption was first refused on a ground that its owner can renew.

`reprieve_policy.preemption.first_refusal` says which grounds these are, and what follows.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from reprieve_policy.preemption import first_refusal
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import MERGE_PATCH, METADATA_ONLY, Api, ApiError
from reprieve_runtime.client.paths import object_path

from .recent_choices import PodIdentity

_LOG = logging.getLogger(__name__)

_MAX_PODS = 5000
"""Pods; beyond that, the oldest are forgotten."""
_RETRY_SECONDS = 30.0
"""Until a write in the background is tried again, where no watch shows that it succeeded."""


class RefusalRecorder:
    """Patches pods; the precondition is the uid only.

    Without this, an owner who writes to the pod all the time would keep the refusal from being
    recorded. Two replicas may both write it: their times are nearly the same.
    """

    def __init__(
        self,
        api: Api,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds
        self._now, self._monotonic = api.server_time.now, monotonic
        self._tried_at: BoundedDict[str, float] = BoundedDict(_MAX_PODS)
        self._unrecorded: BoundedDict[str, datetime] = BoundedDict(_MAX_PODS)
        """By uid, when a pod was first refused whose refusal could not be recorded."""
        self._batch: asyncio.Task[None] | None = None

    async def record(self, pod: PodIdentity, ceiling_seconds: int | None = None) -> bool:
        """Record the first refusal, also if it could not be recorded before.

        Return whether the pod may be refused: not where it has no room for the record, nor where
        that could not be written for one ceiling. What cannot be recorded must not protect: the
        pod's owner can fill the annotations, or have a policy of another project refuse the change.
        """
        now = self._now()
        since = self._unrecorded.get(pod.uid, now)
        try:
            await self._write(pod, since)
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                return True
            if pod.uid not in self._unrecorded:
                self._unrecorded[pod.uid] = since
            is_over = ceiling_seconds is not None and first_refusal.is_over(
                since, ceiling_seconds, now
            )
            may_refuse = not (error.is_object_too_large or is_over)
            _LOG.warning(
                "could not record the first refusal",
                extra={
                    "pod": f"{pod.namespace}/{pod.name}",
                    "protected": may_refuse,
                    "error": str(error),
                },
            )
            return may_refuse
        self._unrecorded.pop(pod.uid, None)
        return True

    async def _write(self, pod: PodIdentity, since: datetime) -> None:
        change = first_refusal.build_change(pod.uid, since)
        await self._api.request(
            "PATCH",
            object_path("pods", pod.namespace, pod.name),
            params={"fieldManager": "reprieve-guard"},
            body={"metadata": {"uid": pod.uid, change.field: {change.key: change.value}}},
            content_type=MERGE_PATCH,
            accept=METADATA_ONLY,
            timeout_seconds=self._timeout_seconds,
        )

    def record_in_background(self, pods: Iterable[PodIdentity]) -> None:
        """Record the first refusal of these pods, one after another.

        Those that were tried a moment ago are left out, and all while others are under way: a
        scheduler asks again.
        """
        if self._batch is not None and not self._batch.done():
            return
        now = self._monotonic()
        due = [
            pod
            for pod in pods
            if now - self._tried_at.get(pod.uid, -_RETRY_SECONDS) >= _RETRY_SECONDS
        ]
        if due:
            self._tried_at.update(dict.fromkeys((pod.uid for pod in due), now))
            self._batch = asyncio.create_task(self._record_all(due))

    async def _record_all(self, pods: Iterable[PodIdentity]) -> None:
        for pod in pods:
            await self.record(pod)
