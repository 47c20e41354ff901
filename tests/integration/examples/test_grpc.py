"""The example in gRPC, as its author would run it: gRPC's own server and compiler, against our client."""

import asyncio
import ipaddress
import json
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from reprieve_operator.checkpointing.endpoints import GrpcTarget
from reprieve_operator.checkpointing.grpc_transport import GrpcLine
from reprieve_operator.checkpointing.transport import Heard, Reply
from reprieve_policy.checkpointing.contract import AnswerState, Request
from reprieve_testing import grpc_example

LINE = GrpcLine()
SECONDS = 60.0
UNFINISHED = 143
REQUEST = Request(
    eviction_id="u-1",
    attempt=1,
    deadline=datetime(2026, 11, 21, 12, 10, tzinfo=UTC),
    reason="",
    preemption_class=4,
    may_extend=True,
)


async def until(call: Callable[[], Awaitable[Reply]], holds: Callable[[Reply], bool]) -> Reply:
    async with asyncio.timeout(SECONDS):
        while not holds(reply := await call()):  # noqa: ASYNC110 - a workload tells no event
            await asyncio.sleep(0.05)
    return reply


def has_saved(reply: Reply) -> bool:
    return reply.answer is not None and reply.answer.state is AnswerState.SAVED


async def test_it_saves_when_it_is_asked_goes_on_may_stay_and_ends_unfinished(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with grpc_example.training(tmp_path, "127.0.0.1", port) as process:
        await _tell_story(process, GrpcTarget(ipaddress.ip_address("127.0.0.1"), port), tmp_path / "training-0.json")


async def _tell_story(process: "subprocess.Popen[str]", target: GrpcTarget, checkpoint: Path) -> None:
    before = await until(lambda: LINE.look(target, "u-1", 5), lambda reply: reply.heard is not Heard.NOT_RECEIVED)
    assert before.heard is Heard.UNKNOWN_THERE
    asked = await LINE.ask(target, REQUEST, 5)
    assert asked.answer is not None
    assert asked.answer.state in (AnswerState.SAVING, AnswerState.SAVED)
    saved = (await until(lambda: LINE.look(target, "u-1", 5), has_saved)).answer
    assert saved is not None
    assert saved.path == str(checkpoint)
    assert json.loads(await asyncio.to_thread(checkpoint.read_text)) == {"step": saved.step}
    assert (await LINE.ask(target, replace(REQUEST, attempt=2), 5)).answer == saved, "the same id is the same request"
    assert (await LINE.look(target, "u-2", 5)).heard is Heard.UNKNOWN_THERE
    await LINE.take_back(target, "u-2", 5)
    assert (await LINE.look(target, "u-1", 5)).answer == saved, "what is taken back was another request"
    await LINE.take_back(target, "u-1", 5)
    assert (await LINE.look(target, "u-1", 5)).heard is Heard.UNKNOWN_THERE
    assert process.poll() is None, "it goes on, and waits for the deletion"
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == UNFINISHED
