"""The few calls that bringing up a cluster needs, with the standard library: GET, POST, PATCH, DELETE of JSON as one of its users."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from .errors import ClusterError
from .progress import Progress
from .state import ADMIN, Cluster

Json = Any


class Refused(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def call(cluster: Cluster, method: str, path: str, body: Json = None, *, user: str = ADMIN) -> Json:
    """Return the decoded answer; raises Refused for an answer of the server, OSError when there is none."""
    request = urllib.request.Request(cluster.api_server + path, method=method)
    request.add_header("Authorization", f"Bearer {cluster.token(user)}")
    request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json")
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data, timeout=10, context=_context(cluster)) as answer:
            return _decoded(answer.read())
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode(errors="replace")) from None


def create(cluster: Cluster, path: str, body: Json) -> None:
    """Create an object unless it exists."""
    try:
        call(cluster, "POST", path, body)
    except Refused as refused:
        if refused.status != HTTPStatus.CONFLICT:
            raise


def wait_until(cluster: Cluster, what: str, true: Callable[[], bool], seconds: float, watch: str, progress: Progress) -> None:
    """Wait until `true`, at most `seconds`; fail at once when component `watch` has died, showing the end of its log.

    Answers of the server and missing answers both count as "not yet".
    """
    deadline = time.monotonic() + seconds
    with progress.task(f"waiting for {what}") as task:
        while not _holds(true):
            task.tick()
            if cluster.processes.running(watch) is None:
                raise ClusterError(f"{cluster.processes.last_lines(watch)}\n{watch} stopped; its log is {cluster.processes.log(watch)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{cluster.processes.last_lines(watch)}\n{what}: not within {seconds:.0f} s; see {cluster.processes.log(watch)}")
            time.sleep(0.05)


def _holds(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except (Refused, OSError, ClusterError):
        return False


def _context(cluster: Cluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    # The API server's self-signed certificate lacks extensions that Python 3.13 began to insist on.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def _decoded(text: bytes) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
