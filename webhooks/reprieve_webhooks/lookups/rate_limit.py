"""How many calls may be made: so many a second, after so many at once; and of those, each namespace its share.

Without a share, whoever asks much in a namespace of his own would leave nothing to the others.
"""

from typing import NamedTuple

_MOST_SHARES = 1000
"""Kept; whose is dropped, the one that asked longest ago, has a full one again: the bound on all holds for it too."""


class Rate(NamedTuple):
    """A bound on calls."""

    per_second: float
    burst: int


class Bounds(NamedTuple):
    """What may be asked in all, and of that in each namespace."""

    in_all: Rate
    of_each: Rate | None = None
    """`None`: as much as in all."""


class Allowance:
    """What is left of bounds; every time is of one monotonic clock, in seconds."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        self._of_each = bounds.of_each
        self._in_all = _Bucket(bounds.in_all, now)
        self._shares: dict[str, _Bucket] = {}

    def take(self, namespace: str, now: float) -> bool:
        """Take one call, if there is one; what is refused costs nothing."""
        share = self._share_of(namespace, now)
        if not (share.has_one(now) and self._in_all.has_one(now)):
            return False
        self._in_all.left -= 1
        if share is not self._in_all:
            share.left -= 1
        return True

    def _share_of(self, namespace: str, now: float) -> "_Bucket":
        if self._of_each is None:
            return self._in_all
        share = self._shares.pop(namespace, None) or _Bucket(self._of_each, now)
        # Put last: the oldest go first, where there are too many.
        self._shares[namespace] = share
        if len(self._shares) > _MOST_SHARES:
            del self._shares[next(iter(self._shares))]
        return share


class _Bucket:
    def __init__(self, rate: Rate, now: float) -> None:
        self._rate, self._counted_at = rate, now
        self.left = float(rate.burst)

    def has_one(self, now: float) -> bool:
        self.left = min(self._rate.burst, self.left + (now - self._counted_at) * self._rate.per_second)
        self._counted_at = now
        return self.left >= 1
