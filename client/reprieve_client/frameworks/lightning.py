"""Lightning saves when Reprieve asks, and resumes where the last pod stopped.

Give the callback to the Trainer, and begin where it says:

    callback = ReprieveCallback("/checkpoints/run-1")
    trainer = Trainer(callbacks=[callback])
    trainer.fit(model, data, ckpt_path=callback.resume_from())
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprieve_client import environment
from reprieve_client.agreement import Agreement, Outcome
from reprieve_client.checkpoints import StrPath, existing
from reprieve_client.session import checkpointing
from reprieve_client.termination import UNFINISHED

if TYPE_CHECKING or importlib.util.find_spec("lightning") is None:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class ReprieveCallback(Callback):  # type: ignore[misc]
    """Saves after an optimizer step, under another name first, and tells Reprieve.

    Lightning ends on SIGTERM with exit status 0, which a Job takes for finished. With this
    callback, it saves first and ends with 143. Where gradients are accumulated over several
    batches, those since the last optimizer step are lost.

    Where SIGTERM comes during validation, or in a batch that ends no optimizer step, only a single
    process saves. Of several ranks, Lightning may end one and not the others, which the save would
    wait for in vain. Ask them by a hint other than `sigterm:`.

    Args:
        folder: Where checkpoints are saved, as `step-N.ckpt`.
        agreement: How several processes decide; for several GPUs, a function that is called once
            they are connected, such as `frameworks.pytorch.all_ranks`.
        hint: As for `checkpointing`.
    """

    def __init__(self, folder: StrPath, *, agreement: Any = None, hint: str | None = None) -> None:
        self._folder = Path(folder)
        self._make_agreement = agreement
        self._hint = hint
        self._session = checkpointing(hint=hint, handle_sigterm=False)
        self._last_step = 0

    def resume_from(self) -> str | None:
        """Return the newest checkpoint; `None` without one."""
        newest = max(self._folder.glob("step-*.ckpt"), key=_step, default=None)
        newest = newest or existing(environment.read().resume_path)
        return None if newest is None else str(newest)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin to receive requests."""
        agreement: Agreement | None = self._make_agreement and self._make_agreement()
        self._session = checkpointing(hint=self._hint, agreement=agreement, handle_sigterm=False)
        self._session.open()
        self._last_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Save if Reprieve has asked, where the batch ended an optimizer step."""
        step = trainer.global_step
        if trainer.received_sigterm:
            self._session.note_termination()
        if step == self._last_step:
            return
        self._last_step = step
        if self._session.should_save(step):
            self._save(trainer)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Give the end by SIGTERM its exit status, and save where no batch's end has done so."""
        try:
            if isinstance(exception, SystemExit) and exception.code is None:
                exception.code = UNFINISHED
            if isinstance(exception, SystemExit) and trainer.received_sigterm:
                self._session.note_termination()
                # Other ranks may not be here, and saving waits for all of them.
                if trainer.world_size == 1 and self._session.needs_last_save:
                    self._save(trainer)
        finally:
            self._session.close()

    def on_train_end(self, *_: Any) -> None:
        """Receive no more requests."""
        self._session.close()

    def _save(self, trainer: Any) -> None:
        step = trainer.global_step
        self._session.saving(step)
        path = self._folder / f"step-{step}.ckpt"
        unfinished = path.with_name(f".{path.name}.new")
        trainer.save_checkpoint(unfinished)

        def rename() -> None:
            if trainer.is_global_zero:
                unfinished.replace(path)
                for left in self._folder.glob(".step-*.ckpt.new"):
                    _discard(left)

        self._session.complete(step, Outcome(str(path)), rename)


def _discard(unfinished: Path) -> None:
    """Remove what a save left that was killed: a file, or a folder of a strategy in shards."""
    if unfinished.is_dir():
        shutil.rmtree(unfinished, ignore_errors=True)
    else:
        unfinished.unlink()


def _step(checkpoint: Path) -> int:
    number = checkpoint.stem.rpartition("-")[2]
    return int(number) if number.isdigit() else -1
