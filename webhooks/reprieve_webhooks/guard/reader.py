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
from reprieve_policy.gangs.pod_group import Group, NativeGroup
from reprieve_policy.kube.objects import controller_of, group_name_of
from reprieve_policy.preemption import eviction_pdb
from reprieve_policy.preemption.guard import Door
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_policy.verdict import Change
from reprieve_runtime import deep
from reprieve_runtime.client.api import MERGE_PATCH, METADATA_ONLY, Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_webhooks.lookups.getter import REMEMBERED_SECONDS, Lookups
from reprieve_webhooks.lookups.rate_limit import Bounds, Rate
from reprieve_webhooks.lookups.single_flight import (
    BOUNDS,
    BURST_CALLS,
    CALLS_PER_SECOND,
    Questions,
    TooManyQuestionsError,
)
from reprieve_webhooks.lookups.walltimes import Walltimes
from reprieve_webhooks.snapshot.recent_choices import Named

from .objects import PlacedPod, Victim

_LOG = logging.getLogger(__name__)

_NOT_FOUND, _CONFLICT = 404, 409
_SHARES = 4
_BOUNDS = {
    Door.PREEMPTION: BOUNDS,
    Door.EVICTION: Bounds(Rate(_SHARES * CALLS_PER_SECOND, _SHARES * BURST_CALLS), of_each=BOUNDS.in_all),
}
"""Whoever may evict pods may evict as many as he likes: what is asked for them is bounded in each namespace, and for itself.
Without this, one tenant would have everybody's drains refused, or preempted pods deleted without notice."""
_MOST_BYTES_OF_VICTIMS = 16 * 1024 * 1024
"""Looked at for one preemptor's: a victim has some 3 to 10 KB, and whoever may delete pods of his own may mark as many, each of 1.5 MB."""
_MOST_BUDGETS = 200
"""Of a namespace; where there are more, nobody knows which of them are about a pod."""
_MOST_BYTES = 1024 * 1024
"""Of their list; a usual budget has about one thousand. Whoever may create budgets may fill etcd's 1.5 MB with each: without this, they
fill our memory."""
_MOST_BYTES_OF_NODE = 8 * 1024 * 1024
"""Of one namespace's pods on a node."""
_LIST_SECONDS = 0.3
"""The API server waits for three, for the pod, its group and the mark too, and then evicts a pod that nobody was told of."""
_QUIET_SECONDS = 60.0
"""After it was said that something was not read. Without this, a drain would say it once a second for each namespace."""


class _List(msgspec.Struct, gc=False):
    items: list[Victim] | None = None


class _Placed(msgspec.Struct, gc=False):
    items: list[PlacedPod] | None = None


class _ListMeta(msgspec.Struct, gc=False, rename={"continue_": "continue"}):
    continue_: str = ""


class _Budgets(msgspec.Struct, gc=False):
    items: list[PodDisruptionBudget] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class Pods:
    """Reads and marks pods; raises `ApiError`."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds
        self._pods = {
            door: Lookups(api, Victim, timeout_seconds=timeout_seconds, remembered_seconds=0.0, bounds=bounds)
            for door, bounds in _BOUNDS.items()
        }
        self._jobs = Lookups(api, Job, timeout_seconds=timeout_seconds)
        self._walltimes = Walltimes()
        self._groups = {
            door: Lookups(api, Group, timeout_seconds=timeout_seconds, bounds=bounds)
            for door, bounds in _BOUNDS.items()
        }
        self._nodes = Lookups(api, Node, timeout_seconds=timeout_seconds)
        self._budgets: Questions[str, Sequence[PodDisruptionBudget]] = Questions(REMEMBERED_SECONDS)
        self._said_at: dict[str, float] = {}
        # Remembered for no longer than it is on its way: it would lack the mark that was written a moment ago, and its preemptor, which
        # may come again within 20 ms, would get a second set.
        self._going: Questions[str, Sequence[Victim]] = Questions(0.0)
        self._groups_there: Questions[tuple[str, str], frozenset[str]] = Questions(REMEMBERED_SECONDS)

    async def find(self, namespace: str, name: str, door: Door = Door.PREEMPTION) -> Victim | None:
        """Return a pod as it is now, `None` where there is none; `door`: for which it is asked."""
        return await self._pods[door].find("pods", name, namespace)

    async def job_walltime(self, pod: Victim, namespace: str) -> Walltime | None:
        """Return the walltime of the Job that the pod belongs to."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != "Job" or not owner.apiVersion.startswith("batch/"):
            return None
        job = await self._jobs.find("jobs", owner.name, namespace)
        if job is None or job.metadata.uid != owner.uid:
            return None
        return self._walltimes.take(owner.uid, job.walltime)

    async def native_group(self, pod: Pod, namespace: str, door: Door = Door.PREEMPTION) -> NativeGroup | None:
        """Return the PodGroup that the pod names, `None` where there is none or the API server serves none."""
        name = group_name_of(pod.spec.schedulingGroup)
        if not name:
            return None
        group = await self._groups[door].find("podgroups", name, namespace)
        return None if group is None else pod_group.read(group)

    async def runs_on(self, node: str, pod: Victim, namespace: str) -> bool | None:
        """True where a pod of the same native group is on that node; `None` where that cannot be known now."""
        key = (namespace, node)
        try:
            there = await self._groups_there.answer(key, partial(self._list_groups, *key))
        except (ApiError, msgspec.MsgspecError):
            return None
        return group_name_of(pod.spec.schedulingGroup) in there

    async def _list_groups(self, namespace: str, node: str) -> frozenset[str]:
        """Return the native groups of which a namespace's pods are on a node, as the API server's cache has them."""
        text = await self._api.request(
            "GET",
            object_path("pods", namespace),
            params={"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"},
            timeout_seconds=min(self._timeout_seconds, _LIST_SECONDS),
            most_bytes=_MOST_BYTES_OF_NODE,
        )
        there = (pod.spec for pod in deep.decode(text, _Placed).items or () if pod.spec.nodeName == node)
        return frozenset(name for spec in there if (name := group_name_of(spec.schedulingGroup)))

    async def node(self, name: str) -> Node | None:
        """Return a node, `None` where there is none."""
        return await self._nodes.find("nodes", name)

    async def is_held(self, pod: Victim, namespace: str) -> bool:
        """True where a PodDisruptionBudget is known to allow no eviction of the pod now."""
        try:
            budgets = await self._budgets.answer(namespace, partial(self._list_budgets, namespace))
        except TooManyQuestionsError as error:
            self._say_unread(namespace, str(error))
            return False
        return eviction_pdb.is_held(pod, budgets)

    async def _list_budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        """Return a namespace's budgets, or none: its pods are then asked to save, perhaps in vain, and held all the same.

        That they cannot be read is an answer as well. Without this, each eviction of a drain would ask again.
        """
        path, params = object_path("poddisruptionbudgets", namespace), {"limit": str(_MOST_BUDGETS)}
        seconds = min(self._timeout_seconds, _LIST_SECONDS)
        try:
            text = await self._api.request("GET", path, params=params, timeout_seconds=seconds, most_bytes=_MOST_BYTES)
            found = deep.decode(text, _Budgets)
        except (ApiError, msgspec.MsgspecError) as error:
            self._say_unread(namespace, str(error))
            return ()
        if found.metadata.continue_:
            self._say_unread(namespace, f"more than {_MOST_BUDGETS}")
            return ()
        return found.items or ()

    def _say_unread(self, namespace: str, why: str) -> None:
        self._say(
            "budgets not read, pods are asked to save as if there were none", {"namespace": namespace, "error": why}
        )

    def _say(self, what: str, extra: Mapping[str, str]) -> None:
        now = time.monotonic()
        if now - self._said_at.get(what, -math.inf) >= _QUIET_SECONDS:
            self._said_at[what] = now
            _LOG.warning(what, extra=extra)

    async def victims(self) -> Sequence[Victim]:
        """Return the pods that are asked to go, as the API server's cache has them; none where they cannot be read now.

        A preemptor may then get a second set, whose pods have notice. Without this, who marks enough pods of his own would have all
        victims go without notice; and if every preemptor counted as one that has a set, nobody could preempt while they are there.
        """
        try:
            return await self._going.answer("", self._list_victims)
        except (ApiError, msgspec.MsgspecError, RecursionError) as error:
            self._say("victims under way not read, a preemptor may get a second set", {"error": str(error)})
            return ()

    async def _list_victims(self) -> Sequence[Victim]:
        """Return them; the API server's cache heeds no limit, so what is read is bounded here."""
        text = await self._api.request(
            "GET",
            object_path("pods"),
            params={"labelSelector": keys.SOFT_EVICTION, "resourceVersion": "0"},
            timeout_seconds=self._timeout_seconds,
            most_bytes=_MOST_BYTES_OF_VICTIMS,
        )
        # What is too deep is not pruned: of so many bytes that takes a second, in which nobody is answered.
        return msgspec.json.decode(text, type=_List).items or ()

    async def mark(self, pod: Named, changes: Iterable[Change], version: str) -> bool:
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
