"""Orbax: its CheckpointManager saves when Reprieve asks, as it does before a preemption.

Use this manager in place of its own:

    with reprieve.checkpointing() as session:
        manager = PreemptibleCheckpointManager(session, directory, options=options)
        for step in range((manager.latest_step() or 0) + 1, 1000):
            state = train(state)
            manager.save(step, args=orbax.checkpoint.args.StandardSave(state))
"""

from __future__ import annotations

from typing import Any

import orbax.checkpoint as ocp

from reprieve_client.agreement import Outcome
from reprieve_client.session import Session


class PreemptibleCheckpointManager(ocp.CheckpointManager):  # type: ignore[misc]
    """A CheckpointManager whose `reached_preemption` is also true where Reprieve has asked.

    Call `save` after each step. It waits for the end of a save that Reprieve asked for; training
    goes on after it. On SIGTERM, it exits with 143 after the save.
    """

    def __init__(self, session: Session, *args: Any, **kwargs: Any) -> None:
        self._session = session
        self._asked_at: int | None = None
        self._is_asked = False
        super().__init__(*args, **kwargs)

    def reached_preemption(self, step: int) -> bool:
        """Return whether this step is to be saved before a preemption.

        The manager asks several times, and for earlier steps in a thread of its own.
        """
        if self._asked_at is None or step > self._asked_at:
            self._asked_at, self._is_asked = step, self._session.should_save(step)
        is_asked = step == self._asked_at and self._is_asked
        return is_asked or bool(super().reached_preemption(step))

    def save(self, step: int, *args: Any, **kwargs: Any) -> bool:
        """Save if it is time, or if Reprieve has asked."""
        is_saved = bool(super().save(step, *args, **kwargs))
        if step == self._asked_at and self._is_asked:
            self._session.saving(step)
            self.wait_until_finished()
            path = str(self.directory / str(step)) if is_saved else None
            error = None if is_saved else "the CheckpointManager did not save"
            self._session.complete(step, Outcome(path, error))
            self._is_asked = False
        self._session.exit_if_terminated()
        return is_saved
