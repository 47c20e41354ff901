"""One collection of the API server, kept in memory by list and watch.

While the API server is unavailable, the last known objects stay readable. Afterwards the watch is
resumed, or the collection is listed again.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from reprieve_policy.kube.objects import ObjectMeta

from .api import Api, ApiError, Params
from .stored import Key as Key  # noqa: PLC0414 - callers import it from here
from .stored import WatchEvent, log_unreadable
from .watch_backoff import WatchBackoff

_log = logging.getLogger(__name__)

_MIN_WATCH_SECONDS = 1.0
"""A watch that ends sooner counts as failed."""
_PAGE = 20
"""Objects in one page by default: each may have 1.5 MB, and a page is in memory as a whole."""


class HasMetadata(Protocol):
    """Any stored object."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's name and namespace."""


K = TypeVar("K", bound=HasMetadata)
V = TypeVar("V")


class Reflector(Generic[K, V]):
    """Keeps one collection in `items`, by (namespace or "", name).

    `transform` makes an item of each object; `on_delete` is called for objects that are gone.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        decode_as: type[K],
        transform: Callable[[K], V],
        *,
        on_delete: Callable[[Key], None] = lambda _: None,
        params: Params | None = None,
        absent_retry_seconds: float | None = None,
        page: int = _PAGE,
        absent_statuses: Collection[int] = (HTTPStatus.NOT_FOUND,),
    ) -> None:
        """If `absent_retry_seconds` is set, a collection that is not served counts as empty.

        It is then requested again at this interval. `absent_statuses` are the answers for a
        collection that is not served; 403 is one of them if the permission to read is optional.
        """
        self._api = api
        self._path = path
        self._decode_as = decode_as
        self._transform = transform
        self._on_delete = on_delete
        self._params = params
        self._absent_retry_seconds = absent_retry_seconds
        self._page = page
        self._absent_statuses = absent_statuses
        self._absent_status: int | None = None
        """The last answer that the collection is not served, `None` while it is served."""
        self._synced = asyncio.Event()
        self._items: dict[Key, V] = {}
        self._unreadable: dict[Key, str] = {}
        self._partially_listed: set[Key] = set()
        """Transformed from lists that failed before their end.

        Without this, `on_delete` would not be called for objects that are gone in the next list.
        """
        self._version = ""
        self._backoff = WatchBackoff()
        self._last_event_at, self._last_response_at = -math.inf, time.monotonic()

    @property
    def items(self) -> Mapping[Key, V]:
        """The current items. A new list replaces the mapping itself, so read it anew each time."""
        return self._items

    @property
    def is_synced(self) -> bool:
        """True once the whole collection was listed."""
        return self._synced.is_set()

    @property
    def is_served(self) -> bool:
        """True after the first list, while the API server serves the collection."""
        return self.is_synced and self._absent_status is None

    @property
    def age_seconds(self) -> float:
        """Seconds since the last list or watch event; infinite before the first complete list.

        Without changes, bookmarks arrive once a minute; a watch that is silent for longer is
        restarted.
        """
        return time.monotonic() - self._last_event_at

    @property
    def seconds_since_response(self) -> float:
        """Seconds since the API server's last answer, including errors.

        A missing answer may be this process's fault.
        """
        return time.monotonic() - self._last_response_at

    @property
    def unreadable(self) -> int:
        """The number of currently unreadable objects: their last readable versions stay in use."""
        return len(self._unreadable)

    async def wait_synced(self, timeout_seconds: float) -> None:
        """Wait for the first complete list; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_seconds):
            await self._synced.wait()

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        self._last_response_at = time.monotonic()
        # After a restart because of our own fault, resuming would meet the same event again.
        self._version = ""
        while True:
            try:
                if not self._version:
                    await self._list()
                pause = await self._watch()
            except ApiError as error:
                pause = self._retry_delay(error)
            except msgspec.MsgspecError as error:
                # The answer itself is unreadable, not one object of it.
                pause = self._retry_delay(ApiError(0, "Unreadable", str(error)))
            await asyncio.sleep(pause)

    def _retry_delay(self, error: ApiError) -> float:
        """Note an error; return the seconds until the next try."""
        if error.status:
            self._last_response_at = time.monotonic()
        if self._backoff.must_relist(error):
            self._version = ""
        if error.status in self._absent_statuses and self._absent_retry_seconds is not None:
            self._absent_status, self._version = error.status, ""
            self._replace({}, {})
            return self._absent_retry_seconds
        if error.status != HTTPStatus.GONE:
            _log.warning("watch interrupted", extra={"path": self._path, "error": str(error)})
        return self._backoff.next_delay(error.retry_after_seconds or 0)

    async def _list(self) -> None:
        fresh: dict[Key, V] = {}
        unreadable: dict[Key, str] = {}
        version = ""
        pages = self._api.list_pages(
            self._path,
            self._decode_as,
            params=self._params,
            limit=self._page,
            on_unreadable=lambda key, error: self._note_unreadable(key, error, unreadable),
        )
        try:
            async for items, page_version in pages:
                version = page_version
                self._last_response_at = time.monotonic()
                fresh.update((_key(item), self._transform(item)) for item in items)
        except (ApiError, msgspec.MsgspecError):
            self._partially_listed |= fresh.keys()
            raise
        fresh.update((key, self._items[key]) for key in unreadable if key in self._items)
        self._absent_status = None
        self._replace(fresh, unreadable)
        self._version = version
        self._backoff.reset()

    def _replace(self, fresh: dict[Key, V], unreadable: dict[Key, str]) -> None:
        gone = (self._items.keys() | self._partially_listed) - fresh.keys()
        self._items, self._unreadable = fresh, unreadable
        self._partially_listed.clear()
        for key in gone:
            self._on_delete(key)
        self._note_event()
        self._synced.set()

    async def _watch(self) -> float:
        """Follow changes until the watch ends; return the seconds until the next may begin."""
        began_at = time.monotonic()
        events = self._api.watch(
            self._path, self._decode_as, resource_version=self._version, params=self._params
        )
        async for event in events:
            self._handle_event(event)
            self._version = event.identity.metadata.resourceVersion or self._version
            self._note_event()
            self._backoff.reset()
        # Without this, watches that end at once, as behind a proxy that allows none, would be
        # restarted in a busy loop.
        return (
            0.0 if time.monotonic() - began_at > _MIN_WATCH_SECONDS else self._backoff.next_delay()
        )

    def _handle_event(self, event: WatchEvent[K]) -> None:
        if event.type == "BOOKMARK":
            return
        key = event.identity.key
        if event.type == "DELETED":
            self._unreadable.pop(key, None)
            if key in self._items:
                del self._items[key]
                self._on_delete(key)
            return
        try:
            item = event.object
        except msgspec.MsgspecError as error:
            self._note_unreadable(key, error, self._unreadable)
            return
        self._unreadable.pop(key, None)
        self._items[key] = self._transform(item)

    def _note_unreadable(
        self, key: Key, error: msgspec.MsgspecError, unreadable: dict[Key, str]
    ) -> None:
        """Note an unreadable object and log it once; its last readable version stays in use."""
        unreadable[key] = str(error)
        if self._unreadable.get(key) != str(error):
            log_unreadable(key, error)

    def _note_event(self) -> None:
        self._last_event_at = self._last_response_at = time.monotonic()


def _key(item: HasMetadata) -> Key:
    metadata: Any = item.metadata
    return metadata.namespace or "", metadata.name or ""
