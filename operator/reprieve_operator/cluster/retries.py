"""What a refused call means for a victim: whether it is made once more, and for how long others wait for that."""

from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_runtime.client.api import ApiError

HOPELESS = (400, 403, 422)
"""Asking once more will not be answered otherwise."""
PATIENCE = timedelta(seconds=60)
"""With what answers, again and again, as if it were busy or broken: a webhook that fails closed, say, or an API server under load."""
_NOBODY = 0
_NO_ROOM = (413, 422)
_INTERNAL = 500
_TOO_LARGE = ("request is too large", "message larger than max")
"""What etcd, and the way to it, say of an object above 1.5 MiB. The API server passes it on as an error of its own."""


def is_without_room(error: ApiError) -> bool:
    """True where the object is full: 262,144 bytes of annotations, or all that etcd takes."""
    is_too_large = error.status == _INTERNAL and any(words in error.message for words in _TOO_LARGE)
    return error.status in _NO_ROOM or is_too_large


def is_final(error: ApiError) -> bool:
    """True where asking once more will not be answered otherwise."""
    return error.status in HOPELESS or is_without_room(error)


class Patience:
    """One victim's, with what it could also go without: its owner, or what keeps the record of a bare pod.

    It ends after a minute in which every call was refused. Not while nobody answers: nothing else could be done then either.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_since: float | None = None

    def is_over(self, error: ApiError) -> bool:
        """True where the victim is to go on without what was refused so."""
        if is_final(error):
            return True
        if error.status == _NOBODY:
            return False
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        return now >= self._refused_since + PATIENCE.total_seconds()

    def renew(self) -> None:
        """Take note that a call was answered."""
        self._refused_since = None
