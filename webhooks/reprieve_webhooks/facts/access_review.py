"""Whether the user of a review has a permission, by a SubjectAccessReview that is cached briefly.

The API server's authorizer decides, RBAC or another. While it cannot be called nothing is guessed:
the review fails, and the `failurePolicy` decides. A user whose lookups exceed the rate limit has no
permission meanwhile.
"""

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from reprieve_policy.facts import Permission
from reprieve_policy.keys import PREFIX
from reprieve_runtime.client.access_review import has_right
from reprieve_runtime.client.api import Api
from reprieve_runtime.single_flight import RateLimitedError, SingleFlight
from reprieve_webhooks.admission.review import UserInfo
from reprieve_webhooks.lookups.limits import FAIR_LIMITS

TTL_SECONDS = 10.0
"""A permission that is granted or revoked takes effect after at most this time."""
_MAX_USER_BYTES: Final = 64 * 1024
"""A user with more groups than fit has no permission: the size of the call is limited."""
_GROUP = PREFIX.rstrip("/")


class AccessReviewer:
    """Checks permissions, one by one."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[tuple[bytes, Permission], bool] = SingleFlight(
            TTL_SECONDS, limits=FAIR_LIMITS
        )

    async def missing_permissions(
        self, user: UserInfo, needed: Iterable[Permission], namespace: str
    ) -> frozenset[Permission]:
        """Return the `needed` permissions that the user lacks; `ApiError` if they are unknown.

        The namespace of the object under review has a share of the calls. A user may have very many
        tokens, and each counts as another user.
        """
        encoded = msgspec.json.encode(user)
        if len(encoded) > _MAX_USER_BYTES:
            return frozenset(needed)
        # A digest, so that the cache does not grow with the length of user names.
        digest = hashlib.sha256(encoded).digest()
        held = {
            permission: await self._is_allowed(user, digest, permission, namespace)
            for permission in needed
        }
        return frozenset(permission for permission, is_held in held.items() if not is_held)

    async def _is_allowed(
        self, user: UserInfo, digest: bytes, permission: Permission, namespace: str
    ) -> bool:
        try:
            return await self._single_flight.do(
                (digest, permission),
                partial(self._create_review, user, permission),
                namespace=namespace,
            )
        except RateLimitedError:
            # Without this, a user with enough accounts to exceed the limit would have the
            # permission: a review that fails admits its object.
            return False

    async def _create_review(self, user: UserInfo, permission: Permission) -> bool:
        attributes = {"group": _GROUP, "resource": permission.resource, "verb": permission.verb}
        return await has_right(
            self._api, user, timeout_seconds=self._timeout_seconds, resource=attributes
        )
