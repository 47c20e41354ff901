"""How many calls may be made: so many a second, after so many at once; and of those, each namespace its share.

Without a share, whoever asks much in a namespace of his own would leave nothing to the others.
"""

from typing import NamedTuple

_MAX_NAMESPACES = 1000
"""Kept; whose is dropped, the one that asked longest ago, has a full one again: the bound on all holds for it too."""


class Rate(NamedTuple):
    """A bound on calls."""

    per_second: float
    burst: int


class RateLimits(NamedTuple):
    """What may be asked in all, and of that in each namespace."""

    total: Rate
    per_namespace: Rate | None = None
    """`None`: as much as in all."""


class RateLimiter:
    """What is left of bounds; every time is of one monotonic clock, in seconds."""

    def __init__(self, limits: RateLimits, now: float) -> None:
        self._per_namespace = limits.per_namespace
        self._total = _TokenBucket(limits.total, now)
        self._buckets: dict[str, _TokenBucket] = {}

    def try_accept(self, namespace: str, now: float) -> bool:
        """Take one call, if there is one; what is refused costs nothing."""
        share = self._bucket_of(namespace, now)
        if not (share.has_token(now) and self._total.has_token(now)):
            return False
        self._total.tokens -= 1
        if share is not self._total:
            share.tokens -= 1
        return True

    def _bucket_of(self, namespace: str, now: float) -> "_TokenBucket":
        if self._per_namespace is None:
            return self._total
        share = self._buckets.pop(namespace, None) or _TokenBucket(self._per_namespace, now)
        # Put last: the oldest go first, where there are too many.
        self._buckets[namespace] = share
        if len(self._buckets) > _MAX_NAMESPACES:
            del self._buckets[next(iter(self._buckets))]
        return share


class _TokenBucket:
    def __init__(self, rate: Rate, now: float) -> None:
        self._rate, self._refilled_at = rate, now
        self.tokens = float(rate.burst)

    def has_token(self, now: float) -> bool:
        self.tokens = min(
            self._rate.burst, self.tokens + (now - self._refilled_at) * self._rate.per_second
        )
        self._refilled_at = now
        return self.tokens >= 1
