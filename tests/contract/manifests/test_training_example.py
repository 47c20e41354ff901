"""The example program that application authors copy, as a process: it follows the contract."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

import pytest

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.verdict import Violation
from reprieve_testing.manifests import EXAMPLES

DEADLINE_SECONDS = 30.0
UNFINISHED = 128 + signal.SIGTERM


class Program:
    """`train.py` on a loopback address of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        random = SystemRandom()
        self.address = (
            f"127.{random.randrange(200, 250)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        )
        own = {"POD_IP": self.address, "POD_NAME": "pod", "CHECKPOINTS": str(folder)}
        own |= {
            "STEP_SECONDS": "0.01",
            "STEPS": "100000",
            "SAVE_SECONDS": "0.05",
            "PYTHONUNBUFFERED": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, EXAMPLES / "train.py"],
            env={**os.environ, **own, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, request: CheckpointRequest | None = None) -> CheckpointAnswer:
        """POST a request, or GET the progress; return what the operator would read."""
        body = contract.render_request(request).encode() if request else None
        with urllib.request.urlopen(
            f"http://{self.address}:8080/checkpoint", body, timeout=5
        ) as response:
            answer = contract.parse_answer(response.read(), "answer")
        assert not isinstance(answer, Violation)
        return answer

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)


@contextmanager
def training(folder: Path, **environment: str) -> Iterator[Program]:
    program = Program(folder, **environment)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with training(tmp_path) as started:
        wait_for(lambda: answers(started))
        yield started


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.02)


def answers(program: Program) -> bool:
    try:
        return bool(program.call())
    except OSError:
        return False


def a_request(eviction_id: str = "uid-1", attempt: int = 1) -> CheckpointRequest:
    return CheckpointRequest(
        eviction_id=eviction_id,
        attempt=attempt,
        deadline=datetime(2026, 11, 21, 12, tzinfo=UTC),
        reason="",
        preemption_class=3,
        may_extend=True,
    )


def wait_until_saved(program: Program, eviction_id: str) -> CheckpointAnswer:
    wait_for(lambda: program.call().state is AnswerState.SAVED)
    answer = program.call()
    assert answer.eviction_id == eviction_id
    return answer


def test_before_a_request_the_example_reports_idle(program: Program) -> None:
    assert program.call() == CheckpointAnswer(state=AnswerState.IDLE)


def test_a_request_is_accepted_at_once_and_saved_later(program: Program) -> None:
    accepted = program.call(a_request())
    assert (accepted.state, accepted.eviction_id) == (AnswerState.ACCEPTED, "uid-1")
    saved = wait_until_saved(program, "uid-1")
    assert saved.path is not None
    assert json.loads(Path(saved.path).read_text()) == {"step": saved.step}


def test_a_repeated_request_saves_nothing_again(program: Program) -> None:
    program.call(a_request())
    saved = wait_until_saved(program, "uid-1")
    assert program.call(a_request(attempt=2)) == saved


def test_a_new_request_is_a_new_checkpoint(program: Program) -> None:
    program.call(a_request())
    first = wait_until_saved(program, "uid-1")
    assert program.call(a_request("uid-2")).state is AnswerState.ACCEPTED
    second = wait_until_saved(program, "uid-2")
    assert (second.step or 0) > (first.step or 0)


def test_a_killed_example_is_unfinished_even_if_it_has_saved(program: Program) -> None:
    program.call(a_request())
    wait_until_saved(program, "uid-1")
    assert program.end(signal.SIGTERM) == UNFINISHED


def test_a_replacement_resumes_from_the_checkpoint_and_finishes(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"step": 99990}')
    with training(tmp_path, RESUME_FROM_CHECKPOINT=str(tmp_path / "old.json")) as program:
        output, _ = program.process.communicate(timeout=DEADLINE_SECONDS)
    assert "training from step 99990 to 100000" in output
    assert program.process.returncode == 0


def test_a_silent_example_is_unreachable_but_ends_on_term(tmp_path: Path) -> None:
    with training(tmp_path, MODE="silent") as program:
        assert program.process.stdout is not None
        assert program.process.stdout.readline().startswith("training")
        assert not answers(program)
        assert program.end(signal.SIGTERM) == UNFINISHED


def test_a_stubborn_example_ends_on_kill_only(tmp_path: Path) -> None:
    with training(tmp_path, MODE="stubborn") as program:
        assert program.process.stdout is not None
        assert program.process.stdout.readline().startswith("training")
        program.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(0.3)
        assert program.end(signal.SIGKILL) == -signal.SIGKILL
