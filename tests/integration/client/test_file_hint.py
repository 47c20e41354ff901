"""The client library beside the agent: the files are those that the agent reads and writes."""

import json
import os
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reprieve_agent.handler import CheckpointHandler
from reprieve_agent.http_message import HttpRequest
from reprieve_agent.request_files import RequestFiles
from reprieve_client.exchange import Exchange
from reprieve_client.hints.file import FileHint, SignalHint
from reprieve_testing.cluster.handle import wait_for

SECONDS = 30.0


class Agent:
    """The agent's own handler, without its server."""

    def __init__(self, request: Path) -> None:
        self.files = RequestFiles(str(request))
        self._handler = CheckpointHandler(self.files, None, lambda *_, **__: None)

    def call(self, method: str, eviction_id: str = "uid-1", attempt: int = 1) -> dict[str, object]:
        body = json.dumps({"version": 1, "id": eviction_id, "attempt": attempt}).encode()
        response = self._handler.handle(HttpRequest(method, b"" if method == "GET" else body))
        answer = json.loads(response.body)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    return tmp_path / "request"


@pytest.fixture
def agent(request_file: Path) -> Agent:
    return Agent(request_file)


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def hint(exchange: Exchange, request_file: Path) -> Iterator[FileHint]:
    opened = FileHint(exchange, request_file)
    opened.open()
    yield opened
    opened.close()


def exchange_after_a_restart(request_file: Path) -> Exchange:
    exchange = Exchange()
    hint = FileHint(exchange, request_file)
    hint.open()
    hint.close()
    return exchange


@pytest.mark.usefixtures("hint")
def test_a_request_is_acknowledged_while_a_step_is_under_way(
    agent: Agent, exchange: Exchange
) -> None:
    agent.call("POST")
    wait_for("the answer", lambda: agent.call("GET") == {"state": "accepted", "id": "uid-1"})
    exchange.report("saved", step=3, path="/checkpoints/step-3")
    saved = {"state": "saved", "id": "uid-1", "step": 3, "path": "/checkpoints/step-3"}
    assert agent.call("GET") == saved
    assert agent.call("POST", attempt=2) == saved


@pytest.mark.usefixtures("hint")
def test_a_request_that_is_taken_back_needs_no_save(agent: Agent, exchange: Exchange) -> None:
    agent.call("POST")
    wait_for("a request", lambda: exchange.pending)
    agent.call("DELETE")
    wait_for("no request", lambda: exchange.pending is None)
    agent.call("POST", "uid-2")
    wait_for("the answer", lambda: agent.call("GET") == {"state": "accepted", "id": "uid-2"})


def test_a_restarted_container_saves_nothing_anew_for_a_request_that_it_has_answered(
    agent: Agent, exchange: Exchange, hint: FileHint, request_file: Path
) -> None:
    agent.call("POST")
    wait_for("a request", lambda: exchange.pending)
    exchange.report("saved", step=3)
    hint.close()
    restarted = exchange_after_a_restart(request_file)
    assert restarted.pending is None
    assert restarted.answer == {"state": "saved", "id": "uid-1", "step": 3}


def test_an_answer_that_is_nested_too_deeply_to_be_read_counts_as_none(
    agent: Agent, request_file: Path
) -> None:
    agent.call("POST")
    (request_file.parent / "request.answer").write_text("[" * 16_000)
    assert exchange_after_a_restart(request_file).pending is not None


def test_a_container_that_is_restarted_during_a_save_saves_again(
    agent: Agent, exchange: Exchange, hint: FileHint, request_file: Path
) -> None:
    agent.call("POST")
    wait_for("a request", lambda: exchange.pending)
    exchange.report("saving", step=3)
    hint.close()
    restarted = exchange_after_a_restart(request_file)
    assert restarted.pending is not None
    assert agent.call("GET") == {"state": "accepted", "id": "uid-1"}


def test_a_save_is_noted_where_the_agent_looks(agent: Agent, hint: FileHint) -> None:
    assert agent.files.last_saved_at() is None
    hint.note_save()
    assert agent.files.last_saved_at() is not None


def test_an_agent_of_another_user_can_read_the_answer(
    agent: Agent, exchange: Exchange, hint: FileHint, request_file: Path
) -> None:
    before = os.umask(0o077)
    try:
        agent.call("POST")
        wait_for("a request", lambda: exchange.pending)
    finally:
        os.umask(before)
    hint.close()
    mode = (request_file.parent / "request.answer").stat().st_mode
    assert stat.S_IMODE(mode) == 0o644


def test_a_volume_that_is_gone_does_not_end_the_training(
    exchange: Exchange, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hint = FileHint(exchange, tmp_path / "missing" / "request")
    hint.open()
    hint.note_save()
    hint.close()
    assert "could not tell the agent of a save" in caplog.text


def test_a_signal_needs_the_main_thread(exchange: Exchange, request_file: Path) -> None:
    hint = SignalHint(exchange, request_file, signal.SIGUSR1)

    def run() -> str:
        with pytest.raises(ValueError, match="main thread"):
            hint.open()
        hint.close()
        return "closed"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result(SECONDS) == "closed"


def test_a_signal_is_handled_while_the_session_is_open_and_the_file_says_the_rest(
    agent: Agent, exchange: Exchange, request_file: Path
) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    hint = SignalHint(exchange, request_file, signal.SIGUSR1)
    hint.open()
    agent.call("POST")
    os.kill(os.getpid(), signal.SIGUSR1)  # without a handler, this would end the test
    wait_for("a request", lambda: exchange.pending)
    hint.close()
    assert signal.getsignal(signal.SIGUSR1) is before
