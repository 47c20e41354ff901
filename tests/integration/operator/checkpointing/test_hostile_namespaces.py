"""Namespaces whose pods hang take no call from the victims of others.

Each hostile namespace has 200 pods that accept a connection and never answer.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.http_transport import HttpTransport
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.checkpointing.transport import ReplyKind, WorkloadReply
from reprieve_operator.clock import Clock
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_testing.objects.builders import NOW
from reprieve_testing.operator_parts import REQUEST
from reprieve_testing.virtual_time import run_in_virtual_time

PODS, VICTIMS = 200, 40
POLL_SECONDS = 2.0
HANGING = 50
"""So many calls of hostile namespaces hang at once, of the 200 that may be under way."""
HANGS, ANSWERS = HttpEndpoint(URL("http://10.0.0.1:1/")), HttpEndpoint(URL("http://10.0.0.2:1/"))


@dataclass
class ScriptedTransport:
    """Answers after some milliseconds, or not before the time-out."""

    answer_seconds: float = 0.05
    busy: int = 0
    most_busy: int = field(default=0)

    async def request_checkpoint(
        self, endpoint: HttpEndpoint, _request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        return await self._call(endpoint, timeout_seconds)

    async def poll(
        self, endpoint: HttpEndpoint, _eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:
        return await self._call(endpoint, timeout_seconds)

    async def cancel(self, _endpoint: HttpEndpoint, _eviction_id: str, _seconds: float) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    async def _call(self, endpoint: HttpEndpoint, timeout_seconds: float) -> WorkloadReply:
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            if endpoint is HANGS:
                await asyncio.sleep(timeout_seconds)
                return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN)
            await asyncio.sleep(self.answer_seconds)
            return WorkloadReply(ReplyKind.ANSWER, CheckpointAnswer(state=AnswerState.SAVED))
        finally:
            self.busy -= 1


async def hint(
    client: CheckpointClient, endpoint: HttpEndpoint, namespace: str, timeout_seconds: float
) -> WorkloadReply:
    """Send one hint as a victim does: it waits for its call, and its time begins then."""
    granted = asyncio.Event()
    ticket = client.reserve_call(namespace, granted.set)
    try:
        if not ticket.is_granted:
            await granted.wait()
        return await client.request_checkpoint(
            endpoint, REQUEST, timeout_seconds, namespace=namespace, ticket=ticket
        )
    finally:
        ticket.release()


async def be_hostile(
    client: CheckpointClient, endpoint: HttpEndpoint, namespace: str, timeout_seconds: float
) -> None:
    await hint(client, endpoint, namespace, timeout_seconds)
    while True:
        await client.poll(endpoint, "u-1", timeout_seconds, namespace=namespace)
        await asyncio.sleep(POLL_SECONDS)


@contextlib.asynccontextmanager
async def hostile(
    client: CheckpointClient,
    endpoint: HttpEndpoint,
    namespaces: int,
    timeout_seconds: float,
    *,
    prefix: str = "hostile",
) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(be_hostile(client, endpoint, f"{prefix}-{number}", timeout_seconds))
        for number in range(namespaces)
        for _ in range(PODS)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def hint_delays(
    client: CheckpointClient, endpoint: HttpEndpoint, timeout_seconds: float
) -> list[float]:
    """Mark some victims of another namespace at once; return how long each hint took, in order."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def one() -> float:
        reply = await hint(client, endpoint, "team", timeout_seconds)
        assert reply.kind is ReplyKind.ANSWER, reply
        return clock() - began

    return sorted(await asyncio.gather(*(one() for _ in range(VICTIMS))))


def p99(delays: Sequence[float]) -> float:
    return delays[int(len(delays) * 0.99)]


async def measured(namespaces: int, after_seconds: float) -> tuple[float, int]:
    transport: Any = ScriptedTransport()
    client = CheckpointClient({HttpEndpoint: lambda: transport})
    async with hostile(client, HANGS, namespaces, 10.0):
        await asyncio.sleep(after_seconds)
        return p99(await hint_delays(client, ANSWERS, 10.0)), transport.most_busy


@pytest.mark.parametrize("after_seconds", [0.0, 5.0, 25.0, 45.0, 125.0])
@pytest.mark.parametrize("namespaces", [1, 2, 5])
def test_hostile_namespaces_do_not_delay_the_hints_of_others(
    namespaces: int, after_seconds: float
) -> None:
    alone, _ = run_in_virtual_time(measured(0, after_seconds))
    beside, most_busy = run_in_virtual_time(measured(namespaces, after_seconds))
    assert beside <= 2 * alone, f"p99 {beside:.3f} s, without them {alone:.3f} s"
    assert most_busy <= 200


async def _delay_of_newcomers() -> list[float]:
    """Have one namespace after another hang, and a victim of yet another one come each time."""
    transport: Any = ScriptedTransport()
    client, found = CheckpointClient({HttpEndpoint: lambda: transport}), []
    clock = asyncio.get_running_loop().time
    async with contextlib.AsyncExitStack() as stack:
        for number in range(30):
            # At first they answer, so that they get as much as they can.
            await call_many(client, ANSWERS, f"late-{number}-0")
            one_more = hostile(client, HANGS, 1, 10.0, prefix=f"late-{number}")
            await stack.enter_async_context(one_more)
            await asyncio.sleep(0.5)
            began = clock()
            await hint(client, ANSWERS, "team", 10.0)
            found.append(clock() - began)
    return found


async def call_many(client: CheckpointClient, endpoint: HttpEndpoint, namespace: str) -> None:
    """Have many calls of a namespace end, while others are begun."""
    calls = (client.poll(endpoint, "u-1", 60.0, namespace=namespace) for _ in range(PODS))
    await asyncio.gather(*calls)


def test_a_newcomer_finds_a_call_at_once_and_never_waits_longer_than_one_calls_timeout() -> None:
    delays = run_in_virtual_time(_delay_of_newcomers())
    assert max(delays[:5]) == pytest.approx(0.05), delays
    assert max(delays) <= 10.0 + 0.1, delays


STATE = Eviction(
    eviction_id="u-1", phase=Phase.HINTED, requested_at=NOW, deadline=NOW + timedelta(minutes=5)
)


async def _seconds_to_next_poll(others: Sequence[tuple[str, HttpEndpoint, float]]) -> float:
    """Call a workload of `team` that answers in 0.7 s, while others call; 4 calls are possible."""
    transport: Any = ScriptedTransport(answer_seconds=0.7)
    client = CheckpointClient({HttpEndpoint: lambda: transport}, max_calls=4)
    woken, time = asyncio.Event(), asyncio.get_running_loop().time
    clock = Clock(now=lambda: NOW, monotonic=time)
    poller = CheckpointPoller(client, OperatorSettings(namespace="n"), clock, woken.set)

    def call(namespace: str, endpoint: HttpEndpoint, seconds: float) -> asyncio.Task[WorkloadReply]:
        return asyncio.create_task(client.poll(endpoint, "u-1", seconds, namespace=namespace))

    half = len(others) // 2
    calls = [call(*other) for other in others[:half]]
    await asyncio.sleep(0)
    poller.poll(ANSWERS, STATE, REQUEST, NOW, "team")
    await asyncio.sleep(0)
    calls += [call(*other) for other in others[half:]]
    try:
        await woken.wait()
        return poller.poll(ANSWERS, STATE, REQUEST, NOW, "team")
    finally:
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


NEXT_POLLS: dict[str, tuple[Sequence[tuple[str, HttpEndpoint, float]], float, float]] = {
    "no others": ((), 4.5, 5.0),
    "others hang for 8 s": ([(f"hostile-{n}", HANGS, 8.0) for n in range(20)], 4.5, 5.0),
    "others hang for longer than a call may wait": (
        [(f"hostile-{n}", HANGS, 60.0) for n in range(20)],
        4.5,
        5.0,
    ),
    "many of its own Namespace": ([("team", ANSWERS, 60.0)] * 40, 20.0, 30.0),
}


@pytest.mark.parametrize(("others", "least", "most"), NEXT_POLLS.values(), ids=NEXT_POLLS)
def test_a_workload_is_polled_less_often_because_of_its_own_namespace_only(
    others: Sequence[tuple[str, HttpEndpoint, float]], least: float, most: float
) -> None:
    assert least <= run_in_virtual_time(_seconds_to_next_poll(others)) <= most


async def test_on_real_connections_hints_are_answered_while_those_of_hostile_namespaces_hang() -> (
    None
):
    hanging, all_hang = 0, asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal hanging
        if request.path == "/hangs":
            hanging += 1
            if hanging >= HANGING:
                all_hang.set()
            await asyncio.Event().wait()
        return web.json_response({"state": "saving", "id": "u-1"})

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    base = URL(f"http://127.0.0.1:{runner.addresses[0][1]}")
    hangs, answers = HttpEndpoint(base / "hangs"), HttpEndpoint(base / "answers")
    client = CheckpointClient({HttpEndpoint: HttpTransport})
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(client.close)
        await stack.enter_async_context(hostile(client, hangs, 5, 600.0))
        await asyncio.wait_for(all_hang.wait(), 60.0)
        # No call of theirs ends before these: they hang for ten times as long.
        assert len(await hint_delays(client, answers, 60.0)) == VICTIMS
