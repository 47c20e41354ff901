"""What the API server says of the tokens that clients show, by a bounded number of reviews.

Tokens that were accepted within the hour are reviewed apart from new ones: a flood of new tokens
keeps out no client that was accepted before. Of both, each address has a share of its own.
"""

import hashlib
import math
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.rate_limit import RateLimits
from reprieve_runtime.single_flight import SingleFlight

V = TypeVar("V")

ACCEPTED_SECONDS = 60.0
"""A token that was revoked, or a right that was taken away, ends after at most this time."""
REFUSED_SECONDS = 5.0
"""A new binding takes effect after at most this time."""
KNOWN_SECONDS = 3600.0
"""How long a token counts as known. A kubelet renews tokens about once in an hour."""
_MAX_TOKEN_CHARACTERS = 4096
"""The token of a ServiceAccount has between one and two thousand."""
_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
"""The scheme and the characters of a token, as RFC 6750 has them."""


def bearer_token(authorization: str) -> str | None:
    """Return the token in this header; `None` where there is none, or what cannot be one."""
    match = _BEARER.fullmatch(authorization)
    return None if match is None or len(match[1]) > _MAX_TOKEN_CHARACTERS else match[1]


class _Accepted(NamedTuple, Generic[V]):
    at: float
    result: V


class TokenReviews(Generic[V]):
    """The latest results of reviews. No token stays in memory, only its digest."""

    def __init__(
        self,
        review: Callable[[str], Awaitable[V]],
        is_accepted: Callable[[V], bool],
        *,
        limits: RateLimits,
        max_known: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limits`: of the reviews of new tokens, and once more of those of known ones.

        Their `per_namespace` is the share of an address. `max_known`: how many tokens are known at
        a time.
        """
        self._review, self._is_accepted, self._monotonic = review, is_accepted, monotonic
        self._accepted: BoundedDict[bytes, _Accepted[V]] = BoundedDict(max_known)
        self._new, self._known = (
            SingleFlight[bytes, V](REFUSED_SECONDS, limits=limits, monotonic=monotonic)
            for _ in range(2)
        )

    def is_known(self, token: str) -> bool:
        """Return whether the token was accepted within the hour."""
        return self._seconds_since_accepted(_digest(token)) < KNOWN_SECONDS

    async def result(self, token: str, peer: str) -> V:
        """Return a recent result, or that of a review for the client at this address.

        Raises `RateLimitedError` where no review may be made, and what the review raises.
        """
        digest, started_at = _digest(token), self._monotonic()
        seconds = self._seconds_since_accepted(digest)
        if seconds < ACCEPTED_SECONDS:
            return self._accepted[digest].result
        calls = self._known if seconds < KNOWN_SECONDS else self._new
        result = await calls.do(digest, partial(self._review, token), namespace=peer)
        if self._is_accepted(result):
            self._accepted[digest] = _Accepted(started_at, result)
        else:
            self._accepted.pop(digest, None)
        return result

    def _seconds_since_accepted(self, digest: bytes) -> float:
        accepted = self._accepted.get(digest)
        return math.inf if accepted is None else self._monotonic() - accepted.at


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
