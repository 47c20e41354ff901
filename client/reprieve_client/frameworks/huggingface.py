"""The Hugging Face Trainer saves when Reprieve asks, and resumes where the last pod stopped.

Give the callback to the Trainer, and begin where it says:

    callback = ReprieveCallback()
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from(arguments.output_dir))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from reprieve_client import environment
from reprieve_client.agreement import Agreement, Outcome
from reprieve_client.checkpoints import atomic_write
from reprieve_client.session import checkpointing

_COMPLETE = "reprieve-complete"
"""A file in each checkpoint that is whole: the Trainer does not write under another name."""
_STATE = "trainer_state.json"
"""What the Trainer writes after the model and the optimizer."""


class ReprieveCallback(TrainerCallback):  # type: ignore[misc]
    """Asks the Trainer to save between two steps, and tells Reprieve when it has saved.

    Args:
        agreement: How several processes decide; for `torchrun`, `frameworks.pytorch.all_ranks()`.
        hint: As for `checkpointing`.
    """

    def __init__(self, *, agreement: Agreement | None = None, hint: str | None = None) -> None:
        self._session = checkpointing(hint=hint, agreement=agreement)
        self._is_asked = False

    def resume_from(self, output_folder: str) -> str | None:
        """Return the newest whole checkpoint; `None` without one.

        With an empty folder, it is the one that Reprieve hands over. If that is gone, the Trainer
        ends with an error: to start anew would lose all work unnoticed. Where checkpoints may be
        whole, but none is marked, it raises `ValueError` for the same reason: they are from before
        this callback, or the Trainer was killed before the mark.
        """
        marked = _checkpoints_with(output_folder, _STATE, _COMPLETE)
        newest = marked[-1] if marked else environment.read().resume_path
        unmarked = _checkpoints_with(output_folder, _STATE)
        if newest is None and unmarked:
            names = ", ".join(path.name for path in unmarked)
            raise ValueError(
                f"no checkpoint in {output_folder} has the file {_COMPLETE}, which this callback "
                f"adds to each that is whole; there are {names}. To resume from the newest: touch "
                f"{unmarked[-1] / _COMPLETE}. To start anew, use an empty folder"
            )
        return None if newest is None else str(newest)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Begin to receive requests; `ValueError` where no whole checkpoint stays during a save."""
        # The Trainer deletes old checkpoints before `on_save` marks the new one. It keeps the best
        # one, which may be old, within the same limit.
        least = 3 if args.load_best_model_at_end else 2
        if args.save_total_limit is not None and 0 < args.save_total_limit < least:
            raise ValueError(
                f"save_total_limit={args.save_total_limit} must be at least {least}: the Trainer "
                "deletes the checkpoint before, and may be killed before the new one is marked"
            )
        self._session.open()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Have the Trainer save if Reprieve has asked."""
        self._is_asked = self._session.should_save(state.global_step)
        if self._is_asked:
            self._session.saving(state.global_step)
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Mark the checkpoint as whole, and tell Reprieve."""
        step = state.global_step
        path = Path(args.output_dir, f"checkpoint-{step}")

        def mark() -> None:
            if state.is_world_process_zero and path.is_dir():
                atomic_write(path / _COMPLETE, "")

        if self._is_asked:
            self._is_asked = False
            self._session.complete(step, Outcome(str(path)), mark)
        else:
            mark()
            self._session.saved(step, path)
        self._session.exit_if_terminated()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Receive no more requests."""
        self._session.close()


def _checkpoints_with(folder: str, *files: str) -> list[Path]:
    """Return the checkpoints that have all these files, by step."""
    found = Path(folder).glob("checkpoint-[0-9]*")
    whole = [path for path in found if all((path / file).exists() for file in files)]
    return sorted(whole, key=_step)


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1
