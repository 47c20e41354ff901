"""The gRPC example, run as by its author: gRPC's own server and compiler, against our client."""

import asyncio
import ipaddress
import json
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from reprieve_operator.checkpointing.endpoints import GrpcEndpoint
from reprieve_operator.checkpointing.grpc_transport import GrpcTransport
from reprieve_operator.checkpointing.transport import ReplyKind, WorkloadReply
from reprieve_policy.checkpointing.contract import AnswerState
from reprieve_testing.operator_parts import REQUEST
from reprieve_testing.servers import grpc_example

LINE = GrpcTransport()
SECONDS = 60.0
UNFINISHED = 143


async def until(
    call: Callable[[], Awaitable[WorkloadReply]], holds: Callable[[WorkloadReply], bool]
) -> WorkloadReply:
    async with asyncio.timeout(SECONDS):
        while not holds(reply := await call()):  # noqa: ASYNC110 - a workload triggers no event
            await asyncio.sleep(0.05)
    return reply


def has_saved(reply: WorkloadReply) -> bool:
    return reply.answer is not None and reply.answer.state is AnswerState.SAVED


async def test_the_example_saves_on_request_continues_after_a_cancellation_and_ends_unfinished(
    tmp_path: Path,
) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with grpc_example.training(tmp_path, "127.0.0.1", port) as process:
        await _run_session(
            process,
            GrpcEndpoint(ipaddress.ip_address("127.0.0.1"), port),
            tmp_path / "training-0.json",
        )


async def _run_session(
    process: "subprocess.Popen[str]", target: GrpcEndpoint, checkpoint: Path
) -> None:
    before = await until(
        lambda: LINE.poll(target, "u-1", 5), lambda reply: reply.kind is not ReplyKind.NOT_RECEIVED
    )
    assert before.kind is ReplyKind.UNKNOWN_REQUEST
    answer = await LINE.request_checkpoint(target, REQUEST, 5)
    assert answer.answer is not None
    assert answer.answer.state in (AnswerState.SAVING, AnswerState.SAVED)
    saved = (await until(lambda: LINE.poll(target, "u-1", 5), has_saved)).answer
    assert saved is not None
    assert saved.path == str(checkpoint)
    assert json.loads(await asyncio.to_thread(checkpoint.read_text)) == {"step": saved.step}
    assert (
        await LINE.request_checkpoint(target, replace(REQUEST, attempt=2), 5)
    ).answer == saved, "the same id is the same request"
    assert (await LINE.poll(target, "u-2", 5)).kind is ReplyKind.UNKNOWN_REQUEST
    await LINE.cancel(target, "u-2", 5)
    assert (await LINE.poll(target, "u-1", 5)).answer == saved, (
        "what is taken back was another request"
    )
    await LINE.cancel(target, "u-1", 5)
    assert (await LINE.poll(target, "u-1", 5)).kind is ReplyKind.UNKNOWN_REQUEST
    assert process.poll() is None, "it goes on, and waits for the deletion"
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == UNFINISHED
