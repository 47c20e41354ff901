"""`make test-repeat`: one log each, a summary, and status 0 only if all of them passed."""

import sys
from pathlib import Path

import pytest

import repeat

PASSES = "print('====== 7 passed, 1 xfailed in 3.21s (0:00:03) ======')"
FAILS = "print('= 1 failed, 6 passed in 2.00s ='); raise SystemExit(1)"


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(repeat, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


def run(monkeypatch: pytest.MonkeyPatch, code: str, times: int, busy: int) -> int:
    words = ["repeat", f"--times={times}", f"--busy={busy}", "--", sys.executable, "-c", code]
    monkeypatch.setattr(sys, "argv", words)
    return repeat.main()


def test_each_run_has_a_log_and_a_line_of_the_summary_with_pytests_closing_line(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, PASSES, times=2, busy=1) == 0
    alone, busy, total = (logs / "summary.txt").read_text().splitlines()
    assert alone.startswith("run 1: passed after 0.0 min, alone: 7 passed, 1 xfailed in 3.21s")
    assert busy.startswith("run 2: passed after 0.0 min, busy loop beside: 7 passed")
    assert total == "2 of 2 runs passed"
    assert "7 passed" in (logs / "run-2.log").read_text()


def test_a_run_that_fails_is_named_and_the_status_is_1(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, FAILS, times=1, busy=0) == 1
    first, total = (logs / "summary.txt").read_text().splitlines()
    assert first.startswith("run 1: FAILED with status 1 after 0.0 min, alone: 1 failed, 6 passed")
    assert total == "0 of 1 runs passed"


def test_a_run_that_pytest_did_not_complete_is_reported(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "raise SystemExit(2)", times=1, busy=0) == 1
    assert "no closing line of pytest" in (logs / "summary.txt").read_text()
