"""A webhook that allows and records every request, and its registration for all resources."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from realcluster.errors import ClusterError
from reprieve_certs import issue

Json = Any
_GROUPS = ["", "apps", "batch", "scheduling.k8s.io", "policy"]
_WAIT_SECONDS = 90.0  # a CronJob fires at the full minute
NAME = "recorder.reprieve.test"


@dataclass(frozen=True)
class Asked:
    """One review, and whether it was sent to the mutating or to the validating webhook."""

    webhook: str
    review: Json


class Recorder:
    """The reviews so far, and the webhook configurations."""

    def __init__(self) -> None:
        self._asked: list[Asked] = []
        self._changed = threading.Condition()
        ca = issue.issue_ca(datetime.now(UTC))
        self._ca = ca.certificate_pem
        self._serving = issue.issue_serving(
            ca, issue.ServingNames((), (IPv4Address("127.0.0.1"),)), datetime.now(UTC)
        )
        self._url = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Serve during the block."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.socket = self._tls().wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        self._url = f"https://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()

    @property
    def count(self) -> int:
        """The number of reviews so far: the index where the next operation's reviews begin."""
        return len(self._asked)

    def first(self, since: int, is_it: Callable[[Asked], bool], what: str) -> Json:
        """Wait for the first matching review from number `since` on, and return it."""
        deadline = time.monotonic() + _WAIT_SECONDS
        with self._changed:
            while (found := next(filter(is_it, self._asked[since:]), None)) is None:
                if not self._changed.wait(deadline - time.monotonic()):
                    seen = sorted({_shown(asked) for asked in self._asked[since:]})
                    raise ClusterError(
                        f"no review of {what} within {_WAIT_SECONDS:g} s, but of: {', '.join(seen)}"
                    )
        return found.review

    def has(self, is_it: Callable[[Asked], bool]) -> bool:
        """Return whether a matching review has arrived."""
        return any(map(is_it, self._asked))

    def configurations(self) -> list[Json]:
        """Return one configuration of each kind, for every operation on everything in these groups.

        Both are needed: a mutating webhook sees a pod with a generated name before it has the name,
        and it sees invalid objects.
        """
        return [self._configuration("Mutating"), self._configuration("Validating")]

    def take(self, review: Json, path: str) -> Json:
        """Record a review; return its answer."""
        with self._changed:
            self._asked.append(Asked(path.strip("/"), review))
            self._changed.notify_all()
        response = {"uid": review["request"]["uid"], "allowed": True}
        return {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": response,
        }

    def _configuration(self, what: str) -> Json:
        path = {"Mutating": "mutate", "Validating": "validate"}[what]
        ca = base64.b64encode(self._ca).decode()
        webhook = {
            "name": NAME,
            "clientConfig": {"url": f"{self._url}/{path}", "caBundle": ca},
            "rules": [
                {
                    "apiGroups": _GROUPS,
                    "apiVersions": ["*"],
                    "operations": ["*"],
                    "resources": ["*/*"],
                    "scope": "*",
                }
            ],
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{what}WebhookConfiguration",
            "metadata": {"name": "recorder"},
            "webhooks": [webhook],
        }

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
            certificate.write_bytes(self._serving.certificate_pem)
            key.write_bytes(self._serving.key_pem)
            context.load_cert_chain(certificate, key)
        return context

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(recorder.take(review, self.path.partition("?")[0])).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Write nothing: `record` prints what was recorded."""

        return Handler


def _shown(asked: Asked) -> str:
    request = asked.review["request"]
    subresource = request.get("subResource", "")
    resource = request["resource"]["resource"] + (f"/{subresource}" if subresource else "")
    return (
        f"{asked.webhook}: {request['operation']} {resource} by {request['userInfo']['username']}"
    )
