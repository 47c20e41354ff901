"""The sockets: a few connections at a time, each for a few seconds, in one thread.

Every client that reaches the pod may connect. A slow client does not delay the others, a connection
that never ends is closed, and if there are too many, the oldest is closed: the operator retries.
"""

import selectors
import socket
import time
from collections.abc import Callable
from http import HTTPStatus

from . import http_message
from .http_message import HttpRequest, HttpResponse

MAX_CONNECTIONS = 32
DEADLINE_SECONDS = 5.0
_CHUNK = 4096

Handler = Callable[[HttpRequest], HttpResponse]
Log = Callable[..., None]


class _ClientConnection:
    """One client: it sends a request, receives the response, and closes the connection."""

    def __init__(self, channel: socket.socket, deadline: float) -> None:
        self.channel = channel
        self.deadline = deadline
        self.unsent = b""
        self.is_answered = False
        self._received = bytearray()

    def receive(self, handle: Handler) -> int:
        """Read available data; return the events to wait for next, 0 at the end."""
        chunk = self.channel.recv(_CHUNK)
        if not chunk:
            return 0
        if self.is_answered:
            # Read and drop further data. Without this, closing the socket would discard the
            # response before the client has read it.
            return selectors.EVENT_READ
        self._received += chunk
        request = http_message.parse(self._received)
        if request is None:
            return selectors.EVENT_READ
        self.unsent = (handle(request) if isinstance(request, HttpRequest) else request).render()
        self._received.clear()
        self.is_answered = True
        return selectors.EVENT_WRITE

    def send(self) -> int:
        """Send as much as the client accepts; return the events to wait for next."""
        self.unsent = self.unsent[self.channel.send(self.unsent) :]
        if self.unsent:
            return selectors.EVENT_WRITE
        self.channel.shutdown(socket.SHUT_WR)
        return selectors.EVENT_READ


class AgentServer:
    """Answers HTTP on one address; no request ends it."""

    def __init__(self, address: str, port: int, handle: Handler, log: Log) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server(
            (address, port), family=family, backlog=MAX_CONNECTIONS
        )
        self._listener.settimeout(0)
        self._handle = handle
        self._log = log
        self._connections: dict[int, _ClientConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    @property
    def port(self) -> int:
        """The port that the server listens on, for one that was created with port 0."""
        return int(self._listener.getsockname()[1])

    def serve(
        self,
        *,
        until: Callable[[], bool] = lambda: False,
        tick: Callable[[], None] = lambda: None,
        tick_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        """Serve until `until` returns true; without it, for ever.

        `tick` is called at least every `tick_seconds`, and must not wait.
        """
        while not until():
            tick()
            for key, _ in self._selector.select(min(tick_seconds, self._until_next_deadline())):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd in self._connections:
                    self._serve_connection(key.fd, key.events)
            now = time.monotonic()
            for fd in [fd for fd, each in self._connections.items() if each.deadline <= now]:
                self._close_connection(fd)

    def close(self) -> None:
        """Close all connections and the listener."""
        for fd in list(self._connections):
            self._close_connection(fd)
        self._selector.close()
        self._listener.close()

    def _until_next_deadline(self) -> float:
        deadlines = [connection.deadline for connection in self._connections.values()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else DEADLINE_SECONDS

    def _accept(self) -> None:
        try:
            channel, _ = self._listener.accept()
        except OSError:
            return  # The client closed the connection before it was accepted.
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
        except Exception as error:  # noqa: BLE001 - for the reason below
            # Without this, a request that no test has foreseen would end the agent.
            self._log("request failed", error=f"{type(error).__name__}: {error}")
            return HttpResponse.error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _close_connection(self, fd: int) -> None:
        connection = self._connections.pop(fd)
        self._selector.unregister(connection.channel)
        connection.channel.close()
