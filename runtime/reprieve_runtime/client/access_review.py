"""Whether a user has a right: one SubjectAccessReview."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from .api import Api
from .paths import object_path


class User(Protocol):
    """A user, as the API server tells it in a review."""

    @property
    def username(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its uid, which may be empty."""

    @property
    def groups(self) -> Sequence[str] | None:
        """The groups that it is in."""

    @property
    def extra(self) -> Mapping[str, Sequence[str] | None] | None:
        """What the authenticator adds, for authorizers."""


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _ReviewStatus


async def has_right(
    api: Api,
    user: User,
    *,
    timeout_seconds: float,
    resource: Mapping[str, str] | None = None,
    non_resource: Mapping[str, str] | None = None,
) -> bool:
    """Ask the API server's authorizer about one right, on a resource or on another URL.

    `resource` and `non_resource` have the attributes as a SubjectAccessReview names them; one of
    the two is given. Raises `ApiError`, and `msgspec.MsgspecError` where the answer cannot be read.
    """
    attributes = {"resourceAttributes": resource, "nonResourceAttributes": non_resource}
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups or (),
        "extra": user.extra or {},
        **{name: values for name, values in attributes.items() if values is not None},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    text = await api.request(
        "POST", object_path("subjectaccessreviews"), body=body, timeout_seconds=timeout_seconds
    )
    return msgspec.json.decode(text, type=_AccessReview).status.allowed
