"""In which pod the holder of a token runs, by a TokenReview that is cached briefly.

Only a token that a kubelet requested for one pod, with our audience, is accepted. No API server
accepts that token for its own API, and we accept no token that is meant for the API server: neither
side can use what it receives at the other one.
"""

import hashlib
import re
import time
from collections.abc import Callable
from functools import partial

from reprieve_policy.checkpointing.agent import TOKEN_AUDIENCE
from reprieve_policy.kube.names import is_namespace_name, is_object_name
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.token_review import TokenReviewStatus, review_token
from reprieve_runtime.single_flight import SingleFlight
from reprieve_webhooks.lookups.limits import DEFAULT_LIMITS
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

from .answer import Answer, forbidden, unauthorized

_ACCEPTED_SECONDS, _REFUSED_SECONDS = 60.0, 10.0
"""How long the result for a token is reused. The pod of an accepted one may be gone meanwhile: the
write names the pod's uid."""
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_SERVICE_ACCOUNT = re.compile("system:serviceaccount:([^:]+):[^:]+")


class TokenReviewer:
    """Finds the pods of tokens; the API server checks signature, expiry and that the pod exists."""

    def __init__(
        self,
        api: Api,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds
        self._single_flight: SingleFlight[bytes, PodIdentity | Answer] = SingleFlight(
            lambda result: (
                _ACCEPTED_SECONDS if isinstance(result, PodIdentity) else _REFUSED_SECONDS
            ),
            limits=DEFAULT_LIMITS,
            monotonic=monotonic,
        )

    async def find_pod(self, token: str) -> PodIdentity | Answer:
        """Return the pod of a token, or the answer that refuses it; raises `ApiError`."""
        # A digest, so that no token stays in memory.
        digest = hashlib.sha256(token.encode()).digest()
        return await self._single_flight.do(digest, partial(self._review, token))

    async def _review(self, token: str) -> PodIdentity | Answer:
        status = await review_token(
            self._api, token, timeout_seconds=self._timeout_seconds, audiences=[TOKEN_AUDIENCE]
        )
        return _pod_of(status)


def _pod_of(status: TokenReviewStatus) -> PodIdentity | Answer:
    # An API server that does not know audiences lists none: the token is then one for its own API.
    if not status.authenticated or TOKEN_AUDIENCE not in (status.audiences or ()):
        return unauthorized(f"the token is not valid for the audience {TOKEN_AUDIENCE}")
    account = _SERVICE_ACCOUNT.fullmatch(status.user.username)
    extra = status.user.extra or {}
    names, uids = extra.get(_POD_NAME) or (), extra.get(_POD_UID) or ()
    if account is None or len(names) != 1 or len(uids) != 1 or not uids[0]:
        return forbidden("the token is not that of a pod")
    # Both become parts of a path.
    if not is_object_name(names[0]) or not is_namespace_name(account[1]):
        return forbidden("the token is not that of a pod")
    return PodIdentity(uids[0], account[1], names[0])
