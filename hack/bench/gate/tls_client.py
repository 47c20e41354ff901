"""A client for one TLS connection that sends each request in one piece.

Where a request arrives in pieces, it depends on the moment how many calls the server makes to read
it.
"""

from __future__ import annotations

import socket
import ssl

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 120.0


class TlsClient:
    """One connection to a server on loopback."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._received, self._to_send, server_hostname="127.0.0.1")
        self._shake_hands()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def post(self, path: str, body: bytes) -> bytes:
        """Send a request and return the body of its response, which must be a 200."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return self._exchange(head.encode() + body)

    def get(self, path: str) -> bytes:
        """Return the body of a response, which must be a 200."""
        return self._exchange(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def _exchange(self, request: bytes) -> bytes:
        self._tls.write(request)
        self._socket.sendall(self._to_send.read())
        return self._read_response()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            else:
                self._flush()
                return

    def _read_response(self) -> bytes:
        text = b""
        while True:
            head, end, body = text.partition(b"\r\n\r\n")
            if end and len(body) >= _content_length(head):
                if not head.startswith(b"HTTP/1.1 200 "):
                    raise ConnectionError(text.decode(errors="replace"))
                return body
            text += self._read()

    def _read(self) -> bytes:
        while True:
            try:
                return self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                self._receive()

    def _flush(self) -> None:
        if self._to_send.pending:
            self._socket.sendall(self._to_send.read())

    def _receive(self) -> None:
        received = self._socket.recv(_CHUNK)
        if not received:
            raise ConnectionError("the server closed the connection")
        self._received.write(received)


def _content_length(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next((int(value) for name, _, value in lines if name.lower() == b"content-length"), 0)
