"""What each of many victims costs the API server, counted: forty that a new leader finds."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reprieve_operator import leader
from reprieve_operator.cluster import bursts, event_queue, event_recorder
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims import notice
from reprieve_policy import keys
from reprieve_testing.operator_parts import leading
from reprieve_testing.servers.busy_api import BusyApi, Document, serving
from reprieve_testing.servers.stub_api import DEADLINE_SECONDS, until

PODS = "/api/v1/namespaces/team/pods"
VICTIMS = 40
SETTINGS = OperatorSettings(
    identity="a",
    sweep_interval_seconds=1000.0,
    poll_interval_seconds=0.5,
    allow_loopback_pod_ips=True,
)
GRACE_SECONDS, STOPS_AFTER_SECONDS = 30, 0.05


@dataclass
class KubeletApi(BusyApi):
    """Ends a deleted pod's containers, and lets its object go after the last finalizer."""

    events: list[Document] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    """Paths of single pods that were read."""

    def _answer(self, request: web.BaseRequest, body: Document) -> tuple[int, Document]:
        if request.method == "GET" and request.path.startswith(f"{PODS}/"):
            self.reads.append(request.path)
        return super()._answer(request, body)

    def _create(self, path: str, body: Document) -> Document:
        if body["kind"] == "Event":
            self.events.append(body)
        return super()._create(path, body)

    def _delete(self, path: str, found: Document) -> Document:
        grace_ends_at = datetime.now(UTC) + timedelta(seconds=GRACE_SECONDS)
        loop = asyncio.get_running_loop()
        loop.call_later(STOPS_AFTER_SECONDS, self._stop_containers, path)
        deleted = {"deletionTimestamp": grace_ends_at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return self._store(path, found | {"metadata": found["metadata"] | deleted})

    def _stop_containers(self, path: str) -> None:
        pod = self.objects[path]
        self._store(path, pod | {"status": pod["status"] | {"phase": "Succeeded"}})

    def _store(self, path: str, document: Document) -> Document:
        stored = super()._store(path, document)
        is_deleted = "deletionTimestamp" in stored["metadata"]
        has_ended = stored.get("status", {}).get("phase") == "Succeeded"
        if is_deleted and has_ended and not stored["metadata"].get("finalizers"):
            super()._delete(path, stored)
        return stored


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as a workload that takes one poll's time to save."""
    if request.method == "GET":
        return web.json_response({"state": "saved", "step": 7, "path": "/data/7"})
    body = await request.json()
    return web.json_response({"id": body["id"], "state": "saving"})


async def test_each_of_many_victims_costs_few_calls_and_no_event_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is: one burst, and all of its Events wait until the term ends.
    monkeypatch.setattr(bursts, "WINDOW_SECONDS", 1000.0)
    monkeypatch.setattr(event_queue, "HOLD_SECONDS", 1000.0)
    monkeypatch.setattr(notice, "_MAX_UNWRITTEN_SECONDS", 1000.0)
    monkeypatch.setattr(notice, "_MAX_POSTPONE_SECONDS", 1000.0)
    monkeypatch.setattr(leader, "_DRAIN_SECONDS", DEADLINE_SECONDS)
    workloads = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await workloads.setup()
    await web.TCPSite(workloads, "127.0.0.1", 0).start()
    hint = f"http://:{workloads.addresses[0][1]}/checkpoint"
    async with serving(KubeletApi(), tmp_path) as (stub, api, lease_api):
        for number in range(VICTIMS):
            add_victim(stub, f"pod-{number}", hint)
        async with leading(api, lease_api, SETTINGS) as leading_replica:
            await until(lambda: len(stub.deleted_at) == VICTIMS)
            term = leading_replica.term
            await until(lambda: term is not None and not term.registry.victims())
    await workloads.cleanup()

    # The notice, the end, and the finalizer's removal.
    assert stub.count("PATCH", "pods") == 3 * VICTIMS
    assert stub.count("DELETE", "pods") == VICTIMS
    assert stub.reads == [], "the watch showed each victim, and its end"
    # The first ten's notices, the last step of each, and three series.
    assert len(stub.events) == bursts.MANY + VICTIMS + 3
    told = Counter(reason for event in stub.events for reason in reasons(event))
    assert told["CheckpointRequested"] >= VICTIMS
    assert told["CheckpointSaved"] >= VICTIMS
    assert told["SoftEvictionCompleted"] == VICTIMS
    counted = Counter[str]()
    for event in stub.events:
        if event["regarding"]["kind"] == "Namespace":
            counted[event["reason"]] += event.get("series", {"count": 1})["count"]
    with_own = Counter(
        event["reason"] for event in stub.events if event["regarding"]["kind"] == "Pod"
    )
    for reason in ("CheckpointRequested", "CheckpointSaved", "SoftEvictionDeleting"):
        assert counted[reason] + with_own[reason] == VICTIMS, reason


def add_victim(stub: BusyApi, name: str, hint: str) -> None:
    """Add a running pod that was marked."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "labels": {keys.SOFT_EVICTION: "requested"},
        "annotations": {keys.CHECKPOINT_HINT: hint},
    }
    status = {"phase": "Running", "podIP": "127.0.0.1", "hostIP": "10.0.0.1"}
    stub.add(f"{PODS}/{name}", metadata=metadata, spec={"nodeName": "n"}, status=status)


def reasons(event: Document) -> list[str]:
    """Return the reason of an Event of a pod, and those that its note quotes."""
    if event["regarding"]["kind"] != "Pod":
        return []
    quoted = [name for name in event_recorder.REASONS if f"{name}: " in event["note"]]
    return [event["reason"], *quoted]
