"""Runs one command in one container, through `pods/exec` over a WebSocket.

A WebSocket starts with a GET request. From Kubernetes 1.35 on, the API server requires permission
to `create` pods/exec in addition to `get`. Protocol v5 differs from v4 only in how standard input
ends, which is not used here.
"""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

from .api import Api
from .api_error import Status
from .paths import object_path

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_ERROR_CHANNEL: Final = 3
_EXIT_CODE: Final = re.compile("[0-9]{1,10}")
_MAX_MESSAGE: Final = 64 * 1024
_CLOSE_TIMEOUT_SECONDS: Final = 1.0
_MAX_MESSAGES: Final = 64
"""The limit of messages with output, which is dropped: the container's program is not trusted."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of a command: `exit_code` is `None` if it did not run or its end is unknown.

    `message` tells the cause.
    """

    exit_code: int | None
    message: str = ""


async def execute(
    api: Api, namespace: str, name: str, container: str, command: Sequence[str]
) -> ExecResult:
    """Run `command` and wait for its end.

    Raises `ApiError` if the API server refuses or is unreachable. The caller limits the time. The
    command runs in the pod that has the name at that time, which may be a new pod.
    """
    query = [
        ("container", container),
        ("stdout", "true"),
        ("stderr", "true"),
        *(("command", word) for word in command),
    ]
    path = object_path("pods", namespace, name, "exec")
    socket = await api.open_websocket(path, query, _PROTOCOLS, max_message=_MAX_MESSAGE)
    try:
        return await _wait_for_result(socket)
    except (aiohttp.ClientError, OSError) as error:
        return ExecResult(None, str(error) or type(error).__name__)
    finally:
        await _close(socket)


async def _close(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close the WebSocket. Without the limit, a peer that keeps sending would block for ever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            await socket.close()


async def _wait_for_result(socket: aiohttp.ClientWebSocketResponse) -> ExecResult:
    for _ in range(_MAX_MESSAGES):
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            return ExecResult(None, "the connection ended before the command did")
        if message.data[:1] == bytes([_ERROR_CHANNEL]):
            return _parse_status(message.data[1:])
    return ExecResult(None, "the command printed too much output")


def _parse_status(text: bytes) -> ExecResult:
    try:
        status = msgspec.json.decode(text, type=Status)
    except (msgspec.MsgspecError, RecursionError):
        return ExecResult(None, "the status of the command cannot be read")
    if status.status == "Success":
        return ExecResult(0)
    codes = [cause.message for cause in status.causes if cause.reason == "ExitCode"]
    is_code = status.reason == "NonZeroExitCode" and codes and _EXIT_CODE.fullmatch(codes[0])
    return ExecResult(int(codes[0]) if is_code else None, status.message)
