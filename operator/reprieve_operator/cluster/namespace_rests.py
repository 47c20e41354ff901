"""Namespaces whose calls take long, for a controller that tries objects one after another.

Without this, a webhook that does not answer, or answers late, and covers the objects of one
Namespace, would hold up those of all others: ten seconds for each object.
"""

import contextlib
from collections.abc import Iterator

from reprieve_operator.clock import Clock
from reprieve_runtime.client.api import ApiError

from .retries import is_overload

SLOW_SECONDS = 1.0
"""A Namespace rests after a call that takes longer, whatever the answer: a webhook that denies
after nine seconds holds up a controller as long as one that does not answer."""
_REST, _MAX_REST_SECONDS = 5, 60.0
"""A Namespace rests so many times as long as its call waited for an answer that did not come."""


def rest_seconds(waited: float) -> float:
    """Return how long a Namespace rests after a call that waited so many seconds."""
    return min(_REST * waited, _MAX_REST_SECONDS)


class NamespaceRests:
    """Which objects wait: all of a Namespace that rests, and then those that had it rest.

    The latter wait until the others of their Namespace were tried. Without this, an object that
    never gets an answer would keep these from being tried.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._unanswered: dict[str, set[str]] = {}
        """The uids of the objects that had it rest, by Namespace."""
        self._skipped: set[str] = set()
        """Namespaces of which an object was not tried in this round, because they rested."""

    def is_due(self, namespace: str, uid: str) -> bool:
        """True if the object may be tried now."""
        if uid in self._unanswered.get(namespace, ()):
            return False
        if self._until.get(namespace, 0.0) > self._clock.monotonic():
            self._skipped.add(namespace)
            return False
        return True

    @contextlib.contextmanager
    def noting(self, namespace: str, uid: str) -> Iterator[None]:
        """Have a Namespace rest if a call of the block about this object gets no answer."""
        called_at = self._clock.monotonic()
        try:
            yield
        except ApiError as error:
            if error.is_unanswered:
                self.begin(namespace, uid, called_at)
            raise

    @contextlib.contextmanager
    def noting_slow(self, namespace: str, uid: str) -> Iterator[None]:
        """Have a Namespace rest if a call of the block is slow, or refused as an overload.

        A call that is refused at once counts as a slow one.
        """
        called_at = self._clock.monotonic()
        is_refused = False
        try:
            yield
        except ApiError as error:
            is_refused = is_overload(error) or error.is_unanswered
            raise
        finally:
            latest = self._clock.monotonic() - SLOW_SECONDS
            if is_refused or called_at < latest:
                self.begin(namespace, uid, min(called_at, latest))

    def begin(self, namespace: str, uid: str, called_at: float) -> None:
        """Have a Namespace rest because of a call about this object, which began at that time."""
        now = self._clock.monotonic()
        self._until[namespace] = now + rest_seconds(now - called_at)
        self._unanswered.setdefault(namespace, set()).add(uid)

    def end_round(self) -> None:
        """Note that all objects were tried that were due."""
        for namespace in self._unanswered.keys() - self._skipped:
            del self._unanswered[namespace]
        self._skipped.clear()
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
