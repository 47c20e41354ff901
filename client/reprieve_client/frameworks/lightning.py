"""Lightning saves when Reprieve asks, and resumes where the last pod stopped.

Give the callback to the Trainer, and begin where it says:

    callback = ReprieveCallback("/checkpoints/run-1", every_seconds=1800)
    trainer = Trainer(callbacks=[callback])
    trainer.fit(model, data, ckpt_path=callback.resume_from())
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprieve_client import environment
from reprieve_client.agreement import Agreement, Outcome
from reprieve_client.checkpoints import StrPath, find
from reprieve_client.session import Session, checkpointing, try_save
from reprieve_client.termination import UNFINISHED

if TYPE_CHECKING or importlib.util.find_spec("lightning") is None:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

_COMPLETE = re.compile(r"step-(\d+)\.ckpt")
_UNFINISHED = re.compile(r"\.step-(\d+)\.ckpt\.new")
_KEPT = 2
"""How many checkpoints stay, as with a `CheckpointFolder`."""


class ReprieveCallback(Callback):  # type: ignore[misc]
    """Saves after an optimizer step, under another name first, and tells Reprieve.

    Lightning ends on SIGTERM with exit status 0, which a Job takes for finished. With this
    callback, it saves first and ends with 143. Where gradients are accumulated over several
    batches, those since the last optimizer step are lost.

    Where SIGTERM comes during validation, or in a batch that ends no optimizer step, only a single
    process saves. Of several ranks, Lightning may end one and not the others, which the save would
    wait for in vain. Ask them by a hint other than `sigterm:`.

    Args:
        folder: Where checkpoints are saved, as `step-N.ckpt`; the last two stay. A folder of its
            own: `resume_from` looks only here, and not at what a `ModelCheckpoint` saves.
        every_seconds: Save also without a request, when the last save is so long ago. Without it, a
            program that crashes begins where it was last asked to save.
        agreement: How several processes decide; for several GPUs, a function that is called once
            they are connected, such as `frameworks.pytorch.all_ranks`.
        hint: As for `checkpointing`.
    """

    def __init__(
        self,
        folder: StrPath,
        *,
        every_seconds: float | None = None,
        agreement: Any = None,
        hint: str | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._every_seconds = every_seconds
        self._make_agreement = agreement
        self._hint = hint
        self._session = self._new_session(None)
        self._last_step = 0

    def resume_from(self) -> str | None:
        """Return the newest checkpoint; `None` without one.

        With an empty folder, it is the one that Reprieve hands over. If that is gone, the Trainer
        ends with an error: to start anew would lose all work unnoticed.
        """
        checkpoints = find(self._folder, _COMPLETE) if self._folder.exists() else []
        newest = checkpoints[-1].path if checkpoints else environment.read().resume_path
        return None if newest is None else str(newest)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin to receive requests; raises `ValueError` for several ranks without an agreement."""
        if trainer.world_size > 1 and self._make_agreement is None:
            raise ValueError(
                "several ranks need an agreement, or one would save while others go on: "
                "ReprieveCallback(..., agreement=reprieve_client.frameworks.pytorch.all_ranks)"
            )
        agreement: Agreement | None = self._make_agreement and self._make_agreement()
        self._session.close()
        self._session = self._new_session(agreement)
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

        def save(_: int) -> Path:
            trainer.save_checkpoint(unfinished)
            return path

        def rename() -> None:
            if trainer.is_global_zero:
                unfinished.replace(path)
                self._clean(step)

        # Of several ranks, the others would wait in Lightning's save for the one that has failed.
        own = try_save(save, step) if trainer.world_size == 1 else Outcome(str(save(step)))
        self._session.complete(step, own, rename)

    def _clean(self, step: int) -> None:
        """Delete what is older than the last checkpoints up to `step`, as far as possible."""
        with suppress(OSError):
            complete = [old for old in find(self._folder, _COMPLETE) if old.step <= step]
            unfinished = [left for left in find(self._folder, _UNFINISHED) if left.step < step]
            for old in (*complete[:-_KEPT], *unfinished):
                _discard(old.path)

    def _new_session(self, agreement: Agreement | None) -> Session:
        return checkpointing(
            every_seconds=self._every_seconds,
            hint=self._hint,
            agreement=agreement,
            handle_sigterm=False,
        )


def _discard(checkpoint: Path) -> None:
    """Remove a checkpoint, whole or half: a file, or a folder of a strategy in shards."""
    if checkpoint.is_dir():
        shutil.rmtree(checkpoint, ignore_errors=True)
    else:
        checkpoint.unlink(missing_ok=True)
