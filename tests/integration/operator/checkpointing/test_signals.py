"""Signals through a WebSocket on loopback: the meaning of each result of `kill`.

No signal is sent twice or to another container. The test on a real node shows that a real API
server, kubelet and runtime give these results.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reprieve_operator.checkpointing.endpoints import SignalEndpoint
from reprieve_operator.checkpointing.signal_transport import SignalTransport
from reprieve_operator.checkpointing.transport import ReplyKind
from reprieve_testing.operator_parts import REQUEST
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

TARGET = SignalEndpoint("team", "training-0", "u", "main", "USR1")
PODS = "/api/v1/namespaces/team/pods"
KILL, SHELL = ["kill", "-USR1", "1"], ["/bin/sh", "-c", "kill -USR1 1"]

DONE = {"status": "Success"}
NO_FILE = 'unable to start container process: exec: "kill": executable file not found in $PATH'
NO_SHELL = (
    'unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory'
)


def failed(code: int) -> dict[str, Any]:
    return failed_with(str(code))


def failed_with(code: str) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": code}]
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
        "message": f"exit {code}",
    }


def broken(message: str) -> dict[str, Any]:
    return {"status": "Failure", "reason": "InternalError", "message": message}


class Node:
    """Stands for `pods/exec`: one result for each command, in order; a number is an HTTP error."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)
        self.ran: list[list[str]] = []
        self.asked: list[web.BaseRequest] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)
        self.ran.append(request.query.getall("command"))
        end = self.ends.pop(0)
        if isinstance(end, int):
            return web.json_response({"code": end}, status=end)
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        if end == "silence":
            await socket.receive()
        elif isinstance(end, bytes):
            await socket.send_bytes(end)
        elif end is not None:
            await socket.send_bytes(b"\x01what it prints")
            await socket.send_bytes(b"\x03" + json.dumps(end).encode())
        await socket.close()
        return socket


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[tuple[StubApi, SignalTransport]]:
    async with stub_api(tmp_path) as (stub, api):
        stub.collections[PODS] = {"training-0": {"metadata": {"name": "training-0", "uid": "u"}}}
        yield stub, SignalTransport(api)


ENDS: dict[str, tuple[tuple[Any, ...], ReplyKind, list[list[str]]]] = {
    "kill exits with 0": ((DONE,), ReplyKind.DELIVERED, [KILL]),
    "no kill, but a shell": (
        (
            broken(NO_FILE),
            DONE,
        ),
        ReplyKind.DELIVERED,
        [KILL, SHELL],
    ),
    "no kill, in the error of a shell": (
        (
            failed(127),
            DONE,
        ),
        ReplyKind.DELIVERED,
        [KILL, SHELL],
    ),
    "neither kill nor a shell": (
        (
            broken(NO_FILE),
            broken(NO_SHELL),
        ),
        ReplyKind.UNDELIVERABLE,
        [KILL, SHELL],
    ),
    "a kill that may not": (
        (
            failed(1),
            failed(1),
        ),
        ReplyKind.UNDELIVERABLE,
        [KILL, SHELL],
    ),
    "a container that restarts": (
        (broken('container not found ("main")'),),
        ReplyKind.NOT_RECEIVED,
        [KILL],
    ),
    "a node that broke meanwhile": (
        (broken("error reading from server: EOF"),),
        ReplyKind.OUTCOME_UNKNOWN,
        [KILL],
    ),
    "a connection that ended before the command": ((None,), ReplyKind.OUTCOME_UNKNOWN, [KILL]),
    "an exit code of thousands of digits": (
        (failed_with("9" * 5000),),
        ReplyKind.OUTCOME_UNKNOWN,
        [KILL],
    ),
    "an unreadable status": ((b"\x03{]",), ReplyKind.OUTCOME_UNKNOWN, [KILL]),
    "a status of another world": (
        (b'\x03{"status":"Failure","details":null}',),
        ReplyKind.OUTCOME_UNKNOWN,
        [KILL],
    ),
    "kill does not end in time": (("silence",), ReplyKind.OUTCOME_UNKNOWN, [KILL]),
    "no permission": ((403,), ReplyKind.UNDELIVERABLE, [KILL]),
    "a container that the pod has not": ((400,), ReplyKind.NOT_RECEIVED, [KILL]),
    "an API server with too much to do": ((429,), ReplyKind.NOT_RECEIVED, [KILL]),
    "an API server that fails": ((500,), ReplyKind.OUTCOME_UNKNOWN, [KILL]),
}


@pytest.mark.parametrize(("ends", "want", "ran"), ENDS.values(), ids=ENDS)
async def test_what_each_result_of_kill_means(
    stub: tuple[StubApi, SignalTransport],
    ends: tuple[Any, ...],
    want: ReplyKind,
    ran: list[list[str]],
) -> None:
    server, transport = stub
    server.exec = node = Node(*ends)
    reply = await transport.request_checkpoint(TARGET, REQUEST, 1)
    assert (reply.kind, node.ran) == (want, ran)
    assert reply.kind in (ReplyKind.DELIVERED, ReplyKind.OUTCOME_UNKNOWN) or reply.detail


async def test_only_the_declared_container_is_entered_and_without_standard_input(
    stub: tuple[StubApi, SignalTransport],
) -> None:
    server, transport = stub
    server.exec = node = Node(DONE)
    await transport.request_checkpoint(TARGET, REQUEST, 1)
    query = node.asked[0].query
    assert node.asked[0].path == f"{PODS}/training-0/exec"
    assert dict(query) == {
        "container": "main",
        "stdout": "true",
        "stderr": "true",
        "command": "kill",
    }
    assert query.getall("command") == KILL


GONE: dict[str, Any] = {
    "another pod of its name": {"metadata": {"name": "training-0", "uid": "another"}},
    "a pod that is being deleted": {
        "metadata": {"name": "training-0", "uid": "u", "deletionTimestamp": "2026-11-21T12:00:00Z"}
    },
    "no pod": None,
}


@pytest.mark.parametrize("pod", GONE.values(), ids=GONE)
async def test_no_other_pod_of_the_same_name_is_signalled(
    stub: tuple[StubApi, SignalTransport], pod: Any
) -> None:
    server, transport = stub
    server.exec = node = Node(DONE)
    server.collections[PODS] = {} if pod is None else {"training-0": pod}
    reply = await transport.request_checkpoint(TARGET, REQUEST, 1)
    assert (reply.kind, node.ran) == (ReplyKind.NOT_RECEIVED, [])


async def test_a_command_with_endless_output_is_abandoned(
    stub: tuple[StubApi, SignalTransport],
) -> None:
    server, transport = stub

    async def pour(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await socket.send_bytes(b"\x01" + bytes(4096))
                await asyncio.sleep(0)
        return socket

    server.exec = pour
    async with asyncio.timeout(60):
        reply = await transport.request_checkpoint(TARGET, REQUEST, 9)
    assert (reply.kind, reply.detail) == (
        ReplyKind.OUTCOME_UNKNOWN,
        "the command printed too much output",
    )


async def test_namespaces_whose_commands_hang_do_not_delay_the_signals_of_others(
    stub: tuple[StubApi, SignalTransport],
) -> None:
    server, transport = stub
    hanging = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "/hostile-" in request.path:
            hanging.append(request)
            return await Node("silence")(request)
        return await Node(DONE)(request)

    server.exec = answer
    hostile = [replace(TARGET, namespace=f"hostile-{number % 2}") for number in range(100)]
    for each in hostile[:2]:
        path = PODS.replace("team", each.namespace)
        server.collections[path] = server.collections[PODS]
    calls = [
        asyncio.create_task(transport.request_checkpoint(each, REQUEST, 60)) for each in hostile
    ]
    await until(lambda: len(hanging) >= 4)
    assert (await transport.request_checkpoint(TARGET, REQUEST, 10)).kind is ReplyKind.DELIVERED
    assert not any(call.done() for call in calls)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_signal_cannot_be_polled(stub: tuple[StubApi, SignalTransport]) -> None:
    _, transport = stub
    assert (await transport.poll(TARGET, "u-1", 1)).kind is ReplyKind.UNSUPPORTED
