"""The line that a run of the tests prints each minute: how far it is, and what runs now."""

from reprieve_testing.pytest_plugins.progress import Progress


def test_the_line_shows_the_progress_and_the_longest_running_tests_first() -> None:
    progress = Progress(began=0.0, total=200)
    for second, name in enumerate(("a", "b", "c")):
        progress.start(f"test.py::{name}", 10.0 * second)
    progress.finish("test.py::b")
    progress.finished += 49
    line = progress.line(150.0, "12:00:00")
    running = "now: test.py::a (150 s), test.py::c (130 s)"
    assert line == f"[12:00:00] 2 min: 50 of 200 tests (25 %); {running}"


def test_failures_are_counted_and_a_long_list_is_cut() -> None:
    progress = Progress(began=0.0, total=9, failed=2)
    for number in range(8):
        progress.start(f"t::{number}", 0.0)
    line = progress.line(1.0, "12:00:00")
    assert ", 2 failed; now: t::0 (1 s), " in line
    assert line.endswith("t::5 (1 s), 2 more")


def test_a_test_that_never_started_does_not_count_as_finished() -> None:
    progress = Progress(began=0.0)
    progress.finish("t::unknown")
    assert progress.line(61.0, "12:00:00") == "[12:00:00] 1 min: 0 of 0 tests; now: no test runs"
