"""Decodes the guard's reviews: a deletion contains the pod, and an eviction names it."""

import msgspec

from reprieve_webhooks.admission import large_review
from reprieve_webhooks.admission.review import (
    API_VERSION,
    GroupVersionKind,
    Malformed,
    Uid,
    UserInfo,
    decode,
)

from .objects import GuardedPod


class _Preconditions(msgspec.Struct, gc=False, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, gc=False, rename="camel"):
    dry_run: tuple[str, ...] | None = None
    preconditions: _Preconditions | None = None


class _Eviction(msgspec.Struct, gc=False, rename="camel"):
    delete_options: _DeleteOptions | None = None


class GuardRequest(msgspec.Struct, gc=False, rename="camel"):
    """The deletion or eviction of a pod."""

    uid: Uid
    operation: str
    kind: GroupVersionKind
    name: str = ""
    namespace: str = ""
    object: _Eviction | None = None
    old_object: GuardedPod | None = None
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    dry_run: bool | None = None

    @property
    def is_eviction(self) -> bool:
        """True for a review of `pods/eviction`."""
        return (self.operation, self.kind.kind) == ("CREATE", "Eviction")

    @property
    def is_deletion(self) -> bool:
        """True for the review of a pod's deletion."""
        return (self.operation, self.kind.kind, self.kind.group) == ("DELETE", "Pod", "")

    @property
    def is_dry_run(self) -> bool:
        """True for a dry run; an eviction states it in its body, as `kubectl drain` does."""
        options = self.object.delete_options if self.object else None
        return bool(self.dry_run) or bool(options and options.dry_run)

    def matches(self, pod: GuardedPod) -> bool:
        """False if the preconditions of an eviction do not hold: the API server will refuse it."""
        options = self.object.delete_options if self.object else None
        preconditions = options.preconditions if options else None
        if preconditions is None:
            return True
        return preconditions.uid in (None, pod.uid) and preconditions.resource_version in (
            None,
            pod.metadata.resourceVersion,
        )


class _GuardReview(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    request: GuardRequest | None = None


class _UnreadOptions(msgspec.Struct, gc=False, rename="camel"):
    dry_run: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    preconditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _UnreadEviction(msgspec.Struct, gc=False, rename="camel"):
    """An eviction without its metadata, which its user may write at will."""

    delete_options: _UnreadOptions | None = None


class _UnreadDeletion(msgspec.Struct, gc=False, rename="camel"):
    """A request without the pod that it deletes."""

    uid: msgspec.Raw
    operation: msgspec.Raw
    kind: msgspec.Raw
    name: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    namespace: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    object: _UnreadEviction | None = None
    user_info: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    dry_run: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _UnreadDeletionReview(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    request: _UnreadDeletion | None = None


_MAX_BYTES = large_review.LARGEST_BYTES // 2
"""Of a deletion that is decoded whole: it has one object."""
_HEADER_DECODER = msgspec.json.Decoder(_UnreadDeletionReview)
_DECODER = msgspec.json.Decoder(_GuardReview)


def parse(body: bytes) -> GuardRequest | Malformed:
    """Decode the request of a review, without a pod that is too large.

    Such a pod is deleted without notice: to decode it would hold up all others for seconds.
    """
    if len(body) > _MAX_BYTES or large_review.count_values(body) > large_review.MAX_VALUES:
        header = decode(_HEADER_DECODER, body, "an AdmissionReview")
        if isinstance(header, Malformed):
            return header
        body = msgspec.json.encode(header)
        if len(body) > large_review.MAX_IDENTITY_BYTES:
            # Without this, the options of a deletion, or its user's groups, could take a hundred
            # times their size in memory.
            return Malformed("not an AdmissionReview of an API server: too large")
    review = decode(_DECODER, body, "an AdmissionReview")
    if isinstance(review, Malformed):
        return review
    if review.api_version != API_VERSION:
        return Malformed(f"apiVersion must be {API_VERSION}")
    if review.request is None:
        return Malformed("not an AdmissionReview: no request")
    return review.request
