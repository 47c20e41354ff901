"""Who has which right: asked of the API server (SubjectAccessReview) for the user of a review, and remembered briefly.

Whatever authorizes there, RBAC or another, is what decides. While it cannot be asked nothing is guessed: the review fails,
and the `failurePolicy` decides. Who asks for more than is passed on has no right meanwhile.
"""

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from reprieve_policy.facts import Permission
from reprieve_policy.keys import PREFIX
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_webhooks.admission.review import UserInfo
from reprieve_webhooks.lookups.single_flight import RateLimitedError, SingleFlight

TTL_SECONDS = 10.0
"""A right that is granted or taken away counts after at most so long."""
_MAX_USER_BYTES: Final = 64 * 1024
"""A user with more groups than fit into this has no right: what would be sent on is bounded."""
_GROUP = PREFIX.rstrip("/")


class _AccessReviewStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessReviewStatus


class AccessReviewer:
    """Asks for rights, one by one."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[tuple[bytes, Permission], bool] = SingleFlight(
            TTL_SECONDS
        )

    async def missing_rights(
        self, user: UserInfo, needed: Iterable[Permission]
    ) -> frozenset[Permission]:
        """Return those of the `needed` rights that the user does not have; `ApiError` where that cannot be known now."""
        who = msgspec.json.encode(user)
        if len(who) > _MAX_USER_BYTES:
            return frozenset(needed)
        # A digest, so that what is remembered does not grow with what users are called.
        digest = hashlib.sha256(who).digest()
        held = {right: await self._is_allowed(user, digest, right) for right in needed}
        return frozenset(right for right, is_held in held.items() if not is_held)

    async def _is_allowed(self, user: UserInfo, digest: bytes, right: Permission) -> bool:
        try:
            return await self._single_flight.do(
                (digest, right), partial(self._create_review, user, right)
            )
        except RateLimitedError:
            # Without this, whoever has enough accounts to flood us has the right: a review that fails admits its object.
            return False

    async def _create_review(self, user: UserInfo, right: Permission) -> bool:
        attributes = {"group": _GROUP, "resource": right.resource, "verb": right.verb}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or (),
            "extra": user.extra or {},
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**spec, "resourceAttributes": attributes},
        }
        path = object_path("subjectaccessreviews")
        text = await self._api.request(
            "POST", path, body=body, timeout_seconds=self._timeout_seconds
        )
        return msgspec.json.decode(text, type=_AccessReview).status.allowed
