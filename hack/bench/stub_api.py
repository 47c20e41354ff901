"""A stub API server with a few objects that never change.

It is enough for Reprieve's program to become ready. With it, the benchmarks measure the real
program, started from its own command line, without a cluster that would share its core. Lists and
single objects are answered at once, or with 404; a watch stays open, and sends only bookmarks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Collections = Mapping[str, list[dict[str, Any]]]
_BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}\n'
_BOOKMARK_SECONDS = 60.0
"""As an API server. Without them, a program takes a watch for dead after two and a half minutes."""
NOT_FOUND = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "NotFound",
    "code": 404,
}


def read(collections: Collections, path: str, **asked: str) -> dict[str, Any] | None:
    """Return the list at a path, in pages if asked, or the object, or `None` if it does not exist.

    Field selectors are not evaluated: such a list is its own entry, `PATH?SELECTOR`, or else
    complete.
    """
    folder, _, name = path.rpartition("/")
    if folder in collections:
        return next(
            (item for item in collections[folder] if item["metadata"]["name"] == name), None
        )
    found = collections.get(f"{path}?{asked.get('fieldSelector', '')}", collections.get(path, []))
    first = int(asked.get("continue", 0))
    after = first + int(asked.get("limit", len(found)))
    following = {"continue": str(after)} if after < len(found) else {}
    return {"metadata": {"resourceVersion": "1", **following}, "items": found[first:after]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, collections: Collections) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.collections = collections
        self.closed = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = parse_qs(url.query)
        if "watch" in asked:
            self._hold_open()
        else:
            found = read(
                self.server.collections,
                url.path,
                **{name: values[-1] for name, values in asked.items()},
            )
            self._answer(found or NOT_FOUND, HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Write nothing: the output is for figures."""

    def _answer(self, content: object, status: HTTPStatus) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        # Without this, every request leaves an idle connection, which a check of open descriptors
        # counts.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _hold_open(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(ConnectionError):  # the program has ended its watch
            while not self.server.closed.wait(_BOOKMARK_SECONDS):
                self.wfile.write(_BOOKMARK)
        self.close_connection = True


@contextmanager
def serve(collections: Collections) -> Iterator[str]:
    """Serve the objects by their collections' paths; yield the URL."""
    with _Server(collections) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.closed.set()
            server.shutdown()
            thread.join()
