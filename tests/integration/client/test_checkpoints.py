"""Checkpoints of the client library: whole or not there, and one of each step."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from reprieve_client import Checkpoint, CheckpointFolder, atomic_write


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "run")


def write(folder: CheckpointFolder, step: int, content: str) -> Path:
    return folder.write(step, lambda path: (path / "state").write_text(content))


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    assert atomic_write(target, "1") == target
    atomic_write(target, b"2")
    assert target.read_text() == "2"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic_write(tmp_path / "state.json", "1")

    def no_space(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="no space left"):
        atomic_write(tmp_path / "state.json", "2")
    assert (tmp_path / "state.json").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_the_latest_checkpoint_is_the_one_with_the_highest_step(folder: CheckpointFolder) -> None:
    assert folder.latest() is None
    write(folder, 9, "nine")
    path = write(folder, 10, "ten")
    assert folder.latest() == Checkpoint(10, path)
    assert (path / "state").read_text() == "ten"


def test_a_checkpoint_stays_beside_those_of_later_steps(folder: CheckpointFolder) -> None:
    for step in (900, 1000, 1, 2, 3):
        path = write(folder, step, "state")
    assert path.exists()
    assert [checkpoint.step for checkpoint in folder.all()] == [2, 3, 900, 1000]


def test_there_is_never_a_second_checkpoint_of_a_step(folder: CheckpointFolder) -> None:
    assert write(folder, 5, "first") == write(folder, 5, "second")
    assert (folder.path / "step-5" / "state").read_text() == "first"


def test_of_two_writers_of_one_step_the_first_wins(folder: CheckpointFolder) -> None:
    def slow(path: Path) -> None:
        (path / "state").write_text("slow")
        other = threading.Thread(target=write, args=(CheckpointFolder(folder.path), 5, "quick"))
        other.start()
        other.join()
        (path / "more").write_text("slow")

    assert folder.write(5, slow) == folder.path / "step-5"
    assert (folder.path / "step-5" / "state").read_text() == "quick"
    assert names(folder) == ["step-5"]


def test_a_folder_that_is_there_at_the_rename_stays(folder: CheckpointFolder) -> None:
    def late(path: Path) -> None:
        (path / "state").write_text("late")
        (folder.path / "step-5").mkdir()
        (folder.path / "step-5" / "state").write_text("first")

    assert folder.write(5, late) == folder.path / "step-5"
    assert (folder.path / "step-5" / "state").read_text() == "first"
    assert names(folder) == ["step-5"]


def test_a_save_that_fails_leaves_nothing(folder: CheckpointFolder) -> None:
    def fail(path: Path) -> None:
        (path / "state").write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        folder.write(5, fail)
    assert names(folder) == []


def test_old_checkpoints_and_what_killed_processes_left_are_deleted(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    for left in (".step-2.abc", ".step-99.abc", ".discarded-1-step-0"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "state").write_text("half")
    for step in (1, 2, 3):
        write(folder, step, "whole")
    assert names(folder) == [".step-99.abc", "step-2", "step-3"]


def test_a_file_system_that_forces_no_folders_to_the_disk_will_do(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    assert write(folder, 5, "whole").is_dir()
    assert atomic_write(folder.path / "state.json", "1").exists()


def test_a_link_in_a_checkpoint_is_let_be(folder: CheckpointFolder) -> None:
    path = folder.write(5, lambda path: (path / "link").symlink_to("missing"))
    assert (path / "link").is_symlink()


def test_other_files_in_the_folder_are_let_be(folder: CheckpointFolder) -> None:
    (folder.path / "step-notes").write_text("mine")
    (folder.path / "log").write_text("mine")
    write(folder, 1, "whole")
    assert names(folder) == ["log", "step-1", "step-notes"]


def test_a_folder_keeps_at_least_one_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CheckpointFolder(tmp_path, keep=0)
