"""Listening sockets, and an accept loop that hands over each connection before anything is read.

A server of asyncio or uvloop with TLS tells of a connection only after its handshake. Thousands of
clients that say nothing would then take all memory before one of them is counted.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
_AT_ONCE = 32
"""Connections that are accepted before connections that are open have their turn."""
_PAUSE_SECONDS = 1.0
"""Where no file descriptor is free."""
_ABSENT = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""As of IPv6, where the system has none."""

Take = Callable[[socket.socket, str], None]
"""Called with each accepted socket and the address of its client."""


async def open_sockets(
    address: str, port: int, receive_bytes: int, *, is_shared: bool = False
) -> list[socket.socket]:
    """Listen on all addresses that `address` stands for, or on all of the machine if it is empty.

    The kernel keeps at most about `receive_bytes` for each connection, twice. Raises `OSError`
    where the port is taken, unless it is shared with other processes of the same user.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    absent: OSError | None = None
    for family, *_, name in found:
        try:
            listening = socket.create_server(
                name, family=family, backlog=_BACKLOG, reuse_port=is_shared
            )
        except OSError as error:
            if error.errno in _ABSENT:
                absent = error
                continue
            for each in opened:
                each.close()
            raise
        listening.settimeout(0)
        # Connections inherit it. Without this, the kernel keeps up to some MB for each one, which
        # count against the memory limit of the pod.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        opened.append(listening)
    if absent is not None and not opened:
        raise absent
    return opened


class AcceptLoop:
    """Accepts the connections of listening sockets until it is closed."""

    def __init__(self, sockets: Sequence[socket.socket], take: Take) -> None:
        self._sockets, self._take = sockets, take
        self._loop = asyncio.get_running_loop()
        for each in sockets:
            self._resume(each)

    def close(self) -> None:
        """Accept no more connections."""
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)
                each.close()

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Without the pause, the loop would do nothing but fail here.
                _LOG.error("could not accept a connection", extra={"error": str(error)})
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE_SECONDS, self._resume, listening)
                return
            connection.settimeout(0)
            self._take(connection, str(name[0]))
