"""The callback for Lightning: SIGTERM loses no optimizer step, wherever it comes.

A stand-in for the Trainer calls the callback in Lightning's order. `test_frameworks.py` has the
real one.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reprieve_client.agreement import Alone
from reprieve_testing.ranks import Group

SECONDS = 30.0
ACCUMULATED_BATCHES = 4
UNFINISHED = 143


class SigtermException(SystemExit):
    """As Lightning's: without an exit status."""


class Trainer:
    """Takes a step every four batches, and ends on SIGTERM after the batch that is under way."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.global_step = 0
        self.received_sigterm = False
        self.is_global_zero = rank == 0
        self.world_size = world_size
        self.saves: list[int] = []
        self.exit_status: object = None
        self.errors: list[Exception] = []
        """Of the next saves."""

    def save_checkpoint(self, path: Path) -> None:
        if self.errors:
            raise self.errors.pop()
        self.saves.append(self.global_step)
        path.parent.mkdir(exist_ok=True)
        path.touch()

    def fit(self, callback: Any, batches: int, **sigterm: int) -> None:
        """Train; SIGTERM comes in the batch `during`, or in the validation `after` a batch."""
        callback.on_train_start(self)
        try:
            for batch in range(1, batches + 1):
                self.received_sigterm |= batch == sigterm.get("during")
                self.global_step += batch % ACCUMULATED_BATCHES == 0
                callback.on_train_batch_end(self)
                self.received_sigterm |= batch == sigterm.get("after")
                if self.received_sigterm:
                    raise SigtermException
        except SystemExit as ended:
            callback.on_exception(self, None, ended)
            self.exit_status = ended.code
        else:
            callback.on_train_end(self)


@pytest.fixture
def make_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    lightning = ModuleType("pytorch_lightning")
    monkeypatch.setattr(lightning, "Callback", object, raising=False)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", lightning)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    name = "reprieve_client.frameworks.lightning"
    module = importlib.import_module(name)
    yield lambda **options: module.ReprieveCallback(tmp_path / "run", hint="sigterm:", **options)
    del sys.modules[name]


@pytest.mark.parametrize(
    ("sigterm", "saved"),
    [
        pytest.param({"during": 8}, 2, id="in a batch that ends an optimizer step"),
        pytest.param({"during": 10}, 2, id="in a batch that ends none"),
        pytest.param({"after": 8}, 2, id="in validation after an optimizer step"),
        pytest.param({"after": 10}, 2, id="in validation between two steps"),
    ],
)
def test_sigterm_saves_the_steps_that_are_done(
    tmp_path: Path, make_callback: Callable[..., Any], sigterm: dict[str, int], saved: int
) -> None:
    trainer, callback = Trainer(), make_callback()
    trainer.fit(callback, 20, **sigterm)
    assert trainer.saves == [saved]
    assert [path.name for path in (tmp_path / "run").iterdir()] == [f"step-{saved}.ckpt"]
    assert callback.resume_from() == str(tmp_path / "run" / f"step-{saved}.ckpt")
    assert trainer.exit_status == UNFINISHED


def test_a_checkpoint_that_is_handed_over_and_gone_is_for_the_trainer_to_judge(
    tmp_path: Path, make_callback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "elsewhere" / "step-2.ckpt"
    assert make_callback().resume_from() is None
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", str(path))
    assert make_callback().resume_from() == str(path)
    monkeypatch.setenv("REPRIEVE_RESUME_FROM_CHECKPOINT", "s3://bucket/run/step-2.ckpt")
    assert make_callback().resume_from() == "s3://bucket/run/step-2.ckpt"
    newer = tmp_path / "run" / "step-10.ckpt"
    newer.parent.mkdir()
    for one in (newer, newer.with_name("step-9.ckpt"), newer.with_name(".step-11.ckpt.new")):
        one.touch()
    assert make_callback().resume_from() == str(newer)


def test_what_killed_saves_left_is_removed_and_what_others_still_write_is_not(
    tmp_path: Path, make_callback: Callable[..., Any]
) -> None:
    (tmp_path / "run").mkdir()
    for number in (1, 9):
        (tmp_path / "run" / f".step-{number}.ckpt.new").touch()
    Trainer().fit(make_callback(), 20, during=8)
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == [".step-9.ckpt.new", "step-2.ckpt"]


def test_sigterm_before_the_first_optimizer_step_saves_nothing(
    make_callback: Callable[..., Any],
) -> None:
    trainer = Trainer()
    trainer.fit(make_callback(), 20, during=3)
    assert (trainer.saves, trainer.exit_status) == ([], UNFINISHED)


def test_an_end_that_is_not_by_sigterm_saves_nothing(make_callback: Callable[..., Any]) -> None:
    trainer, callback = Trainer(), make_callback()
    callback.on_train_start(trainer)
    trainer.global_step = 1
    callback.on_train_batch_end(trainer)
    callback.on_exception(trainer, None, ValueError())
    assert trainer.saves == []


def test_without_a_request_it_saves_when_it_is_time_and_keeps_the_last_two(
    tmp_path: Path, make_callback: Callable[..., Any]
) -> None:
    trainer, callback = Trainer(), make_callback(every_seconds=0)
    trainer.fit(callback, 5 * ACCUMULATED_BATCHES)
    assert trainer.saves == [1, 2, 3, 4, 5]
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["step-4.ckpt", "step-5.ckpt"]


def test_a_save_that_fails_is_tried_again_after_the_next_step(
    make_callback: Callable[..., Any],
) -> None:
    trainer, callback = Trainer(), make_callback(every_seconds=0)
    trainer.errors = [OSError("no space left")]
    trainer.fit(callback, 2 * ACCUMULATED_BATCHES)
    assert trainer.saves == [2]


def test_a_save_stays_beside_checkpoints_of_later_steps(
    make_callback: Callable[..., Any], tmp_path: Path
) -> None:
    """As where a second training begins anew with the same callback."""
    folder = tmp_path / "run"
    folder.mkdir()
    for step in (900, 1000):
        (folder / f"step-{step}.ckpt").touch()
    Trainer().fit(make_callback(every_seconds=0), 3 * ACCUMULATED_BATCHES)
    names = {path.name for path in folder.iterdir()}
    assert names == {f"step-{step}.ckpt" for step in (2, 3, 900, 1000)}


def test_an_old_checkpoint_that_cannot_be_deleted_ends_no_training(
    make_callback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    trainer = Trainer()
    trainer.fit(make_callback(every_seconds=0), 4 * ACCUMULATED_BATCHES)
    assert trainer.saves == [1, 2, 3, 4]


def test_several_ranks_without_an_agreement_do_not_begin(
    make_callback: Callable[..., Any],
) -> None:
    with pytest.raises(ValueError, match="several ranks need an agreement"):
        Trainer(world_size=2).fit(make_callback(every_seconds=0), ACCUMULATED_BATCHES)


def test_one_of_several_ranks_that_cannot_save_ends(make_callback: Callable[..., Any]) -> None:
    trainer, callback = Trainer(world_size=2), make_callback(every_seconds=0, agreement=Alone)
    trainer.errors = [OSError("no space left")]
    with pytest.raises(OSError, match="no space left"):
        trainer.fit(callback, ACCUMULATED_BATCHES)


def test_training_that_did_not_end_can_begin_again(make_callback: Callable[..., Any]) -> None:
    callback = make_callback()
    callback.on_train_start(Trainer())
    first = callback._session
    closed: list[bool] = []
    first.close = lambda: closed.append(True)
    callback.on_train_start(Trainer())
    assert closed == [True]


def ranks_with_sigterm_at_one(
    make_callback: Callable[..., Any], batches: int, **sigterm: int
) -> list[Trainer]:
    """Train with two ranks, of which SIGTERM reaches one; they agree after each step."""
    group = Group(2)
    trainers = [Trainer(rank, world_size=2) for rank in (0, 1)]

    def run(rank: int) -> None:
        callback = make_callback(agreement=lambda: group.agreement(rank))
        trainers[rank].fit(callback, batches, **(sigterm if rank else {}))

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(run, rank) for rank in (0, 1)]:
            future.result(SECONDS)
    return trainers


def test_all_ranks_save_after_the_step_in_which_sigterm_reaches_one(
    make_callback: Callable[..., Any],
) -> None:
    trainers = ranks_with_sigterm_at_one(make_callback, 8, during=8)
    assert [trainer.saves for trainer in trainers] == [[2], [2]]
    assert [trainer.exit_status for trainer in trainers] == [None, UNFINISHED]


@pytest.mark.parametrize("sigterm", [{"during": 10}, {"after": 8}])
def test_a_rank_that_ends_between_two_steps_waits_for_no_other(
    make_callback: Callable[..., Any], sigterm: dict[str, int]
) -> None:
    trainers = ranks_with_sigterm_at_one(make_callback, max(sigterm.values()), **sigterm)
    assert [trainer.saves for trainer in trainers] == [[], []]
    assert [trainer.exit_status for trainer in trainers] == [None, UNFINISHED]
