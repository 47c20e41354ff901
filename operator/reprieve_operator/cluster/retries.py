"""What a refused call means for a victim: whether it is made again, and how long others wait."""

from http import HTTPStatus

from reprieve_operator.clock import Clock
from reprieve_policy.lifecycle.cleanup import GIVE_UP_AFTER
from reprieve_runtime.client.api import ApiError

GONE_OR_CHANGED = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""What was known of the object is old."""
PERMANENT_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""The same call will get the same answer again."""
_MISSING_RIGHT_SECONDS = 3.0
"""For so long, a right that is missing may be one that an API server has not read yet: one that was
just started refuses calls until it knows the roles."""
_OVERLOADED_STATUSES = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


def is_overload(error: ApiError) -> bool:
    """True if the API server did not answer in time, or refused the call as one too many."""
    is_unanswered = error.is_unreachable and not error.is_answer_too_large
    return is_unanswered or error.status in _OVERLOADED_STATUSES


def is_permanent(error: ApiError) -> bool:
    """True if the same call will get the same answer again."""
    return error.status in PERMANENT_STATUSES or error.is_object_too_large


class OptionalWriteDeadline:
    """How long one victim waits for writes that its eviction can do without.

    These are writes to its owner, or to the record of a bare pod. The wait ends after a minute in
    which every call was refused, and after three seconds if that is for want of a right. A call
    without an answer counts as refused: without an API server, this replica would not have led for
    a minute. So a webhook that does not answer, and covers the owner, holds no victim.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_since: float | None = None

    def has_passed(self, error: ApiError, begun_at: float | None = None) -> bool:
        """True if the eviction continues without the call that was refused.

        `begun_at`: since when an unanswered call has waited, on the monotonic clock. It may have
        waited for the calls of other victims of the same owner.
        """
        if is_permanent(error) and not error.is_forbidden:
            return True
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = begun_at if error.is_unreachable and begun_at else now
        longest = _MISSING_RIGHT_SECONDS if error.is_forbidden else GIVE_UP_AFTER.total_seconds()
        return now >= self._refused_since + longest

    def reset(self) -> None:
        """Note that a call succeeded."""
        self._refused_since = None
