"""`reprieve evict`, `explain` and `watch`: ended pods, no installation, a lost API server."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from reprieve_cli.cluster import marking, victims
from reprieve_cli.cluster.connection import ClusterTarget
from reprieve_cli.cluster.marking import WaitOptions
from reprieve_cli.cluster.named_pods import find_pods
from reprieve_cli.commands import evict, explain, reclaim, watch
from reprieve_cli.commands.evict import EvictOptions
from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_testing.objects.builders import after, an_eviction
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

PODS = "/api/v1/pods"
TEAM = "/api/v1/namespaces/team/pods"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
APPS = "/apis/apps/v1/namespaces/team"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/reprieve-system/leases"
TARGET = ClusterTarget(kubeconfig=None, context=None, namespace="team")
HINTED = {
    "labels": {keys.SOFT_EVICTION: "hinted"},
    "annotations": {
        keys.EVICTION: eviction.render(
            eviction.Eviction(
                eviction_id="e1",
                phase=Phase.HINTED,
                requested_at=datetime(2026, 11, 24, 12, tzinfo=UTC),
                deadline=datetime(2099, 11, 24, 12, tzinfo=UTC),
                initiator="sre",
            )
        )
    },
}


def a_pod(name: str, phase: str = "Running", **metadata: Any) -> Any:
    return {
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}", **metadata},
        "status": {"phase": phase},
    }


def a_workload(name: str, **metadata: Any) -> Any:
    """Return a workload; the stub lists all pods for its selector."""
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", **metadata},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }


def controlled_by(name: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "K", "name": name, "uid": f"uid-{name}"}
    return {"ownerReferences": [owner | {"controller": True}]}


JOBS_OWN = controlled_by("J")


@pytest.fixture
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[StubApi, Api]]:
    monkeypatch.setattr(victims, "_RETRY_SECONDS", 0.01)
    collections: dict[str, dict[str, Any]] = {
        TEAM: {},
        JOBS: {"J": a_workload("J")},
        WEBHOOKS: {"reprieve-webhooks": {"metadata": {}, "webhooks": []}},
        LEASES: {},
    }
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        yield stub, api


async def run_evict(api: Api, *subjects: str, waits: bool = False) -> int:
    options = EvictOptions(
        subjects=subjects,
        selector=None,
        wait_options=WaitOptions(enabled=waits, timeout_seconds=None),
        is_dry_run=False,
    )
    async with asyncio.timeout(60):
        return await evict._evict(api, target=TARGET, options=options)


async def test_pods_that_have_ended_are_not_evicted_and_it_is_said(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["j-1"] = a_pod("j-1", "Failed", **JOBS_OWN)
    assert await run_evict(api, "job/J") == 1
    assert capsys.readouterr() == ("", "pod/j-1 has already ended (Failed): not evicted\n")
    assert stub.patches == []


KINDS = {
    "job": JOBS,
    "statefulset": f"{APPS}/statefulsets",
    "replicaset": f"{APPS}/replicasets",
}


@pytest.mark.parametrize(("kind", "collection"), KINDS.items(), ids=KINDS)
async def test_a_workloads_pods_are_those_that_it_controls(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str], kind: str, collection: str
) -> None:
    stub, api = served
    stub.collections[collection] = {name: a_workload(name) for name in ("web", "canary")}
    only_an_owner = controlled_by("web")
    only_an_owner["ownerReferences"][0]["controller"] = False
    stub.collections[TEAM] = {
        "web-1": a_pod("web-1", **controlled_by("web")),
        "canary-1": a_pod("canary-1", **controlled_by("canary")),
        "owned": a_pod("owned", **only_an_owner),
        "bare": a_pod("bare"),
    }
    assert await run_evict(api, f"{kind}/web") == 0
    assert [path for path, _ in stub.patches] == [f"{TEAM}/web-1"]
    assert capsys.readouterr() == (
        "pod/web-1 soft eviction requested\n",
        f"{kind}/web: its selector also matches 3 pods of others: left out\n",
    )


@pytest.fixture
def deployments(served: tuple[StubApi, Api]) -> StubApi:
    """Return the stub with Deployments whose selectors both match all pods."""
    stub, _ = served
    stub.collections[f"{APPS}/deployments"] = {n: a_workload(n) for n in ("web", "canary")}
    owners = {"web-a": "web", "web-b": "web", "canary-a": "canary"}
    stub.collections[f"{APPS}/replicasets"] = {
        name: a_workload(name, **controlled_by(owner)) for name, owner in owners.items()
    } | {"alone": a_workload("alone")}
    stub.collections[TEAM] = {
        f"{name}-1": a_pod(f"{name}-1", **controlled_by(name)) for name in (*owners, "alone")
    }
    return stub


async def test_a_deployments_pods_are_those_of_its_replicasets(
    served: tuple[StubApi, Api], deployments: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run_evict(served[1], "deploy/web") == 0
    assert [path for path, _ in deployments.patches] == [f"{TEAM}/web-a-1", f"{TEAM}/web-b-1"]
    assert capsys.readouterr().err == (
        "deploy/web: its selector also matches 2 pods of others: left out\n"
    )
    # Those of the Deployment only, and after the pods.
    lists = [path for _, path, _ in deployments.accepts if "labelSelector=app%3Dweb" in path]
    assert [path.split("?")[0] for path in lists] == [TEAM, f"{APPS}/replicasets"]


async def test_no_pod_of_a_deployment_is_marked_for_a_user_who_may_not_list_replicasets(
    served: tuple[StubApi, Api], deployments: StubApi
) -> None:
    deployments.barred.add(f"{APPS}/replicasets")
    with pytest.raises(ApiError, match="not for you"):
        await run_evict(served[1], "deployment/web")
    assert deployments.patches == []


async def test_no_pod_is_marked_where_reprieve_is_not_installed(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p")
    stub.collections[WEBHOOKS].clear()
    assert await run_evict(api, "p") == 2
    assert "Reprieve is not installed in this cluster" in capsys.readouterr().err
    assert stub.patches == []


async def test_what_a_user_may_not_read_does_not_count_as_absent(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p")
    for collection, name in ((WEBHOOKS, "reprieve-webhooks"), (LEASES, "reprieve-operator")):
        stub.barred.add(f"{collection}/{name}")
    assert await run_evict(api, "p") == 0
    assert capsys.readouterr() == ("pod/p soft eviction requested\n", "")


async def test_waiting_without_an_operator_says_so(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p")
    # The stub does not apply the patch: the pod counts as one whose mark was removed again.
    assert await run_evict(api, "p", waits=True) == 1
    assert capsys.readouterr().err == (
        "no operator is running: the pods are evicted when one starts "
        "(kubectl get pods -n reprieve-system)\n"
    )


async def test_a_pod_that_is_evicted_with_the_gang_of_one_just_marked_is_not_marked_again(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    pods = stub.collections[TEAM]
    pods["a"], pods["b"] = a_pod("a"), a_pod("b")
    stub.on_patch = lambda _path, _body: pods["b"]["metadata"].update(HINTED)
    assert await run_evict(api, "a", "b") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "pod/a soft eviction requested"
    assert told[1].startswith("pod/b is already being evicted (")
    assert [path for path, _ in stub.patches] == [f"{TEAM}/a"]


def victim_of(state: eviction.Eviction, label: str | None = None) -> dict[str, Any]:
    return {
        "labels": {keys.SOFT_EVICTION: label or state.phase},
        "annotations": {keys.EVICTION: eviction.render(state)},
    }


ASKED = an_eviction().hinted(deadline=after(600)).build()
PREEMPTED = an_eviction().asked_by_scheduler().hinted(deadline=after(600)).build()
DRAINED = replace(an_eviction().in_phase(Phase.TERMINATING, deadline=None).build(), must_evict=True)
BEING_DELETED = {"deletionTimestamp": "2026-11-24T12:00:00Z", "deletionGracePeriodSeconds": 30}
VICTIMS = {
    "a scheduler's": (victim_of(PREEMPTED), True, False),
    "a drain's, which a budget holds": (victim_of(DRAINED), True, False),
    "a scheduler's that is reprieved": (
        victim_of(replace(PREEMPTED, phase=Phase.REPRIEVED)),
        True,
        True,
    ),
    "one that is being deleted": (victim_of(DRAINED) | BEING_DELETED, False, False),
    "one of a gang that is preempted": (victim_of(replace(PREEMPTED, gang="g")), False, False),
    "one that a person asked for": (victim_of(ASKED), False, False),
    "one that another person asks for just now": (victim_of(ASKED, "requested"), False, False),
    "none: a stale label beside an earlier eviction": (
        victim_of(replace(ASKED, phase=Phase.CANCELLED), "marked"),
        True,
        True,
    ),
}


@pytest.mark.parametrize(("metadata", "is_evicted", "is_reclaimed"), VICTIMS.values(), ids=VICTIMS)
async def test_a_victim_is_marked_if_it_might_stay_without(
    served: tuple[StubApi, Api],
    capsys: pytest.CaptureFixture[str],
    metadata: dict[str, Any],
    *,
    is_evicted: bool,
    is_reclaimed: bool,
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p", resourceVersion="7", **metadata)
    assert await run_evict(api, "p") == 0
    body = {"metadata": {"uid": "uid-p", "labels": {keys.SOFT_EVICTION: "requested"}}}
    body["metadata"]["resourceVersion"] = "7"
    assert stub.patches == ([(f"{TEAM}/p", body)] if is_evicted else [])
    said = "soft eviction requested" if is_evicted else "is already being evicted ("
    assert capsys.readouterr().out.startswith(f"pod/p {said}")
    stub.patches.clear()
    pod = PartialObjectMetadata(metadata=ObjectMeta(namespace="team", name="p", uid="uid-p"))
    reclaimed = reclaim._mark(datetime.now(UTC))
    assert await marking.set_mark(api, pod, reclaimed, "pod/p", is_dry_run=False)
    assert bool(stub.patches) is is_reclaimed


@pytest.mark.parametrize(("label", "phase"), [("requested", "hinted"), ("other", "other")])
async def test_a_new_mark_on_a_victim_does_not_hide_its_phase(label: str, phase: str) -> None:
    metadata = ObjectMeta(namespace="team", name="p", uid="u", **victim_of(PREEMPTED, label))
    assert victims.read(PartialObjectMetadata(metadata=metadata)).phase == phase


@pytest.mark.parametrize(("status", "attempts"), [(409, 3), (403, 1)])
async def test_a_mark_on_a_pod_that_changes_all_the_time_is_tried_again_without_a_version(
    served: tuple[StubApi, Api], status: int, attempts: int
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p", resourceVersion="7")
    stub.refuses[f"{TEAM}/p"] = status
    assert await run_evict(api, "p") == 1
    versions = [body["metadata"].get("resourceVersion") for _, body in stub.patches]
    assert versions == ["7", "7", None][:attempts]


async def test_another_pod_of_the_same_name_is_not_marked(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    _, api = served
    before = PartialObjectMetadata(metadata=ObjectMeta(namespace="team", name="p", uid="before"))
    served[0].collections[TEAM]["p"] = a_pod("p")
    assert await marking.set_mark(api, before, {}, "pod/p", is_dry_run=False)
    assert (capsys.readouterr().out, served[0].patches) == ("pod/p is already gone\n", [])


async def test_a_wrong_selector_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    class Refusing:
        async def list_pages(self, *_: object, **__: object) -> AsyncIterator[Any]:
            raise ApiError(400, "BadRequest", "unable to parse requirement")
            yield

    options = EvictOptions(
        subjects=(),
        selector="a=b=c",
        wait_options=WaitOptions(enabled=False, timeout_seconds=None),
        is_dry_run=False,
    )
    assert await evict._evict(Refusing(), target=TARGET, options=options) == 2  # type: ignore[arg-type]
    assert capsys.readouterr().err == (
        "reprieve: -l a=b=c: is not a label selector: unable to parse requirement\n"
    )


async def test_an_empty_selector_selects_no_pod(served: tuple[StubApi, Api]) -> None:
    stub, api = served
    stub.collections[TEAM] = {name: a_pod(name) for name in ("a", "b")}
    assert await find_pods(api, "team", (), "") == []
    assert [pod.metadata.name for pod in await find_pods(api, "team", ("a",), "")] == ["a"]


async def run_explain(api: Api, subject: str, *, is_json: bool = False) -> int:
    return await explain._explain(api, namespace="team", subject=subject, is_json=is_json)


@pytest.mark.parametrize("kind", ["job/J", "jobs/J"])
async def test_every_pod_of_a_workload_is_explained(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    stub, api = served
    for name, phase in (("j-1", "Running"), ("j-2", "Running"), ("j-3", "Failed")):
        stub.collections[TEAM][name] = a_pod(name, phase, **JOBS_OWN)
    assert await run_explain(api, kind) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("pod/")]
    assert [title.split(" in ")[0] for title in titles] == ["pod/j-1", "pod/j-2"]


@pytest.mark.parametrize(
    ("short", "collection"),
    [("sts", "statefulsets"), ("deploy", "deployments"), ("rs", "replicasets")],
)
async def test_a_workload_is_named_as_kubectl_does(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str], short: str, collection: str
) -> None:
    stub, api = served
    stub.collections[f"{APPS}/{collection}"] = {"x": a_workload("x")}
    assert await run_explain(api, f"{short}/x") == 2
    assert capsys.readouterr().err == f"reprieve: {short}/x: has no pods\n"


async def test_a_victim_is_explained_by_its_eviction(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["p"] = a_pod("p", **HINTED)
    assert await run_explain(api, "p") == 0
    text = capsys.readouterr().out
    assert "it is a victim now:\n  phase hinted" in text
    assert "requested at 2026-11-24T12:00:00Z by sre" in text
    assert "earliest preemption" not in text
    assert await run_explain(api, "p", is_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["pod"], document["eviction"]["phase"]) == ("p", "hinted")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    for term, is_live in (("dumb", False), ("xterm", True)):
        console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": term})
        assert watch.can_update(console) is is_live


def test_a_wrong_node_is_reported_before_a_missing_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = list[str]()
    monkeypatch.setattr(reclaim, "run", lambda *_: called.append("run"))
    result = CliRunner().invoke(reclaim.command, ["nope"])
    assert (result.exit_code, result.output, called) == (0, "", ["run"])


async def test_a_node_that_does_not_exist_is_named(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections["/api/v1/nodes"] = {}
    options = reclaim.ReclaimOptions(
        closes=False,
        wait_options=WaitOptions(enabled=False, timeout_seconds=None),
        is_dry_run=False,
        is_confirmed=False,
    )
    assert await reclaim._reclaim(api, name="nope", options=options) == 2
    assert capsys.readouterr() == ("", "reprieve: node/nope: not found\n")


async def test_lines_say_when_the_api_server_is_lost_and_found(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[PODS] = {"p": a_pod("p", **HINTED)}
    target = ClusterTarget(kubeconfig=None, context=None, namespace=None)
    printing = asyncio.create_task(watch._print_changes(api, target=target, form=watch.JSON))
    await until(lambda: stub.open_watches == 1)
    stub.is_failing = True
    lists = stub.calls[PODS]
    stub.end_watches()
    await until(lambda: stub.calls[PODS] > lists + 2)
    stub.is_failing = False
    await until(lambda: stub.open_watches == 1)
    printing.cancel()
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("out of date since ")
    assert second == "the API server answers again"


async def test_the_table_says_since_when_it_is_out_of_date(
    served: tuple[StubApi, Api],
) -> None:
    stub, api = served
    stub.collections[PODS] = {"p": a_pod("p", **HINTED)}
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=20)
    target = ClusterTarget(kubeconfig=None, context=None, namespace=None)
    showing = asyncio.create_task(watch._show_live_table(api, target=target, console=console))
    await until(lambda: "hinted" in screen.getvalue() and stub.open_watches == 1)
    stub.is_failing = True
    stub.end_watches()
    await until(lambda: "out of date since" in screen.getvalue())
    stub.is_failing = False
    await until(lambda: stub.open_watches == 1)
    shown = len(screen.getvalue())
    await until(lambda: "hinted" in screen.getvalue()[shown:])
    before = len(screen.getvalue())
    await until(lambda: "hinted" in screen.getvalue()[before:])
    assert "out of date" not in screen.getvalue()[before:]
    showing.cancel()
