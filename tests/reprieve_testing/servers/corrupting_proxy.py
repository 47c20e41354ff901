"""A proxy that forwards requests to a server and corrupts the answers as a test wants."""

from __future__ import annotations

import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

SECONDS = 10.0


@contextmanager
def corrupting_proxy(
    server: str, spoil: Callable[[bytes], bytes]
) -> Iterator[tuple[str, list[bytes]]]:
    """Listen without TLS.

    Yields the URL that replaces the server's, and the server's good answers.
    """
    answers: list[bytes] = []
    # The server's certificate is for another name, and the requests are a test's own.
    context = ssl._create_unverified_context()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Content-Type": self.headers["Content-Type"]}
            request = urllib.request.Request(server + self.path, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:
                    answers.append(answer.read())
                    self._send(answer.status, spoil(answers[-1]))
            except HTTPError as error:
                self._send(error.code, error.read())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing: tests assert the relevant parts."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", answers
        finally:
            listening.shutdown()
            thread.join()
