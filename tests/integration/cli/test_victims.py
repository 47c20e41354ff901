"""What `reprieve watch` follows: over an API server that goes away, and what it says where it cannot begin."""

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
from reprieve_testing.stub_api import StubApi, stub_api, until

PODS = "/api/v1/pods"
TEAM = "/api/v1/namespaces/team/pods"


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """What was told so far, in its order."""

    def __init__(self, api: Api) -> None:
        self.told: list[tuple[str, str]] = []
        self.task = asyncio.create_task(self._follow(api))

    async def _follow(self, api: Api) -> None:
        async for victim in victims.follow(api, None):
            self.told.append((victim.name, victim.phase))

    async def until(self, *told: tuple[str, str]) -> None:
        await until(lambda: self.told == list(told))


def a_pod(name: str) -> PartialObjectMetadata:
    return PartialObjectMetadata(
        metadata=ObjectMeta(namespace="team", name=name, uid=f"uid-{name}")
    )


UNMARKED = {"metadata": {"namespace": "team", "name": "c", "uid": "uid-c"}}


async def test_who_was_gone_before_the_first_list_is_waited_for_no_longer(
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
    # One is cancelled, and of another the mark is removed again.
    assert stay == 2
    assert [line.split()[1:3] for line in capsys.readouterr().out.splitlines()] == [
        ["team/a", "cancelled"],
        ["team/c", "cancelled"],
        ["team/gone", "gone"],
    ]


async def test_who_could_not_be_marked_is_not_waited_for(served: tuple[StubApi, Api]) -> None:
    stub, api = served
    stub.collections[TEAM]["c"] = UNMARKED
    stub.refuses[f"{TEAM}/c"] = 403
    order = EvictOptions(
        subjects=("c",),
        selector=None,
        patience=WaitOptions(enabled=True, timeout_seconds=None),
        is_dry_run=False,
    )
    target = ClusterTarget(kubeconfig=None, context=None, namespace="team")
    async with asyncio.timeout(60):
        assert await evict._evict(api, target=target, order=order) == 1


BOTH = (("a", "hinted"), ("b", "hinted"))


async def test_an_api_server_that_goes_away_is_waited_for(served: tuple[StubApi, Api]) -> None:
    stub, api = served
    seen = Seen(api)
    await seen.until(*BOTH)
    stub.is_failing = True
    stub.end_watches()
    lists = stub.calls[PODS]
    await until(lambda: stub.calls[PODS] > lists + 2)
    stub.collections[PODS]["b"] = a_victim("b", "saved")
    stub.is_failing = False
    await seen.until(*BOTH, ("b", "saved"))
    seen.task.cancel()


async def test_of_one_that_goes_while_nobody_answers_it_is_told_later(
    served: tuple[StubApi, Api],
) -> None:
    stub, api = served
    seen = Seen(api)
    await seen.until(*BOTH)
    await until(lambda: stub.open_watches == 1)
    gone = stub.collections[PODS].pop("b")
    del stub.collections[TEAM]["b"]
    stub.is_failing = True
    looks = stub.calls[f"{TEAM}/b"]
    stub.send("DELETED", gone)
    await until(lambda: stub.calls[f"{TEAM}/b"] > looks)
    stub.is_failing = False
    await seen.until(*BOTH, ("b", Phase.GONE))
    seen.task.cancel()


@pytest.mark.parametrize("barred", [True, False])
async def test_what_cannot_begin_says_so_on_a_terminal_as_in_a_pipe(
    served: tuple[StubApi, Api], *, barred: bool
) -> None:
    stub, api = served
    stub.is_failing = True
    if barred:
        stub.barred.add(PODS)
    target = ClusterTarget(namespace=None, kubeconfig=None, context=None)
    with pytest.raises(ApiError):
        await watch._print_changes(api, target=target, once=False, show=lambda *_: "")
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(ApiError):
        await watch._show_live_table(api, target=target, console=console)


async def test_a_right_that_is_taken_away_ends_it(served: tuple[StubApi, Api]) -> None:
    stub, api = served
    seen = Seen(api)
    await seen.until(*BOTH)
    stub.barred.add(PODS)
    stub.end_watches()
    with pytest.raises(ApiError):
        await seen.task
