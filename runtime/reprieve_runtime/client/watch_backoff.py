"""When a failed watch is opened again, and when its collection is listed again first."""

from http import HTTPStatus

from reprieve_runtime.backoff import Backoff

from .api_error import ApiError

_FIRST_SECONDS = 0.2
_LAST_SECONDS = 15.0
_RELIST_STATUSES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
"""The resource version is too old or invalid for this collection: a retry would fail again."""
_TOO_LARGE = "ResourceVersionTooLarge"
"""A status cause: etcd was restored to a version before the one that the watch starts from."""
_FAILURES_BEFORE_RELIST = 10
"""Errors in a row, about two minutes: the API server may fail because of this resource version."""


class WatchBackoff(Backoff):
    """The back-off of one watched collection, which also decides when to list it again.

    A temporary failure of the API server (no answer, 429, 5xx) is no reason to list again: after
    its recovery, all programs would list at once.
    """

    def __init__(self) -> None:
        super().__init__(_FIRST_SECONDS, _LAST_SECONDS)
        self._failures = 0

    def reset(self) -> None:
        """Start from the first delay again: the watch has delivered an event."""
        super().reset()
        self._failures = 0

    def must_relist(self, error: ApiError) -> bool:
        """Count a failure; return whether the watch cannot be resumed."""
        self._failures += error.status != 0
        causes = {reason for reason, _ in error.causes}
        return (
            error.status in _RELIST_STATUSES
            or _TOO_LARGE in causes
            or self._failures % _FAILURES_BEFORE_RELIST == _FAILURES_BEFORE_RELIST - 1
        )
