"""The items of one collection, and what a list or a watch event changes about them. No I/O."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from reprieve_policy.kube.objects import ObjectMeta

from .stored import Key, WatchEvent, log_unreadable


class HasMetadata(Protocol):
    """Any stored object."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's name and namespace."""


K = TypeVar("K", bound=HasMetadata)
V = TypeVar("V")


class ReflectorStore(Generic[K, V]):
    """Keeps an item of each object, by (namespace or "", name).

    `transform` makes the item of an object; `on_delete` is called for objects that are gone.
    """

    def __init__(self, transform: Callable[[K], V], on_delete: Callable[[Key], None]) -> None:
        self._transform = transform
        self._on_delete = on_delete
        self.changes = 0
        """Grows with every change that an item, or the transformation of one, may have brought."""
        self._items: dict[Key, V] = {}
        self._unreadable: dict[Key, str] = {}
        self._partially_listed: set[Key] = set()
        """Transformed from lists that failed before their end.

        Without this, `on_delete` would not be called for objects that are gone in the next list.
        """

    @property
    def items(self) -> Mapping[Key, V]:
        """The current items. A new list replaces the mapping itself."""
        return self._items

    @property
    def unreadable(self) -> int:
        """The number of currently unreadable objects: their last readable versions stay in use."""
        return len(self._unreadable)

    def begin_list(self) -> "ListInProgress[K, V]":
        """Return an empty list, to which the pages are added."""
        return ListInProgress(self._make_item, self._note_unreadable)

    def abandon_list(self, listed: "ListInProgress[K, V]") -> None:
        """Note what was transformed from a list that failed before its end."""
        self._partially_listed |= listed.items.keys() | listed.dropped

    def finish_list(self, listed: "ListInProgress[K, V]") -> None:
        """Replace all items by a complete list; unreadable objects keep their last version."""
        listed.items.update(
            (key, self._items[key]) for key in listed.unreadable if key in self._items
        )
        self._partially_listed |= listed.dropped
        self._replace(listed.items, listed.unreadable)

    def clear(self) -> None:
        """Drop all items: the collection is not served."""
        self._replace({}, {})

    def handle_event(self, event: WatchEvent[K]) -> None:
        """Apply one event of a watch."""
        if event.type == "BOOKMARK":
            return
        key = event.identity.key
        if event.type == "DELETED":
            self._unreadable.pop(key, None)
            if key in self._items or key in self._partially_listed:
                self.changes += 1
                self._items.pop(key, None)
                self._partially_listed.discard(key)
                self._on_delete(key)
            return
        try:
            item = event.object
        except msgspec.MsgspecError as error:
            self._note_unreadable(key, error, self._unreadable)
            return
        self._unreadable.pop(key, None)
        self._items[key] = self._make_item(item)

    def _make_item(self, item: K) -> V:
        self.changes += 1
        return self._transform(item)

    def _replace(self, fresh: dict[Key, V], unreadable: dict[Key, str]) -> None:
        self.changes += 1
        gone = (self._items.keys() | self._partially_listed) - fresh.keys()
        self._items, self._unreadable = fresh, unreadable
        self._partially_listed.clear()
        for key in gone:
            self._on_delete(key)

    def _note_unreadable(
        self, key: Key, error: msgspec.MsgspecError, unreadable: dict[Key, str]
    ) -> None:
        """Note an unreadable object and log it once; its last readable version stays in use."""
        unreadable[key] = str(error)
        if self._unreadable.get(key) != str(error):
            log_unreadable(key, error)


class ListInProgress(Generic[K, V]):
    """The items of the pages that were read so far."""

    def __init__(
        self,
        transform: Callable[[K], V],
        note_unreadable: Callable[[Key, msgspec.MsgspecError, dict[Key, str]], None],
    ) -> None:
        self._transform = transform
        self._note_unreadable = note_unreadable
        self.items: dict[Key, V] = {}
        self.unreadable: dict[Key, str] = {}
        self.dropped: set[Key] = set()
        """Transformed, and deleted before the list was complete."""

    def add_page(self, page: Iterable[K]) -> None:
        """Add the readable objects of a page."""
        self.items.update((_key(item), self._transform(item)) for item in page)

    def handle_event(self, event: WatchEvent[K]) -> None:
        """Add the object of an event, or drop it: it may be deleted before the list is complete."""
        key = event.identity.key
        if event.type == "DELETED":
            self.unreadable.pop(key, None)
            if self.items.pop(key, None) is not None:
                self.dropped.add(key)
            return
        if event.type == "BOOKMARK":
            return
        try:
            self.add_page([event.object])
        except msgspec.MsgspecError as error:
            self.on_unreadable(key, error)
            return
        self.unreadable.pop(key, None)

    def on_unreadable(self, key: Key, error: msgspec.MsgspecError) -> None:
        """Note an object of a page that is unreadable."""
        self._note_unreadable(key, error, self.unreadable)


def _key(item: HasMetadata) -> Key:
    metadata: Any = item.metadata
    return metadata.namespace or "", metadata.name or ""
