"""`reprieve cancel`: which marks it removes, and what it says of pods that cannot be kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.cluster.connection import ClusterTarget
from reprieve_cli.commands import cancel
from reprieve_cli.commands.cancel import CancelOptions
from reprieve_policy import keys
from reprieve_runtime.client.api import Api
from reprieve_testing.servers.stub_api import StubApi, stub_api

TEAM = "/api/v1/namespaces/team/pods"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
JOB = {
    "metadata": {"name": "J", "namespace": "team", "uid": "uid-J"},
    "spec": {"selector": {"matchLabels": {"app": "x"}}},
}
OF_J = [{"apiVersion": "batch/v1", "kind": "Job", "name": "J", "uid": "uid-J", "controller": True}]
TARGET = ClusterTarget(kubeconfig=None, context=None, namespace="team")


def a_pod(name: str, **metadata: Any) -> Any:
    return {"metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}", **metadata}}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[StubApi, Api]]:
    async with stub_api(tmp_path, collections={TEAM: {}}) as (stub, api):
        stub.lists_released.set()
        yield stub, api


async def run(api: Api, *subjects: str, selector: str | None = None) -> int:
    options = CancelOptions(subjects=subjects, selector=selector, is_dry_run=False)
    async with asyncio.timeout(60):
        return await cancel._cancel(api, target=TARGET, options=options)


KOORDINATOR = keys.KOORDINATOR_SOFT_EVICTION
MARKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "our label": (
        {"labels": {keys.SOFT_EVICTION: "hinted", "app": "a"}},
        {"labels": {keys.SOFT_EVICTION: None}},
    ),
    "Koordinator's annotation, with our label beside it": (
        {"labels": {keys.SOFT_EVICTION: "marked"}, "annotations": {KOORDINATOR: "true"}},
        {"labels": {keys.SOFT_EVICTION: None}, "annotations": {KOORDINATOR: None}},
    ),
    "Koordinator's label alone": (
        {"labels": {KOORDINATOR: "true"}},
        {"labels": {KOORDINATOR: None}},
    ),
    "a reprieve: the scheduler's request is taken back": (
        {"labels": {keys.SOFT_EVICTION: "reprieved"}},
        {"labels": {keys.SOFT_EVICTION: None}},
    ),
}


@pytest.mark.parametrize("case", MARKS)
async def test_the_marks_of_a_victim_are_removed_and_nothing_else(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str], case: str
) -> None:
    stub, api = served
    metadata, removed = MARKS[case]
    stub.collections[TEAM]["p"] = a_pod("p", **metadata)
    assert await run(api, "p") == 0
    assert stub.patches == [(f"{TEAM}/p", {"metadata": {"uid": "uid-p", **removed}})]
    assert capsys.readouterr().out.startswith("pod/p soft eviction cancelled; it was: ")


NOT_CANCELLED: dict[str, tuple[dict[str, Any], str]] = {
    "not a victim": ({}, "pod/p is no victim: nothing to cancel\n"),
    "a victim whose eviction has ended": (
        {"labels": {keys.SOFT_EVICTION: "finished"}},
        "pod/p is no victim: nothing to cancel\n",
    ),
    "being deleted": (
        {
            "labels": {keys.SOFT_EVICTION: "terminating"},
            "deletionTimestamp": "2026-11-24T12:00:00Z",
        },
        "pod/p is already being deleted: it cannot be kept\n",
    ),
}


@pytest.mark.parametrize("case", NOT_CANCELLED)
async def test_a_pod_that_cannot_be_kept_is_named(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str], case: str
) -> None:
    stub, api = served
    metadata, said = NOT_CANCELLED[case]
    stub.collections[TEAM]["p"] = a_pod("p", **metadata)
    assert await run(api, "p") == 1
    assert (stub.patches, capsys.readouterr()) == ([], ("", said))


async def test_of_several_pods_only_the_victims_are_cancelled(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM] |= {
        "a": a_pod("a"),
        "b": a_pod("b", labels={keys.SOFT_EVICTION: "hinted"}),
        "c": a_pod("c"),
    }
    assert await run(api, selector="app=x") == 0
    assert [path for path, _ in stub.patches] == [f"{TEAM}/b"]
    del stub.collections[TEAM]["b"]
    assert await run(api, selector="app=x") == 0
    assert capsys.readouterr().err == "no victims match\n"


async def test_each_named_pod_that_is_no_victim_is_said(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    victim = a_pod("v", labels={keys.SOFT_EVICTION: "hinted"})
    stub.collections[TEAM] |= {"a": a_pod("a"), "b": a_pod("b"), "v": victim}
    assert await run(api, "a", "pod/b") == 1
    said = [f"pod/{name} is no victim: nothing to cancel" for name in ("a", "b")]
    assert capsys.readouterr().err.splitlines() == said
    assert await run(api, "v", "a") == 1
    assert [path for path, _ in stub.patches] == [f"{TEAM}/v"]
    assert capsys.readouterr().err.splitlines() == said[:1]


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")], ids=len)
@pytest.mark.parametrize("way", ["a selector", "a workload"])
async def test_pods_that_are_matched_and_no_victims_are_left_out_whatever_their_number(
    served: tuple[StubApi, Api],
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, ...],
    way: str,
) -> None:
    stub, api = served
    stub.collections[JOBS] = {"J": JOB}
    stub.collections[TEAM] |= {name: a_pod(name, ownerReferences=OF_J) for name in names}
    if way == "a selector":
        assert await run(api, selector="app=x") == 0
    else:
        assert await run(api, "job/J") == 0
    assert capsys.readouterr() == ("", "no victims match\n")


async def test_a_pod_that_is_named_and_matched_by_its_workload_is_said(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[JOBS] = {"J": JOB}
    stub.collections[TEAM] |= {name: a_pod(name, ownerReferences=OF_J) for name in ("a", "b")}
    assert await run(api, "job/J", "b") == 1
    assert capsys.readouterr().err == "pod/b is no victim: nothing to cancel\n"


async def test_a_refusal_is_shown_and_fails(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p", labels={keys.SOFT_EVICTION: "hinted"})
    stub.refuses[f"{TEAM}/p"] = 403
    assert await run(api, "p") == 1
    assert capsys.readouterr() == ("", "pod/p: no\n")
    assert await run(api, "gone") == 2
