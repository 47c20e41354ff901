"""Requests over HTTP: a server in a thread of its own, on a port of the pod.

Every client that reaches the pod may connect, so the number of connections, their time and their
bytes are bounded, and the newest is served. Without this, a few that send a byte a second would
keep Reprieve out.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from reprieve_client.contract import MAX_REQUEST_BYTES, Answer, parse_request, render_answer
from reprieve_client.exchange import Exchange

CONNECTION_SECONDS = 5.0
"""From its begin to its end."""
MAX_CONNECTIONS = 16
_MAX_LENGTH_DIGITS = 10
"""Of a `Content-Length`."""
_CLOSING_SECONDS = 0.1
"""How long closing the server takes at most."""


class HttpHint:
    """Serves `POST`, `GET` and `DELETE` on one path, which may have a query."""

    def __init__(self, exchange: Exchange, address: str, port: int, path: str) -> None:
        self._exchange = exchange
        self._place = (address, port)
        self._path = _with_one_slash(path)
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """The port that the server listens on, for one that was asked for port 0."""
        assert self._server is not None
        return int(self._server.server_address[1])

    def open(self) -> None:
        """Listen; `OSError` where the port is taken."""
        # A class of its own, because http.server makes a new handler for each connection.
        handler = type("Handler", (_Handler,), {"exchange": self._exchange, "served": self._path})
        self._server = _Server(self._place, handler)
        threading.Thread(
            target=self._server.serve_forever,
            args=(_CLOSING_SECONDS,),
            name="reprieve-hint",
            daemon=True,
        ).start()

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def note_save(self) -> None:
        """Do nothing: only the agent can tell Reprieve."""


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._opened: dict[socket.socket, float] = {}
        """The moments at which the connections were opened, the oldest first."""
        self._lock = threading.Lock()
        super().__init__(place, handler)

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's name in `HTTPServer`, which can take seconds."""
        socketserver.TCPServer.server_bind(self)

    def server_close(self) -> None:
        """Free the port, also where a forked process, such as a data loader, has the socket."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the newest connection; where there are too many, the oldest is cut."""
        with self._lock:
            if len(self._opened) == MAX_CONNECTIONS:
                self._cut(next(iter(self._opened)))
            self._opened[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, however it ended."""
        with self._lock:
            self._opened.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut the connections whose time is over; the server's loop calls this all the time."""
        began_last = time.monotonic() - CONNECTION_SECONDS
        with self._lock:
            for request in [each for each, began in self._opened.items() if began <= began_last]:
                self._cut(request)

    def _cut(self, request: socket.socket) -> None:
        """End what the connection's thread waits for; the thread closes it."""
        del self._opened[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing where a client goes away."""


class _Headers(HTTPMessage):
    """Headers whose `Content-Type` is not looked at.

    Without this, 64 KB of semicolons in it would take seconds from the training process.
    """

    def get_content_type(self) -> str:
        """Return a type without parts, for the parser."""
        return "text/plain"


class _Handler(BaseHTTPRequestHandler):
    MessageClass = _Headers
    exchange: Exchange
    served: str
    timeout = CONNECTION_SECONDS
    """Of each read; it also ends connections that outlive the server."""

    def do_GET(self) -> None:
        """Return the progress."""
        if self._is_served():
            self._send(self.exchange.answer)

    def do_POST(self) -> None:
        """Accept a request; the training loop saves between two steps."""
        self._take(is_cancelled=False)

    def do_DELETE(self) -> None:
        """Take the request back."""
        self._take(is_cancelled=True)

    def _take(self, *, is_cancelled: bool) -> None:
        if not self._is_served():
            return
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS
        if not is_number or int(length) > MAX_REQUEST_BYTES:
            self.send_error(413)
            return
        request = parse_request(self.rfile.read(int(length)))
        if request is None:
            self.send_error(400, "must be a JSON object with an id")
            return
        is_cancelled = is_cancelled or request.cancelled
        self._send(self.exchange.ask(request._replace(cancelled=is_cancelled)))

    def _is_served(self) -> bool:
        if _with_one_slash(self.path) == self.served:
            return True
        self.send_error(404)
        return False

    def _send(self, answer: Answer) -> None:
        body = render_answer(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing for each poll."""


def _with_one_slash(path: str) -> str:
    """Return a path with one `/` at its begin, as newer versions of http.server read it."""
    return "/" + path.lstrip("/")
