"""Limits the rate of calls with token buckets: one for all calls, and one for each namespace.

Without the share of a namespace, a user who causes many calls in one namespace would leave none
to the others.
"""

from typing import NamedTuple

from .bounded_dict import BoundedDict

_MAX_NAMESPACES = 1000
"""Buckets kept. A namespace whose bucket was dropped, the one that called longest ago, starts with
a full one again; the limit on all calls holds for it too."""


class Rate(NamedTuple):
    """The refill rate and the size of a token bucket."""

    per_second: float
    burst: int


class RateLimits(NamedTuple):
    """The limit on all calls, and the share of it that each namespace has."""

    total: Rate
    per_namespace: Rate | None = None
    """`None`: as much as the total."""


class RateLimiter:
    """The token buckets; every time is of one monotonic clock, in seconds."""

    def __init__(self, limits: RateLimits, now: float) -> None:
        self._per_namespace = limits.per_namespace
        self._total = _TokenBucket(limits.total, now)
        self._buckets: BoundedDict[str, _TokenBucket] = BoundedDict(_MAX_NAMESPACES)

    def try_accept(self, namespace: str, now: float) -> bool:
        """Take one call, if the limits allow it; a refused call takes no token."""
        bucket = self._bucket_of(namespace, now)
        if not (bucket.has_token(now) and self._total.has_token(now)):
            return False
        self._total.tokens -= 1
        if bucket is not self._total:
            bucket.tokens -= 1
        return True

    def _bucket_of(self, namespace: str, now: float) -> "_TokenBucket":
        if self._per_namespace is None:
            return self._total
        bucket = self._buckets.get(namespace) or _TokenBucket(self._per_namespace, now)
        self._buckets[namespace] = bucket
        return bucket


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
