"""A small real workload: an HTTP server on a pod's address that follows the contract "checkpoint
now".

A test sets its answers as a script; it records the requests that it receives.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

PORT = 8080
PATH = "/checkpoint"
HINT = f"http://:{PORT}{PATH}"
_HANG_SECONDS = 30.0


@dataclass(frozen=True)
class ReceivedRequest:
    """One request: its time (monotonic), its method, and its document, if any."""

    at: float
    method: str
    document: Any


@dataclass
class Workload:
    """Answers POST with `on_post`, and GET with `state` after the first POST. `None` means:
    hang.
    """

    address: str
    port: int = PORT
    on_post: dict[str, Any] | None = field(default_factory=lambda: {"state": "accepted"})
    state: dict[str, Any] | None = field(default_factory=lambda: {"state": "saving"})
    answers_get: bool = True
    requests: list[ReceivedRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.eviction_id: str | None = None
        self._released = threading.Event()
        handler = type("Handler", (_Handler,), {"workload": self})
        self._server = _Server((self.address, self.port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def posts(self) -> list[ReceivedRequest]:
        """The hints that it received."""
        return [request for request in self.requests if request.method == "POST"]

    def answer(self, method: str, document: Any) -> tuple[int, dict[str, Any]]:
        """Return status and document of one answer."""
        self.requests.append(ReceivedRequest(time.monotonic(), method, document))
        if method == "POST" and isinstance(document, dict):
            self.eviction_id = str(document.get("id"))
        if method == "DELETE":
            return 200, {"state": "idle"}
        if method == "GET" and not self.answers_get:
            return 405, {}
        if method == "GET" and self.eviction_id is None:
            return 200, {"state": "idle"}
        answer = self.on_post if method == "POST" else self.state
        if answer is None:
            self._released.wait(_HANG_SECONDS)
            return 503, {}
        return 200, {"id": self.eviction_id, **answer}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about a client that hung up: some tests do that on purpose."""


class _Handler(BaseHTTPRequestHandler):
    workload: ClassVar[Workload]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer("POST", json.loads(body))

    def do_GET(self) -> None:
        self._answer("GET", None)

    def do_DELETE(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer("DELETE", json.loads(body))

    def _answer(self, method: str, document: Any) -> None:
        status, document_sent = self.workload.answer(method, document)
        body = json.dumps(document_sent).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Write nothing: requests are recorded."""
