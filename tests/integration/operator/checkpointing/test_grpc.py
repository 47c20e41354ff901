"""Hints over real gRPC on loopback: the meaning of replies, and the bounds on hostile peers."""

import asyncio
import contextlib
import gzip
import ipaddress
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from reprieve_operator.checkpointing import checkpoint_pb2 as wire
from reprieve_operator.checkpointing.client import CheckpointClient, transport_factories
from reprieve_operator.checkpointing.endpoints import GrpcEndpoint
from reprieve_operator.checkpointing.grpc_transport import GrpcTransport
from reprieve_operator.checkpointing.transport import ReplyKind
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointRequest
from reprieve_testing.servers.stub_api import stub_api

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[bytes, Context], Awaitable[bytes]]
Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[..., Awaitable[GrpcEndpoint]]
"""Takes a handler and the methods that it handles; the service has no others."""
Listen = Callable[[Speak], Awaitable[GrpcEndpoint]]

LOOPBACK = ipaddress.ip_address("127.0.0.1")
UNUSED = GrpcEndpoint(LOOPBACK, 1)
DEADLINE = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)
REQUEST = CheckpointRequest(
    eviction_id="u-1", attempt=1, deadline=DEADLINE, reason="r", preemption_class=4, may_extend=True
)
SETTINGS = bytes.fromhex("000000040000000000")
"""The first frame of every HTTP/2 server."""


@pytest.fixture
def transport() -> GrpcTransport:
    return GrpcTransport()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[grpc.aio.Server] = []

    async def start(handler: Handler, *calls: str) -> GrpcEndpoint:
        method = grpc.unary_unary_rpc_method_handler(handler)
        service = grpc.method_handlers_generic_handler(
            "reprieve.checkpoint.v1.Checkpoint", dict.fromkeys(calls or ("Ask", "Look"), method)
        )
        server = grpc.aio.server(handlers=[service])
        servers.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return GrpcEndpoint(LOOPBACK, port)

    yield start
    for server in servers:
        await server.stop(None)


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Serve raw bytes instead of gRPC."""
    servers: list[asyncio.Server] = []
    talks: list[asyncio.Task[None]] = []

    async def talk(
        speak: Speak, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await speak(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def start(speak: Speak) -> GrpcEndpoint:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talks.append(asyncio.create_task(talk(speak, reader, writer)))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        servers.append(server)
        return GrpcEndpoint(LOOPBACK, server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()
    for task in talks:
        task.cancel()
    await asyncio.gather(*talks)


def saying(message: Any) -> Handler:
    async def answer(_: bytes, __: Context) -> bytes:
        return message if isinstance(message, bytes) else bytes(message.SerializeToString())

    return answer


def refusing(code: grpc.StatusCode) -> Handler:
    async def refuse(_: bytes, context: Context) -> NoReturn:
        await context.abort(code, "no")

    return refuse


async def never_answering(_: bytes, __: Context) -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


def an_answer(**fields: Any) -> Any:
    return wire.Answer(**fields)


UNREADABLE = b"\xff\xff\xff\xff"
ASKS: dict[str, tuple[Handler, ReplyKind, AnswerState | None]] = {
    "a valid answer counts": (
        saying(an_answer(state="STATE_SAVING", id="u-1", progress=0.0)),
        ReplyKind.ANSWER,
        AnswerState.SAVING,
    ),
    "an empty answer is an acceptance": (saying(b""), ReplyKind.ANSWER, AnswerState.ACCEPTED),
    "an unreadable answer is an acceptance": (
        saying(UNREADABLE),
        ReplyKind.ANSWER,
        AnswerState.ACCEPTED,
    ),
    "a state of a later version is an acceptance": (
        saying(an_answer(state=99)),
        ReplyKind.ANSWER,
        AnswerState.ACCEPTED,
    ),
    "invalid progress is an acceptance only": (
        saying(an_answer(state="STATE_SAVED", progress=2.0)),
        ReplyKind.ANSWER,
        AnswerState.ACCEPTED,
    ),
    "a negative step is an acceptance only": (
        saying(an_answer(state="STATE_SAVED", step=-1)),
        ReplyKind.ANSWER,
        AnswerState.ACCEPTED,
    ),
    "an answer with another request id": (
        saying(an_answer(state="STATE_SAVED", id="u-0")),
        ReplyKind.OUTCOME_UNKNOWN,
        None,
    ),
    "idle is not an acceptance": (
        saying(an_answer(state="STATE_IDLE")),
        ReplyKind.OUTCOME_UNKNOWN,
        None,
    ),
    "a method that is not there has accepted nothing": (
        refusing(grpc.StatusCode.UNIMPLEMENTED),
        ReplyKind.NOT_RECEIVED,
        None,
    ),
    "a request that is refused was not accepted": (
        refusing(grpc.StatusCode.FAILED_PRECONDITION),
        ReplyKind.NOT_RECEIVED,
        None,
    ),
    "after INTERNAL, a save may have begun": (
        refusing(grpc.StatusCode.INTERNAL),
        ReplyKind.OUTCOME_UNKNOWN,
        None,
    ),
    "after UNAVAILABLE, a save may have begun": (
        refusing(grpc.StatusCode.UNAVAILABLE),
        ReplyKind.OUTCOME_UNKNOWN,
        None,
    ),
    "after RESOURCE_EXHAUSTED, a save may have begun": (
        refusing(grpc.StatusCode.RESOURCE_EXHAUSTED),
        ReplyKind.OUTCOME_UNKNOWN,
        None,
    ),
    "an answer that is too long is an acceptance only": (
        saying(an_answer(state="STATE_SAVED", message="x" * contract.MAX_ANSWER)),
        ReplyKind.ANSWER,
        AnswerState.ACCEPTED,
    ),
    "an answer that is too long": (
        saying(bytes(1_000_000)),
        ReplyKind.OUTCOME_UNKNOWN,
        None,
    ),
}


@pytest.mark.parametrize(("handler", "want", "state"), ASKS.values(), ids=ASKS)
async def test_what_a_reply_to_a_hint_means(
    transport: GrpcTransport,
    serve: Serve,
    handler: Handler,
    want: ReplyKind,
    state: AnswerState | None,
) -> None:
    reply = await transport.request_checkpoint(await serve(handler), REQUEST, 5)
    assert (reply.kind, reply.answer and reply.answer.state) == (want, state)


LOOKS = {
    "saving, with progress": (
        saying(an_answer(state="STATE_SAVING", id="u-1", progress=0.5)),
        ReplyKind.ANSWER,
    ),
    "saving, without a request id": (
        saying(an_answer(state="STATE_SAVING")),
        ReplyKind.UNATTRIBUTED,
    ),
    "idle, without a request": (saying(an_answer(state="STATE_IDLE")), ReplyKind.UNKNOWN_REQUEST),
    "the answer has another request id": (
        saying(an_answer(state="STATE_SAVED", id="u-0")),
        ReplyKind.UNKNOWN_REQUEST,
    ),
    "NOT_FOUND": (refusing(grpc.StatusCode.NOT_FOUND), ReplyKind.UNKNOWN_REQUEST),
    "an empty message to every call": (saying(b""), ReplyKind.UNSUPPORTED),
    "an unreadable message": (saying(UNREADABLE), ReplyKind.UNSUPPORTED),
    "UNIMPLEMENTED": (refusing(grpc.StatusCode.UNIMPLEMENTED), ReplyKind.UNSUPPORTED),
    "the call fails": (refusing(grpc.StatusCode.UNKNOWN), ReplyKind.OUTCOME_UNKNOWN),
}


@pytest.mark.parametrize(("handler", "want"), LOOKS.values(), ids=LOOKS)
async def test_what_a_reply_to_a_poll_means(
    transport: GrpcTransport, serve: Serve, handler: Handler, want: ReplyKind
) -> None:
    assert (await transport.poll(await serve(handler), "u-1", 5)).kind is want


async def test_the_request_follows_the_contract_and_has_no_credentials(
    transport: GrpcTransport, serve: Serve
) -> None:
    seen: list[tuple[Any, dict[str, Any]]] = []

    async def answer(message: bytes, context: Context) -> bytes:
        seen.append((wire.Request.FromString(message), dict(context.invocation_metadata() or ())))
        return an_answer(state="STATE_SAVED", step=7, path="/data/7").SerializeToString()  # type: ignore[no-any-return]

    reply = await transport.request_checkpoint(await serve(answer), REQUEST, 5)
    assert reply.answer is not None
    assert (reply.answer.state, reply.answer.step, reply.answer.path) == (
        AnswerState.SAVED,
        7,
        "/data/7",
    )
    said, metadata = seen[0]
    assert (said.version, said.id, said.attempt, said.reason) == (1, "u-1", 1, "r")
    assert (said.deadline.ToDatetime(UTC), said.preemption_class, said.may_extend) == (
        DEADLINE,
        4,
        True,
    )
    assert set(metadata) == {"user-agent"}


async def test_a_poll_names_the_request(transport: GrpcTransport, serve: Serve) -> None:
    async def answer(message: bytes, _: Context) -> bytes:
        named = wire.LookRequest.FromString(message).id
        return an_answer(state="STATE_DEFER", id=named, defer_seconds=60).SerializeToString()  # type: ignore[no-any-return]

    reply = await transport.poll(await serve(answer), "u-1", 5)
    assert reply.answer is not None
    assert (reply.answer.state, reply.answer.eviction_id, reply.answer.defer_seconds) == (
        AnswerState.DEFER,
        "u-1",
        60,
    )


async def test_the_author_of_an_invalid_answer_gets_the_error(
    transport: GrpcTransport, serve: Serve
) -> None:
    reply = await transport.request_checkpoint(
        await serve(saying(an_answer(state="STATE_SAVED", step=-1))), REQUEST, 5
    )
    assert reply.answer_error == "answer.step: must be a whole number, 0 or more"


async def test_a_refused_connection_has_certainly_not_received_the_request_and_costs_no_time(
    transport: GrpcTransport,
) -> None:
    async with asyncio.timeout(60):  # A call that waits takes five minutes.
        for _ in range(3):
            assert (
                await transport.request_checkpoint(UNUSED, REQUEST, 300)
            ).kind is ReplyKind.NOT_RECEIVED


async def silence(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def hanging_up(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    return


async def http_1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(24)
    writer.write(
        b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    )
    await writer.drain()


async def garbage_for_ever(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _pour(writer, b"\xde\xad\xbe\xef" * 4096)


NO_GRPC = {
    "silence": silence,
    "hanging up": hanging_up,
    "HTTP/1.1": http_1,
    "garbage for ever": garbage_for_ever,
}


@pytest.mark.parametrize("speak", NO_GRPC.values(), ids=NO_GRPC)
async def test_a_peer_without_http_2_has_certainly_not_received_the_request(
    transport: GrpcTransport, listen: Listen, speak: Speak
) -> None:
    target = await listen(speak)
    async with asyncio.timeout(60):
        assert (
            await transport.request_checkpoint(target, REQUEST, 1)
        ).kind is ReplyKind.NOT_RECEIVED


async def settings_then_silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SETTINGS)
    while await reader.read(65536):
        pass


async def settings_then_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await garbage_for_ever(reader, writer)


async def settings_then_headers_for_ever(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Endless headers: one legal CONTINUATION frame after another."""
    await _request(reader, writer)
    writer.write(_frame(1, 0, b"\x88"))
    await _pour(writer, _frame(9, 0, b"\x00\x01x\x7f\x80\x7f" + b"y" * 255))


async def an_answer_without_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One message with a declared length of 4 GiB."""
    await _request(reader, writer)
    writer.write(
        _frame(1, 4, b"\x88\x0f\x10\x10application/grpc") + _frame(0, 0, b"\x00\xff\xff\xff\xff")
    )
    await _pour(writer, _frame(0, 0, bytes(4096)))


async def _pour(writer: asyncio.StreamWriter, data: bytes) -> NoReturn:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(
            0
        )  # without this, a reader that is quick enough leaves no turn to the test


def _frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the settings, and wait for the request's headers."""
    writer.write(SETTINGS)
    received = b""
    while b"Checkpoint" not in received and b"user-agent" not in received and len(received) < 200:
        received += await reader.read(65536)


async def pings_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader, writer)
    await _pour(writer, _frame(6, 0, bytes(8), stream=0) * 100)


async def greetings_for_ever(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _pour(writer, SETTINGS * 100)


async def one_header_named_a_thousand_times(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A header of 3 KB that HPACK keeps in its table, and then one byte for each repetition."""
    await _request(reader, writer)
    kept = b"\x40\x01x" + b"\x7f\x81\x17" + b"y" * 3072
    writer.write(_frame(1, 4, b"\x88" + kept + b"\xbe" * 10_000))
    await reader.read()


HOSTILE = {
    "pings for ever": pings_for_ever,
    "SETTINGS frames for ever": greetings_for_ever,
    "headers that unfold to 30 MB": one_header_named_a_thousand_times,
    "silence after the SETTINGS frame": settings_then_silence,
    "garbage after the request": settings_then_garbage,
    "headers without end": settings_then_headers_for_ever,
    "a message of 4 GiB": an_answer_without_end,
}


@pytest.mark.parametrize("speak", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_workload_costs_no_more_than_the_time_of_a_call(
    transport: GrpcTransport, listen: Listen, speak: Speak
) -> None:
    target = await listen(speak)
    async with asyncio.timeout(60):
        assert (
            await transport.request_checkpoint(target, REQUEST, 1)
        ).kind is ReplyKind.OUTCOME_UNKNOWN


UNREAD = {
    "a stream refused": _frame(3, 0, struct.pack(">I", 7)),
    "a server that shuts down": _frame(7, 0, struct.pack(">II", 0, 0), stream=0),
    "an HTTP/2 server without gRPC": _frame(1, 5, b"\x8d"),
}


@pytest.mark.parametrize("frame", UNREAD.values(), ids=UNREAD)
async def test_a_request_that_http_2_reports_as_unprocessed_may_be_sent_again(
    transport: GrpcTransport, listen: Listen, frame: bytes
) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader, writer)
        writer.write(frame)
        await reader.read()

    assert (
        await transport.request_checkpoint(await listen(say), REQUEST, 5)
    ).kind is ReplyKind.NOT_RECEIVED


async def test_a_workload_that_hangs_may_have_received_the_request(
    transport: GrpcTransport, serve: Serve
) -> None:
    assert (
        await transport.request_checkpoint(await serve(never_answering), REQUEST, 0.5)
    ).kind is ReplyKind.OUTCOME_UNKNOWN


async def test_a_compressed_answer_is_never_expanded(
    transport: GrpcTransport, listen: Listen
) -> None:
    bomb = gzip.compress(
        wire.Answer(state="STATE_SAVED", message="x" * 8_000_000).SerializeToString()
    )
    assert len(bomb) < contract.MAX_ANSWER

    async def explode(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader, writer)
        headers = b"\x88\x0f\x10\x10application/grpc\x00\x0dgrpc-encoding\x04gzip"
        writer.write(
            _frame(1, 4, headers) + _frame(0, 0, b"\x01" + struct.pack(">I", len(bomb)) + bomb)
        )
        writer.write(_frame(1, 5, b"\x00\x0bgrpc-status\x010"))
        await reader.read()

    reply = await transport.request_checkpoint(await listen(explode), REQUEST, 1)
    assert (reply.kind, reply.answer) == (ReplyKind.OUTCOME_UNKNOWN, None)


async def test_a_pod_with_an_ipv6_address_is_called(transport: GrpcTransport) -> None:
    server = grpc.aio.server(handlers=[])
    try:
        port = server.add_insecure_port("[::1]:0")
    except RuntimeError:
        pytest.skip("this machine has no IPv6")
    await server.start()
    reply = await transport.request_checkpoint(
        GrpcEndpoint(ipaddress.ip_address("::1"), port), REQUEST, 5
    )
    await server.stop(None)
    assert (reply.kind, reply.detail) == (ReplyKind.NOT_RECEIVED, "answered UNIMPLEMENTED")


async def test_a_cancellation_names_the_request_and_is_sent_once(serve: Serve) -> None:
    cancelled: list[str] = []

    async def answer(message: bytes, _: Context) -> bytes:
        cancelled.append(wire.CancelRequest.FromString(message).id)
        return b""

    await CheckpointClient({GrpcEndpoint: GrpcTransport}).cancel(
        await serve(answer, "Cancel"), "u-1", 5
    )
    assert cancelled == ["u-1"]


DEAF = {
    "an older service without Cancel": (saying(b""), "Ask", "Look"),
    "Cancel fails": (refusing(grpc.StatusCode.INTERNAL), "Cancel"),
    "Cancel returns an unreadable message": (saying(UNREADABLE), "Cancel"),
    "Cancel never returns": (never_answering, "Cancel"),
}


@pytest.mark.parametrize("service", DEAF.values(), ids=DEAF)
async def test_a_workload_without_a_cancel_method_causes_no_error(
    serve: Serve, service: tuple[Any, ...]
) -> None:
    target = await serve(*service)
    async with asyncio.timeout(60):
        await CheckpointClient({GrpcEndpoint: GrpcTransport}).cancel(target, "u-1", 0.5)
        await GrpcTransport().cancel(UNUSED, "u-1", 0.5)


async def test_the_client_uses_grpc_for_grpc_endpoints(serve: Serve, tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (_, api):
        client = CheckpointClient(transport_factories(api))
        assert (
            await client.request_checkpoint(await serve(saying(b"")), REQUEST, 5)
        ).kind is ReplyKind.ANSWER
        await client.close()


def test_the_operator_imports_no_grpc_before_the_first_grpc_hint() -> None:
    program = (
        "import sys, reprieve_operator.main;"
        "sys.exit('h2' in sys.modules or 'google.protobuf' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=os.environ)
