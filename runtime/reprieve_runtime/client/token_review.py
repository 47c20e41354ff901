"""Whose token it is: one TokenReview."""

from collections.abc import Mapping, Sequence

import msgspec

from .api import Api
from .paths import object_path


class TokenUser(msgspec.Struct):
    """The user of a token, as the API server tells it."""

    username: str = ""
    uid: str = ""
    groups: Sequence[str] | None = None
    extra: Mapping[str, Sequence[str]] | None = None


class TokenReviewStatus(msgspec.Struct):
    """What the API server says of a token."""

    authenticated: bool = False
    audiences: Sequence[str] | None = None
    user: TokenUser = msgspec.field(default_factory=TokenUser)


class _TokenReview(msgspec.Struct):
    status: TokenReviewStatus = msgspec.field(default_factory=TokenReviewStatus)


async def review_token(
    api: Api, token: str, *, timeout_seconds: float, audiences: Sequence[str] | None = None
) -> TokenReviewStatus:
    """Ask the API server about a token; without audiences, about one for its own API.

    Raises `ApiError`, and `msgspec.MsgspecError` where the answer cannot be read.
    """
    spec = {"token": token} | ({} if audiences is None else {"audiences": audiences})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    text = await api.request(
        "POST", object_path("tokenreviews"), body=body, timeout_seconds=timeout_seconds
    )
    return msgspec.json.decode(text, type=_TokenReview).status
