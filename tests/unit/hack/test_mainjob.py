"""The demo's output, and the text of a broken promise."""

import io
from itertools import count

import pytest

from mainjob import promise, runner, victim
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.promise import BrokenPromiseError
from mainjob.runner import Chapter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def installation() -> Installation:
    return Installation.__new__(Installation)  # no chapter of these tests uses it


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock by a second at each reading; never sleep."""
    seconds = count()
    monkeypatch.setattr("mainjob.narrator.time.monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr("mainjob.narrator.time.sleep", lambda _: None)


def test_a_log_gets_no_colours_and_a_terminal_does() -> None:
    outputs = {stream: _told(stream) for stream in (io.StringIO, Terminal)}
    assert "\033" not in outputs[io.StringIO]
    assert "\033[1;32mok\033[0m 3 it holds" in outputs[Terminal]
    assert "\nok 3 it holds\n" in outputs[io.StringIO]


def _told(stream: type[io.StringIO]) -> str:
    out = stream()
    narrator = Narrator(out)
    narrator.headline("3. A chapter")
    narrator.show("kubectl version", "v1\nv2\n")
    narrator.ok(3, "it holds")
    return out.getvalue()


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_long_wait_is_shown_and_a_short_one_is_not(stream: type[io.StringIO]) -> None:
    short, long = stream(), stream()
    assert Narrator(short).wait("pod", 60, lambda: "found") == "found"
    answers = iter([None, None, None, None, "found"])
    assert Narrator(long).wait("pod", 60, lambda: next(answers)) == "found"
    assert "waiting for pod" not in short.getvalue()
    assert "waiting for pod" in long.getvalue()


@pytest.mark.usefixtures("clock")
def test_a_wait_that_times_out_names_its_condition() -> None:
    with pytest.raises(BrokenPromiseError, match=r"^no running pod within 5 s$"):
        Narrator(io.StringIO()).wait("running pod", 5, lambda: None)


def test_the_demo_ends_with_the_first_chapter_that_breaks_its_promise(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise BrokenPromiseError("the pod stayed")

    chapters = [
        Chapter("one", lambda *_: "kept"),
        Chapter("two", broken),
        Chapter("three", lambda *_: "kept"),
    ]
    monkeypatch.setattr(runner, "CHAPTERS", chapters)
    out = io.StringIO()
    assert not runner.run(installation, Narrator(out), chapters)
    assert "ok 1 kept" in out.getvalue()
    assert "not ok 2 two: the pod stayed" in out.getvalue()
    assert "three" not in out.getvalue()


def test_only_selected_chapters_run_under_their_own_numbers(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapters = [Chapter("one", lambda *_: "first"), Chapter("two", lambda *_: "second")]
    monkeypatch.setattr(runner, "CHAPTERS", chapters)
    out = io.StringIO()
    assert runner.run(installation, Narrator(out), chapters[1:])
    assert "ok 2 second" in out.getvalue()
    assert "first" not in out.getvalue()


def test_seven_chapters_are_the_main_job() -> None:
    assert len(runner.CHAPTERS) == 7


def test_a_broken_promise_is_one_sentence() -> None:
    with pytest.raises(BrokenPromiseError, match=r"^the class is '4', not '2'$"):
        promise.same("the class", "4", "2")
    with pytest.raises(BrokenPromiseError, match=r"^the grace took 9.0 s, not 2 to 6 s$"):
        promise.within("the grace", 9, 2, 6)
    with pytest.raises(BrokenPromiseError, match=r"^nothing says 'Forbidden' in 'pod/a patched'$"):
        promise.says("pod/a\n   patched\n", "Forbidden")


def test_a_long_output_is_shortened_in_the_middle() -> None:
    assert promise.shortened("a" * 300 + "b" * 300, 10) == "aaaaa … bbbbb"


def test_a_key_is_escaped_where_it_is_part_of_a_path() -> None:
    assert victim.escaped("reprieve.dev/eviction") == r"reprieve\.dev/eviction"
    assert (
        victim.columns(NAME=".metadata.name", EXIT=".status")
        == "custom-columns=NAME:.metadata.name,EXIT:.status"
    )
