"""Decodes lists and watch events object by object, and skips only the unreadable ones.

Without this, one pod with an unexpected field type would prevent a program from reading all others.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from reprieve_runtime.deep import decode

from .api_error import Status, error_from_status

_log = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_DECODED_BYTES = 1024 * 1024
"""Of a list that is decoded as a whole. An object with very many labels takes ten times its size,
and a page has up to 4 MiB: without this, a few lists at a time would have a program killed for its
memory."""
Key = tuple[str, str]
_LIST_ENDS = "k8s.io/initial-events-end"
"""An annotation of a bookmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectIdentityMeta:
    """The metadata by which every object is identified.

    Narrower than `VersionedMeta`: an object must be identified whatever else of it is unreadable.
    """

    name: str = ""
    namespace: str = ""
    resourceVersion: str = ""  # noqa: N815 - the API's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class _BookmarkMeta:
    annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bookmark:
    metadata: _BookmarkMeta = field(default_factory=_BookmarkMeta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectIdentity:
    """An object of which only the identity is decoded."""

    metadata: ObjectIdentityMeta = field(default_factory=ObjectIdentityMeta)

    @property
    def key(self) -> Key:
        """The namespace, or "", and the name."""
        return self.metadata.namespace, self.metadata.name


OnUnreadable = Callable[[Key, msgspec.MsgspecError], None]


def log_unreadable(key: Key, error: msgspec.MsgspecError) -> None:
    """Log that an object was skipped."""
    namespace, name = key
    _log.warning(
        "skipped an unreadable object",
        extra={"namespace": namespace, "object": name, "error": str(error)},
    )


def read_items(text: msgspec.Raw, decode_as: type[T], on_unreadable: OnUnreadable) -> Iterable[T]:
    """Return the items of a list; raises `msgspec.MsgspecError` if it is not a list of objects.

    Those of a large list are decoded one by one, each time they are iterated over.
    """
    if memoryview(text).nbytes > _MAX_DECODED_BYTES:
        return _Items(decode(text, list[msgspec.Raw]), decode_as, on_unreadable)
    try:
        # An empty list of metadata is sent as `null`.
        return decode(text, list[decode_as] | None) or []  # type: ignore[valid-type,arg-type]
    except msgspec.MsgspecError:
        return list(_Items(decode(text, list[msgspec.Raw]), decode_as, on_unreadable))


@dataclass(frozen=True, slots=True)
class _Items(Generic[T]):
    """The readable items of a list."""

    raw: Sequence[msgspec.Raw]
    decode_as: type[T]
    on_unreadable: OnUnreadable

    def __iter__(self) -> Iterator[T]:
        for item in self.raw:
            try:
                yield decode(item, self.decode_as)
            except msgspec.MsgspecError as error:
                self.on_unreadable(decode(item, ObjectIdentity).key, error)


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    decode_as: type[T]
    type: str
    identity: ObjectIdentity
    raw: msgspec.Raw

    @property
    def object(self) -> T:
        """Decode the object at each call; raises `msgspec.MsgspecError`."""
        return decode(self.raw, self.decode_as)

    @property
    def ends_list(self) -> bool:
        """True for the bookmark after the last object of a collection that is sent as events."""
        if self.type != "BOOKMARK":
            return False
        annotations = decode(self.raw, _Bookmark).metadata.annotations or {}
        return annotations.get(_LIST_ENDS) == "true"


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


def read_event(line: bytes, decode_as: type[T]) -> WatchEvent[T]:
    """Return the event; raises `ApiError` for an ERROR event.

    Raises `msgspec.MsgspecError` for a line that is not an event.
    """
    event = decode(line, _RawEvent)
    if event.type == "ERROR":
        status = decode(event.object, Status)
        raise error_from_status(status, status.code)
    return WatchEvent(decode_as, event.type, decode(event.object, ObjectIdentity), event.object)
