"""One collection of the API server, kept in memory by list and watch.

It outlives the API server: what was known stays readable while it is away, and is listed anew when it is back.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from reprieve_policy.objects import ObjectMeta

from .api import Api, ApiError, Params

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 15.0
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
Key = tuple[str, str]


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
        self._heard_at = -math.inf

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

    async def wait_synced(self, timeout_seconds: float) -> None:
        """Wait for the first complete list; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_seconds):
            await self._synced.wait()

    async def run(self) -> None:
        """Keep the collection until cancelled."""
        delay = _FIRST_RETRY_SECONDS
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                    delay = _FIRST_RETRY_SECONDS
                version = await self._follow(version)
            except ApiError as error:
                # 410 is the server's word for "too old, list again"; so is any watch that it refuses.
                version = "" if error.status else version
                if error.status in self._absent and self._absent_retry_seconds is not None:
                    self.absent_as = error.status
                    self._hold({})
                    await asyncio.sleep(self._absent_retry_seconds)
                    continue
                if error.status != _GONE:
                    _log.warning("watch interrupted", extra={"path": self._path, "error": str(error)})
            except msgspec.MsgspecError as error:
                version = ""
                _log.warning("unreadable object", extra={"path": self._path, "error": str(error)})
            else:
                delay = _FIRST_RETRY_SECONDS
                continue
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
            delay = min(delay * 2, _LAST_RETRY_SECONDS)

    async def _list(self) -> str:
        fresh: dict[Key, V] = {}
        version = ""
        pages = self._api.pages(self._path, self._decode_as, params=self._params, limit=self._page)
        async for items, page_version in pages:
            version = page_version
            fresh.update((_key(item), self._keep(item)) for item in items)
        self.absent_as = None
        self._hold(fresh)
        return version

    def _hold(self, fresh: dict[Key, V]) -> None:
        gone = self._items.keys() - fresh.keys()
        self._items = fresh
        for key in gone:
            self._forget(key)
        self._heard_at = time.monotonic()
        self._synced.set()

    async def _follow(self, version: str) -> str:
        events = self._api.watch(self._path, self._decode_as, resource_version=version, params=self._params)
        async for event in events:
            version = event.resource_version or version
            self._heard_at = time.monotonic()
            if event.type == "DELETED":
                self._items.pop(_key(event.object), None)
                self._forget(_key(event.object))
            elif event.type != "BOOKMARK":
                self._items[_key(event.object)] = self._keep(event.object)
        return version


def _key(item: HasMetadata) -> tuple[str, str]:
    metadata: Any = item.metadata
    return metadata.namespace or "", metadata.name or ""
