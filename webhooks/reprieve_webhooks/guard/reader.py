"""The guard's calls to the API server.

It reads the pod that an eviction names, its budgets, its Job, its native group and the other
victims of a preemptor, and it writes the mark.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from reprieve_policy import keys
from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.jobs import Job, owning_job_of
from reprieve_policy.kube.limits.disruption_budgets import MAX_BUDGETS, PodDisruptionBudget
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import pod_group_name_of
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption import eviction_pdb
from reprieve_policy.preemption.guard import RequestKind
from reprieve_policy.verdict import MetadataChange
from reprieve_runtime import deep
from reprieve_runtime.client.api import MERGE_PATCH, METADATA_ONLY, Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_runtime.single_flight import RateLimitedError, SingleFlight
from reprieve_webhooks.lookups.getter import TTL_SECONDS, CachedGetter, unchanged
from reprieve_webhooks.lookups.limits import (
    BURST_CALLS,
    CALLS_PER_SECOND,
    DEFAULT_LIMITS,
    MAX_OBJECT_BYTES,
)
from reprieve_webhooks.lookups.walltimes import FirstSeenWalltimes
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

from .objects import GuardedPod, PlacedPod, prune, read_marked_pods

V = TypeVar("V")

_LOG = logging.getLogger(__name__)

_NAMESPACES_AT_FULL_RATE = 4
_LIMITS = {
    RequestKind.PREEMPTION: DEFAULT_LIMITS,
    RequestKind.EVICTION: RateLimits(
        Rate(_NAMESPACES_AT_FULL_RATE * CALLS_PER_SECOND, _NAMESPACES_AT_FULL_RATE * BURST_CALLS),
        per_namespace=DEFAULT_LIMITS.total,
    ),
}
"""A user who may evict pods may evict any number: the reads for evictions have limits of their own,
in total and in each namespace. Without this, one tenant could have the drains of all others
refused, or preempted pods deleted without notice."""
_POD_LIMITS = {**_LIMITS, RequestKind.PREEMPTION: None}
"""No limit for the victims of preemptions: a scheduler asks for a few at a time, and only an API
server knows the path of the guard. Without this, a victim whose mark met a conflict, or that goes
beside many others, would be deleted without notice while the preemptions of others are read."""
_MAX_POD_BYTES = 512 * 1024
"""Of a pod that an eviction names, or another victim. A usual one has ten thousand, and one that is
full of annotations 300,000. A larger one is not read, and is evicted without notice. Up to a
hundred are read at once: without this, a user who evicts as many pods of their own, of 1.5 MB each,
would have the webhooks killed for their memory."""
_MAX_VICTIM_LIST_BYTES = 16 * 1024 * 1024
"""Read to find the victims of one preemptor. A victim has some 3 to 10 KB, but a user who may
delete pods of their own may mark many, each of 1.5 MB."""
_MAX_BUDGET_LIST_BYTES = 1024 * 1024
"""Bytes of their list; a usual budget has about one thousand. A user who may create budgets may
fill etcd's 1.5 MB with each. Without this, they would fill the memory of the webhooks."""
_MAX_NODE_LIST_BYTES = 4 * 1024 * 1024
"""Bytes of the list of one namespace's pods on a node; of 110 pods of 30 KB."""
_MAX_NODE_LISTS = 4
"""Lists of pods on nodes at a time: one review may ask for those on thirty nodes."""
_LIST_TIMEOUT_SECONDS = 0.3
"""The API server waits for three seconds, in which the pod, its group and the mark need calls too;
then it evicts the pod without notice."""
_LOG_INTERVAL_SECONDS = 60.0
"""Between two warnings that something could not be read. Without this, a drain would log one a
second for each namespace."""


class _PlacedPodList(msgspec.Struct, gc=False):
    items: list[PlacedPod] | None = None


class _ListMeta(msgspec.Struct, gc=False, rename={"continue_": "continue"}):
    continue_: str = ""


class _BudgetList(msgspec.Struct, gc=False):
    items: list[PodDisruptionBudget] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _JobBounds(NamedTuple):
    uid: str | None
    walltime: Walltime | None


def _bounds_of(job: Job) -> _JobBounds:
    return _JobBounds(job.metadata.uid, walltime.read(job))


class GuardReader:
    """Reads and marks pods; raises `ApiError`."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds
        self._pod_getters = {
            request_kind: CachedGetter(
                api,
                GuardedPod,
                prune,
                timeout_seconds=timeout_seconds,
                ttl_seconds=0.0,
                limits=limits,
                max_bytes=_MAX_POD_BYTES,
            )
            for request_kind, limits in _POD_LIMITS.items()
        }
        self._job_getter = CachedGetter(
            api, Job, _bounds_of, timeout_seconds=timeout_seconds, max_bytes=MAX_OBJECT_BYTES
        )
        self._walltimes = FirstSeenWalltimes()
        self._pod_group_getter = CachedGetter(
            api,
            PodGroup,
            pod_group.read,
            timeout_seconds=timeout_seconds,
            max_bytes=MAX_OBJECT_BYTES,
        )
        self._node_getter = CachedGetter(api, Node, unchanged, timeout_seconds=timeout_seconds)
        self._budget_lists: SingleFlight[str, Sequence[PodDisruptionBudget]] = SingleFlight(
            TTL_SECONDS, limits=DEFAULT_LIMITS
        )
        self._logged_at: dict[str, float] = {}
        # Not cached after the call: a cached list would lack a mark that was written a moment ago.
        # The preemptor may retry within 20 ms, and would get a second set of victims.
        self._victim_lists: SingleFlight[str, Sequence[GuardedPod]] = SingleFlight(
            0.0, limits=DEFAULT_LIMITS
        )
        self._node_lists = asyncio.Semaphore(_MAX_NODE_LISTS)
        self._groups_on_nodes: SingleFlight[tuple[str, str], frozenset[str]] = SingleFlight(
            TTL_SECONDS, limits=DEFAULT_LIMITS
        )

    async def find_pod(
        self, namespace: str, name: str, request_kind: RequestKind = RequestKind.PREEMPTION
    ) -> GuardedPod | None:
        """Return a pod as it is now, `None` if it does not exist, or is larger than any usual one.

        `request_kind` selects the rate limit.
        """
        try:
            return await self._pod_getters[request_kind].find("pods", name, namespace)
        except ApiError as error:
            if not error.is_answer_too_large:
                raise
            self._log_rate_limited(
                "a pod is too large to be read, and gets no notice of an eviction",
                {"pod": f"{namespace}/{name}", "error": str(error)},
            )
            return None

    async def job_walltime(self, pod: GuardedPod, namespace: str) -> Walltime | None:
        """Return the walltime of the Job that the pod belongs to."""
        owner = owning_job_of(pod.metadata)
        if owner is None:
            return None
        job = await self._read_optional(self._job_getter.find("jobs", owner.name, namespace))
        if job is None or job.uid != owner.uid:
            return None
        return self._walltimes.observe(owner.uid, job.walltime)

    async def find_pod_group(self, pod: Pod, namespace: str) -> PodGroupInfo | None:
        """Return the PodGroup that the pod names; `None` without one, or without that API."""
        name = pod_group_name_of(pod.spec.schedulingGroup)
        if not name:
            return None
        return await self._read_optional(self._pod_group_getter.find("podgroups", name, namespace))

    async def runs_group_on(self, node: str, pod: GuardedPod, namespace: str) -> bool | None:
        """True if a pod of the same native group is on that node; `None` if that is unknown now."""
        key = (namespace, node)
        try:
            groups = await self._groups_on_nodes.do(key, partial(self._list_groups, *key))
        except (ApiError, msgspec.MsgspecError):
            return None
        return pod_group_name_of(pod.spec.schedulingGroup) in groups

    async def _list_groups(self, namespace: str, node: str) -> frozenset[str]:
        """Return the native groups of a namespace's pods on a node, from the API server's cache."""
        seconds = min(self._timeout_seconds, _LIST_TIMEOUT_SECONDS)
        try:
            async with asyncio.timeout(seconds), self._node_lists:
                text = await self._api.request(
                    "GET",
                    object_path("pods", namespace),
                    params={"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"},
                    timeout_seconds=seconds,
                    max_bytes=_MAX_NODE_LIST_BYTES,
                )
        except TimeoutError as error:
            raise ApiError(0, "Timeout", "the pods on a node were not listed in time") from error
        specs = (
            pod.spec
            for pod in deep.decode(text, _PlacedPodList).items or ()
            if pod.spec.nodeName == node
        )
        return frozenset(
            name for spec in specs if (name := pod_group_name_of(spec.schedulingGroup))
        )

    async def find_node(self, name: str) -> Node | None:
        """Return a node, `None` if it does not exist, or cannot be read now."""
        return await self._read_optional(self._node_getter.find("nodes", name))

    async def _read_optional(self, reading: Awaitable[V | None]) -> V | None:
        """Return what is read; `None`, as if the object stated nothing, if it cannot be read now.

        A pod then gets notice, and the operator reads its Job and its group once more. Without
        this, a pod that is saving would be deleted where its Job cannot be read for a moment, or
        many pods are preempted at once: the deletion goes ahead if its review fails. An object
        larger than any usual one is not read: a user who has as many pods deleted at once, each
        with a group of 1.5 MB, would have the webhooks killed for their memory.
        """
        try:
            return await reading
        except RateLimitedError:
            return None
        except (ApiError, msgspec.MsgspecError) as error:
            self._log_rate_limited(
                "could not read what a pod under review names; it counts as stating nothing",
                {"error": str(error)},
            )
            return None

    async def is_blocked_by_budget(self, pod: GuardedPod, namespace: str) -> bool:
        """True where a known PodDisruptionBudget does not allow the eviction of the pod now."""
        try:
            budgets = await self._budget_lists.do(namespace, partial(self._list_budgets, namespace))
        except RateLimitedError as error:
            self._log_unread_budgets(namespace, str(error))
            return False
        return eviction_pdb.is_eviction_blocked(pod, budgets)

    async def _list_budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        """Return a namespace's budgets, or none if they cannot be read.

        Its pods are then notified, perhaps in vain, and the budgets hold them all the same. The
        failure is cached as well. Without this, each eviction of a drain would read them again.
        """
        path, params = object_path("poddisruptionbudgets", namespace), {"limit": str(MAX_BUDGETS)}
        seconds = min(self._timeout_seconds, _LIST_TIMEOUT_SECONDS)
        try:
            text = await self._api.request(
                "GET",
                path,
                params=params,
                timeout_seconds=seconds,
                max_bytes=_MAX_BUDGET_LIST_BYTES,
            )
            budgets = deep.decode(text, _BudgetList)
        except (ApiError, msgspec.MsgspecError) as error:
            self._log_unread_budgets(namespace, str(error))
            return ()
        if budgets.metadata.continue_:
            self._log_unread_budgets(namespace, f"more than {MAX_BUDGETS}")
            return ()
        return budgets.items or ()

    def _log_unread_budgets(self, namespace: str, reason: str) -> None:
        self._log_rate_limited(
            "could not read budgets; pods are notified as if there were none",
            {"namespace": namespace, "error": reason},
        )

    def _log_rate_limited(self, message: str, extra: Mapping[str, str]) -> None:
        now = time.monotonic()
        if now - self._logged_at.get(message, -math.inf) >= _LOG_INTERVAL_SECONDS:
            self._logged_at[message] = now
            _LOG.warning(message, extra=extra)

    async def pods_under_eviction(self) -> Sequence[GuardedPod]:
        """Return the pods under eviction, from the API server's cache; none if they cannot be read.

        A preemptor may then get a second set of victims, which get notice as well. Without this, a
        user could mark many pods of their own and so deprive every other victim of notice. And if
        every preemptor counted as one that has a set, no pod could preempt while they exist.
        """
        try:
            return await self._victim_lists.do("", self._list_pods_under_eviction)
        except (ApiError, msgspec.MsgspecError) as error:
            self._log_rate_limited(
                "could not read pods under eviction; a preemptor may get a second set of victims",
                {"error": str(error)},
            )
            return ()

    async def _list_pods_under_eviction(self) -> Sequence[GuardedPod]:
        """Read all pods with our label; the size is limited here, as that cache ignores `limit`."""
        text = await self._api.request(
            "GET",
            object_path("pods"),
            params={"labelSelector": keys.SOFT_EVICTION, "resourceVersion": "0"},
            timeout_seconds=self._timeout_seconds,
            max_bytes=_MAX_VICTIM_LIST_BYTES,
        )
        return read_marked_pods(text)

    async def mark(
        self, pod: PodIdentity, changes: Iterable[MetadataChange], version: str | None
    ) -> bool:
        """Write the mark to this pod; `False` if it has changed since this version, or is gone.

        `None`: whatever its version is.
        """
        metadata: dict[str, object] = {"uid": pod.uid}
        if version is not None:
            metadata["resourceVersion"] = version
        written: dict[str, dict[str, str]] = {}
        for change in changes:
            written.setdefault(change.field, {})[change.key] = change.value
        path = object_path("pods", pod.namespace, pod.name)
        try:
            await self._api.request(
                "PATCH",
                path,
                params={"fieldManager": "reprieve-guard"},
                body={"metadata": metadata | written},
                content_type=MERGE_PATCH,
                accept=METADATA_ONLY,
                timeout_seconds=self._timeout_seconds,
            )
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                return False
            raise
        return True
