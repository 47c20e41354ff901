"""The example that polls and answers by annotation, as a process beside a stub API server.

The stub can be away, or refuse. In a cluster, with the example's own rights:
tests/cluster/agent/test_agent.py and tests/cluster/docs/test_example_rights.py.
"""

import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reprieve_certs import issue
from reprieve_certs.issue import ServingNames
from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.manifests import EXAMPLES

SECONDS = 30.0
UNFINISHED = 128 + signal.SIGTERM
LOOPBACK = "127.0.0.1"


class ApiServer:
    """Keeps the patches that it accepts; `status` is its next answers'."""

    def __init__(self, account: Path) -> None:
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
    api: ApiServer

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


class Program:
    """`train.py` with the files that a kubelet would give it."""

    def __init__(self, folder: Path, port: int, request: str, **environment: str) -> None:
        self.request, self.folder = folder / "request", folder
        self.write(request)
        own = {
            "KUBERNETES_SERVICE_HOST": LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(port),
            "POD_NAME": "pod-1",
        }
        own |= {
            "REQUEST": str(self.request),
            "SERVICE_ACCOUNT": str(folder),
            "CHECKPOINTS": str(folder),
        }
        own |= {
            "STEPS": "100000",
            "STEP_SECONDS": "0.01",
            "SAVE_SECONDS": "0.05",
            "AGAIN_SECONDS": "0.05",
        }
        # Without a proxy, whatever the machine's environment: the API server is called directly.
        own |= {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            command = [sys.executable, EXAMPLES / "annotation" / "train.py"]
            self.process = subprocess.Popen(
                command, env={**os.environ, **own, **environment}, stdout=log, stderr=log
            )

    def write(self, request: str) -> None:
        """Write a request as the kubelet does: the file has the whole old text, or the whole new
        one.
        """
        new = self.request.with_name("new")
        new.write_text(request)
        new.replace(self.request)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    (tmp_path / "namespace").write_text("team")
    (tmp_path / "token").write_text("first")
    server = ApiServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def program(api: ApiServer, tmp_path: Path) -> Iterator[Program]:
    with training(tmp_path, api.port) as started:
        yield started


@contextmanager
def training(folder: Path, port: int, request: str = "", **environment: str) -> Iterator[Program]:
    program = Program(folder, port, request, **environment)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()


def a_request(eviction_id: str, attempt: int = 1) -> str:
    deadline = datetime(2026, 11, 21, 12, tzinfo=UTC)
    return contract.render_request(
        CheckpointRequest(
            eviction_id=eviction_id,
            attempt=attempt,
            deadline=deadline,
            reason="",
            preemption_class=3,
            may_extend=True,
        )
    )


def until(what: str, holds: Callable[[], object]) -> None:
    wait_for(what, holds, SECONDS)


def states(api: ApiServer) -> list[tuple[str | None, AnswerState]]:
    return [(answer.eviction_id, answer.state) for answer in api.answers]


SAVED_ONCE = [("uid-1", AnswerState.SAVING), ("uid-1", AnswerState.SAVED)]


def test_the_example_saves_on_request_and_answers_on_its_own_pod(
    api: ApiServer, program: Program
) -> None:
    program.write(a_request("uid-1"))
    until("both answers", lambda: states(api) == SAVED_ONCE)
    path, headers, body = api.patches[-1]
    assert path == "/api/v1/namespaces/team/pods/pod-1"
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert body == {
        "metadata": {
            "annotations": {
                keys.CHECKPOINT_ANSWER: body["metadata"]["annotations"][keys.CHECKPOINT_ANSWER]
            }
        }
    }
    saved = api.answers[-1]
    assert saved.path == str(program.folder / "pod-1.json")
    assert json.loads(Path(saved.path).read_text()) == {"step": saved.step}


def test_a_repeated_request_saves_nothing_again_and_another_request_does(
    api: ApiServer, program: Program
) -> None:
    program.write(a_request("uid-1"))
    until("both answers", lambda: states(api) == SAVED_ONCE)
    program.write(a_request("uid-1", attempt=2))
    (program.folder / "token").write_text("renewed")
    program.write(a_request("uid-2"))
    until(
        "the second",
        lambda: states(api)[2:] == [("uid-2", AnswerState.SAVING), ("uid-2", AnswerState.SAVED)],
    )
    assert (api.answers[3].step or 0) > (api.answers[1].step or 0)
    tokens = [headers["Authorization"] for _, headers, _ in api.patches]
    assert tokens == ["Bearer first"] * 2 + ["Bearer renewed"] * 2


def test_a_cancelled_request_is_ignored(api: ApiServer, tmp_path: Path) -> None:
    with training(tmp_path, api.port, contract.render_cancelled("uid-1"), STEPS="3") as program:
        assert program.process.wait(SECONDS) == 0
    assert api.requests == 0
    assert "saved step" not in program.log.read_text()


def test_a_failed_answer_is_sent_again_and_nothing_is_saved_twice(
    api: ApiServer, program: Program
) -> None:
    api.status = 403
    program.write(a_request("uid-1"))
    until("more than both answers", lambda: api.requests > 3)
    api.status = 200
    until("the last answer", lambda: states(api) == [("uid-1", AnswerState.SAVED)])
    assert program.process.poll() is None
    log = program.log.read_text()
    assert log.count("saved step") == 1
    assert 'answer not sent yet: 403 Forbidden: {"message":"not for you"}' in log


def test_an_outage_of_the_api_server_does_not_end_the_training(
    api: ApiServer, program: Program
) -> None:
    api.stop()
    program.write(a_request("uid-1"))
    until("the checkpoint", lambda: "saved step" in program.log.read_text())
    until("an attempt to tell", lambda: "answer not sent yet" in program.log.read_text())
    assert program.process.poll() is None


def test_a_killed_example_is_unfinished_even_if_it_has_saved(
    api: ApiServer, program: Program
) -> None:
    program.write(a_request("uid-1"))
    until("both answers", lambda: states(api) == SAVED_ONCE)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(SECONDS) == UNFINISHED


def test_a_replacement_resumes_from_the_checkpoint_and_finishes(
    api: ApiServer, tmp_path: Path
) -> None:
    (tmp_path / "old.json").write_text('{"step": 99990}')
    with training(tmp_path, api.port, RESUME_FROM_CHECKPOINT=str(tmp_path / "old.json")) as program:
        assert program.process.wait(SECONDS) == 0
    assert "training from step 99990 to 100000" in program.log.read_text()
