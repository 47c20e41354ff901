"""Which clients may read `/metrics`: those with a valid token whose user has the right.

As controller-runtime does it: a TokenReview says whose token it is, and a SubjectAccessReview
whether that user may `get` the non-resource URL `/metrics`. Answers are kept for a short time. The
number of calls is bounded, so that clients without a good token cannot load the API server.
"""

import hashlib
import logging
import math
import re
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.access_review import has_right
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.token_review import review_token
from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_runtime.single_flight import RateLimitedError, SingleFlight

_LOG = logging.getLogger(__name__)

PATH = "/metrics"
ROLE = "reprieve:metrics-reader"
ACCEPTED_SECONDS = 60.0
"""A token that was revoked, or a right that was taken away, ends after at most this time."""
REFUSED_SECONDS = 5.0
"""A new binding takes effect after at most this time."""
OUTAGE_SECONDS = 3600.0
"""While the API server does not answer, a token that was good this recently still is. Without this,
there would be no metrics when they are needed most. A kubelet renews tokens about once in an hour.
"""
_NEW_TOKENS = RateLimits(Rate(10, 20), per_namespace=Rate(2, 5))
"""Reviews of tokens that were not good lately, in all and of one address: a client that tries many
tokens leaves most reviews to other clients."""
_KNOWN_TOKENS = RateLimits(Rate(10, 20))
"""Reviews of tokens that were good lately: apart, so that a flood of bad ones stops no scraper."""
_MAX_KNOWN_TOKENS = 100
_TIMEOUT_SECONDS = 3.0
"""Of each of the two calls: together below a Prometheus's default of 10 seconds for a scrape."""
_MAX_TOKEN_CHARACTERS = 4096
"""The token of a ServiceAccount has between one and two thousand."""
_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
"""The scheme and the characters of a token, as RFC 6750 has them."""
_LOG_INTERVAL_SECONDS = 60.0


class AccessRefusal(NamedTuple):
    """Why a client may not read the metrics."""

    status: HTTPStatus
    message: str


NO_TOKEN = AccessRefusal(
    HTTPStatus.UNAUTHORIZED, "a token of the cluster is required: Authorization: Bearer TOKEN"
)
NOT_VALID = AccessRefusal(HTTPStatus.UNAUTHORIZED, "the API server does not accept the token")
TOO_MANY = AccessRefusal(HTTPStatus.TOO_MANY_REQUESTS, "too many new tokens; try again in a second")
NOT_KNOWN = AccessRefusal(
    HTTPStatus.SERVICE_UNAVAILABLE, "the API server did not say whether the token may be accepted"
)


def no_right(path: str, role: str) -> AccessRefusal:
    """Return the refusal of a user that lacks the right to `path`, which `role` grants."""
    return AccessRefusal(
        HTTPStatus.FORBIDDEN,
        f"the token's user may not get the non-resource URL {path}: bind the ClusterRole {role}",
    )


NO_RIGHT = no_right(PATH, ROLE)


class MetricsAccess:
    """Checks the tokens of clients for one path. No token stays in memory, only its digest."""

    def __init__(
        self,
        api: Api,
        *,
        path: str = PATH,
        role: str = ROLE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._monotonic = api, monotonic
        self._path = path
        self._no_right = no_right(path, role)
        self._accepted_at: BoundedDict[bytes, float] = BoundedDict(_MAX_KNOWN_TOKENS)
        self._new, self._known = (
            SingleFlight[bytes, AccessRefusal | None](
                REFUSED_SECONDS, limits=limits, monotonic=monotonic
            )
            for limits in (_NEW_TOKENS, _KNOWN_TOKENS)
        )
        self._logged_at = -math.inf

    async def refusal(self, authorization: str, peer: str) -> AccessRefusal | None:
        """Return why a request with this header, from this address, is refused; `None`: it is not.

        A header without a token, or with what cannot be one, costs no call.
        """
        match = _BEARER.fullmatch(authorization)
        if match is None or len(match[1]) > _MAX_TOKEN_CHARACTERS:
            return NO_TOKEN
        token = match[1]
        digest = hashlib.sha256(token.encode()).digest()
        seconds = self._monotonic() - self._accepted_at.get(digest, -math.inf)
        if seconds < ACCEPTED_SECONDS:
            return None
        return await self._reviewed(token, digest, peer, is_known=seconds < OUTAGE_SECONDS)

    async def _reviewed(
        self, token: str, digest: bytes, peer: str, *, is_known: bool
    ) -> AccessRefusal | None:
        started_at = self._monotonic()
        calls = self._known if is_known else self._new
        try:
            refusal = await calls.do(digest, partial(self._review, token), namespace=peer)
        except RateLimitedError:
            return None if is_known else TOO_MANY
        except (ApiError, msgspec.MsgspecError) as error:
            self._log(error)
            return None if is_known else NOT_KNOWN
        if refusal is None:
            self._accepted_at[digest] = started_at
        else:
            self._accepted_at.pop(digest, None)
        return refusal

    async def _review(self, token: str) -> AccessRefusal | None:
        status = await review_token(self._api, token, timeout_seconds=_TIMEOUT_SECONDS)
        if not status.authenticated:
            return NOT_VALID
        is_allowed = await has_right(
            self._api,
            status.user,
            timeout_seconds=_TIMEOUT_SECONDS,
            non_resource={"path": self._path, "verb": "get"},
        )
        return None if is_allowed else self._no_right

    def _log(self, error: Exception) -> None:
        if self._monotonic() - self._logged_at < _LOG_INTERVAL_SECONDS:
            return
        self._logged_at = self._monotonic()
        # Never the text of the error: it could have parts of the request, and so of the token.
        cause = (
            f"{error.status} {error.reason}" if isinstance(error, ApiError) else "unreadable answer"
        )
        _LOG.warning("could not check who reads the metrics", extra={"error": cause})
