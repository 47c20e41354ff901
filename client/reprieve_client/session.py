"""A training run that can be asked to save at any time: what `checkpointing` opens.

The training loop calls `Session.step` after each step. All saves happen there, on the thread that
trains: never in a signal handler, never in a hint's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from . import contract, environment
from .agreement import Agreement, Alone, Outcome
from .checkpoints import CheckpointFolder, StrPath, existing, step_of
from .contract import Request
from .exchange import Exchange
from .hints import Hint, choose
from .hints.choice import NoHint
from .termination import UNFINISHED, TerminationHandler

Save = Callable[[int], Optional[StrPath]]
"""Saves the state after so many steps; returns the path of the checkpoint."""
Resume = Callable[[Any], Optional[int]]
"""Loads the checkpoint at a `Path`, or at a URL, which is text; returns how many steps it has, or
`None` if its path says it."""

_CURRENT_SECONDS = 60.0
"""For so long after the answer, the steps since may be lost."""
MAX_FAILED_SAVES = 3
"""A save that fails is tried again after the next step; then Reprieve is told that nothing is."""

_log = logging.getLogger(__name__)


class Session:
    """Answers Reprieve's requests for one training run. `checkpointing` makes it.

    Beside the `with` block there are two other ways to use it. A framework that has callbacks takes
    `session.step` as one, between `open` and `close`. A framework that saves by itself asks
    `should_save`, and calls `saving`, and then `complete`.
    """

    def __init__(
        self,
        save: Save | None,
        resume: Resume | None,
        *,
        folder: CheckpointFolder | None,
        every_seconds: float | None,
        hint: str | None,
        agreement: Agreement,
        handle_sigterm: bool,
    ) -> None:
        self._save = save
        self._resume = resume
        self._folder = folder
        self._every_seconds = every_seconds
        self._given_hint = hint
        self._agreement = agreement
        self._handles_sigterm = handle_sigterm
        self._exchange = Exchange()
        self._hint: Hint = NoHint()
        self._termination = TerminationHandler(self._may_exit_at_once)
        self._failed_saves = 0
        """How many saves in a row have failed for the same request, or without any."""
        self._failed_for: Request | None = None
        """That request. Without this, saves that failed before it would leave it fewer tries."""
        self._is_busy = False
        """Whether a save or its answer is under way, which SIGTERM must not interrupt."""
        self._is_last_save_over = False
        """Whether the save that SIGTERM asks for has ended, well or not."""
        self._last_step: int | None = None
        self._settled_step: int | None = None
        """The step of the last save, or of the last one that was given up."""
        self._settled_at = float("-inf")
        self._terminated_step: int | None = None
        """The first step after SIGTERM."""
        self._asked_for: Request | None = None
        """The last request that was looked at."""
        self._asked_step: int | None = None
        """How many steps were done then. Without this, an older save would answer the request."""
        self._saved_at = time.monotonic()
        self.first_step = 0
        """How many steps are done already: those of the checkpoint that the run resumes from."""
        self.resumed_from: Path | str | None = None
        """That checkpoint, as text where it is a URL; `None` at a first start."""

    def __enter__(self) -> Session:  # noqa: PYI034 - Python 3.9 has no `Self`
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> Session:
        """Resume, and begin to receive requests."""
        # A framework may train several times with one session, and may not end the last training.
        self.close()
        found = environment.read()
        self._last_step = self._settled_step = self._terminated_step = None
        self._asked_for = self._asked_step = None
        self._is_last_save_over = False
        if self._handles_sigterm:
            self._termination.install()
        try:
            if found.is_first_process:
                self._hint = choose(
                    found.hint if self._given_hint is None else self._given_hint,
                    self._exchange,
                    address=found.address,
                    annotation_file=found.annotation_file,
                    pod_name=found.pod_name,
                )
            # Before the checkpoint is loaded, which may take minutes: a request is accepted then.
            self._hint.open()
            self._load(self._checkpoint_to_resume(found.resume_path))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Receive no more requests, and put back the handler of SIGTERM from before."""
        self._hint.close()
        self._termination.remove()

    def steps(self, total: int) -> Iterator[int]:
        """Yield the number of each step that is left, and call `step` after each of them."""
        for number in range(self.first_step, total):
            yield number
            self.step(number + 1)

    def step(self, step: int, *, defer_seconds: int | None = None) -> None:
        """Save if Reprieve has asked, or if it is time; exit if SIGTERM has come.

        Args:
            step: How many steps are done; here and elsewhere, a number of a framework will do.
            defer_seconds: Do not save now, because the state is in the middle of something. Where
                Reprieve has asked, ask for so many seconds more. Give it in all processes alike.
        """
        step = int(step)
        if defer_seconds is not None:
            self._last_step = step
            self.defer(defer_seconds)
            self._agreement.defer(step)
            return
        if self.should_save(step):
            self._save_now(step)
        self.exit_if_terminated()

    def defer(self, seconds: int, message: str = "") -> None:
        """Ask for more time before the save. It counts once a request; without one, do nothing."""
        if self._exchange.state == contract.ACCEPTED:
            self._exchange.report(
                contract.DEFER, deferSeconds=int(seconds), message=contract.cut_message(message)
            )

    def should_save(self, step: int) -> bool:
        """Return whether all processes are to save now, after `step` steps.

        Where there are several, each of them must call this after the same steps.
        """
        self._last_step = int(step)
        if self._termination.is_received and self._terminated_step is None:
            self._terminated_step = self._last_step
        self._note_request()
        return self._agreement.decide(self._last_step, self._wants_save())

    def saving(self, step: int) -> None:
        """Tell Reprieve that the save has begun."""
        self._exchange.report(contract.SAVING, step=int(step))

    def progress(self, share: float, message: str = "") -> None:
        """Tell people how far a save is, from 0 to 1."""
        if self._exchange.state == contract.SAVING:
            cut = contract.cut_message(message)
            self._exchange.report(contract.SAVING, progress=float(share), message=cut)

    def saved(self, step: int, path: object = None) -> None:
        """Tell Reprieve that everything up to `step` is saved, also for saves of your own.

        A request that came during the save is answered by it where nothing was done since. If steps
        were done since, the next step saves them.
        """
        step = int(step)
        with self._uninterrupted():
            self._failed_saves = 0
            self._saved_at = time.monotonic()
            self._settled_step = step
            if self._terminated_step is not None and step >= self._terminated_step:
                self._is_last_save_over = True
            self._note_request()
            if self._asked_step is None or step >= self._asked_step:
                self._settled_at = self._saved_at
                self._exchange.report(contract.SAVED, step=step, path=contract.printable_path(path))
            self._hint.note_save()

    def complete(
        self, step: int, own: Outcome, finish: Callable[[], object] = lambda: None
    ) -> None:
        """Wait until all processes have done the save of `should_save`, and tell Reprieve.

        Args:
            step: How many steps are saved.
            own: How the save ended in this process.
            finish: Called once all have saved, before Reprieve knows: the program may be killed as
                soon as it does.
        """
        step = int(step)
        outcome = self._agreement.combine(own)
        if outcome.error is None:
            finish()
            self.saved(step, outcome.path)
        else:
            self._failed(step, outcome.error)
        self._is_last_save_over = self._termination.is_received

    def _failed(self, step: int, message: str) -> None:
        """Tell Reprieve that the save is tried again, or, after the third time, that it is not."""
        if self._failed_for is not self.request:
            self._failed_for, self._failed_saves = self.request, 0
        self._failed_saves += 1
        self._saved_at = time.monotonic()
        if self._failed_saves < MAX_FAILED_SAVES:
            cut = contract.cut_message(f"failed: {message}")
            self._exchange.report(contract.SAVING, step=step, message=cut)
        else:
            self._failed_saves = 0
            self._settled_step, self._settled_at = step, time.monotonic()
            self._exchange.report(contract.CANNOT, message=contract.cut_message(message))

    @property
    def request(self) -> Request | None:
        """The request that waits for a save; `None` without one."""
        return self._exchange.pending

    @property
    def is_terminating(self) -> bool:
        """Whether SIGTERM has come."""
        return self._termination.is_received

    @property
    def needs_last_save(self) -> bool:
        """Whether SIGTERM has come, and much was done since the last save."""
        is_last_save_due = self._termination.is_received and not self._is_last_save_over
        return is_last_save_due and self._has_unsaved_steps() and not self._has_just_answered()

    def note_termination(self) -> None:
        """Behave as after SIGTERM, where a framework handles the signal itself."""
        self._termination.is_received = True

    def exit_if_terminated(self) -> None:
        """Exit with 143 if SIGTERM has come and the last save is over.

        To a Job, 0 would mean that no work is left. Where several processes save, the step of the
        last save may still come.
        """
        if self._termination.is_received and not self.needs_last_save:
            raise SystemExit(UNFINISHED)

    def _note_request(self) -> None:
        """Keep how many steps were done when a request was first looked at."""
        pending = self._exchange.pending
        if pending is not None and pending is not self._asked_for:
            self._asked_for, self._asked_step = pending, self._last_step

    def _wants_save(self) -> bool:
        is_due = (
            self._every_seconds is not None
            and time.monotonic() - self._saved_at >= self._every_seconds
        )
        return self._exchange.pending is not None or self.needs_last_save or is_due

    def _has_unsaved_steps(self) -> bool:
        """Whether steps were done since the last save, or since the last one that was given up."""
        if self._last_step is None:
            return False
        return self._settled_step is None or self._last_step > self._settled_step

    def _has_just_answered(self) -> bool:
        """Whether Reprieve was answered a moment ago, and deletes the pod because of that.

        The pod is usually deleted a few steps after its answer. To save once more would take its
        grace period, in which a long save is killed. But an answer of long ago is not enough: its
        request may have been cancelled unnoticed.
        """
        is_recent = time.monotonic() - self._settled_at < _CURRENT_SECONDS
        return is_recent and self._exchange.state in contract.SETTLED

    def _save_now(self, step: int) -> None:
        if self._save is None:
            raise ValueError("step needs a save; a program that saves by itself asks should_save")
        with self._uninterrupted():
            self.saving(step)
            self.complete(step, try_save(self._save, step))

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        was_busy, self._is_busy = self._is_busy, True
        try:
            yield
        finally:
            self._is_busy = was_busy

    def _may_exit_at_once(self) -> bool:
        """Whether SIGTERM ends the program at once, and not after the step that is under way.

        It does so where no step was done, and where Reprieve has a current answer.
        """
        is_settled = self._exchange.state in contract.SETTLED
        is_answered = is_settled and (not self._has_unsaved_steps() or self._has_just_answered())
        return not self._is_busy and (self._last_step is None or is_answered)

    def _checkpoint_to_resume(self, handed_over: Path | str | None) -> Path | str | None:
        """Return what is newest: what Reprieve hands over, or what is in the folder.

        The folder has the newer one where a pod was killed after a save and before its answer, and
        where a container is restarted: Reprieve hands over the same path until the pod is replaced.
        """
        latest = self._folder.latest() if self._folder else None
        if latest is None or handed_over is None:
            return latest.path if latest else handed_over
        if isinstance(handed_over, str):
            return handed_over
        inside = self._path_in_folder(handed_over)
        if not inside or latest.step < (step_of(inside[0]) or 0):
            return existing(handed_over) or latest.path
        # Where `save` has returned a file in its checkpoint, `resume` expects the same file.
        same_part = latest.path.joinpath(*inside[1:])
        return same_part if same_part.exists() else latest.path

    def _path_in_folder(self, path: Path) -> tuple[str, ...]:
        """Return the names on the way from the folder to a path; none if it is not below it."""
        if self._folder is None or self._folder.path not in path.parents:
            return ()
        return path.relative_to(self._folder.path).parts

    def _step_of(self, path: Path | str) -> int | None:
        """Return the step that a path says: by its name, or by that of its checkpoint's folder."""
        inside = () if isinstance(path, str) else self._path_in_folder(path)
        return step_of(inside[0] if inside else path)

    def _load(self, path: Path | str | None) -> None:
        if path is None:
            return
        self.resumed_from = path
        if self._resume is None:
            self.first_step = self._step_of(path) or 0
            return
        step = self._resume(path)
        if step is None:
            step = self._step_of(path)
        if step is None:
            raise ValueError(f"resume must return how many steps {path} has")
        self.first_step = int(step)
        _log.info("resuming from step %d, saved in %s", step, path)


def checkpointing(
    save: Save | None = None,
    resume: Resume | None = None,
    *,
    folder: CheckpointFolder | None = None,
    every_seconds: float | None = None,
    hint: str | None = None,
    agreement: Agreement | None = None,
    handle_sigterm: bool = True,
) -> Session:
    """Return a session for a `with` block.

    Args:
        save: Saves the state after so many steps, and returns the path of the checkpoint. Called on
            the thread that calls `step`. It saves whole or not at all.
        resume: Loads a checkpoint as the session opens, and returns how many steps it has. It gets
            a `Path`, or text where `save` has returned a URL. Not called without a checkpoint.
        folder: Where `save` writes. If it has a newer checkpoint than Reprieve knows, the run
            resumes from that.
        every_seconds: Save also without a request, when the last save is so long ago.
        hint: The value of the pod's annotation `reprieve.dev/checkpoint-hint`; without it, that of
            `REPRIEVE_CHECKPOINT_HINT`, or the agent's file where the agent runs.
        agreement: How several processes decide to save after the same step.
        handle_sigterm: Exit with 143 on SIGTERM, after a save of the steps since the last one,
            unless Reprieve was answered less than a minute ago.
    """
    return Session(
        save,
        resume,
        folder=folder,
        every_seconds=every_seconds,
        hint=hint,
        agreement=agreement or Alone(),
        handle_sigterm=handle_sigterm,
    )


def try_save(save: Save, step: int) -> Outcome:
    """Save; an error is an outcome, because training goes on and the save is tried again."""
    try:
        path: StrPath | None = save(step)
    except Exception as error:  # noqa: BLE001 - whatever `save` raises
        _log.exception("saving step %d failed", step)
        return Outcome(error=f"{type(error).__name__}: {error}")
    return Outcome(path=None if path is None else str(path))
