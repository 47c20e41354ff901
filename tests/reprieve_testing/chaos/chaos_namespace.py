"""The cluster of the chaos tests: many pods at once, as an administrator, over one fast
connection.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from reprieve_policy import keys
from reprieve_policy.kube.pods import ENDED_PHASES
from reprieve_policy.lifecycle import mark
from reprieve_runtime.client.api import MERGE_PATCH, Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE

Json = Any
T = TypeVar("T")

_AT_ONCE = 24
_PAUSE_SECONDS = 0.1
_LIST_SECONDS = 60.0
"""Some tests' pods have 200 KB each, and an API server that is busy sends all of them slowly."""
_NOT_FOUND = 404
_SYNCED = "example.com/synced"
_LEASE = object_path("leases", OPERATOR_NAMESPACE, "reprieve-operator")
BY_A_BUDGET = {"example.com/held": "by-a-budget"}
"""Labels of pods that `ChaosNamespace.hold` keeps from being evicted."""


class ChaosNamespace:
    """One namespace of one cluster."""

    def __init__(self, api: Api, namespace: str, nodes: int) -> None:
        self.namespace = namespace
        self._api = api
        self._nodes = nodes
        self._count = 0
        self._calls = asyncio.Semaphore(_AT_ONCE)

    async def create_pods(self, pods: Iterable[Json]) -> dict[str, Json]:
        """Create pods; return them by name once all run."""
        wanted = {pod["metadata"]["name"] for pod in pods}
        await all_of(self._create(pod) for pod in pods)

        async def find() -> dict[str, Json] | None:
            there = await self.pods()
            running = {name for name, pod in there.items() if pod["status"].get("podIP")}
            return there if wanted <= running else None

        return await until(f"{len(wanted)} pods run", find, 120)

    async def create_owner(self, name: str) -> Json:
        """Create a Job that no controller works on; return a reference to it."""
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
        document = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"managedBy": "example.com/no-controller", "template": {"spec": pod}},
        }
        job = await self._call(self._api.post(self._path("jobs"), document, dict))
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job["metadata"]["uid"],
        }
        return reference | {"controller": True}

    async def orphan(self, name: str) -> None:
        """Delete a Job, and keep its pods."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
        await self._call(self._api.delete(self._path("jobs", name), options))

    async def owner(self, name: str) -> Json:
        return await self._call(self._api.get(self._path("jobs", name), dict))

    async def pods(self) -> dict[str, Json]:
        """Return all pods by name."""
        path = self._path("pods")
        text = await self._call(self._api.request("GET", path, timeout_seconds=_LIST_SECONDS))
        return {pod["metadata"]["name"]: pod for pod in json.loads(text)["items"]}

    async def mark(self, name: str) -> None:
        await self.patch(name, {"metadata": {"labels": {keys.SOFT_EVICTION: "requested"}}})

    async def preempt(self, name: str) -> None:
        """Mark a pod as Koordinator's scheduler does; the label is the one that a webhook would
        add.
        """
        metadata = {
            "labels": {keys.SOFT_EVICTION: mark.MARKED},
            "annotations": {keys.KOORDINATOR_SOFT_EVICTION: "true"},
        }
        await self.patch(name, {"metadata": metadata})

    async def drain(self, name: str) -> None:
        """Mark a pod as the guard does for an eviction."""
        await self.patch(name, {"metadata": {"labels": {keys.SOFT_EVICTION: mark.EVICT}}})

    async def hold(self) -> None:
        """Create a budget that never allows an eviction."""
        spec = {"minAvailable": 1000, "selector": {"matchLabels": BY_A_BUDGET}}
        document = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "held"},
            "spec": spec,
        }
        await self._call(self._api.post(self._path("poddisruptionbudgets"), document, dict))

    async def unmark(self, name: str) -> None:
        """Remove every mark of the pod."""
        metadata = {
            "labels": {keys.SOFT_EVICTION: None},
            "annotations": {keys.KOORDINATOR_SOFT_EVICTION: None},
        }
        await self.patch(name, {"metadata": metadata})

    async def delete(self, name: str) -> None:
        await self._gone_is_fine(
            self._api.delete(self._path("pods", name), {"gracePeriodSeconds": 1})
        )

    async def force_delete(self, name: str) -> None:
        """Remove the object at once, with all its finalizers, as an impatient administrator
        does.
        """
        await self.patch(name, {"metadata": {"finalizers": None}})
        await self._gone_is_fine(
            self._api.delete(self._path("pods", name), {"gracePeriodSeconds": 0})
        )

    async def finish_containers(self, name: str) -> None:
        """Report the pod's containers as ended, as a kubelet does."""
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": None, "finishedAt": None}
        container = {
            "name": "main",
            "image": "none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        status = {
            "phase": "Succeeded",
            "containerStatuses": [container | {"state": {"terminated": ended}}],
        }
        await self.patch(name, {"status": status}, "status")

    async def sync_kubelets(self) -> None:
        """Let kwok reconcile each deleted pod that it has yet to end, as a kubelet does all the
        time.

        Without this, a write of kwok's that fails as etcd or the API server is killed may be its
        last to that pod: it does not retry a write that was answered with 500. The operator's part
        is not touched: it must need no help.
        """
        owed = [name for name, pod in (await self.pods()).items() if _is_owed_by_kubelet(pod)]
        await all_of(
            self.patch(name, {"metadata": {"annotations": {_SYNCED: "true"}}}) for name in owed
        )

    async def patch(self, name: str, body: Json, subresource: str = "") -> None:
        """Patch a pod; ignore that it is gone."""
        path = self._path("pods", name, subresource)
        await self._gone_is_fine(self._api.patch(path, body, dict, content_type=MERGE_PATCH))

    async def release(self, names: Iterable[str], finalizer: str) -> None:
        """Remove one foreign finalizer from pods, and keep all others."""
        there = await self.pods()
        for name in filter(there.__contains__, names):
            left = [
                other
                for other in there[name]["metadata"].get("finalizers", ())
                if other != finalizer
            ]
            await self.patch(name, {"metadata": {"finalizers": left}})

    async def delete_lease(self) -> None:
        await self._gone_is_fine(self._api.delete(_LEASE, {}))

    async def steal_lease(self, for_seconds: int) -> None:
        """Write another holder into the Lease, if there is one; this holder does nothing."""
        spec = {"holderIdentity": "thief", "leaseDurationSeconds": for_seconds}
        await self._gone_is_fine(
            self._api.patch(_LEASE, {"spec": spec}, dict, content_type=MERGE_PATCH)
        )

    def pod(self, name: str, annotations: Mapping[str, str], **metadata: Json) -> Json:
        """Return a pod for a simulated node.

        It is bound and without the ServiceAccount's token: no scheduler or controller needs to
        complete it.
        """
        self._count += 1
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": dict(annotations), **metadata},
            "spec": {
                "nodeName": f"kwok-{self._count % self._nodes}",
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "none"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }

    async def _create(self, pod: Json) -> None:
        await self._call(self._api.post(self._path("pods"), pod, dict))

    async def _gone_is_fine(self, call: Awaitable[object]) -> None:
        try:
            await self._call(call)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    async def _call(self, call: Awaitable[T]) -> T:
        async with self._calls:
            return await call

    def _path(self, resource: str, name: str | None = None, subresource: str = "") -> str:
        return object_path(resource, self.namespace, name, subresource)


async def all_of(work: Iterable[Awaitable[object]]) -> None:
    """Await all of them concurrently; the first failure cancels the others."""
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(_as_coroutine(one))


async def until(what: str, find: Callable[[], Awaitable[T | None]], seconds: float) -> T:
    """Return the first true result of `find`; raise an error with `what` once the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (found := await find()):  # noqa: ASYNC110 - it waits for the cluster
                await asyncio.sleep(_PAUSE_SECONDS)
            return found
    raise AssertionError(f"not within {seconds:g} s: {what}")


def _is_owed_by_kubelet(pod: Json) -> bool:
    """True if kwok must end the pod's containers, or remove its object, which has no other
    finalizer.
    """
    metadata = pod["metadata"]
    is_next = pod["status"].get("phase") not in ENDED_PHASES or not metadata.get("finalizers")
    return "deletionTimestamp" in metadata and is_next


async def _as_coroutine(work: Awaitable[object]) -> None:
    await work
