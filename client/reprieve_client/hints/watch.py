"""A thread that reads the file of a request, again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from reprieve_client.contract import MAX_REQUEST_BYTES, parse_request
from reprieve_client.exchange import Exchange

POLL_SECONDS = 0.2
"""The file is in memory: reading it costs some microseconds."""


class RequestWatch:
    """Hands each new content of a request's file to the exchange.

    Args:
        exchange: Receives the requests.
        file: The file; there need be none yet.
        tick: Called after each look at the file, in the same thread.
    """

    def __init__(
        self, exchange: Exchange, file: Path, tick: Callable[[], None] = lambda: None
    ) -> None:
        self._exchange = exchange
        self._file = file
        self._tick = tick
        self._seen = b""
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reprieve-hint", daemon=True)

    def open(self) -> None:
        """Look once, then start the thread."""
        self.look()
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Read the file now."""
        text = read(self._file)
        if text and text != self._seen:
            self._seen = text
            request = parse_request(text)
            if request is not None:
                self._exchange.ask(request)

    def _run(self) -> None:
        while not self._is_closed.wait(POLL_SECONDS):
            self.look()
            self._tick()


def read(file: Path) -> bytes:
    """Return what a file has, and one byte more than a request may have; nothing without a file."""
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_REQUEST_BYTES + 1)
    except OSError:
        return b""
