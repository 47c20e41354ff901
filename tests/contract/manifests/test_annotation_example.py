"""The example that polls and answers by annotation, as a process beside a stub API server.

The stub can be away, or refuse. In a cluster, with the example's own rights:
tests/cluster/agent/test_agent.py and tests/cluster/docs/test_example_rights.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointRequest
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.manifests import EXAMPLES
from reprieve_testing.servers.pod_api import LOOPBACK, PodApi

SECONDS = 30.0
UNFINISHED = 128 + signal.SIGTERM


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
def api(tmp_path: Path) -> Iterator[PodApi]:
    server = PodApi(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def program(api: PodApi, tmp_path: Path) -> Iterator[Program]:
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


def states(api: PodApi) -> list[tuple[str | None, AnswerState]]:
    return [(answer.eviction_id, answer.state) for answer in api.answers]


SAVED_ONCE = [("uid-1", AnswerState.SAVING), ("uid-1", AnswerState.SAVED)]


def test_the_example_saves_on_request_and_answers_on_its_own_pod(
    api: PodApi, program: Program
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
    api: PodApi, program: Program
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


def test_a_cancelled_request_is_ignored(api: PodApi, tmp_path: Path) -> None:
    with training(tmp_path, api.port, contract.render_cancelled("uid-1"), STEPS="3") as program:
        assert program.process.wait(SECONDS) == 0
    assert api.requests == 0
    assert "saved step" not in program.log.read_text()


def test_a_failed_answer_is_sent_again_and_nothing_is_saved_twice(
    api: PodApi, program: Program
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
    api: PodApi, program: Program
) -> None:
    api.stop()
    program.write(a_request("uid-1"))
    until("the checkpoint", lambda: "saved step" in program.log.read_text())
    until("an attempt to tell", lambda: "answer not sent yet" in program.log.read_text())
    assert program.process.poll() is None


def test_a_killed_example_is_unfinished_even_if_it_has_saved(api: PodApi, program: Program) -> None:
    program.write(a_request("uid-1"))
    until("both answers", lambda: states(api) == SAVED_ONCE)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(SECONDS) == UNFINISHED


def test_a_replacement_resumes_from_the_checkpoint_and_finishes(
    api: PodApi, tmp_path: Path
) -> None:
    (tmp_path / "old.json").write_text('{"step": 99990}')
    with training(tmp_path, api.port, RESUME_FROM_CHECKPOINT=str(tmp_path / "old.json")) as program:
        assert program.process.wait(SECONDS) == 0
    assert "training from step 99990 to 100000" in program.log.read_text()
