"""Requests in the agent's file, with or without a signal; answers go beside it."""

from __future__ import annotations

import json
import logging
import signal
import threading
from pathlib import Path
from typing import Any

from reprieve_client.contract import IDLE, SETTLED, Answer, parse_request, render_answer
from reprieve_client.exchange import Exchange

from .watch import RequestWatch, read

_log = logging.getLogger(__name__)


class FileHint:
    """Reads `REQUEST`, writes `REQUEST.answer`, and touches `REQUEST.saved` after each save."""

    def __init__(self, exchange: Exchange, request: Path) -> None:
        self._exchange = exchange
        self._request = request
        self._answer = request.with_name(request.name + ".answer")
        self._watch = RequestWatch(exchange, request)

    def open(self) -> None:
        """Take up what an earlier process of this container has answered, and watch the file."""
        self._restore()
        self._exchange.on_answer(self._write)
        self._watch.open()

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def note_save(self) -> None:
        """Tell the agent, which reports `reprieve.dev/last-checkpoint-at`."""
        try:
            self._request.with_name(self._request.name + ".saved").touch()
        except OSError as error:
            _log.warning("could not tell the agent of a save: %s", error)

    def _restore(self) -> None:
        """Without this, a restarted container would save anew for a request it has answered."""
        request = parse_request(read(self._request))
        try:
            answer = json.loads(read(self._answer))
        except (ValueError, RecursionError):
            return
        if (
            request is not None
            and not request.cancelled
            and isinstance(answer, dict)
            and answer.get("id") == request.id
            and answer.get("state") in SETTLED
        ):
            self._exchange.restore(request, answer)

    def _write(self, answer: Answer) -> None:
        if answer["state"] == IDLE:
            return
        unfinished = self._answer.with_name(f".{self._answer.name}.new")
        try:
            unfinished.write_text(render_answer(answer) + "\n")
            # Independent of the umask: the agent may run as another user.
            unfinished.chmod(0o644)
            unfinished.replace(self._answer)
        except OSError as error:
            _log.warning("could not write the answer to %s: %s", self._answer, error)


class SignalHint(FileHint):
    """The same file, for a hint that also sends a signal.

    The file says it all, so the handler does nothing. It must be there: the agent sends the signal
    to no program that does not handle it, and reports the request as not delivered.
    """

    def __init__(self, exchange: Exchange, request: Path, number: signal.Signals) -> None:
        super().__init__(exchange, request)
        self._number = number
        self._earlier: Any = None
        self._is_handled = False

    def open(self) -> None:
        """Handle the signal, and watch the file. Python allows handlers in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("hint: a signal: must be used in the main thread")
        self._earlier = signal.signal(self._number, lambda *_: None)
        self._is_handled = True
        super().open()

    def close(self) -> None:
        """Stop watching, and put back the handler from before."""
        super().close()
        if self._is_handled:
            signal.signal(self._number, self._earlier or signal.SIG_DFL)
            self._is_handled = False
