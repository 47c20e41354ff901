"""One process that answers the hints of all victims and records when each arrives.

Simulated pods have no workload. The process answers a hint with `saving`, and a poll with `saved`;
with `--answer saved`, it saves at once. It listens on all addresses of the loopback device, because
simulated pods have such addresses, and on no other device.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import time
from collections.abc import Callable, Mapping

HEARD = "/heard/"
"""`GET /heard/NAMESPACE` returns when each of its pods got its first hint, and forgets it."""
ANSWERS = ("saving", "saved")
_BACKLOG = 4096
_SO_BINDTODEVICE = 25  # Linux's number; Python's `socket` has it since 3.14

Answer = Callable[[str, str, str, bytes], Mapping[str, object]]
"""The answer of the pod at an address to a method, a path and a body."""


class Workloads:
    """The requests of all victims."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._heard: dict[str, dict[str, float]] = {}
        self._ids: dict[str, str] = {}

    def answer(self, _address: str, method: str, path: str, body: bytes) -> Mapping[str, object]:
        """Return the answer; the path names the pod."""
        if path.startswith(HEARD):
            return self._heard.pop(path.removeprefix(HEARD), {})
        namespace, _, name = path.removeprefix("/").partition("/")
        if method == "POST":
            self._heard.setdefault(namespace, {}).setdefault(name, time.time())
            self._ids[path] = json.loads(body)["id"]
        if path not in self._ids:
            return {"state": "idle"}
        if method == "POST" and self._answer != "saved":
            return {"state": self._answer, "id": self._ids[path]}
        return {
            "state": "saved",
            "id": self._ids.pop(path),
            "step": 1200,
            "path": f"/checkpoints/{name}/1200",
        }


class HintExchange(asyncio.Protocol):
    """One request and its answer; the caller opens a new connection for each."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once the request is complete."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or len(body) < _content_length(head) or self._transport is None:
            return
        method, path, _ = head.split(b" ", 2)
        address, _ = self._transport.get_extra_info("sockname")
        said = json.dumps(self._answer(address, method.decode(), path.decode(), body)).encode()
        headers = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n"
        )
        self._transport.write(headers % len(said) + said)
        self._transport.close()


def _content_length(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next((int(value) for key, _, value in lines if key.lower() == b"content-length"), 0)


async def listen(answer: Answer) -> asyncio.Server:
    """Return a server for all pods, on a free port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, b"lo")
    listener.bind(("0.0.0.0", 0))  # noqa: S104 - of the loopback device only
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: HintExchange(answer), sock=listener, backlog=_BACKLOG)


async def _serve(answer: str) -> None:
    server = await listen(Workloads(answer).answer)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Write the port to standard output and answer until SIGTERM."""
    parser = argparse.ArgumentParser("bench.victims.workload", description=__doc__)
    parser.add_argument("--answer", choices=ANSWERS, default=ANSWERS[0])
    asyncio.run(_serve(parser.parse_args().answer))


if __name__ == "__main__":
    main()
