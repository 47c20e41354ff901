"""A session of the client library: when it saves, what it answers, and how the program ends."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import reprieve_client as reprieve
from reprieve_client.agreement import Outcome
from reprieve_client.contract import Request, render_answer
from reprieve_client.hints import choice
from reprieve_testing.cluster.handle import free_port

UNFINISHED = 143
MAX_ANSWER_BYTES = 16 * 1024


class Training:
    """Counts steps; each save is the number of steps, or the error that is next."""

    def __init__(self, *errors: Exception) -> None:
        self.saves: list[int] = []
        self.threads: list[threading.Thread] = []
        self._errors = list(errors)

    def save(self, step: int) -> str:
        self.threads.append(threading.current_thread())
        if self._errors:
            raise self._errors.pop(0)
        self.saves.append(step)
        return f"/checkpoints/step-{step}"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("REPRIEVE_") or name in {"POD_IP", "POD_NAME", "LOCAL_RANK"}:
            monkeypatch.delenv(name)


def ask(session: reprieve.Session, eviction_id: str = "uid-1", **fields: object) -> None:
    """Ask as a hint's thread does."""
    request = Request(eviction_id)._replace(**fields)
    thread = threading.Thread(target=session._exchange.ask, args=(request,))
    thread.start()
    thread.join()


def answer(session: reprieve.Session) -> dict[str, object]:
    return session._exchange.answer


def test_without_a_request_nothing_is_saved() -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        assert list(session.steps(5)) == [0, 1, 2, 3, 4]
    assert training.saves == []


def test_a_request_is_answered_after_the_step_on_the_training_thread() -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        for step in session.steps(5):
            if step == 2:
                ask(session)
                assert answer(session) == {"state": "accepted", "id": "uid-1"}
                assert training.saves == []
    assert training.saves == [3]
    assert training.threads == [threading.main_thread()]
    assert answer(session) == {
        "state": "saved",
        "id": "uid-1",
        "step": 3,
        "path": "/checkpoints/step-3",
    }


def test_the_same_id_is_saved_once_and_a_new_one_anew() -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        for step, eviction_id in enumerate(["uid-1", "uid-1", "uid-2"], start=1):
            ask(session, eviction_id)
            session.step(step)
    assert training.saves == [1, 3]


def test_a_cancelled_request_is_not_saved() -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        ask(session)
        ask(session, cancelled=True)
        session.step(1)
    assert training.saves == []
    assert answer(session) == {"state": "idle"}


def test_a_request_that_is_cancelled_during_its_save_is_not_answered_by_it() -> None:
    with reprieve.checkpointing(lambda _: ask(session, cancelled=True)) as session:
        ask(session)
        session.step(1)
    assert answer(session) == {"state": "idle"}


def test_a_request_during_a_save_is_answered_by_it_because_nothing_was_done_since() -> None:
    saves = []

    def save(step: int) -> None:
        saves.append(step)
        ask(session, "uid-2")

    with reprieve.checkpointing(save) as session:
        ask(session, "uid-1")
        session.step(1)
        session.step(2)
    assert saves == [1]
    assert answer(session) == {"state": "saved", "id": "uid-2", "step": 1}


def test_a_save_of_the_programs_own_answers_a_request() -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        ask(session)
        session.saved(7, Path("/checkpoints/own"))
        session.step(8)
    assert training.saves == []
    assert answer(session) == {
        "state": "saved",
        "id": "uid-1",
        "step": 7,
        "path": "/checkpoints/own",
    }


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_a_save_from_before_the_request_that_ends_late_does_not_answer_it(
    *, is_looked_at: bool
) -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        session.step(1000)
        ask(session)
        if is_looked_at:
            session.step(1001, defer_seconds=30)
        session.saved(900, "/checkpoints/step-900")
        assert session.request is not None
        session.step(1002)
        assert training.saves == [1002]
        session.saved(901, "/checkpoints/step-901")
    assert answer(session)["path"] == "/checkpoints/step-1002"


def test_a_late_save_leaves_the_steps_since_to_sigterm() -> None:
    training = Training()

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            session.step(1000)
            ask(session)
            session.saved(900)
            terminate()
            session.step(1001)

    assert exit_status(run) == UNFINISHED
    assert training.saves == [1001]


def test_a_save_that_was_asked_for_answers_the_request_also_some_steps_later() -> None:
    """Otherwise a program whose saves all end late would never answer."""
    with reprieve.checkpointing() as session:
        ask(session)
        for step in (1, 2, 3):
            assert session.should_save(step)
        session.saved(1)
        assert not session.should_save(4)
    assert answer(session) == {"state": "saved", "id": "uid-1", "step": 1}


def test_a_path_that_no_answer_can_carry_is_left_out() -> None:
    with reprieve.checkpointing(lambda _: "x" * 600) as session:
        ask(session)
        session.step(1)
    assert answer(session) == {"state": "saved", "id": "uid-1", "step": 1}


class OwnInt:
    """A whole number of a framework, which JSON does not know."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __int__(self) -> int:
        return self._number


class OwnIndex(OwnInt):
    """One that may also be an index, such as NumPy's and JAX's."""

    def __index__(self) -> int:
        return int(self)


class OwnFloat:
    def __float__(self) -> float:
        return 0.5


@pytest.mark.parametrize("own", [OwnInt, OwnIndex])
def test_a_step_may_be_a_number_of_a_framework(own: Callable[[int], int]) -> None:
    training = Training(OSError("no space left"))
    answers = []
    with reprieve.checkpointing(training.save) as session:
        session._exchange.on_answer(
            lambda answer: answers.append(json.loads(render_answer(answer)))
        )
        session.step(own(1), defer_seconds=30)
        ask(session)
        session.step(own(2))
        session.step(own(3))
        ask(session, "uid-2")
        assert session.should_save(own(4))
        session.saving(own(4))
        session.complete(own(4), Outcome())
        session.saved(own(5))
    steps = [(answer["state"], answer.get("step")) for answer in answers]
    assert steps == [
        ("accepted", None),
        *[("saving", 2), ("saving", 2), ("saving", 3), ("saved", 3)],
        ("accepted", None),
        *[("saving", 4), ("saved", 4), ("saved", 5)],
    ]
    assert training.saves == [3]


def test_a_resume_may_return_a_number_of_a_framework(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(tmp_path))
    with reprieve.checkpointing(Training().save, lambda _: OwnInt(3)) as session:  # type: ignore[arg-type, return-value]
        assert list(session.steps(5)) == [3, 4]


def test_the_progress_may_be_a_number_of_a_framework() -> None:
    with reprieve.checkpointing() as session:
        ask(session)
        session.saving(1)
        session.progress(OwnFloat())  # type: ignore[arg-type]
        assert json.loads(render_answer(answer(session)))["progress"] == 0.5


def test_the_numbers_of_numpy_can_be_sent() -> None:
    numpy = pytest.importorskip("numpy")
    with reprieve.checkpointing() as session:
        ask(session)
        session.saving(numpy.int64(1))
        session.progress(numpy.float32(0.5))
        assert json.loads(render_answer(answer(session)))["progress"] == 0.5
        session.saved(numpy.int32(1))
        assert json.loads(render_answer(answer(session)))["step"] == 1


def test_a_step_at_which_nothing_can_be_saved_asks_for_time_once() -> None:
    training = Training()
    with reprieve.checkpointing(training.save) as session:
        session.step(1, defer_seconds=30)
        assert answer(session) == {"state": "idle"}
        ask(session)
        session.step(2, defer_seconds=30)
        session.step(3, defer_seconds=20)
        assert answer(session) == {"state": "defer", "id": "uid-1", "deferSeconds": 30}
        session.step(4)
    assert training.saves == [4]


def test_the_progress_of_a_save_is_told() -> None:
    told: list[dict[str, object]] = []

    def save(_: int) -> None:
        session.progress(0.5, "optimizer")
        told.append(answer(session))

    with reprieve.checkpointing(save) as session:
        ask(session)
        session.step(1)
    assert told == [{"state": "saving", "id": "uid-1", "progress": 0.5, "message": "optimizer"}]


def test_a_save_that_fails_is_tried_again_after_the_next_step() -> None:
    training = Training(OSError("no space left"))
    with reprieve.checkpointing(training.save) as session:
        ask(session)
        session.step(1)
        assert answer(session)["state"] == "saving"
        assert answer(session)["message"] == "failed: OSError: no space left"
        session.step(2)
    assert training.saves == [2]
    assert answer(session)["state"] == "saved"


def test_a_save_that_fails_three_times_is_given_up_and_training_goes_on() -> None:
    training = Training(*[OSError("no space left")] * 3)
    with reprieve.checkpointing(training.save) as session:
        ask(session)
        for step in range(1, 6):
            session.step(step)
    assert answer(session) == {
        "state": "cannot",
        "id": "uid-1",
        "message": "OSError: no space left",
    }
    assert training.saves == []
    assert len(training.threads) == 3


@pytest.mark.parametrize(
    "earlier", [pytest.param(None, id="at its time"), pytest.param("uid-0", id="for another")]
)
def test_saves_that_failed_before_a_request_leave_it_its_three_tries(earlier: str | None) -> None:
    training = Training(*[OSError("no space left")] * 4)
    with reprieve.checkpointing(training.save, every_seconds=0) as session:
        if earlier:
            ask(session, earlier)
        session.step(1)
        session.step(2)
        ask(session)
        for step in (3, 4):
            session.step(step)
            assert answer(session)["state"] == "saving"
        session.step(5)
    assert answer(session)["state"] == "saved"
    assert training.saves == [5]


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_a_long_message_is_cut_so_that_the_answer_can_be_read(character: str) -> None:
    long = character * 20_000
    training = Training(*[OSError(long)] * 3)
    answers = []
    with reprieve.checkpointing(training.save) as session:
        session._exchange.on_answer(lambda answer: answers.append(render_answer(answer)))
        ask(session)
        session.defer(30, long)
        for step in (1, 2, 3):
            session.step(step)
        ask(session, "uid-2")
        session.saving(4)
        session.progress(0.5, long)
    assert max(map(len, answers)) <= MAX_ANSWER_BYTES
    told = [json.loads(answer) for answer in answers]
    messages = [each["message"] for each in told if "message" in each]
    assert [len(message) for message in messages] == [500] * 5
    assert messages[1].startswith(f"failed: OSError: {character}")


def test_without_a_request_a_save_happens_when_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    training = Training()
    with reprieve.checkpointing(training.save, every_seconds=60) as session:
        for step in range(1, 11):
            now += 25.0
            session.step(step)
    assert training.saves == [3, 6, 9]


def test_each_save_is_noted_beside_the_request(tmp_path: Path) -> None:
    hint = (tmp_path / "request").as_uri()
    with reprieve.checkpointing(Training().save, hint=hint, every_seconds=0) as session:
        session.step(1)
        assert (tmp_path / "request.saved").exists()


@pytest.mark.parametrize(
    "handed_over",
    [pytest.param("{folder}", id="local"), pytest.param("bucket:run/7", id="no local path")],
)
def test_a_replacement_resumes_where_reprieve_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handed_over: str
) -> None:
    path = handed_over.format(folder=tmp_path)
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", path)
    loaded = []

    def resume(path: Path) -> int:
        loaded.append(path)
        return 3

    with reprieve.checkpointing(Training().save, resume) as session:
        assert list(session.steps(5)) == [3, 4]
    assert loaded == [Path(path)]


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_url_is_handed_over_as_it_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, has_folder: bool
) -> None:
    folder = reprieve.CheckpointFolder(tmp_path) if has_folder else None
    if folder:
        folder.write(3, lambda _: None)
    url = "s3://bucket/run-1/step-7"
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", url)
    loaded: list[object] = []
    with reprieve.checkpointing(Training().save, loaded.append, folder=folder) as session:
        assert (session.first_step, session.resumed_from) == (7, url)
    assert loaded == [url]


def test_a_path_that_is_gone_is_for_the_program_to_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may have a newer save of its own, or the path names a place that is no file system."""
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(tmp_path / "gone"))
    loaded = []

    def resume(path: Path) -> int:
        loaded.append(path)
        return 5

    with reprieve.checkpointing(Training().save, resume) as session:
        assert session.first_step == 5
    assert loaded == [tmp_path / "gone"]


@pytest.mark.parametrize("handed_over", ["", "true"])
def test_a_replacement_without_a_path_starts_at_the_newest_in_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handed_over: str
) -> None:
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", handed_over)
    folder = reprieve.CheckpointFolder(tmp_path)
    folder.write(5, lambda _: None)
    folder.write(12, lambda _: None)
    with reprieve.checkpointing(Training().save, lambda _: None, folder=folder) as session:
        assert session.first_step == 12


@pytest.mark.parametrize("handed_over", [8, 12, 15])
def test_what_was_saved_after_the_last_answer_is_newer_than_what_is_handed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handed_over: int
) -> None:
    folder = reprieve.CheckpointFolder(tmp_path)
    folder.write(12, lambda _: None)
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", f"{tmp_path}/step-{handed_over}")
    with reprieve.checkpointing(Training().save, lambda _: None, folder=folder) as session:
        assert session.first_step == 12


def test_what_is_handed_over_from_elsewhere_goes_before_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = reprieve.CheckpointFolder(tmp_path / "run")
    folder.write(12, lambda _: None)
    other = reprieve.CheckpointFolder(tmp_path / "other").write(3, lambda _: None)
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(other))
    with reprieve.checkpointing(Training().save, lambda _: None, folder=folder) as session:
        assert (session.first_step, session.resumed_from) == (3, other)


@pytest.mark.parametrize("handed_over", [5, 8, 12])
@pytest.mark.parametrize("resume", [None, lambda _: None])
def test_a_file_that_is_handed_over_belongs_to_a_checkpoint_of_the_folder(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    handed_over: int,
    resume: Callable[[Path], None] | None,
) -> None:
    folder = reprieve.CheckpointFolder(tmp_path, keep=2)
    for step in (5, 8, 12):
        folder.write(step, lambda path: (path / "state.pt").touch())
    path = tmp_path / f"step-{handed_over}" / "state.pt"
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(path))
    with reprieve.checkpointing(Training().save, resume, folder=folder) as session:
        newest = tmp_path / "step-12" / "state.pt"
        assert (session.first_step, session.resumed_from) == (12, newest)


def test_a_newer_checkpoint_without_the_file_that_is_handed_over_is_resumed_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = reprieve.CheckpointFolder(tmp_path)
    folder.write(8, lambda path: (path / "state.pt").touch())
    folder.write(12, lambda _: None)
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", f"{tmp_path}/step-8/state.pt")
    with reprieve.checkpointing(Training().save, lambda _: None, folder=folder) as session:
        assert session.resumed_from == tmp_path / "step-12"


def test_a_resume_that_does_not_say_its_step_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match=f"how many steps {tmp_path} has"):
        reprieve.checkpointing(Training().save, lambda _: None).open()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_first_start_resumes_nothing() -> None:
    def resume(_: Path) -> int:
        raise AssertionError

    with reprieve.checkpointing(Training().save, resume) as session:
        assert session.first_step == 0


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def exit_status(run: Callable[[], None]) -> object:
    with pytest.raises(SystemExit) as ended:
        run()
    return ended.value.code


def test_sigterm_without_a_request_saves_after_the_step_and_exits_unfinished() -> None:
    training = Training()

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            for step in session.steps(5):
                if step == 3:
                    terminate()

    assert exit_status(run) == UNFINISHED == reprieve.UNFINISHED
    assert training.saves == [4]


def test_sigterm_after_the_save_that_was_asked_for_exits_at_once() -> None:
    training = Training()

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            ask(session)
            session.step(1)
            terminate()
            raise AssertionError("still running")

    assert exit_status(run) == UNFINISHED
    assert training.saves == [1]


def have_a_minute_pass(session: reprieve.Session) -> None:
    """Let the last answer be of a minute ago."""
    session._settled_at -= 60


def test_sigterm_some_steps_after_an_answer_exits_without_another_save() -> None:
    """As in most preemptions: a second save would take the grace period."""
    training = Training()

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            ask(session)
            session.step(1)
            session.step(2)
            terminate()
            session.step(3)

    assert exit_status(run) == UNFINISHED
    assert training.saves == [1]


def test_a_session_that_trains_again_saves_on_sigterm() -> None:
    training = Training()

    def run() -> None:
        session = reprieve.checkpointing(training.save)
        with session:
            session.saved(1000)
        with session:
            session.step(1)
            terminate()
            session.step(2)

    assert exit_status(run) == UNFINISHED
    assert training.saves == [2]


@pytest.mark.parametrize("hint", ["http://:{port}/checkpoint", "signal://USR1"])
def test_a_session_that_was_not_closed_can_be_opened_again(hint: str) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    session = reprieve.checkpointing(Training().save, hint=hint.format(port=free_port()))
    session.open()
    session.open()
    session.close()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)) == before


def test_a_signal_is_given_back_once() -> None:
    session = reprieve.checkpointing(Training().save, hint="signal://USR1")
    session.open()
    session.close()
    earlier = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        session.close()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_a_save_that_ends_some_steps_later_is_the_last_one_if_it_began_after_sigterm() -> None:
    def run() -> None:
        with reprieve.checkpointing(Training().save) as session:
            session.should_save(1)
            terminate()
            assert session.should_save(2)
            assert session.should_save(3)
            session.saved(2)
            session.exit_if_terminated()
            raise AssertionError("still running")

    assert exit_status(run) == UNFINISHED


@pytest.mark.parametrize("errors", [0, 3])
def test_sigterm_long_after_an_answer_saves_the_steps_since(errors: int) -> None:
    training = Training(*[OSError("no space left")] * errors)

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            for step in session.steps(20):
                if step == 1:
                    ask(session)
                if step == 10:
                    assert answer(session)["state"] == ("cannot" if errors else "saved")
                    have_a_minute_pass(session)
                    terminate()

    assert exit_status(run) == UNFINISHED
    assert training.saves == ([11] if errors else [2, 11])


def test_sigterm_after_a_save_that_was_given_up_exits_at_once_where_no_step_was_done() -> None:
    training = Training(*[OSError("no space left")] * 3)

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            ask(session)
            for step in (1, 2, 3):
                session.step(step)
            terminate()
            raise AssertionError("still running")

    assert exit_status(run) == UNFINISHED
    assert training.saves == []


def test_sigterm_saves_the_steps_since_an_answer_from_before_a_restart(tmp_path: Path) -> None:
    (tmp_path / "request").write_text('{"id":"uid-1"}')
    (tmp_path / "request.answer").write_text('{"id":"uid-1","state":"saved","step":3}')
    training = Training()

    def run() -> None:
        hint = (tmp_path / "request").as_uri()
        with reprieve.checkpointing(training.save, hint=hint) as session:
            session.step(4)
            terminate()
            session.step(5)

    assert exit_status(run) == UNFINISHED
    assert training.saves == [5]


def test_sigterm_saves_a_step_at_which_nothing_could_be_saved() -> None:
    training = Training()

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            ask(session)
            session.step(1)
            session.step(2, defer_seconds=30)
            have_a_minute_pass(session)
            terminate()
            session.step(3)

    assert exit_status(run) == UNFINISHED
    assert training.saves == [1, 3]


def test_sigterm_saves_the_steps_since_a_save_of_the_programs_own_that_ends_late() -> None:
    training = Training()

    def run() -> None:
        with reprieve.checkpointing(training.save) as session:
            session.step(1)
            session.step(2)
            terminate()
            session.saved(1)
            session.step(3)

    assert exit_status(run) == UNFINISHED
    assert training.saves == [3]


def test_sigterm_before_the_first_step_exits_at_once() -> None:
    def run() -> None:
        with reprieve.checkpointing(Training().save):
            terminate()
            raise AssertionError("still running")

    assert exit_status(run) == UNFINISHED


def test_sigterm_during_a_save_lets_it_end() -> None:
    saves: list[int] = []
    session = reprieve.checkpointing(lambda step: terminate() or saves.append(step))

    def run() -> None:
        with session:
            ask(session)
            session.step(1)

    assert exit_status(run) == UNFINISHED
    assert saves == [1]
    assert answer(session)["state"] == "saved"


def test_sigterm_while_an_answer_is_written_ends_the_program_after_that() -> None:
    written: list[object] = []

    def publish(answer: dict[str, object]) -> None:
        if answer["state"] == "saved":
            terminate()
        written.append(answer["state"])

    session = reprieve.checkpointing(Training().save)
    session._exchange.on_answer(publish)

    def run() -> None:
        with session:
            ask(session)
            session.step(1)

    assert exit_status(run) == UNFINISHED
    assert written == ["accepted", "saving", "saved"]


def test_sigterm_during_a_save_at_its_time_lets_it_end() -> None:
    saves: list[int] = []
    session = reprieve.checkpointing(
        lambda step: (step > 1 and terminate()) or saves.append(step), every_seconds=0
    )

    def run() -> None:
        with session:
            ask(session)
            session.step(1)
            session.step(2)

    assert exit_status(run) == UNFINISHED
    assert saves == [1, 2]


def test_a_loop_without_a_save_is_told_so_when_it_is_asked() -> None:
    with reprieve.checkpointing() as session:
        session.step(1)
        ask(session)
        with pytest.raises(ValueError, match="step needs a save"):
            session.step(2)


def test_a_forked_process_ends_on_sigterm_as_it_would_without_the_library() -> None:
    is_ready, ready = os.pipe()
    with reprieve.checkpointing(Training().save) as session:
        session.step(1)
        child = os.fork()
        if child == 0:
            os.write(ready, b"1")  # before that, CPython drops signals
            time.sleep(60)
            os._exit(0)
        os.read(is_ready, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    os.close(is_ready)
    os.close(ready)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_the_handler_from_before_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with reprieve.checkpointing(Training().save):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_callback_form_needs_no_with_block() -> None:
    training = Training()
    session = reprieve.checkpointing(training.save).open()
    on_step_end: Callable[[int], None] = session.step
    ask(session)
    on_step_end(1)
    session.close()
    assert training.saves == [1]


@pytest.mark.parametrize(
    "hint", ["http://other:8080/x", "http://:0x/", "grpc://:9000", "signal://NONE", "file:", "x"]
)
def test_a_hint_that_the_library_does_not_serve_is_an_error(hint: str) -> None:
    with pytest.raises(ValueError, match=r"hint|[Pp]ort"):
        reprieve.checkpointing(hint=hint).open()


@pytest.mark.parametrize("hint", ["signal://USR1", "signal://USR1?container=main", "{request}"])
def test_a_hint_that_needs_the_agent_is_logged_where_its_folder_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    hint: str,
) -> None:
    request = tmp_path / "missing" / "request"
    monkeypatch.setattr(choice, "AGENT_REQUEST", request)
    needs_agent = hint.format(request=request.as_uri())
    reprieve.checkpointing(hint=needs_agent).open().close()
    assert f"needs the agent, but its folder {request.parent} is missing" in caplog.text
    caplog.clear()
    request.parent.mkdir()
    reprieve.checkpointing(hint=needs_agent).open().close()
    assert caplog.text == ""


def test_the_hint_of_the_pod_is_taken_from_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPRIEVE_CHECKPOINT_HINT", (tmp_path / "request").as_uri())
    (tmp_path / "request").write_text('{"id":"uid-1"}')
    with reprieve.checkpointing(Training().save) as session:
        assert session.request == Request("uid-1")


def test_without_a_hint_the_file_of_the_agent_is_read_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choice, "AGENT_REQUEST", tmp_path / "request")
    (tmp_path / "request").write_text('{"id":"uid-1"}')
    with reprieve.checkpointing(Training().save) as session:
        assert session.request == Request("uid-1")


def test_of_several_processes_of_a_pod_only_the_first_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    (tmp_path / "request").write_text('{"id":"uid-1"}')
    hint = (tmp_path / "request").as_uri()
    with reprieve.checkpointing(Training().save, hint=hint) as session:
        assert session.request is None
