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


def begin(callback: Any, limit: int | None = None, *, is_best_kept: bool = False) -> None:
    settings = SimpleNamespace(save_total_limit=limit, load_best_model_at_end=is_best_kept)
    callback.on_train_begin(settings, None, None)
    callback.on_train_end()


def test_a_first_save_that_was_killed_does_not_keep_the_run_from_its_start(
    callback: Any, tmp_path: Path
) -> None:
    save(tmp_path, 900)
    assert callback.resume_from(str(tmp_path)) is None


def test_a_checkpoint_that_the_trainer_was_deleting_is_not_resumed(
    callback: Any, tmp_path: Path
) -> None:
    """Of two checkpoints, the deletion had begun to delete the older one: here, one with a mark."""
    save(tmp_path, 800, "reprieve-complete")
    newest = save(tmp_path, 900, "trainer_state.json")
    with pytest.raises(ValueError, match=f"there are {newest.name}. To resume .* {newest}"):
        callback.resume_from(str(tmp_path))
    (newest / "reprieve-complete").touch()
    save(tmp_path, 1000, "reprieve-complete")
    assert callback.resume_from(str(tmp_path)) == str(newest)


@pytest.mark.parametrize(("limit", "is_best_kept"), [(1, False), (1, True), (2, True)])
def test_a_limit_that_leaves_no_whole_checkpoint_during_a_save_is_an_error(
    callback: Any, limit: int, *, is_best_kept: bool
) -> None:
    with pytest.raises(ValueError, match=f"save_total_limit={limit} must be at least"):
        begin(callback, limit, is_best_kept=is_best_kept)


@pytest.mark.parametrize(
    ("limit", "is_best_kept"), [(None, False), (None, True), (0, False), (2, False), (3, True)]
)
def test_a_limit_that_leaves_a_whole_checkpoint_is_taken(
    callback: Any, limit: int | None, *, is_best_kept: bool
) -> None:
    begin(callback, limit, is_best_kept=is_best_kept)


def test_a_url_is_handed_over_as_it_was_acknowledged(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HANDED_OVER, "s3://bucket/run-1/checkpoint-7")
    assert callback.resume_from(str(tmp_path)) == "s3://bucket/run-1/checkpoint-7"


def test_a_checkpoint_that_is_handed_over_needs_no_mark(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 900, "trainer_state.json")
    monkeypatch.setenv(HANDED_OVER, str(path))
    assert callback.resume_from(str(tmp_path)) == str(path)
