"""One collection of the API server, kept in memory by list and watch.

It outlives the API server: what was known stays readable while it is away, and is listed anew when it is back.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from reprieve_policy.kube.objects import ObjectMeta
from reprieve_runtime.backoff import WatchBackoff

from .api import Api, ApiError, Params
from .stored import Key as Key  # noqa: PLC0414 - whoever is told of one finds it here
from .stored import WatchEvent, log_unreadable

_log = logging.getLogger(__name__)

_MIN_WATCH_SECONDS = 1.0
"""A watch that ends sooner was none."""
_GONE = 410
_NOT_FOUND = 404
_PAGE = 20
"""Objects asked for at once, unless many are expected: each may be as large as 1.5 MB, and a page is in memory whole."""


class HasMetadata(Protocol):
    """Anything that the API server stores."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its name and namespace."""


K = TypeVar("K", bound=HasMetadata)
V = TypeVar("V")


class Reflector(Generic[K, V]):
    """`items` holds, by (namespace or "", name), what `keep` made of each object; `forget` hears of those that are gone."""

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
        absent_statuses: Collection[int] = (_NOT_FOUND,),
    ) -> None:
        """Where `absent_retry_seconds` is set, a collection that is not served is empty, and looked for so often.

        `absent` is how the API server says that it is not; 403 among it where the right to read it is optional.
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
        self.absent_status: int | None = None
        """How the API server said last that the collection is not served."""
        self._synced = asyncio.Event()
        self._items: dict[Key, V] = {}
        self._unreadable: dict[Key, str] = {}
        self._partially_listed: set[Key] = set()
        """Told to `keep` by lists that failed before their end. Without this, `forget` would not hear that they are gone."""
        self._version = ""
        self._backoff = WatchBackoff()
        self._last_event_at, self._last_response_at = -math.inf, time.monotonic()

    @property
    def items(self) -> Mapping[Key, V]:
        """What is known now. The mapping itself is replaced by a new list, so take it anew each time."""
        return self._items

    @property
    def is_synced(self) -> bool:
        """True once the whole collection was listed."""
        return self._synced.is_set()

    @property
    def is_served(self) -> bool:
        """True while the items are the collection's; not before its first list, nor where it is not served."""
        return self.is_synced and self.absent_status is None

    @property
    def age_seconds(self) -> float:
        """Since the API server last said anything of this collection; infinite before the first complete list.

        Bookmarks come once a minute where nothing changes, and a watch that is silent for longer is begun anew.
        """
        return time.monotonic() - self._last_event_at

    @property
    def seconds_since_response(self) -> float:
        """Since the API server last answered, if only with a refusal: where it does not, it may be this process's fault."""
        return time.monotonic() - self._last_response_at

    @property
    def unreadable(self) -> int:
        """How many objects cannot be read now: what was known of them holds."""
        return len(self._unreadable)

    async def wait_synced(self, timeout_seconds: float) -> None:
        """Wait for the first complete list; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_seconds):
            await self._synced.wait()

    async def run(self) -> None:
        """Keep the collection until cancelled."""
        self._last_response_at = time.monotonic()
        # Begun anew after a fault of ours: it would meet the same event again.
        self._version = ""
        while True:
            try:
                if not self._version:
                    await self._list()
                pause = await self._watch()
            except ApiError as error:
                pause = self._retry_delay(error)
            except msgspec.MsgspecError as error:
                # No object, but the answer itself.
                pause = self._retry_delay(ApiError(0, "Unreadable", str(error)))
            await asyncio.sleep(pause)

    def _retry_delay(self, error: ApiError) -> float:
        """Return the seconds until the next try."""
        if error.status:
            self._last_response_at = time.monotonic()
        if self._backoff.must_relist(error):
            self._version = ""
        if error.status in self._absent_statuses and self._absent_retry_seconds is not None:
            self.absent_status, self._version = error.status, ""
            self._replace({}, {})
            return self._absent_retry_seconds
        if error.status != _GONE:
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
        self.absent_status = None
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
        """Follow the changes until the watch ends; return the seconds until the next may begin."""
        began_at = time.monotonic()
        events = self._api.watch(
            self._path, self._decode_as, resource_version=self._version, params=self._params
        )
        async for event in events:
            self._handle_event(event)
            self._version = event.identity.metadata.resourceVersion or self._version
            self._note_event()
            self._backoff.reset()
        # Without this, one that ends at once each time, as behind a proxy that allows none, would be begun without end.
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
        """Note an object that cannot be read, and say so once; what was known of it holds."""
        unreadable[key] = str(error)
        if self._unreadable.get(key) != str(error):
            log_unreadable(key, error)

    def _note_event(self) -> None:
        self._last_event_at = self._last_response_at = time.monotonic()


def _key(item: HasMetadata) -> Key:
    metadata: Any = item.metadata
    return metadata.namespace or "", metadata.name or ""
