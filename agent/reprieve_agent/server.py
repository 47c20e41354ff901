"""Sockets: a few connections at a time, each for a few seconds, in one thread.

Whoever reaches the pod may connect. One that is slow delays nobody, one that never ends is cut off, and where there are
too many the oldest goes: Reprieve asks again.
"""

import selectors
import socket
import time
from collections.abc import Callable
from http import HTTPStatus

from . import exchange
from .exchange import HttpRequest, HttpResponse

MAX_CONNECTIONS = 32
DEADLINE_SECONDS = 5.0
_CHUNK = 4096

Handler = Callable[[HttpRequest], HttpResponse]


class _ClientConnection:
    """One client: it sends, is answered, and hangs up."""

    def __init__(self, channel: socket.socket, deadline: float) -> None:
        self.channel = channel
        self.deadline = deadline
        self.unsent = b""
        self.is_answered = False
        self._received = bytearray()

    def receive(self, handle: Handler) -> int:
        """Read what is there; return the events to wait for next, 0 where the client is done with."""
        chunk = self.channel.recv(_CHUNK)
        if not chunk:
            return 0
        if self.is_answered:
            # What it sends on is not read any more. Without reading it off, closing would take the answer from it.
            return selectors.EVENT_READ
        self._received += chunk
        asked = exchange.parse(self._received)
        if asked is None:
            return selectors.EVENT_READ
        self.unsent = (handle(asked) if isinstance(asked, HttpRequest) else asked).render()
        self._received.clear()
        self.is_answered = True
        return selectors.EVENT_WRITE

    def send(self) -> int:
        """Send what the client takes; return the events to wait for next."""
        self.unsent = self.unsent[self.channel.send(self.unsent) :]
        if self.unsent:
            return selectors.EVENT_WRITE
        self.channel.shutdown(socket.SHUT_WR)
        return selectors.EVENT_READ


class AgentServer:
    """Answers HTTP on one address."""

    def __init__(self, address: str, port: int, handle: Handler) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server(
            (address, port), family=family, backlog=MAX_CONNECTIONS
        )
        self._listener.settimeout(0)
        self._handle = handle
        self._connections: dict[int, _ClientConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    @property
    def port(self) -> int:
        """The port that it listens on, where 0 was asked for."""
        return int(self._listener.getsockname()[1])

    def serve(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Serve for ever, or until it is told that it is enough."""
        while not until():
            for key, _ in self._selector.select(self._until_next_deadline()):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd in self._connections:
                    self._serve_connection(key.fd, key.events)
            now = time.monotonic()
            for fd in [fd for fd, found in self._connections.items() if found.deadline <= now]:
                self._close_connection(fd)

    def close(self) -> None:
        """Hang up."""
        for fd in list(self._connections):
            self._close_connection(fd)
        self._selector.close()
        self._listener.close()

    def _until_next_deadline(self) -> float:
        deadlines = [found.deadline for found in self._connections.values()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else DEADLINE_SECONDS

    def _accept(self) -> None:
        try:
            channel, _ = self._listener.accept()
        except OSError:
            return  # It hung up before it was answered.
        channel.settimeout(0)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._close_connection(next(iter(self._connections)))
        self._connections[channel.fileno()] = _ClientConnection(
            channel, time.monotonic() + DEADLINE_SECONDS
        )
        self._selector.register(channel, selectors.EVENT_READ)

    def _serve_connection(self, fd: int, events: int) -> None:
        connection = self._connections[fd]
        try:
            wanted = (
                connection.send()
                if events == selectors.EVENT_WRITE
                else connection.receive(self._handle_safely)
            )
        except BlockingIOError:
            return
        except OSError:
            wanted = 0
        if not wanted:
            self._close_connection(fd)
        elif wanted != events:
            self._selector.modify(connection.channel, wanted)

    def _handle_safely(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._handle(request)
        except OSError as error:
            return HttpResponse.error(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{error.strerror or type(error).__name__}"
            )

    def _close_connection(self, fd: int) -> None:
        connection = self._connections.pop(fd)
        self._selector.unregister(connection.channel)
        connection.channel.close()
