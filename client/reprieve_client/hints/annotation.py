"""Requests in an annotation, which the downward API shows in a file; answers in another one.

The answer is set through the API server, with the token of the pod's ServiceAccount.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import ssl
import time
from pathlib import Path

from reprieve_client.contract import IDLE, Answer, render_answer
from reprieve_client.exchange import Exchange

from .watch import RequestWatch

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CALL_SECONDS = 5.0
RETRY_SECONDS = 5.0
_ANSWER = "reprieve.dev/checkpoint-answer"
_MAX_SHOWN = 1024

_log = logging.getLogger(__name__)


class AnnotationHint:
    """Reads a file of the downward API, and annotates the pod. Training never waits for a call."""

    def __init__(
        self, exchange: Exchange, request: Path, pod_name: str, account: Path = ACCOUNT
    ) -> None:
        if not pod_name:
            raise ValueError("hint: annotation: the variable POD_NAME is required")
        self._exchange = exchange
        self._pod_name = pod_name
        self._account = account
        self._watch = RequestWatch(exchange, request, self._send_unsent)
        self._unsent: Answer | None = None
        self._retry_at = 0.0

    def open(self) -> None:
        """Watch the file."""
        self._exchange.on_answer(self._keep)
        self._watch.open()

    def close(self) -> None:
        """Stop watching; try once more to send what is not sent."""
        self._watch.close()
        self._retry_at = 0.0
        self._send_unsent()

    def note_save(self) -> None:
        """Do nothing: the right to answer does not extend to other annotations."""

    def _keep(self, answer: Answer) -> None:
        """Send this answer next, in place of an earlier one that is not sent yet."""
        if answer["state"] != IDLE:
            self._unsent, self._retry_at = answer, 0.0

    def _send_unsent(self) -> None:
        answer = self._unsent
        if answer is None or time.monotonic() < self._retry_at:
            return
        try:
            self._annotate(render_answer(answer))
        except (OSError, KeyError, http.client.HTTPException) as error:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            _log.warning("answer not sent yet: %s", error)
        else:
            if self._unsent is answer:
                self._unsent = None

    def _annotate(self, answer: str) -> None:
        """Set the answer on this pod. The token is read each time: the kubelet renews it."""
        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        # Many clusters' certificates lack an extension that Python requires since 3.13.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        host = os.environ["KUBERNETES_SERVICE_HOST"]
        port = int(os.environ["KUBERNETES_SERVICE_PORT"])
        namespace = (self._account / "namespace").read_text().strip()
        token = (self._account / "token").read_text().strip()
        # Not urllib, which would use a proxy where the environment names one.
        connection = http.client.HTTPSConnection(host, port, timeout=CALL_SECONDS, context=context)
        try:
            connection.request(
                "PATCH",
                f"/api/v1/namespaces/{namespace}/pods/{self._pod_name}",
                json.dumps({"metadata": {"annotations": {_ANSWER: answer}}}),
                {
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/merge-patch+json",
                },
            )
            response = connection.getresponse()
            if response.status != http.client.OK:
                refusal = response.read(_MAX_SHOWN).decode(errors="replace")
                raise http.client.HTTPException(f"{response.status} {response.reason}: {refusal}")
        finally:
            connection.close()
