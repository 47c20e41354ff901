"""What the other pods of a job request, for a new bare pod that an ElasticQuota counts with them.

The pods are read by the label that names the job, and kept for a second, with the pods that this
replica admits meanwhile: when many pods of one job are created together, one call answers for all
of them. Only pods that use a quota and name a job cost a call; those that a controller of
Kubernetes makes from a template do not, because the template was checked.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, JobRequests
from reprieve_policy.gangs import job_requests
from reprieve_policy.gangs.job_requests import JobPod
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_policy.kube.pods import Pod, is_terminating
from reprieve_runtime import deep
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.single_flight import SingleFlight
from reprieve_webhooks.lookups.limits import DEFAULT_LIMITS

from . import gang_members

TRUSTED_SECONDS = 1.0
"""How long a list holds, and until an admitted pod can be read."""
_MAX_JOBS = 1000
_MAX_PODS = 1000
"""Pods of a job that are read; a job with more is too large for most quotas anyway."""
_MAX_LIST_BYTES = 16 * 1024 * 1024
"""A pod has some 3 to 10 KB, but a user may create pods of 1.5 MB."""
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"

_Key = tuple[str, str, str]
"""The namespace, and the job's identity in it."""


class _JobPodList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


class _Known(NamedTuple):
    read_at: float
    listed: dict[str, JobPod]
    admitted: dict[str, tuple[float, JobPod]]
    """The pods that this replica admitted, and when."""


class JobPods:
    """The pods of jobs, as one replica knows them."""

    def __init__(
        self,
        api: Api,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._timeout_seconds, self._monotonic = api, timeout_seconds, monotonic
        self._lists: SingleFlight[_Key, dict[str, JobPod]] = SingleFlight(
            0.0, limits=DEFAULT_LIMITS, monotonic=monotonic
        )
        self._jobs: BoundedDict[_Key, _Known] = BoundedDict(_MAX_JOBS)

    async def other_requests(
        self, pod: Resource, old: Resource | None, namespace: str, facts: Facts, *, is_dry_run: bool
    ) -> JobRequests:
        """Return what the other pods request; nothing if they do not count or cannot be read."""
        job = job_requests.job_to_count(pod, old, facts)
        if job is None or job.selector is None or not gang_members.can_list_members(namespace, job):
            return NO_JOB_REQUESTS
        key = (namespace, *job.key)
        try:
            known = await self._known(key, job, facts)
        except (ApiError, msgspec.MsgspecError):
            # The verdict of the other rules must not depend on a call that only this one needs.
            return NO_JOB_REQUESTS
        own_name = pod.metadata.name or pod.metadata.uid or ""
        own = job_requests.job_pod_of(next(pod_views(pod)), namespace, facts)
        pods = {name: admitted for name, (_, admitted) in known.admitted.items()} | known.listed
        pods.pop(own_name, None)
        if not is_dry_run:
            known.admitted[own_name] = (self._monotonic(), own)
        return job_requests.requests_of(own, pods.values())

    async def _known(self, key: _Key, job: Gang, facts: Facts) -> _Known:
        known, now = self._jobs.get(key), self._monotonic()
        if known is not None and now - known.read_at <= TRUSTED_SECONDS:
            return known
        listed = await self._lists.do(key, partial(self._list, key[0], job, facts))
        # Read again: other reviews have admitted pods while this one waited.
        known = self._jobs.get(key)
        admitted = {} if known is None else known.admitted
        recent = {name: one for name, one in admitted.items() if now - one[0] <= TRUSTED_SECONDS}
        self._drop_expired(now)
        self._jobs[key] = _Known(now, listed, recent)
        return self._jobs[key]

    def _drop_expired(self, now: float) -> None:
        """Drop jobs to which no pod was added lately; the oldest come first."""
        while self._jobs and now - next(iter(self._jobs.values())).read_at > 2 * TRUSTED_SECONDS:
            self._jobs.popitem(last=False)

    async def _list(self, namespace: str, job: Gang, facts: Facts) -> dict[str, JobPod]:
        text = await self._api.request(
            "GET",
            object_path("pods", namespace),
            params={
                "labelSelector": job.selector or "",
                "fieldSelector": _NOT_ENDED,
                "limit": str(_MAX_PODS),
            },
            timeout_seconds=self._timeout_seconds,
            max_bytes=_MAX_LIST_BYTES,
        )
        return _read_pods(text, namespace, facts)


def _read_pods(text: bytes, namespace: str, facts: Facts) -> dict[str, JobPod]:
    """Return the pods of a list by name, decoded one by one.

    A pod with very many labels takes ten times its size. Without this, a user with some dozens of
    them would have the webhooks killed for their memory.
    """
    pods = (deep.decode(item, Pod) for item in deep.decode(text, _JobPodList).items or ())
    return {
        pod.metadata.name or "": job_requests.job_pod_of(pod.view, namespace, facts)
        for pod in pods
        if not is_terminating(pod)
    }
