"""`reprieve watch` and `--wait` with an API server that fails, restarts or forbids."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reprieve_cli.cluster import marking, victims
from reprieve_cli.cluster.connection import ClusterTarget
from reprieve_cli.cluster.marking import WaitOptions
from reprieve_cli.commands import evict, watch
from reprieve_cli.commands.evict import EvictOptions
from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

PODS = "/api/v1/pods"
TEAM = "/api/v1/namespaces/team/pods"


@pytest.fixture(autouse=True)
def short_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "_RETRY_SECONDS", 0.01)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[StubApi, Api]]:
    pods = {name: a_victim(name) for name in ("a", "b")}
    async with stub_api(tmp_path, collections={PODS: dict(pods), TEAM: pods}) as (stub, api):
        stub.lists_released.set()
        yield stub, api


def a_victim(name: str, phase: str = "hinted") -> Any:
    labels = {keys.SOFT_EVICTION: phase}
    return {"metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}", "labels": labels}}


class Seen:
    """Records the yielded changes in their order."""

    def __init__(self, api: Api) -> None:
        self.changes: list[tuple[str, str]] = []
        self.task = asyncio.create_task(self._follow(api))

    async def _follow(self, api: Api) -> None:
        async for victim in victims.follow(api, None):
            self.changes.append((victim.name, victim.phase))

    async def until(self, *changes: tuple[str, str]) -> None:
        await until(lambda: self.changes == list(changes))


def a_pod(name: str) -> PartialObjectMetadata:
    return PartialObjectMetadata(
        metadata=ObjectMeta(namespace="team", name=name, uid=f"uid-{name}")
    )


UNMARKED = {"metadata": {"namespace": "team", "name": "c", "uid": "uid-c"}}


async def test_waiting_ends_for_pods_that_were_gone_before_the_first_list(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.collections[TEAM]["c"] = UNMARKED
    stub.collections[PODS]["a"] = stub.collections[TEAM]["a"] = a_victim("a", "cancelled")
    named = [a_pod(name) for name in ("a", "c", "gone")]
    async with asyncio.timeout(60):
        stay = await marking.wait(
            api, "team", named, WaitOptions(enabled=True, timeout_seconds=None)
        )
    # One is cancelled, and the mark of another is removed.
    assert stay == 2
    assert [line.split()[1:3] for line in capsys.readouterr().out.splitlines()] == [
        ["team/a", "cancelled"],
        ["team/c", "cancelled"],
        ["team/gone", "gone"],
    ]


async def test_a_pod_that_could_not_be_marked_is_not_waited_for(
    served: tuple[StubApi, Api],
) -> None:
    stub, api = served
    stub.collections[TEAM]["c"] = UNMARKED
    stub.refuses[f"{TEAM}/c"] = 403
    options = EvictOptions(
        subjects=("c",),
        selector=None,
        wait_options=WaitOptions(enabled=True, timeout_seconds=None),
        is_dry_run=False,
    )
    target = ClusterTarget(kubeconfig=None, context=None, namespace="team")
    async with asyncio.timeout(60):
        assert await evict._evict(api, target=target, options=options) == 1


BOTH = (("a", "hinted"), ("b", "hinted"))


async def test_the_watch_resumes_after_the_api_server_fails(served: tuple[StubApi, Api]) -> None:
    stub, api = served
    seen = Seen(api)
    await seen.until(*BOTH)
    # Without this, a watch that opens after `end_watches` would stay open.
    await until(lambda: stub.open_watches == 1)
    stub.is_failing = True
    stub.end_watches()
    lists = stub.calls[PODS]
    await until(lambda: stub.calls[PODS] > lists + 2)
    stub.collections[PODS]["b"] = a_victim("b", "saved")
    stub.is_failing = False
    await seen.until(*BOTH, ("b", "saved"))
    seen.task.cancel()


async def test_a_pod_deleted_while_the_api_server_fails_is_reported_later(
    served: tuple[StubApi, Api],
) -> None:
    stub, api = served
    seen = Seen(api)
    await seen.until(*BOTH)
    await until(lambda: stub.open_watches == 1)
    gone = stub.collections[PODS].pop("b")
    del stub.collections[TEAM]["b"]
    stub.is_failing = True
    reads = stub.calls[f"{TEAM}/b"]
    stub.send("DELETED", gone)
    await until(lambda: stub.calls[f"{TEAM}/b"] > reads)
    stub.is_failing = False
    await seen.until(*BOTH, ("b", Phase.GONE))
    seen.task.cancel()


@pytest.mark.parametrize("barred", [True, False])
async def test_a_watch_that_cannot_start_fails_on_a_terminal_and_in_a_pipe(
    served: tuple[StubApi, Api], *, barred: bool
) -> None:
    stub, api = served
    stub.is_failing = True
    if barred:
        stub.barred.add(PODS)
    target = ClusterTarget(namespace=None, kubeconfig=None, context=None)
    with pytest.raises(ApiError):
        await watch._print_changes(api, target=target, form=watch.TEXT)
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(ApiError):
        await watch._show_live_table(api, target=target, console=console)


async def test_the_watch_ends_when_the_right_to_read_is_removed(
    served: tuple[StubApi, Api],
) -> None:
    stub, api = served
    seen = Seen(api)
    await seen.until(*BOTH)
    await until(lambda: stub.open_watches == 1)
    stub.barred.add(PODS)
    stub.end_watches()
    with pytest.raises(ApiError):
        await seen.task
