"""One HTTP exchange as bytes: no sockets, no clocks.

It does less than http.server on purpose: that module takes 8 MB in every pod, waits for slow
clients and reveals its version. A connection has one request with a body of known length; only its
method, path and length are used.
"""

import json
from http import HTTPStatus
from typing import NamedTuple

MAX_HEAD = 8 * 1024
MAX_BODY = 16 * 1024
_METHODS = ("GET", "POST", "DELETE")
_END = b"\r\n\r\n"
_MAX_LENGTH_DIGITS = 7


class HttpRequest(NamedTuple):
    """A request; `body` is empty for GET."""

    method: str
    body: bytes


class HttpResponse(NamedTuple):
    """A response with a JSON document, or with an error message."""

    status: HTTPStatus
    body: bytes = b""

    @classmethod
    def json(cls, document: dict[str, object]) -> "HttpResponse":
        """Return a 200 with a document."""
        return cls(HTTPStatus.OK, json.dumps(document, separators=(",", ":")).encode())

    @classmethod
    def error(cls, status: HTTPStatus, message: str = "") -> "HttpResponse":
        """Return an error with a message."""
        return cls(status, json.dumps({"message": message or status.phrase.lower()}).encode())

    def render(self) -> bytes:
        """Return the response as bytes."""
        allow = (
            f"Allow: {', '.join(_METHODS)}\r\n"
            if self.status is HTTPStatus.METHOD_NOT_ALLOWED
            else ""
        )
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: application/json\r\n{allow}"
            f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode("ascii") + self.body


def parse(received: bytes | bytearray) -> HttpRequest | HttpResponse | None:
    """Return the request, the response to an invalid one, or `None` while it is incomplete."""
    head, end, body = bytes(received).partition(_END)
    if len(head) > MAX_HEAD:
        return HttpResponse.error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if not end:
        return None
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return HttpResponse.error(HTTPStatus.BAD_REQUEST)
    method, path = words[0].decode("latin-1"), words[1]
    if path != b"/":
        return HttpResponse.error(HTTPStatus.NOT_FOUND)
    if method not in _METHODS:
        return HttpResponse.error(HTTPStatus.METHOD_NOT_ALLOWED)
    return HttpRequest(method, b"") if method == "GET" else _parse_body(method, lines, body)


def _parse_body(method: str, lines: list[bytes], body: bytes) -> HttpRequest | HttpResponse | None:
    headers = [
        (name.strip().lower(), value.strip())
        for name, _, value in (line.partition(b":") for line in lines)
    ]
    lengths = {value for name, value in headers if name == b"content-length"}
    if any(name == b"transfer-encoding" for name, _ in headers) or not lengths:
        return HttpResponse.error(HTTPStatus.LENGTH_REQUIRED)
    length = lengths.pop()
    if lengths or not length.isdigit():
        return HttpResponse.error(HTTPStatus.BAD_REQUEST)
    if len(length) > _MAX_LENGTH_DIGITS or int(length) > MAX_BODY:
        return HttpResponse.error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return HttpRequest(method, body[: int(length)]) if len(body) >= int(length) else None
