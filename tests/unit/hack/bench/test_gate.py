"""The gate fails for what grew, for what is new, and for what is no longer counted."""

import asyncio
import statistics
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bench.gate import __main__ as gate
from bench.gate import comparison, counting, figures_file, part, reviews
from bench.gate.counting import CallCounter, Cost
from bench.gate.decoding import Decoded
from bench.gate.figures_file import KnownFigures
from bench.reviews import build_body
from realcluster.progress import Progress

KNOWN = {"review of 4 KB: calls": 400.0, "life of a victim: calls": 13_000.0}
LIBRARIES = {"aiohttp": "3.14.5"}


def verdicts(**counted: float) -> dict[str, str]:
    known = {"calls": 400.0, "bytes": 100.0}
    return {row.name: row.verdict for row in comparison.compare(known, counted)}


def test_within_five_percent_nothing_grew():
    assert verdicts(calls=420, bytes=95) == {"calls": "ok", "bytes": "ok"}


def test_beyond_that_it_grew_or_fell():
    assert verdicts(calls=421, bytes=94) == {"calls": "GREW", "bytes": "fell"}


def test_a_figure_of_one_side_fails():
    rows = comparison.compare({"old": 1.0}, {"new": 1.0})
    assert [(row.name, row.verdict, row.is_failure) for row in rows] == [
        ("new", "NEW", True),
        ("old", "NOT COUNTED", True),
    ]


def test_what_was_none_may_not_become_some():
    (row,) = comparison.compare({"API calls": 0.0}, {"API calls": 1.0})
    assert (row.verdict, row.change) == ("GREW", "+1")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """What is counted, beside the figures of this interpreter in a folder."""
    found = dict(KNOWN)
    monkeypatch.setattr(figures_file, "FOLDER", tmp_path)
    monkeypatch.setattr(gate, "count", lambda *_: found)
    monkeypatch.setattr(gate, "_shown", lambda path: path.name)
    monkeypatch.setattr(figures_file, "libraries", lambda: LIBRARIES)
    figures_file.write(
        figures_file.path_of(figures_file.interpreter()), KnownFigures(KNOWN, LIBRARIES)
    )
    return found


def test_a_failure_says_what_grew_by_how_much_and_how_to_accept_it(
    counted: dict[str, float], capsys: pytest.CaptureFixture[str]
):
    assert gate.main(["--parts", "reviews,victim"]) == 0
    counted["review of 4 KB: calls"] = 500.0
    assert gate.main(["--parts", "reviews,victim"]) == 1
    printed = capsys.readouterr()
    assert "review of 4 KB: calls: grew from 400 to 500 (+25.0%)" in printed.err
    file = figures_file.path_of(figures_file.interpreter()).name
    assert f"make bench-gate UPDATE=1 writes {file}" in printed.err
    assert "is 3.14.5 here" not in printed.err
    assert "400" in printed.out
    assert "13,000" not in printed.out


def test_another_version_of_a_library_is_named(
    counted: dict[str, float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    counted["review of 4 KB: calls"] = 500.0
    monkeypatch.setattr(figures_file, "libraries", lambda: {"aiohttp": "4.0.0"})
    assert gate.main(["--parts", "reviews,victim"]) == 1
    assert "aiohttp is 4.0.0 here, and was 3.14.5" in capsys.readouterr().err


def test_an_update_is_accepted_and_keeps_the_figures_of_other_parts(counted: dict[str, float]):
    counted.clear()
    counted["review of 4 KB: calls"] = 500.0
    assert gate.main(["--parts", "reviews", "--update"]) == 0
    known = figures_file.read(figures_file.path_of(figures_file.interpreter()))
    assert known is not None
    assert known.figures == KNOWN | counted
    assert gate.main(["--parts", "reviews"]) == 0


@pytest.mark.usefixtures("counted")
def test_a_version_without_figures_is_not_compared_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    interpreter = figures_file.interpreter()
    monkeypatch.setattr(figures_file, "interpreter", lambda: "cpython-4.0")
    assert gate.main([]) == 0
    said = capsys.readouterr().err
    assert f"NOT COMPARED: no figures of cpython-4.0 are checked in, only of {interpreter}" in said


def test_a_part_that_cannot_be_counted_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert gate.main(["--parts", "victim"]) == 1
    assert "could not count victim" in capsys.readouterr().err


def test_figures_are_lines_in_order(tmp_path: Path):
    """Two changes of different figures merge."""
    file = tmp_path / "figures.toml"
    figures_file.write(file, KnownFigures({"b": 2.5, "a": 13_128.0}, LIBRARIES))
    lines = file.read_text().splitlines()
    assert lines[-3:] == ["[figures]", '"a" = 13128', '"b" = 2.5']
    assert figures_file.read(file) == KnownFigures({"a": 13_128, "b": 2.5}, LIBRARIES)


@pytest.mark.parametrize("file", sorted(figures_file.FOLDER.glob("*.toml")), ids=lambda f: f.stem)
def test_checked_in_figures_are_as_the_gate_writes_them(file: Path):
    known = figures_file.read(file)
    assert known is not None
    assert file.read_text() == figures_file.rendered(known)
    for beginning in part.PARTS.values():
        assert any(name.startswith(beginning) for name in known.figures), beginning
    assert all(name.startswith(tuple(part.PARTS.values())) for name in known.figures)
    assert tomllib.loads(file.read_text())["libraries"].keys() == figures_file.libraries().keys()


def test_calls_are_counted_of_python_and_of_c():
    counter = CallCounter()
    counter.install()
    try:
        before = counter.calls
        work()
        after = counter.calls
    finally:
        counter.remove()
    # `work`, `len`, `sorted` and the getters of the counter itself.
    empty = _overhead()
    assert after - before - empty == 3


def work() -> None:
    len(sorted([1, 2]))


def _overhead() -> int:
    counter = CallCounter()
    counter.install()
    try:
        before = counter.calls
        return counter.calls - before
    finally:
        counter.remove()


def test_decoded_bytes_and_blocks_are_counted():
    decoded = Decoded()
    text = b'["a longer text", "and one more"]'
    value = decoded.counted(lambda found: [str(found, "ascii"), 1.5e300], text)
    assert value[1] == 1.5e300
    assert decoded.bytes == len(text)
    assert decoded.blocks >= 3


def test_pods_of_one_template_differ_in_name_and_uid_alone():
    body = build_body(4096, 0, "4")
    first, second = (reviews._pod(body, number, is_first=False) for number in (1, 2))
    assert len(first) == len(second) == len(body)
    others = [reviews._pod(body, number, is_first=True) for number in (1, 2)]
    assert b'checkpoint-timeout":"101s"' in others[0]
    assert b'checkpoint-timeout":"102s"' in others[1]
    assert b'checkpoint-timeout":"10m"' in first
    assert b'checkpoint-timeout":"10m"' in second


def test_nothing_is_left_running_after_an_interruption(monkeypatch: pytest.MonkeyPatch):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gate.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gate.count(["cel_overlay"], Progress())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_threads_of_a_pool_are_counted_and_others_are_not(
    loop: Callable[[], asyncio.AbstractEventLoop],
):
    counter = CallCounter()

    async def decide() -> tuple[int, int]:
        threading.Thread(target=work).start()
        before = counter.pool_calls
        await asyncio.to_thread(work)
        return before, counter.pool_calls

    counter.install()
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            before, after = runner.run(decide())
    finally:
        counter.remove()
    # `work`, what it calls, and the few calls of the pool around it.
    assert (before, after > 3, after < 60) == (0, True, True)
    assert counter.calls > counter.pool_calls


def test_figures_are_medians_and_the_calls_may_have_another_average():
    found = [Cost(10, 4096, 84), Cost(10, 4096, 84), Cost(40, 4100, 224)]
    assert counting.figures("review", found) == {
        "review: calls": 10,
        "review: decoded bytes": 4096,
        "review: decoded blocks": 84,
    }
    assert counting.figures("call", found, statistics.mean)["call: calls"] == 20
    assert found[2].since(found[0]) == Cost(30, 4, 140)
