"""Which replacements are due: those of victims just gone, and refused ones after a delay."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from reprieve_operator.clock import Clock
from reprieve_runtime.backoff import Backoff
from reprieve_runtime.waiting import wait_at_most

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 2.0, 300.0


def _new_backoff() -> Backoff:
    return Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, jitter=0.0)


@dataclass(slots=True)
class _Retry:
    """When a replacement that was refused is tried again."""

    retry_at: float = 0.0
    backoff: Backoff = field(default_factory=_new_backoff)


class ReplacementQueue:
    """Replacements by the uid of their victim."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queued: set[str] = set()
        self._retries: dict[str, _Retry] = {}
        self._changed = asyncio.Event()

    def add(self, uid: str) -> None:
        """Queue a replacement, and end the wait for one."""
        self._queued.add(uid)
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait until a replacement is queued, or for so many seconds."""
        await wait_at_most(self._changed, seconds)
        self._changed.clear()

    def take_all(self) -> Iterator[str]:
        """Take what is queued, also what is added meanwhile."""
        while self._queued:
            yield self._queued.pop()

    def is_due(self, uid: str) -> bool:
        """True unless the replacement was refused and waits for its next try."""
        retry = self._retries.get(uid)
        return retry is None or self._clock.monotonic() >= retry.retry_at

    def retry_in_seconds(self, uid: str) -> float | None:
        """Return when a refused replacement is tried again; `None`: it was not refused."""
        retry = self._retries.get(uid)
        return None if retry is None else max(0.0, retry.retry_at - self._clock.monotonic())

    def back_off(self, uid: str) -> bool:
        """Have a refused replacement wait; return whether it was refused for the first time."""
        is_first = uid not in self._retries
        retry = self._retries.setdefault(uid, _Retry())
        retry.retry_at = self._clock.monotonic() + retry.backoff.next_delay()
        return is_first

    def forget_refusals(self, uid: str) -> None:
        """Forget that a replacement was refused: it is done."""
        self._retries.pop(uid, None)
