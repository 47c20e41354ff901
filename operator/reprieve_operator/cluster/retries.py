"""What a refused call means for a victim: whether it is made once more, and for how long others wait for that."""

from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_runtime.client.api import ApiError

PERMANENT_STATUSES = (400, 403, 422)
"""Asking once more will not be answered otherwise."""
GIVE_UP_AFTER = timedelta(seconds=60)
"""With what answers, again and again, as if it were busy or broken: a webhook that fails closed, say, or an API server under load."""
_UNREACHABLE = 0
_TOO_LARGE_STATUSES = (413, 422)
_INTERNAL = 500
_TOO_LARGE_MESSAGES = ("request is too large", "message larger than max")
"""What etcd, and the way to it, say of an object above 1.5 MiB. The API server passes it on as an error of its own."""


def is_object_too_large(error: ApiError) -> bool:
    """True where the object is full: 262,144 bytes of annotations, or all that etcd takes."""
    is_too_large = error.status == _INTERNAL and any(
        words in error.message for words in _TOO_LARGE_MESSAGES
    )
    return error.status in _TOO_LARGE_STATUSES or is_too_large


def is_permanent(error: ApiError) -> bool:
    """True where asking once more will not be answered otherwise."""
    return error.status in PERMANENT_STATUSES or is_object_too_large(error)


class OptionalWriteDeadline:
    """One victim's, with what it could also go without: its owner, or what keeps the record of a bare pod.

    It ends after a minute in which every call was refused. Not while nobody answers: nothing else could be done then either.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_since: float | None = None

    def has_passed(self, error: ApiError) -> bool:
        """True where the victim is to go on without what was refused so."""
        if is_permanent(error):
            return True
        if error.status == _UNREACHABLE:
            return False
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        return now >= self._refused_since + GIVE_UP_AFTER.total_seconds()

    def reset(self) -> None:
        """Take note that a call was answered."""
        self._refused_since = None
