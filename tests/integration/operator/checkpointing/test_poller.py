"""Calls to one workload whose transport raises or hangs, which no transport should do."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from yarl import URL

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.checkpointing.transport import ReplyKind, WorkloadReply
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


class BrokenTransport:
    """Raises, or never returns."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.calls: list[str] = []
        self.is_called = asyncio.Event()
        self.was_cancelled = False
        self._hangs = hangs

    async def request_checkpoint(
        self,
        endpoint: HttpEndpoint,  # noqa: ARG002
        request: CheckpointRequest,  # noqa: ARG002
        timeout_seconds: float,  # noqa: ARG002
    ) -> WorkloadReply:
        return await self._call("request")

    async def poll(
        self,
        endpoint: HttpEndpoint,  # noqa: ARG002
        eviction_id: str,  # noqa: ARG002
        timeout_seconds: float,  # noqa: ARG002
    ) -> WorkloadReply:
        return await self._call("poll")

    async def cancel(
        self,
        endpoint: HttpEndpoint,  # noqa: ARG002
        eviction_id: str,  # noqa: ARG002
        timeout_seconds: float,  # noqa: ARG002
    ) -> None:
        await self._call("cancel")

    async def close(self) -> None:
        pass

    async def _call(self, name: str) -> WorkloadReply:
        self.calls.append(name)
        self.is_called.set()
        if not self._hangs:
            raise RecursionError("unexpected")
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled = True
        raise AssertionError


class SavingTransport(BrokenTransport):
    """Replies that the workload is saving."""

    async def _call(self, name: str) -> WorkloadReply:
        self.calls.append(name)
        return WorkloadReply(ReplyKind.ANSWER, CheckpointAnswer(state=AnswerState.SAVING))


def a_poller(
    transport: BrokenTransport, woken: asyncio.Event, clock: Clock | None = None
) -> CheckpointPoller:
    return CheckpointPoller(
        CheckpointClient({HttpEndpoint: lambda: transport}),
        OperatorSettings(namespace="n"),
        clock or Clock(),
        woken.set,
    )


async def test_an_unexpected_error_does_not_cause_a_second_hint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport, woken = BrokenTransport(), asyncio.Event()
    poller = a_poller(transport, woken)
    poller.begin_attempt()
    poller.poll(TARGET, STATE, REQUEST, NOW, "n")
    async with asyncio.timeout(60):
        await woken.wait()
    messages = [record.message for record in caplog.records]
    assert messages == ["checkpoint call failed unexpectedly"]
    # The workload may have received the hint: it is not sent again.
    poller.poll(TARGET, STATE, REQUEST, NOW + timedelta(minutes=5), "n")
    await poller.close()
    assert transport.calls[0] == "request"
    assert "request" not in transport.calls[1:]


async def test_closing_the_poller_cancels_a_call_that_hangs() -> None:
    transport, woken = BrokenTransport(hangs=True), asyncio.Event()
    poller = a_poller(transport, woken)
    poller.begin_attempt()
    poller.poll(TARGET, STATE, REQUEST, NOW, "n")
    async with asyncio.timeout(60):
        await transport.is_called.wait()
        await poller.close()
    assert transport.was_cancelled
    assert not poller.is_calling


async def test_an_answer_to_one_eviction_does_not_count_for_the_next() -> None:
    poller = a_poller(BrokenTransport(), asyncio.Event())
    poller.answer = CheckpointAnswer(state=AnswerState.SAVED)
    await poller.close()
    assert poller.answer is None


NEXT_POLLS: dict[str, tuple[float | None, float, float]] = {
    "an unknown end": (None, 4.5, 5.0),
    "an end before the usual poll": (2.0, 2.0, 2.0),
    "an end after the usual poll": (60.0, 4.5, 5.0),
    "an end that has passed": (-1.0, 4.5, 5.0),
}


@pytest.mark.parametrize(("seconds", "least", "most"), NEXT_POLLS.values(), ids=NEXT_POLLS)
async def test_a_workload_that_saves_is_polled_when_its_save_is_expected_to_end(
    seconds: float | None, least: float, most: float
) -> None:
    woken, clock = asyncio.Event(), Clock(now=lambda: NOW, monotonic=lambda: 0.0)
    poller = a_poller(SavingTransport(), woken, clock)
    end = None if seconds is None else NOW + timedelta(seconds=seconds)
    poller.begin_attempt()
    poller.poll(TARGET, STATE, REQUEST, NOW, "n", expected_end=end)
    async with asyncio.timeout(60):
        await woken.wait()
    assert least <= poller.poll(TARGET, STATE, REQUEST, NOW, "n", expected_end=end) <= most


@pytest.mark.parametrize(
    ("took", "least", "most"), [(4.0, 4.5, 5.0), (6.0, 24.0, 24.0), (60.0, 30.0, 30.0)]
)
async def test_where_calls_are_slow_a_workload_is_polled_less_often(
    took: float, least: float, most: float
) -> None:
    woken, seconds = asyncio.Event(), [0.0]

    class SlowTransport(SavingTransport):
        async def _call(self, name: str) -> WorkloadReply:
            seconds[0] += took
            return await super()._call(name)

    clock = Clock(now=lambda: NOW, monotonic=lambda: seconds[0])
    poller = a_poller(SlowTransport(), woken, clock)
    poller.begin_attempt()
    poller.poll(TARGET, STATE, REQUEST, NOW, "n")
    async with asyncio.timeout(60):
        await woken.wait()
    assert least <= poller.poll(TARGET, STATE, REQUEST, NOW, "n") <= most
