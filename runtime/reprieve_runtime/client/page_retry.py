"""Whether a page of a list that the API server refused is read again."""

from http import HTTPStatus

from reprieve_runtime.backoff import Backoff

from .api_error import ApiError

_FIRST_SECONDS = 0.5
_LAST_SECONDS = 15.0
_TEMPORARY_STATUSES = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_MAX_RETRIES = 6
"""In a row: half a minute, or up to a minute and a half where the API server asks for long pauses.
It keeps the version that a list began with for five minutes."""
_MAX_UNANSWERED_RETRIES = 3
"""Each takes up to a minute, and after five the operator's health check fails."""


class PageRetry(Backoff):
    """The back-off of one list. client-go repeats a single request as well.

    Without this, a list of a thousand pages would never end where one in a hundred is refused.
    """

    def __init__(self) -> None:
        super().__init__(_FIRST_SECONDS, _LAST_SECONDS)
        self._failures = 0

    def reset(self) -> None:
        """Start from the first delay again: a page was read."""
        super().reset()
        self._failures = 0

    def may_retry(self, error: ApiError) -> bool:
        """Count a failure; return whether the same page is read again."""
        self._failures += 1
        if not error.is_unreachable and error.status not in _TEMPORARY_STATUSES:
            return False
        return self._failures <= (_MAX_UNANSWERED_RETRIES if error.is_unanswered else _MAX_RETRIES)
