"""Reads the pods of a job; what all such reads take together is bounded.

A tenant may create any number of jobs, each with pods of 1.5 MB or with thousands of containers.
Without the bounds, one dry run for each of them would have the webhooks killed for their memory, or
answer no review for seconds.
"""

import asyncio
from weakref import WeakValueDictionary

import msgspec

from reprieve_policy.facts import Facts
from reprieve_policy.gangs import job_requests
from reprieve_policy.gangs.job_requests import JobPod
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.pods import Pod, is_terminating
from reprieve_runtime import deep
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

_MAX_LISTS = 2
"""Lists that are read at a time, one of each namespace: they take twice `_MAX_LIST_BYTES` each."""
_MAX_PODS = 1000
"""Pods of a job that are read; a job with more is too large for most quotas anyway."""
_MAX_LIST_BYTES = 8 * 1024 * 1024
"""So many pods have 8 KiB each; usual are 3 to 10 KB, but a user may create pods of 1.5 MB."""
_MAX_ENTRIES = 20_000
"""Containers and requests in a list: 20 for each pod. To read one takes some microseconds."""
_STEP_BYTES = 64 * 1024
"""What is decoded before other reviews have their turn, unless one pod has more: a millisecond."""
_MAX_BRACKETS = 2_000_000
"""Of a pod with very deep values, which take long to find."""
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class _JobPodList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


class JobPodReader:
    """Makes the calls, in turn."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds
        self._turns = asyncio.Semaphore(_MAX_LISTS)
        self._turns_by_namespace: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Without these, the jobs of one tenant would have those of all others wait."""

    async def read(self, namespace: str, job: Gang, facts: Facts) -> dict[str, JobPod] | None:
        """Return the pods by name; `None` if they cannot be read in time, or are too large."""
        own_turn = self._turns_by_namespace.setdefault(namespace, asyncio.Lock())
        try:
            async with asyncio.timeout(self._timeout_seconds), own_turn, self._turns:
                return await read_pods(await self._list(namespace, job), namespace, facts)
        except (ApiError, msgspec.MsgspecError, TimeoutError):
            # The verdict of the other rules must not depend on a call that only one needs.
            return None

    async def _list(self, namespace: str, job: Gang) -> bytes:
        return await self._api.request(
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


async def read_pods(text: bytes, namespace: str, facts: Facts) -> dict[str, JobPod] | None:
    """Return the pods of a list by name, `None` if they have too many entries.

    The list is split at once; its pods are decoded one by one, because one with very many labels
    takes ten times its size.
    """
    found: dict[str, JobPod] = {}
    entries = step = 0
    for item in deep.decode(text, _JobPodList).items or ():
        entries += _add_pod(found, item, namespace, facts, _MAX_ENTRIES - entries)
        if entries > _MAX_ENTRIES:
            return None
        step += len(item)
        if step >= _STEP_BYTES:
            step = 0
            await asyncio.sleep(0)
    return found


def _add_pod(
    found: dict[str, JobPod], item: msgspec.Raw, namespace: str, facts: Facts, max_entries: int
) -> int:
    """Add a pod that counts and has no more than `max_entries`; return how many it has."""
    pod = deep.decode(item, Pod, _MAX_BRACKETS)
    if is_terminating(pod):
        return 0
    entries = pod_requests.count_entries(pod.spec)
    if entries <= max_entries:
        found[pod.metadata.name or ""] = job_requests.job_pod_of(pod.view, namespace, facts)
    return entries
