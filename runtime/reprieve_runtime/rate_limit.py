"""Limits the rate of calls with token buckets: one for all calls, and two for each namespace.

Each namespace has a limit of its own, and a share of the total. Without the limit, a user who
causes many calls in one namespace would leave none to the others. Without the shares, a user with
a few namespaces would.

The last half of the total burst is kept for the namespaces that have something left of their share:
those that asked lately share three quarters of the rate equally. The last quarter is for those that
ask for little. Without it, none of twenty namespaces would have more than a twentieth of the rate,
however little it asks for and however much the others do.
"""

import math
from typing import NamedTuple

from .bounded_dict import BoundedDict

_MAX_NAMESPACES = 1000
"""Namespaces kept. One that was dropped, the one that asked longest ago, starts with full buckets
again; the limit on all calls holds for it too."""
_SHARED = 3 / 4
"""The part of the rate that the namespaces have shares of."""
_KEPT_FOR_SOME = 1 / 2
"""The part of the burst for those that ask for little, or have something left of their share."""
_KEPT_FOR_SHARES = 1 / 4
"""The part of the burst for the shares alone."""
_LITTLE = 1 / 2
"""Who asks for no more than this part of what a namespace asks for on average, asks for little."""


class Rate(NamedTuple):
    """The refill rate and the size of a token bucket."""

    per_second: float
    burst: float

    def times(self, part: float) -> "Rate":
        """Return a part of this rate: less a second, and at once, but never less than one call."""
        return Rate(self.per_second * part, max(1.0, self.burst * part))


class RateLimits(NamedTuple):
    """The limit on all calls, and the most that each namespace may have of it."""

    total: Rate
    per_namespace: Rate | None = None
    """`None`: as much as the total, without shares."""


class RateLimiter:
    """The token buckets; every time is of one monotonic clock, in seconds."""

    def __init__(self, limits: RateLimits, now: float) -> None:
        self._limits = limits
        self._total = _TokenBucket(now)
        self._recent_seconds = max(rate.burst / rate.per_second for rate in limits if rate)
        """Until each bucket is full again."""
        self._requests = _RecentCount(self._recent_seconds, now)
        self._namespaces: BoundedDict[str, _Namespace] = BoundedDict(_MAX_NAMESPACES)
        """Those that asked in this time, the last one at the end."""

    def try_accept(self, namespace: str, now: float) -> bool:
        """Take one call, if the limits allow it; a refused call takes no token."""
        buckets = [self._total]
        self._total.refill(self._limits.total, now)
        may_take = self._total.tokens >= 1
        if self._limits.per_namespace is not None:
            asking = self._note_request(namespace, self._limits.per_namespace, now)
            buckets += [asking.limit, asking.share]
            may_take = may_take and asking.limit.tokens >= 1 and self._is_left_for(asking)
        if may_take:
            for bucket in buckets:
                bucket.take()
        return may_take

    def _note_request(self, name: str, limit: Rate, now: float) -> "_Namespace":
        self._forget_idle(now)
        asking = self._namespaces.get(name) or _Namespace(self._recent_seconds, now)
        self._namespaces[name] = asking
        asking.limit.refill(limit, now)
        asking.share.refill(self._limits.total.times(_SHARED / len(self._namespaces)), now)
        for count in (asking.requests, self._requests):
            count.add(now)
        return asking

    def _is_left_for(self, asking: "_Namespace") -> bool:
        left = self._total.tokens / self._limits.total.burst
        if left > _KEPT_FOR_SOME or asking.share.tokens >= 1:
            return True
        average = self._requests.count / len(self._namespaces)
        return left > _KEPT_FOR_SHARES and asking.requests.count <= _LITTLE * average

    def _forget_idle(self, now: float) -> None:
        """Forget those that have asked for nothing lately: they take no part of the shares."""
        while self._namespaces:
            name, oldest = next(iter(self._namespaces.items()))
            if now - oldest.requests.counted_at < self._recent_seconds:
                return
            del self._namespaces[name]


class _TokenBucket:
    """The calls that are left; the first refill sets how many a full one has."""

    def __init__(self, now: float) -> None:
        self.tokens, self._refilled_at = math.inf, now

    def refill(self, rate: Rate, now: float) -> None:
        added = (now - self._refilled_at) * rate.per_second
        self.tokens, self._refilled_at = min(rate.burst, self.tokens + added), now

    def take(self) -> None:
        self.tokens = max(0.0, self.tokens - 1)


class _RecentCount:
    """How many there were lately: each counts less, the longer ago it was."""

    def __init__(self, recent_seconds: float, now: float) -> None:
        self._recent_seconds = recent_seconds
        self.count, self.counted_at = 0.0, now

    def add(self, now: float) -> None:
        faded = math.exp((self.counted_at - now) / self._recent_seconds)
        self.count, self.counted_at = self.count * faded + 1, now


class _Namespace:
    def __init__(self, recent_seconds: float, now: float) -> None:
        self.limit, self.share = _TokenBucket(now), _TokenBucket(now)
        self.requests = _RecentCount(recent_seconds, now)
