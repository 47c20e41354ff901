"""Calls to one workload, where the line to it fails in a way that no line should."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from yarl import URL

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.checkpointing.transport import WorkloadReply
from reprieve_operator.clock import Clock
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.lifecycle.eviction import Eviction, Phase

TARGET = HttpEndpoint(URL("http://10.0.0.1:8080/"))
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
STATE = Eviction(
    eviction_id="e", phase=Phase.HINTED, requested_at=NOW, deadline=NOW + timedelta(minutes=5)
)
REQUEST = CheckpointRequest(
    eviction_id="e", attempt=1, deadline=NOW, reason="", preemption_class=4, may_extend=False
)


class BadLine:
    """It raises, or never comes back."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.calls: list[str] = []
        self.is_called = asyncio.Event()
        self.was_cancelled = False
        self._hangs = hangs

    async def ask(
        self, target: HttpEndpoint, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:  # noqa: ARG002
        return await self._call("ask")

    async def look(
        self, target: HttpEndpoint, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:  # noqa: ARG002
        return await self._call("look")

    async def take_back(
        self, target: HttpEndpoint, eviction_id: str, timeout_seconds: float
    ) -> None:  # noqa: ARG002
        await self._call("take back")

    async def close(self) -> None:
        pass

    async def _call(self, name: str) -> WorkloadReply:
        self.calls.append(name)
        self.is_called.set()
        if not self._hangs:
            raise RecursionError("an answer that nobody thought of")
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled = True
        raise AssertionError


def asking(line: BadLine, woken: asyncio.Event) -> CheckpointPoller:
    return CheckpointPoller(
        CheckpointClient({HttpEndpoint: lambda: line}),
        OperatorSettings(namespace="n"),
        Clock(),
        woken.set,
    )


async def test_a_call_that_fails_is_not_taken_for_one_that_was_not_received(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line, woken = BadLine(), asyncio.Event()
    caller = asking(line, woken)
    caller.begin_attempt()
    caller.poll(TARGET, STATE, REQUEST, NOW, "n")
    async with asyncio.timeout(60):
        await woken.wait()
    assert [record.message for record in caplog.records] == ["call failed"]
    # The workload may have heard: whatever is said next, it is not told again.
    caller.poll(TARGET, STATE, REQUEST, NOW + timedelta(minutes=5), "n")
    await caller.close()
    assert line.calls[0] == "ask"
    assert "ask" not in line.calls[1:]


async def test_a_call_that_hangs_ends_with_the_conversation() -> None:
    line, woken = BadLine(hangs=True), asyncio.Event()
    caller = asking(line, woken)
    caller.begin_attempt()
    caller.poll(TARGET, STATE, REQUEST, NOW, "n")
    async with asyncio.timeout(60):
        await line.is_called.wait()
        await caller.close()
    assert line.was_cancelled
    assert not caller.is_calling


async def test_what_was_said_of_one_eviction_is_not_taken_for_the_word_on_the_next() -> None:
    caller = asking(BadLine(), asyncio.Event())
    caller.answer = CheckpointAnswer(state=AnswerState.SAVED)
    await caller.close()
    assert caller.answer is None
