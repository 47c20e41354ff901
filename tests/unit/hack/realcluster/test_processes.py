"""Processes are identified by pid and start time; foreign processes are never ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from realcluster import processes
from realcluster.processes import Identity, Processes, identify

SLEEP = ("sleep", "60")
STUBBORN = (
    sys.executable,
    "-c",
    (
        "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); "
        "time.sleep(60)"
    ),
)


@pytest.fixture
def home(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def test_a_started_process_runs_until_it_is_stopped(home: Processes) -> None:
    identity = home.start("sleeper", SLEEP)
    assert home.running("sleeper") == identity
    home.stop(["sleeper"])
    assert home.running("sleeper") is None
    assert home.names() == []


def test_starting_a_running_process_changes_nothing(home: Processes) -> None:
    first = home.start("sleeper", SLEEP)
    assert home.start("sleeper", SLEEP) == first
    home.stop(["sleeper"])


def test_a_recycled_pid_is_a_foreign_process_and_is_left_alone(
    home: Processes, tmp_path: Path
) -> None:
    ours = home.start("sleeper", SLEEP)
    stranger = replace(ours, started=ours.started - 1)
    (tmp_path / "pids" / "sleeper.json").write_text(json.dumps(asdict(stranger)))
    assert home.running("sleeper") is None
    home.stop(["sleeper"])
    assert ours.is_alive()
    home.adopt("sleeper", ours.pid)
    home.stop(["sleeper"])


def test_a_pid_of_an_earlier_boot_is_a_foreign_process() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me.is_alive()
    assert not replace(me, boot="earlier").is_alive()


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None
    child.wait()


def test_a_process_that_ignores_term_is_killed(
    home: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TERM_SECONDS", 0.2)
    identity = home.start("stubborn", STUBBORN)
    while "deaf" not in home.last_lines("stubborn"):
        assert identity.is_alive()
    home.stop(["stubborn"])
    assert not identity.is_alive()


def test_an_unreadable_record_counts_as_not_running(home: Processes, tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids" / "broken.json").write_text("{")
    assert home.running("broken") is None
    assert home.names() == ["broken"]


def test_the_name_of_a_program_may_hold_parentheses_and_spaces(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 2"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "60"])
    try:
        found = identify(child.pid)
        assert isinstance(found, Identity)
        assert found.started > 1000
    finally:
        child.kill()
        child.wait()


def test_last_lines_are_the_end_of_the_log(home: Processes) -> None:
    home.log("x").parent.mkdir()
    home.log("x").write_text("".join(f"line {number}\n" for number in range(100)))
    assert home.last_lines("x", 2) == "line 98\nline 99"
    assert home.last_lines("unknown") == ""
