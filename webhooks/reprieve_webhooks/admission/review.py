"""Decodes an AdmissionReview in one pass: only the few fields that rules read.

Objects decode directly into twins of `reprieve_policy.kube.objects` (`struct_twins`). A second pass
for the objects would cost half as much again on a 30 KB review, and every field added costs in each
review. Only kinds of other projects, which may have any form, are read in a second pass
(`reprieve_runtime.templates`). What is too large is not decoded (`large_review`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar

import msgspec

from reprieve_policy.admission.rules import RULES
from reprieve_policy.kube import kinds, objects
from reprieve_policy.kube.objects import OwnerReference, TemplatedResource
from reprieve_policy.kube.template_kinds import WELL_KNOWN, TemplateKinds
from reprieve_runtime import deep, templates

from . import large_review, struct_twins

if TYPE_CHECKING:
    from reprieve_policy.kube.objects import Resource
else:
    # Owners stay as they are: they are compared with those that watches deliver.
    Resource = struct_twins.twin_of(objects.Resource, kept=(OwnerReference,))

T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"

_WITH_RULES = frozenset(
    (kind, group) for kind, group in kinds.SERVED if any(kind in rule.kinds for rule in RULES)
)
Uid = Annotated[str, msgspec.Meta(max_length=128)]
"""The uid of a review; an API server's has 36 characters. The response repeats it, and waits in
memory for a client that reads it."""


class GroupVersionKind(msgspec.Struct, gc=False):
    """The kind of the object, in the version that the webhook configuration matches."""

    kind: str
    group: str = ""


class UserInfo(msgspec.Struct, gc=False):
    """The user who made the request."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...] | None] | None = None


class AdmissionRequest(msgspec.Struct, gc=False):
    """One operation on one object."""

    is_unchecked: ClassVar[bool] = False
    """True where the objects are too large: of these, only the identity is known."""
    uid: Uid
    operation: str
    kind: GroupVersionKind
    namespace: str = ""
    object: Resource | None = None
    old_object: Resource | None = msgspec.field(default=None, name="oldObject")
    user_info: UserInfo = msgspec.field(default_factory=UserInfo, name="userInfo")
    dry_run: bool | None = msgspec.field(default=None, name="dryRun")


class UncheckedRequest(AdmissionRequest, gc=False):
    """A request whose objects are too large."""

    is_unchecked = True
    is_changed: bool = True
    """Whether it creates an object, or changes what rules read of it."""


class _AdmissionReview(msgspec.Struct, gc=False):
    api_version: str = msgspec.field(default="", name="apiVersion")
    request: AdmissionRequest | None = None


class _RequestHeader(msgspec.Struct, gc=False):
    """The fields that identify a review whose objects cannot be decoded."""

    uid: Uid
    operation: str
    kind: GroupVersionKind
    namespace: str = ""
    user_info: UserInfo = msgspec.field(default_factory=UserInfo, name="userInfo")


class _HeaderReview(msgspec.Struct, gc=False):
    request: _RequestHeader | None = None


class _Objects(msgspec.Struct):
    """The objects of a listed kind, in any form."""

    object: Any = None
    old_object: Any = msgspec.field(default=None, name="oldObject")


class _ObjectsReview(msgspec.Struct):
    request: _Objects


@dataclass(frozen=True, slots=True)
class Malformed:
    """A body that cannot be handled; one sentence says why."""

    detail: str


_MAX_BRACKETS = 4_000_000
"""Of a review with a value that is nested very deeply, which takes a second then. An API server
stores no two objects with as many and a value of any form."""


class IdentifiedRequest(Protocol):
    """What every review contains."""

    uid: str
    kind: GroupVersionKind


_DECODER = msgspec.json.Decoder(_AdmissionReview)
_HEADER_DECODER = msgspec.json.Decoder(_HeaderReview)
_OBJECTS_DECODER = msgspec.json.Decoder(_ObjectsReview)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    return deep.decode_by(decoder, body, _MAX_BRACKETS)


def decode(decoder: msgspec.json.Decoder[T], body: bytes, expected: str) -> T | Malformed:
    """Decode a body; `expected` names in the message what it must be."""
    try:
        return _decode(decoder, body)
    except msgspec.ValidationError as error:
        return Malformed(f"not {expected}: {error}")
    except msgspec.DecodeError as error:
        return Malformed(f"not JSON: {error}")
    except UnicodeDecodeError:
        return Malformed("not JSON: not UTF-8")


def parse(body: bytes, listed: TemplateKinds = WELL_KNOWN) -> AdmissionRequest | Malformed:
    """Return the request of a review; of a kind in `listed`, with its pod templates."""
    if len(body) < large_review.SMALL_BYTES:
        return _parse(body, listed)
    # Where the size alone decides, nothing is searched.
    values = 0 if len(body) > large_review.MAX_BYTES else large_review.count_values(body)
    if large_review.is_too_large(len(body), values):
        return _parse_identity(body, listed)
    try:
        request = _parse(body, listed)
    except deep.TooDeepError:
        return _parse_identity(body, listed)
    if (
        isinstance(request, AdmissionRequest)
        and request.old_object is None
        and large_review.is_too_large(len(body), values, objects=1)
    ):
        # Without this, it could be created, and never be changed.
        return _parse_identity(body, listed)
    return request


def _parse_identity(body: bytes, listed: TemplateKinds) -> AdmissionRequest | Malformed:
    """Return the request of a review that is too large, without most of its objects."""
    review = decode(large_review.DECODER, body, "an AdmissionReview")
    if isinstance(review, Malformed):
        return review
    identity = large_review.identity_of(review)
    if identity is None:
        return Malformed("not an AdmissionReview of an API server: too large")
    request = _parse(identity.body, listed)
    if isinstance(request, Malformed):
        return request
    paths = _template_paths(request.kind, listed) or ()
    return UncheckedRequest(
        **msgspec.structs.asdict(request),
        is_changed=identity.is_changed or not all(path.startswith("spec.") for path in paths),
    )


def _parse(body: bytes, listed: TemplateKinds) -> AdmissionRequest | Malformed:
    try:
        review = _decode(_DECODER, body)
    except deep.TooDeepError:
        raise
    except msgspec.ValidationError as error:
        return _without_objects(body, listed) or Malformed(f"not an AdmissionReview: {error}")
    except msgspec.DecodeError as error:
        return Malformed(f"not JSON: {error}")
    except UnicodeDecodeError:
        return Malformed("not JSON: not UTF-8")
    if review.api_version != API_VERSION:
        return Malformed(f"apiVersion must be {API_VERSION}")
    if review.request is None:
        return Malformed("not an AdmissionReview: no request")
    paths = _template_paths(review.request.kind, listed)
    return (
        _with_kind(review.request)
        if paths is None
        else _with_templates(body, review.request, paths)
    )


def has_rules(request: AdmissionRequest) -> bool:
    """True where the object's kind has rules, and the operation creates or updates it."""
    kind = request.kind
    return request.operation in ("CREATE", "UPDATE") and (
        (kind.kind, kind.group) in _WITH_RULES or isinstance(request.object, TemplatedResource)
    )


def _with_kind(request: AdmissionRequest) -> AdmissionRequest:
    """Set the kind of the objects to the kind of the request, whatever they state."""
    kind = request.kind.kind
    if request.object is not None and request.object.kind != kind:
        request.object = struct_twins.replaced(request.object, kind=kind)
    if request.old_object is not None and request.old_object.kind != kind:
        request.old_object = struct_twins.replaced(request.old_object, kind=kind)
    return request


def _template_paths(kind: GroupVersionKind, listed: TemplateKinds) -> Sequence[str] | None:
    """Return the paths of the kind's pod templates; `None` for a kind that is not listed."""
    if kinds.is_served_as(kind.kind, kind.group):
        return None
    return listed.paths_of(kind.group, kind.kind)


def _with_templates(
    body: bytes, request: AdmissionRequest, paths: Sequence[str]
) -> AdmissionRequest | Malformed:
    """Replace the objects by their pod templates."""
    try:
        found = _decode(_OBJECTS_DECODER, body).request
    except deep.TooDeepError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Malformed(f"not JSON: {error}")
    request.object = None if found.object is None else templates.read(found.object, paths)
    request.old_object = (
        None if found.old_object is None else templates.read(found.old_object, paths)
    )
    return request


def _without_objects(body: bytes, listed: TemplateKinds) -> AdmissionRequest | Malformed | None:
    """Return the request if no rule reads its objects: a foreign kind may have any form."""
    try:
        header = _decode(_HEADER_DECODER, body).request
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if header is None:
        return None
    request = AdmissionRequest(
        uid=header.uid,
        operation=header.operation,
        kind=header.kind,
        namespace=header.namespace,
        user_info=header.user_info,
    )
    paths = _template_paths(request.kind, listed)
    if paths is not None:
        return _with_templates(body, request, paths)
    return None if has_rules(request) else request
