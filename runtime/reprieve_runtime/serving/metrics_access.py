"""Which clients may read `/metrics`: those with a valid token whose user has the right.

As controller-runtime does it: a TokenReview says whose token it is, and a SubjectAccessReview
whether that user may `get` the non-resource URL `/metrics`. Answers are kept for a short time. The
number of calls is bounded, so that clients without a good token cannot load the API server.
"""

import logging
import math
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from reprieve_runtime.client.access_review import has_right
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.token_review import review_token
from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_runtime.single_flight import RateLimitedError

from .token_reviews import TokenReviews, bearer_token

_LOG = logging.getLogger(__name__)

PATH = "/metrics"
ROLE = "reprieve:metrics-reader"
_LIMITS = RateLimits(Rate(10, 20), per_namespace=Rate(2, 5))
"""Reviews in all and of one address: a client that tries many tokens leaves most reviews to others.
"""
_MAX_KNOWN_TOKENS = 100
_TIMEOUT_SECONDS = 3.0
"""Of each of the two calls: together below a Prometheus's default of 10 seconds for a scrape."""
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
    """Checks the tokens of clients for one path."""

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
        self._reviews: TokenReviews[AccessRefusal | None] = TokenReviews(
            self._review,
            lambda refusal: refusal is None,
            limits=_LIMITS,
            max_known=_MAX_KNOWN_TOKENS,
            monotonic=monotonic,
        )
        self._logged_at = -math.inf

    async def refusal(self, authorization: str, peer: str) -> AccessRefusal | None:
        """Return why a request with this header, from this address, is refused; `None`: it is not.

        A header without a token, or with what cannot be one, costs no call. A token that was good
        within the hour still is while no review is made, as in an outage of the API server. Without
        this, there would be no metrics when they are needed most.
        """
        token = bearer_token(authorization)
        if token is None:
            return NO_TOKEN
        try:
            return await self._reviews.result(token, peer)
        except RateLimitedError:
            refusal = TOO_MANY
        except (ApiError, msgspec.MsgspecError) as error:
            self._log(error)
            refusal = NOT_KNOWN
        return None if self._reviews.is_known(token) else refusal

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
