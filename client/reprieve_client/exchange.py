"""The current request and its answer: a hint's thread writes the one, the training loop the other.

Every transport shares this state, so that a request means the same however it came. No I/O here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .contract import ACCEPTED, IDLE, SETTLED, Answer, Request

Publish = Callable[[Answer], None]


class Exchange:
    """At most one request, and how far the workload is with it. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._request: Request | None = None
        self._answer: Answer = {"state": IDLE}
        self._publishers: list[Publish] = []

    def on_answer(self, publish: Publish) -> None:
        """Call `publish` with each new answer, under a lock: it must return soon."""
        self._publishers.append(publish)

    def ask(self, request: Request) -> Answer:
        """Accept a request, or take it back; return the answer.

        The same id again is the same request, whatever its attempt: its answer stays.
        """
        with self._lock:
            if request.cancelled:
                if self._request is not None and self._request.id == request.id:
                    self._request = None
                    self._set({"state": IDLE})
            elif self._request is None or self._request.id != request.id:
                self._request = request
                self._set({"state": ACCEPTED, "id": request.id})
            return self._answer

    def restore(self, request: Request, answer: Answer) -> None:
        """Take up a request that an earlier process of this container has answered."""
        with self._lock:
            self._request, self._answer = request, answer

    @property
    def answer(self) -> Answer:
        """The current answer."""
        with self._lock:
            return self._answer

    @property
    def pending(self) -> Request | None:
        """The request that still waits for a save; `None` without one."""
        with self._lock:
            return None if self._answer["state"] in SETTLED else self._request

    @property
    def state(self) -> str:
        """The state of the current answer.

        Without the lock: a handler of signals reads it, and may have interrupted its holder.
        """
        return str(self._answer["state"])

    def report(self, state: str, **fields: object) -> None:
        """Answer the current request; without one, do nothing.

        Fields with `None` are left out.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        with self._lock:
            if self._request is not None:
                self._set({"state": state, "id": self._request.id, **given})

    def _set(self, answer: Answer) -> None:
        self._answer = answer
        for publish in self._publishers:
            publish(answer)
