"""Reviews that are too large to be decoded: what identifies them, and whether an update counts.

The author of an object decides how large its review is. An API server writes `<`, `>`, `&` and
control characters as six bytes each, so that an object of 1.5 MiB in etcd takes 9 MiB here, and it
stores lists of 700,000 empty texts. A review that was not answered would be ignored, and the object
admitted unchecked. So these few fields are read, and the object is refused as one that cannot be
checked.
"""

from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from reprieve_policy import keys
from reprieve_runtime import deep

MAX_BYTES, MAX_VALUES = 8 * 1024 * 1024, 150_000
"""In a review that is decoded: of an update, and half as much of one object. A hostile value takes
100 bytes of memory, and some take 7 µs. A text of any characters takes four times its bytes."""
SMALL_BYTES = MAX_VALUES // 2
"""No body below has too many values."""
LARGEST_BYTES = 26 * 1024 * 1024
"""The largest review that an API server sends of an object that etcd stores. Texts grow sixfold,
and no list of anything (probes, terms of affinity) grows more than eightfold from its stored form.
An update has two objects."""
MAX_IDENTITY_BYTES, _MAX_OWNERS_BYTES = 1024 * 1024, 64 * 1024
"""Of all that is decoded then, and of the owners in it. A user's groups and claims come in the head
of a request, which has 1 MiB at most."""
_MAX_ENTRIES_BYTES = 2 * 1024 * 1024
"""Of labels or annotations that are compared one by one."""
_ABOUT_EVICTIONS = frozenset(
    {
        keys.SOFT_EVICTION,
        keys.KOORDINATOR_SOFT_EVICTION,
        keys.EVICTION,
        keys.CHECKPOINT_REQUEST,
        keys.CHECKPOINT_ANSWER,
        keys.GANG_GATE_LABEL,
        keys.GANG_RELEASED_AT,
        keys.LEDGER,
        keys.SUSPENDED,
        keys.PREEMPTOR,
        keys.REFUSED_SINCE,
        keys.LAST_CHECKPOINT_AT,
    }
)
"""What Reprieve's programs and schedulers write about evictions and gangs, which policies in the
API server check, and what workloads say of their saves. Without this, none of them could mark a
large pod, and its owner would keep its node."""
_TO_COMMA = deep.up_to(b",")
_ENTRIES_DECODER = msgspec.json.Decoder(dict[str, Raw])

_Part = Raw | UnsetType


class _UnreadMetadata(msgspec.Struct, gc=False, rename="camel"):
    name: _Part = UNSET
    namespace: _Part = UNSET
    uid: _Part = UNSET
    deletion_timestamp: _Part = UNSET
    owner_references: _Part = UNSET
    labels: _Part = UNSET
    annotations: _Part = UNSET


class _UnreadObject(msgspec.Struct, gc=False, rename="camel"):
    api_version: _Part = UNSET
    kind: _Part = UNSET
    metadata: _UnreadMetadata = msgspec.field(default_factory=_UnreadMetadata)
    spec: _Part = UNSET
    data: _Part = UNSET
    global_default: _Part = UNSET


class _UnreadRequest(msgspec.Struct, gc=False, rename="camel"):
    uid: _Part = UNSET
    operation: _Part = UNSET
    kind: _Part = UNSET
    name: _Part = UNSET
    namespace: _Part = UNSET
    user_info: _Part = UNSET
    dry_run: _Part = UNSET
    object: _UnreadObject | None = None
    old_object: _UnreadObject | None = None


class LargeReview(msgspec.Struct, gc=False, rename="camel"):
    """The parts of a review as they came: none of them is decoded."""

    api_version: _Part = UNSET
    request: _UnreadRequest | None = None


class Identity(NamedTuple):
    """What is read of a review that is too large."""

    body: bytes
    """A review of objects that have an identity only."""
    is_changed: bool
    """Whether it creates an object, or changes what rules read of it."""


DECODER = msgspec.json.Decoder(LargeReview)


def is_too_large(size: int, values: int, *, objects: int = 2) -> bool:
    """Return whether a review of so many bytes and values is too large for so many objects."""
    return size > MAX_BYTES * objects // 2 or values > MAX_VALUES * objects // 2


def count_values(body: bytes, most: int = MAX_VALUES) -> int:
    """Return the number of commas that are in no text, at most one more than `most`.

    0 where there are certainly not too many: at most half of that, as for one object.
    """
    if len(body) <= most // 2 or body.count(b",") <= most // 2:
        return 0
    commas = (True for found in _TO_COMMA.finditer(body) if found[1])
    return sum(islice(commas, most + 1))


def identity_of(review: LargeReview) -> Identity | None:
    """Return what is to be read of a large review; `None` of one that no API server sends."""
    request = review.request
    if request is None:
        return None
    old, new = request.old_object, request.object
    is_changed = old is None or new is None or _differ(old, new)
    for each in (old, new):
        if each is not None:
            _keep_identity(each)
    body = msgspec.json.encode(review)
    return Identity(body, is_changed) if len(body) <= MAX_IDENTITY_BYTES else None


def _differ(old: _UnreadObject, new: _UnreadObject) -> bool:
    """Return whether the objects differ in what rules read.

    Of an object that is being deleted, its templates only. Without this, a controller that notes
    something as it removes its finalizer could not remove it.
    """
    if (old.spec, old.data, old.global_default) != (new.spec, new.data, new.global_default):
        return True
    return new.metadata.deletion_timestamp is UNSET and (
        _entries_differ(old.metadata.labels, new.metadata.labels)
        or _entries_differ(old.metadata.annotations, new.metadata.annotations)
    )


def _entries_differ(old: _Part, new: _Part) -> bool:
    """Return whether labels, or annotations, differ but for those about evictions."""
    if old == new:
        return False
    if any(isinstance(part, Raw) and len(part) > _MAX_ENTRIES_BYTES for part in (old, new)):
        return True
    try:
        return _entries(old) != _entries(new)
    except msgspec.MsgspecError:
        return True


def _entries(part: _Part) -> dict[str, Raw]:
    found = _ENTRIES_DECODER.decode(part) if isinstance(part, Raw) else {}
    return {key: value for key, value in found.items() if key not in _ABOUT_EVICTIONS}


def _keep_identity(of: _UnreadObject) -> None:
    of.spec = of.data = of.global_default = UNSET
    of.metadata.labels = of.metadata.annotations = UNSET
    owners = of.metadata.owner_references
    if isinstance(owners, Raw) and len(owners) > _MAX_OWNERS_BYTES:
        of.metadata.owner_references = UNSET
