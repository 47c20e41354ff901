"""What a replica remembers of those that it refused: how often they came, never whether they are owed notice.

All of it may be lost at any instant, and another replica knows another part of it: it only keeps the calls few.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

_MOST = 5000
"""Pods; the oldest go first where there are more."""
_LATELY_SECONDS = 60.0
_AT_ONCE_SECONDS = 1.0
"""Synchronous preemption comes back no sooner (`podInitialBackoffSeconds`); asynchronous, after an error, in 20 ms."""


@dataclass(slots=True)
class _Refused:
    node: str
    at: float
    was_timed: bool
    asked_since: float | None = None


class Memory:
    """The pods that were refused lately, by uid."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._refused: dict[str, _Refused] = {}

    def unheeded_seconds(self, uid: str) -> float:
        """Return for how long this pod has been seen with a mark that nobody took up."""
        known = self._refused.get(uid)
        since = known.asked_since if known else None
        return 0.0 if since is None else self._monotonic() - since

    def is_insisting(self, uid: str) -> bool:
        """True where whoever was refused without a time is here again at once: its scheduling loop does not stand still."""
        known = self._refused.get(uid)
        return known is not None and not known.was_timed and self._monotonic() - known.at < _AT_ONCE_SECONDS

    def fellows(self, node: str, uid: str) -> int:
        """Return how many victims of the node were refused lately, this one among them."""
        now = self._monotonic()
        lately = (other for other, one in self._refused.items() if one.node == node and now - one.at < _LATELY_SECONDS)
        return len({uid, *lately})

    def refused(self, uid: str, node: str, *, was_timed: bool, is_asked: bool) -> None:
        """Take note of a refusal."""
        now = self._monotonic()
        before = self._refused.pop(uid, None)
        since = (before.asked_since if before and before.asked_since is not None else now) if is_asked else None
        self._refused[uid] = _Refused(node, now, was_timed, since)
        if len(self._refused) > _MOST:
            del self._refused[next(iter(self._refused))]

    def forget(self, uid: str) -> None:
        """The pod may go."""
        self._refused.pop(uid, None)
