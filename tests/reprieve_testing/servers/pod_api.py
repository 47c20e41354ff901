"""An API server that only lets pods be patched, over TLS, with the files that a pod has for it."""

import ipaddress
import json
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from reprieve_certs import issue
from reprieve_certs.issue import ServingNames
from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointAnswer

LOOPBACK = "127.0.0.1"


class PodApi:
    """Keeps the patches that it accepts; `status` is its next answers'."""

    def __init__(self, account: Path) -> None:
        (account / "namespace").write_text("team")
        (account / "token").write_text("first")
        self.status, self.requests, self.patches = 200, 0, list[tuple[str, dict[str, str], Any]]()
        now = datetime.now(UTC)
        ca = issue.issue_ca(now - timedelta(minutes=5))
        credential = issue.issue_serving(
            ca, ServingNames(ips=(ipaddress.IPv4Address(LOOPBACK),)), now
        )
        (account / "ca.crt").write_bytes(ca.certificate_pem)
        pair = account / "pair.pem"
        pair.write_bytes(credential.certificate_pem + credential.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        self._server = ThreadingHTTPServer(
            (LOOPBACK, 0), type("Handler", (_Handler,), {"api": self})
        )
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def answers(self) -> list[CheckpointAnswer]:
        """What the operator would read on the pod, one after the other."""
        read = [
            contract.parse_answer(body["metadata"]["annotations"][keys.CHECKPOINT_ANSWER], "answer")
            for *_, body in self.patches
        ]
        assert all(isinstance(answer, CheckpointAnswer) for answer in read)
        return [answer for answer in read if isinstance(answer, CheckpointAnswer)]


class _Handler(BaseHTTPRequestHandler):
    api: PodApi

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.api.requests += 1
        if self.api.status == 200:
            self.api.patches.append((self.path, dict(self.headers), body))
        self.send_response(self.api.status)
        self.end_headers()
        self.wfile.write(b'{"message":"not for you"}')

    def log_message(self, *_: object) -> None:
        pass
