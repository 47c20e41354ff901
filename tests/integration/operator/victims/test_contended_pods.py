"""An owner that writes to a victim all the time keeps it no longer than any other pod.

The API server of these tests takes a write of the owner before each call that changes the pod, so
that every call with a resourceVersion meets a conflict.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims import reconciler
from reprieve_operator.victims.termination.state_writer import TerminationStateWriter
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.cleanup import GIVE_UP_AFTER
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.operator_parts import a_registry, leading
from reprieve_testing.servers.busy_api import BusyApi, Document, serving
from reprieve_testing.servers.stub_api import until
from reprieve_testing.virtual_time import run_in_virtual_time

POD = "/api/v1/namespaces/team/pods/train"
SETTINGS = OperatorSettings(identity="a", sweep_interval_seconds=1000.0, poll_interval_seconds=0.05)
CONFLICT = ApiError(409, "Conflict", "the object has been modified")
REFUSED = ApiError(500, "InternalError", "a webhook fails")


@dataclass
class ContendedApi(BusyApi):
    """Its owner writes to the pod before each call that changes it."""

    states: list[Eviction] = field(default_factory=list)
    is_cancelled_next: bool = False
    """A person takes the mark back just before a write that no conflict refuses."""
    _written: int = 0

    def _answer(self, request: web.BaseRequest, body: Document) -> tuple[int, Document]:
        pod = self.objects.get(POD)
        if pod is None or request.method not in ("PATCH", "DELETE") or POD not in request.path:
            return super()._answer(request, body)
        self._written += 1
        self._change(pod, annotations={"example.com/written": str(self._written)})
        if self.is_cancelled_next and "resourceVersion" not in body.get("metadata", {}):
            self.is_cancelled_next = False
            self._change(self.objects[POD], labels={keys.SOFT_EVICTION: None})
        status, answer = super()._answer(request, body)
        text = body.get("metadata", {}).get("annotations", {}).get(keys.EVICTION)
        if status == 200 and text is not None:
            self.states.append(msgspec.convert(eviction.parse(text), Eviction))
        return status, answer

    def _change(self, pod: Document, **changes: dict[str, str | None]) -> None:
        metadata = dict(pod["metadata"])
        for name, values in changes.items():
            merged = {**metadata.get(name, {}), **values}
            metadata[name] = {key: value for key, value in merged.items() if value is not None}
        self._store(POD, {**pod, "metadata": metadata})


def a_document(**annotations: str) -> Document:
    metadata = {
        "name": "train",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "1",
        "labels": {keys.SOFT_EVICTION: mark.REQUESTED},
        "annotations": {keys.CHECKPOINT_HINT: "annotation:", **annotations},
    }
    status = {"phase": "Running", "podIP": "127.0.0.1", "hostIP": "10.0.0.1"}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


@asynccontextmanager
async def evicting(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, is_cancelled_next: bool = False
) -> AsyncIterator[ContendedApi]:
    monkeypatch.setattr(reconciler, "_FIRST_BACKOFF_SECONDS", 0.01)
    stub = ContendedApi(is_cancelled_next=is_cancelled_next)
    async with serving(stub, directory) as (_, api, lease_api):
        stub.add(POD, **a_document())
        async with leading(api, lease_api, SETTINGS):
            yield stub


async def test_a_pod_whose_owner_writes_to_it_all_the_time_gets_notice_saves_and_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with evicting(tmp_path, monkeypatch) as stub:
        await until(lambda: POD in stub.deleted_at)
    assert len(stub.deleted_at[POD]) == 1
    assert stub.states[-1].outcome is CheckpointOutcome.SAVED
    assert stub.calls["PATCH", "pods", 409] == 3 * len(stub.states), "each write met three"


async def test_a_mark_that_is_taken_back_just_before_a_write_by_the_uid_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with evicting(tmp_path, monkeypatch, is_cancelled_next=True) as stub:
        await until(
            lambda: (
                bool(stub.states)
                and stub.states[-1].outcome is CheckpointOutcome.CANCELLED
                and keys.SOFT_EVICTION not in stub.objects[POD]["metadata"]["labels"]
            )
        )
        request = stub.objects[POD]["metadata"]["annotations"][keys.CHECKPOINT_REQUEST]
    assert POD not in stub.deleted_at
    assert json.loads(request)["cancelled"] is True


@dataclass
class RefusingCluster:
    """Refuses every write of a state; the owner writes to the pod 200 times a second."""

    error: ApiError
    states: list[Eviction] = field(default_factory=list)
    reads: int = 0
    version: int = 1

    def is_busy(self, _: str) -> bool:
        return False

    def now_of(self) -> VictimPod:
        document = a_document()
        document["metadata"]["resourceVersion"] = str(self.version)
        return msgspec.convert(document, VictimPod)

    async def read_pod(self, *_: object) -> VictimPod:
        self.reads += 1
        return self.now_of()

    async def write_state(self, _: VictimPod, state: Eviction, *__: object, **___: bool) -> None:
        self.states.append(state)
        raise self.error

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        start = Clock().now()
        clock = Clock(now=lambda: start + timedelta(seconds=loop.time()), monotonic=loop.time)
        events: Any = SimpleNamespace(event=lambda *_, **__: None, is_burst=lambda _: False)
        namespaces: Any = SimpleNamespace(
            get=lambda _: NamespacePolicy(), is_terminating=lambda _: False
        )
        policy: Any = SimpleNamespace(current=PolicySettings())
        registry = a_registry(
            writes=self,
            policy=policy,
            namespaces=namespaces,
            recorder=events,
            settings=SETTINGS,
            clock=clock,
        )
        while loop.time() < seconds:
            self.version += 1
            registry.on_pod_update(self.now_of())
            await asyncio.sleep(0.005)
        await registry.close()


def test_a_pod_that_cannot_be_written_costs_few_calls_however_often_its_owner_writes() -> None:
    cluster = RefusingCluster(REFUSED)
    run_in_virtual_time(cluster.run(60.0))
    assert 10 < len(cluster.states) <= 64, "one a second"
    assert cluster.reads <= 64


def test_the_ceiling_of_a_pod_counts_from_the_first_write_that_met_a_conflict() -> None:
    cluster = RefusingCluster(CONFLICT)
    run_in_virtual_time(cluster.run(10.0))
    assert len(cluster.states) > 3
    assert len({state.requested_at for state in cluster.states}) == 1


def test_the_time_of_a_pod_that_cannot_be_written_begins_anew() -> None:
    """It was not notified, and is not deleted without notice."""
    cluster = RefusingCluster(REFUSED)
    run_in_virtual_time(cluster.run(10.0))
    assert len({state.requested_at for state in cluster.states}) == len(cluster.states)


@pytest.mark.parametrize("error", [CONFLICT, REFUSED], ids=["a conflict", "a refusal"])
async def test_a_minute_past_the_ceiling_an_eviction_continues_without_its_state_after(
    error: ApiError,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    state = an_eviction().ended(CheckpointOutcome.SAVED).build()
    policy = PolicySettings()
    late = state.requested_at + timedelta(seconds=policy.ceiling_seconds) + GIVE_UP_AFTER
    now, decision = [late - timedelta(seconds=1)], LifecycleDecision(state)
    writer = TerminationStateWriter(
        SimpleNamespace(write_disruption_target=refuse),  # type: ignore[arg-type]  # all it uses
        SimpleNamespace(current=policy),  # type: ignore[arg-type]  # all it uses
        replace(Clock(), now=lambda: now[0]),
        adds_finalizer=lambda *_: False,
        on_pod_written=lambda _: None,
        on_state_written=lambda *_: None,
    )
    pod = msgspec.convert(a_document(), VictimPod)
    with pytest.raises(ApiError):
        await writer.write_terminating(pod, decision, sets_condition=True)
    now[0] = late
    assert await writer.write_terminating(pod, decision, sets_condition=True) == pod
    assert writer.unpersisted_state == state
