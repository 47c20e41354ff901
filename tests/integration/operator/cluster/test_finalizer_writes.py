"""Reprieve's finalizer goes on with calls that are made anyway, as the API server merges them.

A merge patch replaces a list; a strategic merge patch adds to it.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve_operator import uninstall
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import (
    FINALIZERS_REMOVED,
    MAX_ENTRIES,
    VictimPod,
    without_version,
)
from reprieve_operator.uninstall import Uninstall, VictimRelease
from reprieve_operator.victims.pod_tracker import VictimRef
from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_runtime.client.api import STRATEGIC_MERGE_PATCH, ApiError
from reprieve_testing.objects.builders import after, an_eviction
from reprieve_testing.operator_parts import writes_of
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

OURS, OTHER = keys.CLEANUP_FINALIZER, "example.com/disk"
PATH = "/api/v1/namespaces/team/pods/p"
HINTED = an_eviction().hinted(deadline=after(600)).build()
ENDING = an_eviction().ended(CheckpointOutcome.SKIPPED).build()
LABELS = {keys.SOFT_EVICTION: "hinted"} | {f"l{number}": "" for number in range(20_000)}
DEPLOYMENTS = "/apis/apps/v1/namespaces/reprieve-system/deployments"


def a_pod(*finalizers: str) -> VictimPod:
    metadata = {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": "7"}
    return msgspec.convert({"metadata": {**metadata, "finalizers": finalizers}}, VictimPod)


def written(stub: StubApi) -> tuple[str, Any]:
    ((path, body),) = stub.patches
    return path, body["metadata"].get("finalizers")


@pytest.mark.parametrize("begins", [True, False])
async def test_the_first_state_and_the_finalizer_are_one_call(
    tmp_path: Path, *, begins: bool
) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await writes_of(api).write_state(
            a_pod(OTHER), HINTED, None, begins=begins, adds_finalizer=True
        )
        assert written(stub) == (PATH, [OTHER, OURS])


async def test_the_condition_and_the_finalizer_are_one_call(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await writes_of(api).write_disruption_target(a_pod(OTHER), ENDING, adds_finalizer=True)
        assert written(stub) == (f"{PATH}/status", [OURS])


async def test_a_pod_that_others_write_to_all_the_time_keeps_their_finalizers(
    tmp_path: Path,
) -> None:
    """It is written by its uid alone: what it has may be more than what is known."""
    async with stub_api(tmp_path, patched_version="9") as (stub, api):
        pod = without_version(a_pod(OTHER))
        with_ours = await writes_of(api).write_state(
            pod, HINTED, None, begins=True, adds_finalizer=True
        )
        assert with_ours.metadata.finalizers == (OTHER, OURS)
        released = await writes_of(api).remove_finalizer(with_ours.metadata)
        assert released.finalizers == (OTHER,)
        assert (with_ours.metadata.resourceVersion, released.resourceVersion) == ("", "")
    (_, first), (_, last) = stub.patches
    assert first["metadata"]["finalizers"] == [OURS]
    assert last["metadata"] == {FINALIZERS_REMOVED: [OURS], "uid": "u"}
    assert "resourceVersion" not in first["metadata"]
    assert stub.patch_types == [STRATEGIC_MERGE_PATCH] * 2


async def test_a_list_that_may_not_be_known_as_a_whole_is_never_written(tmp_path: Path) -> None:
    """Without this, the finalizers and the gates that are not kept would be removed."""
    many = [f"example.com/{number}" for number in range(MAX_ENTRIES + 1)]
    async with stub_api(tmp_path) as (stub, api):
        for write in (
            writes_of(api).remove_finalizer(a_pod(OURS, *many).metadata),
            writes_of(api).write_state(a_pod(*many), HINTED, None, begins=True),
            writes_of(api).remove_gate(a_pod().metadata, many),
            writes_of(api).release_from_gate(a_pod().metadata, many, Clock().now()),
        ):
            with pytest.raises(ApiError) as refused:
                await write
            assert refused.value.is_object_too_large
        assert stub.patches == []


async def test_a_pod_that_has_the_finalizer_does_not_get_it_again(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await writes_of(api).write_disruption_target(a_pod(OURS), ENDING, adds_finalizer=True)
        assert written(stub) == (f"{PATH}/status", None)


def a_deployment(**spec: Any) -> Any:
    return {"metadata": {"name": "reprieve-operator"}, "spec": {"replicas": 2, **spec}}


UNINSTALLS: dict[str, tuple[Any, Any, bool]] = {
    "an upgrade": (a_deployment(), a_deployment(), False),
    "scaled to 0": (a_deployment(), a_deployment(replicas=0), True),
    "deleted": (a_deployment(), None, True),
    "being deleted": (
        a_deployment(),
        a_deployment() | {"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}},
        True,
    ),
    "an operator that was started by hand": (None, None, False),
}


@pytest.mark.parametrize(("before", "after_", "is_over"), UNINSTALLS.values(), ids=UNINSTALLS)
async def test_an_operator_knows_whether_another_follows(
    tmp_path: Path, before: Any, after_: Any, *, is_over: bool
) -> None:
    async with stub_api(tmp_path, collections={DEPLOYMENTS: {}}) as (stub, api):
        found = Uninstall(api, "reprieve-system", "reprieve-operator")
        stub.collections[DEPLOYMENTS] = {} if before is None else {"reprieve-operator": before}
        await found.remember_deployment()
        stub.collections[DEPLOYMENTS] = {} if after_ is None else {"reprieve-operator": after_}
        assert await found.is_in_progress() is is_over


async def test_a_replica_that_leads_only_after_the_deployment_is_gone_knows_of_it(
    tmp_path: Path,
) -> None:
    found = {DEPLOYMENTS: {"reprieve-operator": a_deployment()}}
    async with stub_api(tmp_path, collections=found) as (stub, api):
        stands_by = Uninstall(api, "reprieve-system", "reprieve-operator")
        await stands_by.remember_deployment()
        stub.collections[DEPLOYMENTS] = {}
        await stands_by.remember_deployment()
        assert await stands_by.is_in_progress()


async def test_an_operator_that_may_not_read_its_deployment_releases_nothing(
    tmp_path: Path,
) -> None:
    found = {DEPLOYMENTS: {"reprieve-operator": a_deployment()}}
    async with stub_api(tmp_path, collections=found) as (stub, api):
        uninstall = Uninstall(api, "reprieve-system", "reprieve-operator")
        await uninstall.remember_deployment()
        stub.barred.add(f"{DEPLOYMENTS}/reprieve-operator")
        assert not await uninstall.is_in_progress()


PODS, POD_PATHS = "/api/v1/pods", "/api/v1/namespaces/team/pods"


class Victims:
    """Pods in a stub, as an API server keeps their finalizers."""

    def __init__(self, stub: StubApi, **finalizers: list[str]) -> None:
        self.pods = {
            name: {"metadata": {**IDENTITY, "name": name, "uid": name, "finalizers": found}}
            for name, found in finalizers.items()
        }
        self.labelled = dict(self.pods)
        stub.collections |= {PODS: self.labelled, POD_PATHS: self.pods}
        stub.on_patch = self._patch
        stub.lists_released.set()

    def _patch(self, path: str, body: Any) -> None:
        self.pods[path.rpartition("/")[2]]["metadata"] |= {
            "finalizers": body["metadata"]["finalizers"]
        }

    @property
    def finalizers(self) -> dict[str, Any]:
        return {name: pod["metadata"]["finalizers"] for name, pod in self.pods.items()}


IDENTITY = {
    "namespace": "team",
    "resourceVersion": "7",
    "labels": {keys.SOFT_EVICTION: "hinted"},
}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uninstall, "_PASS_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(uninstall, "_READ_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(uninstall, "_READ_SECONDS", 60.0)


def refs(*names: str) -> list[VictimRef]:
    return [VictimRef("team", name, name) for name in names]


async def test_the_last_operator_releases_each_victim_by_one_call(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        victims = Victims(stub, a=[OTHER, OURS], b=[OURS], c=[OTHER])
        await VictimRelease(writes_of(api), refs("a", "b", "c", "gone")).run()
        assert victims.finalizers == {"a": [OTHER], "b": [], "c": [OTHER]}
        assert len(stub.patches) == 2


async def test_a_victim_that_lost_its_label_is_released_too(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        victims = Victims(stub, a=[OURS])
        victims.labelled.clear()
        await VictimRelease(writes_of(api), refs("a")).run()
        assert victims.finalizers == {"a": []}


async def test_a_write_that_was_under_way_as_the_term_ended_leaves_no_victim_held(
    tmp_path: Path,
) -> None:
    """The write of the first state puts the finalizer on the pod after the first pass."""
    async with stub_api(tmp_path) as (stub, api):
        victims = Victims(stub, a=[], b=[OURS])
        releasing = asyncio.create_task(VictimRelease(writes_of(api), refs("a")).run())
        await until(lambda: victims.finalizers["b"] == [])
        victims.pods["a"]["metadata"]["finalizers"] = [OURS]
        await releasing
        assert victims.finalizers == {"a": [], "b": []}


@pytest.mark.parametrize("status", [429, 409, 500, 0])
async def test_a_release_that_is_refused_is_tried_again(tmp_path: Path, status: int) -> None:
    async with stub_api(tmp_path) as (stub, api):
        victims = Victims(stub, p=[OURS])
        stub.refuses[PATH] = status
        releasing = asyncio.create_task(VictimRelease(writes_of(api), refs("p")).run())
        await until(lambda: len(stub.patches) >= 3)
        assert not releasing.done()
        stub.refuses.clear()
        await releasing
        assert victims.finalizers == {"p": []}


async def test_a_list_that_is_refused_is_read_again(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        victims = Victims(stub, p=[OURS])
        stub.is_failing = True
        releasing = asyncio.create_task(VictimRelease(writes_of(api), []).run())
        await until(lambda: stub.calls[PODS] >= 2)
        stub.is_failing = False
        await releasing
        assert victims.finalizers == {"p": []}


async def test_the_release_ends_in_time_and_names_the_command_that_does_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uninstall, "RELEASE_SECONDS", 0.1)
    async with stub_api(tmp_path) as (stub, api):
        Victims(stub, p=[OURS])
        stub.refuses[PATH] = 403
        await VictimRelease(writes_of(api), []).run()
    assert "run `reprieve cleanup`" in caplog.messages[-1]


async def test_a_busy_api_server_does_not_hide_an_uninstallation(tmp_path: Path) -> None:
    async with stub_api(tmp_path, collections={DEPLOYMENTS: {}}) as (stub, api):
        found = Uninstall(api, "reprieve-system", "reprieve-operator")
        stub.collections[DEPLOYMENTS] = {"reprieve-operator": a_deployment(replicas=0)}
        await found.remember_deployment()
        stub.is_failing = True
        asked = asyncio.create_task(found.is_in_progress())
        await until(lambda: stub.calls[f"{DEPLOYMENTS}/reprieve-operator"] >= 2)
        stub.is_failing = False
        assert await asked


async def test_an_upgrade_does_not_wait_for_an_api_server_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uninstall, "_READ_SECONDS", 0.05)
    found = {DEPLOYMENTS: {"reprieve-operator": a_deployment()}}
    async with stub_api(tmp_path, collections=found) as (stub, api):
        read = Uninstall(api, "reprieve-system", "reprieve-operator")
        await read.remember_deployment()
        stub.is_failing = True
        assert not await read.is_in_progress()


async def test_of_the_victims_that_are_released_little_is_kept(tmp_path: Path) -> None:
    """Without this, a hundred with very many labels would end the operator before all are free."""
    async with stub_api(tmp_path) as (stub, api):
        Victims(stub, p=[OURS])
        for pods in stub.collections.values():
            for pod in pods.values():
                pod["metadata"]["labels"] = LABELS
        stub.lists_released.set()
        (found,) = await VictimRelease(writes_of(api), [])._find_held()
    assert found.name == "p"
    assert len(msgspec.json.encode(found)) < 1000
