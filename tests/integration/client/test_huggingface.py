"""The callback for the Hugging Face Trainer: where a run resumes.

A stand-in takes the place of `transformers`. `test_frameworks.py` has the real one.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

HANDED_OVER = "REPRIEVE_RESUME_FROM_CHECKPOINT"


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv(HANDED_OVER, raising=False)
    transformers = ModuleType("transformers")
    monkeypatch.setattr(transformers, "TrainerCallback", object, raising=False)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    name = "reprieve_client.frameworks.huggingface"
    yield importlib.import_module(name).ReprieveCallback(hint="sigterm:")
    del sys.modules[name]


def save(folder: Path, step: int, *files: str) -> Path:
    """Write a checkpoint as the Trainer does, or as much of it."""
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    for name in ("model.safetensors", *files):
        (path / name).touch()
    return path


def test_the_newest_checkpoint_that_is_marked_is_resumed(callback: Any, tmp_path: Path) -> None:
    assert callback.resume_from(str(tmp_path)) is None
    save(tmp_path, 900, "trainer_state.json", "reprieve-complete")
    newest = save(tmp_path, 1000, "trainer_state.json", "reprieve-complete")
    save(tmp_path, 1100, "trainer_state.json")
    assert callback.resume_from(str(tmp_path)) == str(newest)


def test_checkpoints_from_before_the_callback_are_an_error_that_says_how_to_resume(
    callback: Any, tmp_path: Path
) -> None:
    save(tmp_path, 900, "trainer_state.json")
    newest = save(tmp_path, 1000, "trainer_state.json")
    mark = newest / "reprieve-complete"
    with pytest.raises(ValueError, match=f"To resume from the newest: touch {mark}. To start anew"):
        callback.resume_from(str(tmp_path))
    mark.touch()
    assert callback.resume_from(str(tmp_path)) == str(newest)


@pytest.mark.parametrize("is_first_rank", [True, False])
def test_a_first_save_that_was_killed_does_not_keep_the_run_from_its_start(
    callback: Any, tmp_path: Path, *, is_first_rank: bool
) -> None:
    folder = tmp_path / "output"
    rank = SimpleNamespace(is_world_process_zero=is_first_rank)
    callback.on_train_begin(SimpleNamespace(output_dir=str(folder)), rank, None)
    callback.on_train_end()
    assert folder.exists() is is_first_rank
    if is_first_rank:
        save(folder, 900)
        save(folder, 1000, "trainer_state.json")
    assert callback.resume_from(str(folder)) is None


def test_a_checkpoint_that_is_handed_over_needs_no_mark(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 900, "trainer_state.json")
    monkeypatch.setenv(HANDED_OVER, str(path))
    assert callback.resume_from(str(tmp_path)) == str(path)
