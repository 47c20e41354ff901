"""In which pod the holder of a token runs, by a TokenReview whose result is used for a minute.

The pod may be gone meanwhile: the write names its uid.

Only a token that a kubelet requested for one pod, with our audience, is accepted. No API server
accepts that token for its own API, and we accept no token that is meant for the API server: neither
side can use what it receives at the other one.
"""

import re
from collections.abc import Callable

from reprieve_policy.checkpointing.agent import TOKEN_AUDIENCE
from reprieve_policy.kube.names import is_namespace_name, is_object_name
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.token_review import TokenReviewStatus, review_token
from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_runtime.serving.token_reviews import TokenReviews, bearer_token
from reprieve_webhooks.lookups.limits import DEFAULT_LIMITS
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

from .answer import Answer, forbidden, unauthorized

_LIMITS = RateLimits(DEFAULT_LIMITS.total, per_namespace=Rate(10, 25))
"""Reviews in all and of one address. A pod reports from its own; one review in an hour is usual."""
_MAX_KNOWN_TOKENS = 5000
"""Those of agents that report within the hour, in a large cluster; some megabytes."""
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
"""Three parts in base64url, as the tokens of ServiceAccounts have."""
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_SERVICE_ACCOUNT = re.compile("system:serviceaccount:([^:]+):[^:]+")


def token_of(authorization: str) -> str | None:
    """Return the token in this header; `None` where it cannot be that of a ServiceAccount."""
    token = bearer_token(authorization)
    return None if token is None or _JWT.fullmatch(token) is None else token


def pod_tokens(
    api: Api, *, timeout_seconds: float, monotonic: Callable[[], float]
) -> TokenReviews[PodIdentity | Answer]:
    """Return what finds the pods of tokens, or the answers that refuse them.

    The API server checks signature, expiry and that the pod exists.
    """

    async def review(token: str) -> PodIdentity | Answer:
        status = await review_token(
            api, token, timeout_seconds=timeout_seconds, audiences=[TOKEN_AUDIENCE]
        )
        return _pod_of(status)

    return TokenReviews(
        review,
        lambda result: isinstance(result, PodIdentity),
        limits=_LIMITS,
        max_known=_MAX_KNOWN_TOKENS,
        monotonic=monotonic,
    )


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
