"""How long to wait before a watch is tried again, and when to begin it from a new list."""

import random

from .client.api_error import ApiError

_FIRST_SECONDS = 0.2
_LAST_SECONDS = 15.0
_LIST_ANEW = frozenset({400, 404, 410})
"""The version is too old, or no version of this collection: no later try will be answered otherwise."""
_TOO_LARGE = "ResourceVersionTooLarge"
"""A cause: etcd was restored, and its versions are behind the one that is watched from."""
_PATIENCE = 10
"""Refusals in a row, some two minutes: some version may be what the API server stumbles over."""


class Backoff:
    """Of one collection.

    What is merely in the API server's way (no answer, 429, 5xx) is no reason to list all anew: once it is back, every
    program would do so at once.
    """

    def __init__(self) -> None:
        self._seconds = _FIRST_SECONDS
        self._refusals = 0

    def reset(self) -> None:
        """Note that something was heard."""
        self._seconds, self._refusals = _FIRST_SECONDS, 0

    def must_list(self, error: ApiError) -> bool:
        """Note a failure; true where its watch cannot be gone on with."""
        self._refusals += error.status != 0
        causes = {reason for reason, _ in error.causes}
        return error.status in _LIST_ANEW or _TOO_LARGE in causes or self._refusals % _PATIENCE == _PATIENCE - 1

    def pause(self, at_least_seconds: float = 0.0) -> float:
        """Return how long to wait now: longer each time, and not all programs the same."""
        seconds = self._seconds * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._seconds = min(self._seconds * 2, _LAST_SECONDS)
        return max(seconds, min(at_least_seconds, _LAST_SECONDS))
