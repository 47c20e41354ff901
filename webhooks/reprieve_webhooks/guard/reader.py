"""The guard's calls: the pod that an eviction names, its budgets, its Job, its native group, a preemptor's other victims, the mark."""

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from reprieve_policy import keys
from reprieve_policy.config.walltime import Job, Walltime
from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.pod_group import PodGroup, PodGroupInfo
from reprieve_policy.kube.objects import controller_of, pod_group_name_of
from reprieve_policy.preemption import eviction_pdb
from reprieve_policy.preemption.guard import RequestKind
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_policy.verdict import MetadataChange
from reprieve_runtime import deep
from reprieve_runtime.client.api import MERGE_PATCH, METADATA_ONLY, Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_webhooks.lookups.getter import TTL_SECONDS, CachedGetter
from reprieve_webhooks.lookups.rate_limit import Rate, RateLimits
from reprieve_webhooks.lookups.single_flight import (
    BURST_CALLS,
    CALLS_PER_SECOND,
    DEFAULT_LIMITS,
    RateLimitedError,
    SingleFlight,
)
from reprieve_webhooks.lookups.walltimes import FirstSeenWalltimes
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

from .objects import GuardedPod, PlacedPod

_LOG = logging.getLogger(__name__)

_NOT_FOUND, _CONFLICT = 404, 409
_NAMESPACES_AT_FULL_RATE = 4
_LIMITS = {
    RequestKind.PREEMPTION: DEFAULT_LIMITS,
    RequestKind.EVICTION: RateLimits(
        Rate(_NAMESPACES_AT_FULL_RATE * CALLS_PER_SECOND, _NAMESPACES_AT_FULL_RATE * BURST_CALLS),
        per_namespace=DEFAULT_LIMITS.total,
    ),
}
"""Whoever may evict pods may evict as many as he likes: what is asked for them is bounded in each namespace, and for itself.
Without this, one tenant would have everybody's drains refused, or preempted pods deleted without notice."""
_MAX_VICTIM_LIST_BYTES = 16 * 1024 * 1024
"""Looked at for one preemptor's: a victim has some 3 to 10 KB, and whoever may delete pods of his own may mark as many, each of 1.5 MB."""
_MAX_BUDGETS = 200
"""Of a namespace; where there are more, nobody knows which of them are about a pod."""
_MAX_BUDGET_LIST_BYTES = 1024 * 1024
"""Of their list; a usual budget has about one thousand. Whoever may create budgets may fill etcd's 1.5 MB with each: without this, they
fill our memory."""
_MAX_NODE_LIST_BYTES = 8 * 1024 * 1024
"""Of one namespace's pods on a node."""
_LIST_TIMEOUT_SECONDS = 0.3
"""The API server waits for three, for the pod, its group and the mark too, and then evicts a pod that nobody was told of."""
_LOG_INTERVAL_SECONDS = 60.0
"""After it was said that something was not read. Without this, a drain would say it once a second for each namespace."""


class _GuardedPodList(msgspec.Struct, gc=False):
    items: list[GuardedPod] | None = None


class _PlacedPodList(msgspec.Struct, gc=False):
    items: list[PlacedPod] | None = None


class _ListMeta(msgspec.Struct, gc=False, rename={"continue_": "continue"}):
    continue_: str = ""


class _BudgetList(msgspec.Struct, gc=False):
    items: list[PodDisruptionBudget] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class GuardReader:
    """Reads and marks pods; raises `ApiError`."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds
        self._pod_getters = {
            door: CachedGetter(
                api, GuardedPod, timeout_seconds=timeout_seconds, ttl_seconds=0.0, limits=bounds
            )
            for door, bounds in _LIMITS.items()
        }
        self._job_getter = CachedGetter(api, Job, timeout_seconds=timeout_seconds)
        self._walltimes = FirstSeenWalltimes()
        self._pod_group_getters = {
            door: CachedGetter(api, PodGroup, timeout_seconds=timeout_seconds, limits=bounds)
            for door, bounds in _LIMITS.items()
        }
        self._node_getter = CachedGetter(api, Node, timeout_seconds=timeout_seconds)
        self._budget_lists: SingleFlight[str, Sequence[PodDisruptionBudget]] = SingleFlight(
            TTL_SECONDS
        )
        self._logged_at: dict[str, float] = {}
        # Remembered for no longer than it is on its way: it would lack the mark that was written a moment ago, and its preemptor, which
        # may come again within 20 ms, would get a second set.
        self._victim_lists: SingleFlight[str, Sequence[GuardedPod]] = SingleFlight(0.0)
        self._groups_on_nodes: SingleFlight[tuple[str, str], frozenset[str]] = SingleFlight(
            TTL_SECONDS
        )

    async def find_pod(
        self, namespace: str, name: str, request_kind: RequestKind = RequestKind.PREEMPTION
    ) -> GuardedPod | None:
        """Return a pod as it is now, `None` where there is none; `door`: for which it is asked."""
        return await self._pod_getters[request_kind].find("pods", name, namespace)

    async def job_walltime(self, pod: GuardedPod, namespace: str) -> Walltime | None:
        """Return the walltime of the Job that the pod belongs to."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != "Job" or not owner.apiVersion.startswith("batch/"):
            return None
        job = await self._job_getter.find("jobs", owner.name, namespace)
        if job is None or job.metadata.uid != owner.uid:
            return None
        return self._walltimes.observe(owner.uid, job.walltime)

    async def find_pod_group(
        self, pod: Pod, namespace: str, request_kind: RequestKind = RequestKind.PREEMPTION
    ) -> PodGroupInfo | None:
        """Return the PodGroup that the pod names, `None` where there is none or the API server serves none."""
        name = pod_group_name_of(pod.spec.schedulingGroup)
        if not name:
            return None
        group = await self._pod_group_getters[request_kind].find("podgroups", name, namespace)
        return None if group is None else pod_group.read(group)

    async def runs_group_on(self, node: str, pod: GuardedPod, namespace: str) -> bool | None:
        """True where a pod of the same native group is on that node; `None` where that cannot be known now."""
        key = (namespace, node)
        try:
            there = await self._groups_on_nodes.do(key, partial(self._list_groups, *key))
        except (ApiError, msgspec.MsgspecError):
            return None
        return pod_group_name_of(pod.spec.schedulingGroup) in there

    async def _list_groups(self, namespace: str, node: str) -> frozenset[str]:
        """Return the native groups of which a namespace's pods are on a node, as the API server's cache has them."""
        text = await self._api.request(
            "GET",
            object_path("pods", namespace),
            params={"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"},
            timeout_seconds=min(self._timeout_seconds, _LIST_TIMEOUT_SECONDS),
            max_bytes=_MAX_NODE_LIST_BYTES,
        )
        there = (
            pod.spec
            for pod in deep.decode(text, _PlacedPodList).items or ()
            if pod.spec.nodeName == node
        )
        return frozenset(
            name for spec in there if (name := pod_group_name_of(spec.schedulingGroup))
        )

    async def find_node(self, name: str) -> Node | None:
        """Return a node, `None` where there is none."""
        return await self._node_getter.find("nodes", name)

    async def is_blocked_by_budget(self, pod: GuardedPod, namespace: str) -> bool:
        """True where a PodDisruptionBudget is known to allow no eviction of the pod now."""
        try:
            budgets = await self._budget_lists.do(namespace, partial(self._list_budgets, namespace))
        except RateLimitedError as error:
            self._log_unread_budgets(namespace, str(error))
            return False
        return eviction_pdb.is_eviction_blocked(pod, budgets)

    async def _list_budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        """Return a namespace's budgets, or none: its pods are then asked to save, perhaps in vain, and held all the same.

        That they cannot be read is an answer as well. Without this, each eviction of a drain would ask again.
        """
        path, params = object_path("poddisruptionbudgets", namespace), {"limit": str(_MAX_BUDGETS)}
        seconds = min(self._timeout_seconds, _LIST_TIMEOUT_SECONDS)
        try:
            text = await self._api.request(
                "GET",
                path,
                params=params,
                timeout_seconds=seconds,
                max_bytes=_MAX_BUDGET_LIST_BYTES,
            )
            found = deep.decode(text, _BudgetList)
        except (ApiError, msgspec.MsgspecError) as error:
            self._log_unread_budgets(namespace, str(error))
            return ()
        if found.metadata.continue_:
            self._log_unread_budgets(namespace, f"more than {_MAX_BUDGETS}")
            return ()
        return found.items or ()

    def _log_unread_budgets(self, namespace: str, why: str) -> None:
        self._log_rate_limited(
            "budgets not read, pods are asked to save as if there were none",
            {"namespace": namespace, "error": why},
        )

    def _log_rate_limited(self, what: str, extra: Mapping[str, str]) -> None:
        now = time.monotonic()
        if now - self._logged_at.get(what, -math.inf) >= _LOG_INTERVAL_SECONDS:
            self._logged_at[what] = now
            _LOG.warning(what, extra=extra)

    async def pods_under_eviction(self) -> Sequence[GuardedPod]:
        """Return the pods that are asked to go, as the API server's cache has them; none where they cannot be read now.

        A preemptor may then get a second set, whose pods have notice. Without this, who marks enough pods of his own would have all
        victims go without notice; and if every preemptor counted as one that has a set, nobody could preempt while they are there.
        """
        try:
            return await self._victim_lists.do("", self._list_pods_under_eviction)
        except (ApiError, msgspec.MsgspecError, RecursionError) as error:
            self._log_rate_limited(
                "victims under way not read, a preemptor may get a second set",
                {"error": str(error)},
            )
            return ()

    async def _list_pods_under_eviction(self) -> Sequence[GuardedPod]:
        """Return them; the API server's cache heeds no limit, so what is read is bounded here."""
        text = await self._api.request(
            "GET",
            object_path("pods"),
            params={"labelSelector": keys.SOFT_EVICTION, "resourceVersion": "0"},
            timeout_seconds=self._timeout_seconds,
            max_bytes=_MAX_VICTIM_LIST_BYTES,
        )
        # What is too deep is not pruned: of so many bytes that takes a second, in which nobody is answered.
        return msgspec.json.decode(text, type=_GuardedPodList).items or ()

    async def mark(self, pod: PodIdentity, changes: Iterable[MetadataChange], version: str) -> bool:
        """Write the mark to this very pod; `False` where it is not at this version any more, or is gone."""
        metadata: dict[str, object] = {"uid": pod.uid, "resourceVersion": version}
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
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
            return False
        return True
