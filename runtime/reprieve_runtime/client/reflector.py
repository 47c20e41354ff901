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
from reprieve_runtime.backoff import Backoff

from .api import Api, ApiError, Params
from .stored import Key as Key  # noqa: PLC0414 - whoever is told of one finds it here
from .stored import WatchEvent, log_unreadable

_log = logging.getLogger(__name__)

_SHORT_SECONDS = 1.0
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
        keep: Callable[[K], V],
        *,
        forget: Callable[[Key], None] = lambda _: None,
        params: Params | None = None,
        absent_retry_seconds: float | None = None,
        page: int = _PAGE,
        absent: Collection[int] = (_NOT_FOUND,),
    ) -> None:
        """Where `absent_retry_seconds` is set, a collection that is not served is empty, and looked for so often.

        `absent` is how the API server says that it is not; 403 among it where the right to read it is optional.
        """
        self._api = api
        self._path = path
        self._decode_as = decode_as
        self._keep = keep
        self._forget = forget
        self._params = params
        self._absent_retry_seconds = absent_retry_seconds
        self._page = page
        self._absent = absent
        self.absent_as: int | None = None
        """How the API server said last that the collection is not served."""
        self._synced = asyncio.Event()
        self._items: dict[Key, V] = {}
        self._unreadable: dict[Key, str] = {}
        self._halfway: set[Key] = set()
        """Told to `keep` by lists that failed before their end. Without this, `forget` would not hear that they are gone."""
        self._version = ""
        self._backoff = Backoff()
        self._heard_at, self._answered_at = -math.inf, time.monotonic()

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
        return self.is_synced and self.absent_as is None

    @property
    def age_seconds(self) -> float:
        """Since the API server last said anything of this collection; infinite before the first complete list.

        Bookmarks come once a minute where nothing changes, and a watch that is silent for longer is begun anew.
        """
        return time.monotonic() - self._heard_at

    @property
    def silent_seconds(self) -> float:
        """Since the API server last answered, if only with a refusal: where it does not, it may be this process's fault."""
        return time.monotonic() - self._answered_at

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
        self._answered_at = time.monotonic()
        # Begun anew after a fault of ours: it would meet the same event again.
        self._version = ""
        while True:
            try:
                if not self._version:
                    await self._list()
                pause = await self._follow()
            except ApiError as error:
                pause = self._recover(error)
            except msgspec.MsgspecError as error:
                # No object, but the answer itself.
                pause = self._recover(ApiError(0, "Unreadable", str(error)))
            await asyncio.sleep(pause)

    def _recover(self, error: ApiError) -> float:
        """Return the seconds until the next try."""
        if error.status:
            self._answered_at = time.monotonic()
        if self._backoff.must_list(error):
            self._version = ""
        if error.status in self._absent and self._absent_retry_seconds is not None:
            self.absent_as, self._version = error.status, ""
            self._hold({}, {})
            return self._absent_retry_seconds
        if error.status != _GONE:
            _log.warning("watch interrupted", extra={"path": self._path, "error": str(error)})
        return self._backoff.pause(error.retry_after_seconds or 0)

    async def _list(self) -> None:
        fresh: dict[Key, V] = {}
        unreadable: dict[Key, str] = {}
        version = ""
        pages = self._api.pages(
            self._path,
            self._decode_as,
            params=self._params,
            limit=self._page,
            on_unreadable=lambda key, error: self._pass_over(key, error, unreadable),
        )
        try:
            async for items, page_version in pages:
                version = page_version
                self._answered_at = time.monotonic()
                fresh.update((_key(item), self._keep(item)) for item in items)
        except (ApiError, msgspec.MsgspecError):
            self._halfway |= fresh.keys()
            raise
        fresh.update((key, self._items[key]) for key in unreadable if key in self._items)
        self.absent_as = None
        self._hold(fresh, unreadable)
        self._version = version
        self._backoff.reset()

    def _hold(self, fresh: dict[Key, V], unreadable: dict[Key, str]) -> None:
        gone = (self._items.keys() | self._halfway) - fresh.keys()
        self._items, self._unreadable = fresh, unreadable
        self._halfway.clear()
        for key in gone:
            self._forget(key)
        self._heard()
        self._synced.set()

    async def _follow(self) -> float:
        """Follow the changes until the watch ends; return the seconds until the next may begin."""
        began_at = time.monotonic()
        events = self._api.watch(self._path, self._decode_as, resource_version=self._version, params=self._params)
        async for event in events:
            self._take(event)
            self._version = event.named.metadata.resourceVersion or self._version
            self._heard()
            self._backoff.reset()
        # Without this, one that ends at once each time, as behind a proxy that allows none, would be begun without end.
        return 0.0 if time.monotonic() - began_at > _SHORT_SECONDS else self._backoff.pause()

    def _take(self, event: WatchEvent[K]) -> None:
        if event.type == "BOOKMARK":
            return
        key = event.named.key
        if event.type == "DELETED":
            self._unreadable.pop(key, None)
            if key in self._items:
                del self._items[key]
                self._forget(key)
            return
        try:
            item = event.object
        except msgspec.MsgspecError as error:
            self._pass_over(key, error, self._unreadable)
            return
        self._unreadable.pop(key, None)
        self._items[key] = self._keep(item)

    def _pass_over(self, key: Key, error: msgspec.MsgspecError, unreadable: dict[Key, str]) -> None:
        """Note an object that cannot be read, and say so once; what was known of it holds."""
        unreadable[key] = str(error)
        if self._unreadable.get(key) != str(error):
            log_unreadable(key, error)

    def _heard(self) -> None:
        self._heard_at = self._answered_at = time.monotonic()


def _key(item: HasMetadata) -> Key:
    metadata: Any = item.metadata
    return metadata.namespace or "", metadata.name or ""
