"""The agent's HTTP server in a thread, and raw clients for it."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reprieve_agent.http_message import HttpRequest, HttpResponse
from reprieve_agent.server import AgentServer

ADDRESS = "127.0.0.1"
SECONDS = 10.0


class Client:
    """Talks to a server on loopback."""

    def __init__(self, port: int) -> None:
        self.port = port

    def call(self, method: str, document: Any = None) -> tuple[int, Any]:
        """Return status and document of one exchange."""
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=SECONDS)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, "/", body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def connect(self, received: bytes = b"") -> socket.socket:
        """Open a connection and send these bytes."""
        channel = socket.create_connection((ADDRESS, self.port), timeout=SECONDS)
        channel.sendall(received)
        return channel


@contextmanager
def serving(
    handle: Callable[[HttpRequest], HttpResponse], log: Callable[..., None] = lambda *_, **__: None
) -> Iterator[Client]:
    """Serve on a free port while the block runs."""
    server, enough = AgentServer(ADDRESS, 0, handle, log), threading.Event()
    thread = threading.Thread(target=server.serve, kwargs={"until": enough.is_set})
    thread.start()
    client = Client(server.port)
    try:
        yield client
    finally:
        enough.set()
        client.connect().close()  # Wakes the server.
        thread.join(SECONDS)
        server.close()
        assert not thread.is_alive()


def until_closed(channel: socket.socket) -> bytes:
    """Return all bytes received until the other side closes or resets the connection."""
    received = b""
    try:
        while chunk := channel.recv(4096):
            received += chunk
    except ConnectionResetError:
        pass
    return received
