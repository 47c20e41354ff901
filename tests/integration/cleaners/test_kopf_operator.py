"""A cleaner in a whole kopf operator, against an API server that the test plays.

It serves one Namespace of pods, and applies JSON patches as a real one does: not to an old version.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jsonpatch
import kopf
import pytest
from aiohttp import web

import reprieve
from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.cleanup import CleanerTurn
from reprieve_testing.objects.builders import NOW, an_eviction
from reprieve_testing.servers.stub_api import until

Json = Any
OURS, OTHER = "licences.example.com/release", "example.com/disk"
PODS = "/api/v1/namespaces/team/pods"
HINTED = {
    keys.CLEANERS_BEFORE: OURS,
    keys.EVICTION: eviction.render(an_eviction().hinted(deadline=NOW).build()),
}


def resource_list(version: str, *resources: Json) -> Json:
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def a_resource(name: str, kind: str, *, namespaced: bool) -> Json:
    verbs = ["get", "list", "watch", "patch", "create"]
    return {
        "name": name,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": namespaced,
        "verbs": verbs,
    }


DISCOVERY: dict[str, Json] = {
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": []},
    "/api/v1": resource_list(
        "v1",
        a_resource("pods", "Pod", namespaced=True),
        a_resource("namespaces", "Namespace", namespaced=False),
    ),
    "/version": {"major": "1", "minor": "37"},
}


class PodServer:
    """Lists, watches and patches pods; it refuses the first `conflicts` patches."""

    def __init__(self, conflicts: int = 0) -> None:
        self.pods: dict[str, Json] = {}
        self.conflicts = conflicts
        self.patches: list[Json] = []
        self._version = 10
        self._watches: list[asyncio.Queue[Json]] = []

    def put(self, name: str, /, **metadata: Json) -> None:
        """Create a pod or change its metadata."""
        before = self.pods.get(name, {}).get("metadata", {"name": name, "namespace": "team"})
        self._version += 1
        found = {**before, "uid": f"uid-of-{name}", **metadata}
        found["resourceVersion"] = str(self._version)
        status = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": found, "spec": {"nodeName": "a"}}
        kind = "MODIFIED" if name in self.pods else "ADDED"
        self.pods[name] = pod | {"status": status}
        for watch in self._watches:
            watch.put_nowait({"type": kind, "object": self.pods[name]})

    def finalizers(self, name: str) -> list[str]:
        found: list[str] = self.pods[name]["metadata"].get("finalizers", [])
        return found

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "PATCH":
            return await self._patch(request)
        if request.path == PODS and "watch" in request.query:
            return await self._watch(request)
        if request.path == PODS:
            items = list(self.pods.values())
            return web.json_response(
                {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": str(self._version)},
                    "items": items,
                }
            )
        found = DISCOVERY.get(request.path)
        return web.json_response(found or {"code": 404}, status=200 if found else 404)

    async def _patch(self, request: web.BaseRequest) -> web.Response:
        name = request.path.removeprefix(f"{PODS}/")
        changes = await request.json()
        self.patches.append(changes)
        if self.conflicts:
            # Another client is quicker: the version that the patch tests is old.
            self.conflicts -= 1
            self.put(name, labels={"changed": "yes"})
        try:
            changed = jsonpatch.apply_patch(self.pods[name], changes)
        except jsonpatch.JsonPatchTestFailed as error:
            status = {"kind": "Status", "code": 422, "message": str(error), "reason": "Invalid"}
            return web.json_response(status, status=422)
        self.put(name, **changed["metadata"])
        return web.json_response(self.pods[name])

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        events: asyncio.Queue[Json] = asyncio.Queue()
        self._watches.append(events)
        try:
            while True:
                await response.write(json.dumps(await events.get()).encode() + b"\n")
        finally:
            self._watches.remove(events)


@asynccontextmanager
async def operator(server: PodServer, registry: kopf.OperatorRegistry) -> AsyncIterator[None]:
    """Serve the pods, and run a kopf operator with these handlers."""
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url)

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    stop = threading.Event()

    def run() -> None:
        """In a thread: at its end, kopf waits for five seconds for all other tasks of its loop."""
        kopf.run(
            registry=registry,
            settings=settings,
            namespaces=["team"],
            standalone=True,
            stop_flag=stop,
        )

    running = asyncio.create_task(asyncio.to_thread(run))
    try:
        yield
        assert not running.done()
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)
        await runner.cleanup()


@pytest.mark.parametrize("conflicts", [0, 2])
async def test_a_cleaner_is_asked_before_sigterm_and_removes_only_its_own_finalizer(
    conflicts: int,
) -> None:
    registry, calls = kopf.OperatorRegistry(), list[tuple[str, CleanerTurn]]()

    @reprieve.on.eviction(finalizer=OURS, registry=registry)
    async def release(name: str, turn: CleanerTurn, **_: Any) -> None:
        calls.append((name, turn))

    server = PodServer(conflicts)
    server.put("waits", finalizers=[OTHER, OURS], annotations=HINTED)
    server.put("runs", finalizers=[OURS])
    async with operator(server, registry):
        await until(lambda: server.finalizers("waits") == [OTHER])
        server.put("runs", annotations=HINTED)
        await until(lambda: server.finalizers("runs") == [])
    assert calls == [
        ("waits", CleanerTurn.BEFORE_SIGTERM),
        ("runs", CleanerTurn.BEFORE_SIGTERM),
    ]
    assert {change["path"].split("/")[2] for patch in server.patches for change in patch} == {
        "resourceVersion",
        "finalizers",
    }


GONE = {"deletionTimestamp": "2026-11-21T12:00:00Z", "deletionGracePeriodSeconds": 0}


def licence_cleaner() -> tuple[kopf.OperatorRegistry, list[str]]:
    """Return an operator whose cleaner selects pods with a licence, and the names it cleaned."""
    registry, cleaned = kopf.OperatorRegistry(), list[str]()

    @reprieve.on.eviction(
        finalizer=OURS, labels={"licence": "yes"}, adds_finalizer=True, registry=registry
    )
    def release(name: str, **_: Any) -> None:
        cleaned.append(name)

    return registry, cleaned


async def test_a_cleaner_puts_its_finalizer_on_selected_pods_and_cleans_whoever_deletes() -> None:
    registry, cleaned = licence_cleaner()
    server = PodServer()
    server.put("licensed", labels={"licence": "yes"})
    server.put("other", labels={})
    async with operator(server, registry):
        await until(lambda: server.finalizers("licensed") == [OURS])
        server.put("licensed", **GONE)
        await until(lambda: server.finalizers("licensed") == [])
    assert cleaned == ["licensed"]
    assert server.finalizers("other") == []


async def test_a_pod_that_is_selected_no_longer_is_cleaned_all_the_same() -> None:
    """Without this, a pod whose labels changed would keep the finalizer for ever."""
    registry, cleaned = licence_cleaner()
    server = PodServer()
    server.put("licensed", labels={"licence": "yes"})
    async with operator(server, registry):
        await until(lambda: server.finalizers("licensed") == [OURS])
        server.put("licensed", labels={}, **GONE)
        await until(lambda: server.finalizers("licensed") == [])
    assert cleaned == ["licensed"]


async def test_cleaners_of_one_program_do_not_wait_for_each_other_and_see_a_cancel() -> None:
    registry, tries, cleaned = kopf.OperatorRegistry(), list[CleanerTurn](), list[str]()

    @reprieve.on.eviction(finalizer=OURS, registry=registry)
    async def release(turn: CleanerTurn, **_: Any) -> None:
        tries.append(turn)
        if turn is CleanerTurn.BEFORE_SIGTERM:
            raise kopf.TemporaryError("the licence server is away", 600)

    @reprieve.on.eviction(finalizer=OTHER, registry=registry)
    def detach(name: str, **_: Any) -> None:
        cleaned.append(name)

    server = PodServer()
    both = {keys.CLEANERS_BEFORE: f"{OURS},{OTHER}"}
    server.put("pod", finalizers=[OURS, OTHER], annotations=HINTED | both)
    async with operator(server, registry):
        await until(lambda: bool(tries))
        await until(lambda: server.finalizers("pod") == [OURS])
        assert cleaned == ["pod"]
        server.put("pod", annotations=both)
        server.put("pod", annotations=both, **GONE)
        await until(lambda: server.finalizers("pod") == [])
    assert tries == [CleanerTurn.BEFORE_SIGTERM, CleanerTurn.AT_THE_END]


async def test_what_a_cleaner_writes_to_the_pod_goes_with_the_removal() -> None:
    registry = kopf.OperatorRegistry()

    @reprieve.on.eviction(finalizer=OURS, registry=registry)
    def release(patch: kopf.Patch, **_: Any) -> None:
        patch.fns.append(lambda raw: raw["metadata"].update(labels={"licence": "released"}))

    server = PodServer()
    server.put("pod", finalizers=[OURS], annotations=HINTED)
    async with operator(server, registry):
        await until(lambda: server.finalizers("pod") == [])
    assert server.pods["pod"]["metadata"]["labels"] == {"licence": "released"}
