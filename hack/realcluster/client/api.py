"""The few API calls that `hack/cluster` needs: JSON over HTTPS, with the standard library only."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from realcluster.errors import ClusterError
from realcluster.progress import Progress
from realcluster.state import ADMIN, Cluster

Json = Any


class Refused(Exception):  # noqa: N818 (an answer of the server, not a fault)
    """An answer other than 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def call(cluster: Cluster, method: str, path: str, body: Json = None, *, user: str = ADMIN) -> Json:
    """Return the decoded answer.

    Raises:
        Refused: the server answered with an error.
        OSError: the server did not answer.
    """
    request = _request(cluster, method, path, user)
    request.add_header(
        "Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json"
    )
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data, timeout=10, context=_context(cluster)) as answer:  # noqa: S310
            return _decoded(answer.read())
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode(errors="replace")) from None


def stream(cluster: Cluster, path: str, *, user: str = ADMIN) -> Iterator[bytes]:
    """Yield the lines of a watch until the server ends it; raises as `call` does."""
    request = _request(cluster, "GET", path, user)
    try:
        with urllib.request.urlopen(request, timeout=600, context=_context(cluster)) as answer:  # noqa: S310
            yield from answer
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode(errors="replace")) from None


def create(cluster: Cluster, path: str, body: Json) -> None:
    """Create an object unless it exists."""
    try:
        call(cluster, "POST", path, body)
    except Refused as refused:
        if refused.status != HTTPStatus.CONFLICT:
            raise


@dataclass(frozen=True)
class Condition:
    """A condition to wait for, its deadline, and the component whose log explains a failure."""

    what: str
    holds: Callable[[], bool]
    component: str
    seconds: float = 90.0  # about 4 are usual; a busy machine with two cores has needed 30

    def holds_now(self) -> bool:
        """Return whether it holds; an error answer of the server, or no answer, means not yet."""
        try:
            return self.holds()
        except (Refused, OSError, ClusterError):
            return False


def wait(cluster: Cluster, condition: Condition, progress: Progress) -> None:
    """Wait for `condition`.

    If the component stops or time runs out, raise with the end of the component's log.
    """
    deadline = time.monotonic() + condition.seconds
    processes, component = cluster.processes, condition.component
    log = processes.log(component)
    with progress.task(f"waiting for {condition.what}") as task:
        while not condition.holds_now():
            task.tick()
            if processes.running(component) is None:
                raise ClusterError(
                    f"{processes.last_lines(component)}\n{component} stopped, see {log}"
                )
            if time.monotonic() > deadline:
                late = f"no {condition.what} within {condition.seconds:.0f} s, see {log}"
                raise ClusterError(f"{processes.last_lines(component)}\n{late}")
            time.sleep(0.05)


def _request(cluster: Cluster, method: str, path: str, user: str) -> urllib.request.Request:
    request = urllib.request.Request(cluster.api_server + path, method=method)  # noqa: S310 (always https)
    request.add_header("Authorization", f"Bearer {cluster.token(user)}")
    return request


def _context(cluster: Cluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    # Python 3.13 requires extensions that the API server's self-signed certificate does not have.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def _decoded(text: bytes) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
