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

from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, JobRequests
from reprieve_policy.gangs import job_requests
from reprieve_policy.gangs.job_requests import JobPod
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.names import is_object_name, is_uid
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import Api
from reprieve_runtime.single_flight import RateLimitedError, SingleFlight
from reprieve_webhooks.lookups.limits import FAIR_LIMITS

from . import gang_members
from .job_pod_reader import JobPodReader

TRUSTED_SECONDS = 1.0
"""How long a list holds, also one that failed, and until an admitted pod can be read."""
_MAX_JOBS = 1000
_MAX_AMOUNTS = 50_000
"""Of all lists that are kept, some 10 MB; a pod usually has two or three."""

_MAX_ADMITTED = 200
"""Pods of a job that one replica has admitted since the job was read: more than it reviews then."""

_Key = tuple[str, str, str]
"""The namespace, and the job's identity in it."""


class _Known(NamedTuple):
    read_at: float
    listed: dict[str, JobPod] | None
    """`None`: they could not be read."""
    admitted: dict[str, tuple[float, JobPod]]
    """The pods that this replica admitted, and when."""
    amounts: int
    """How many the listed pods have in all."""


def _name_of(pod: Resource) -> str:
    """Return by what a new pod is known until it can be read; empty if it has nothing valid."""
    name, uid = pod.metadata.name or "", pod.metadata.uid or ""
    if is_object_name(name):
        return name
    return uid if is_uid(uid) else ""


class JobPods:
    """The pods of jobs, as one replica knows them."""

    def __init__(
        self,
        api: Api,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = JobPodReader(api, timeout_seconds=timeout_seconds)
        self._monotonic = monotonic
        self._lists: SingleFlight[_Key, None] = SingleFlight(
            0.0, limits=FAIR_LIMITS, monotonic=monotonic
        )
        self._jobs: BoundedDict[_Key, _Known] = BoundedDict(_MAX_JOBS)

    async def other_requests(
        self, pod: Resource, old: Resource | None, namespace: str, facts: Facts, *, is_dry_run: bool
    ) -> JobRequests:
        """Return what the other pods request; nothing if they do not count or cannot be read."""
        job = job_requests.job_to_count(pod, old, facts)
        if job is None or job.selector is None or not gang_members.can_list_members(namespace, job):
            return NO_JOB_REQUESTS
        known = await self._known((namespace, *job.key), job, facts)
        if known is None or known.listed is None:
            return NO_JOB_REQUESTS
        own_name = _name_of(pod)
        own = job_requests.job_pod_of(next(pod_views(pod)), namespace, facts)
        pods = {name: admitted for name, (_, admitted) in known.admitted.items()} | known.listed
        pods.pop(own_name, None)
        if own_name and not is_dry_run and len(known.admitted) < _MAX_ADMITTED:
            known.admitted[own_name] = (self._monotonic(), own)
        return job_requests.requests_of(own, pods.values())

    async def _known(self, key: _Key, job: Gang, facts: Facts) -> _Known | None:
        known = self._jobs.get(key)
        if known is not None and self._monotonic() - known.read_at <= TRUSTED_SECONDS:
            return known
        try:
            await self._lists.do(key, partial(self._list, key, job, facts), namespace=key[0])
        except RateLimitedError:
            return None
        return self._jobs.get(key)

    async def _list(self, key: _Key, job: Gang, facts: Facts) -> None:
        began_at = self._monotonic()
        listed = await self._reader.read(key[0], job, facts)
        now = self._monotonic()
        # Read only now: other reviews have admitted pods while this list was made.
        known = self._jobs.get(key)
        admitted = {} if known is None else known.admitted
        recent = {
            name: one for name, one in admitted.items() if began_at - one[0] <= TRUSTED_SECONDS
        }
        amounts = sum(len(pod.amounts) for pod in (listed or {}).values())
        amounts += sum(len(pod.amounts) for _, pod in recent.values())
        self._jobs[key] = _Known(now if listed is None else began_at, listed, recent, amounts)
        self._drop_oldest(now, key)

    def _drop_oldest(self, now: float, newest: _Key) -> None:
        """Drop jobs to which no pod was added lately, and others beyond the bound."""
        amounts = sum(known.amounts for known in self._jobs.values())
        for key, known in list(self._jobs.items()):
            is_recent = now - known.read_at <= 2 * TRUSTED_SECONDS
            if key == newest or (is_recent and amounts <= _MAX_AMOUNTS):
                return
            amounts -= known.amounts
            del self._jobs[key]
