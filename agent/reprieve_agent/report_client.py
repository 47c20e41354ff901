"""One report to Reprieve's webhooks, over HTTPS.

Only the process that makes one call imports this: TLS takes a third of the agent's memory. Not
http.client, which takes more than TLS.
"""

import base64
import socket
import ssl
import time
from urllib.parse import urlsplit

from .report_call import ReportResult, ReportTarget

_TIMEOUT_SECONDS = 5.0
_MAX_RESPONSE = 4096
_MAX_MESSAGE = 200
_MAX_TOKEN = 8000
_NANOSECONDS = 1_000_000_000


def send(target: ReportTarget, saved_at: int) -> ReportResult:
    """Report a save at `saved_at`, in nanoseconds since the epoch; raises `OSError`, `ValueError`.

    The report has the age of the save: the clock of the other side may differ.
    """
    url = urlsplit(target.url)
    if url.scheme != "https" or not url.hostname:
        raise ValueError("the URL must begin with https://")
    context = ssl.create_default_context(cadata=base64.b64decode(target.ca).decode("ascii"))
    with (
        socket.create_connection((url.hostname, url.port or 443), _TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=url.hostname) as channel,
    ):
        age_seconds = max(0, time.time_ns() - saved_at) // _NANOSECONDS
        body = b'{"ageSeconds":%d}' % age_seconds
        head = (
            f"POST {url.path or '/'} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Authorization: Bearer {_read_token(target.token_file)}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        channel.sendall(head.encode("ascii") + body)
        received = b""
        while len(received) < _MAX_RESPONSE and (chunk := channel.recv(_MAX_RESPONSE)):
            received += chunk
    return parse(received)


def _read_token(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib takes memory
        token = file.read(_MAX_TOKEN).strip()
    if not token or len(token.split()) != 1:
        raise ValueError(f"no token in {path}")
    return token


def parse(received: bytes) -> ReportResult:
    """Return the result that the first bytes of a response tell."""
    head, _, body = received.decode("latin-1").partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not _is_number(words[1]):
        return ReportResult(0, "no HTTP response")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    wait = headers.get("retry-after", "")
    return ReportResult(
        int(words[1]), body.strip()[:_MAX_MESSAGE], int(wait) if _is_number(wait) else 0
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7
