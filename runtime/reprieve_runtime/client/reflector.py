"""One collection of the API server, kept in memory by list and watch.

While the API server is unavailable, the last known objects stay readable. Afterwards the watch is
resumed, or the collection is listed again.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar

import msgspec

from .api import Api, ApiError, Params
from .api_error import unreadable_error
from .reflector_store import HasMetadata, ListInProgress, ReflectorStore
from .stored import Key as Key  # noqa: PLC0414 - callers import it from here
from .stored import OnUnreadable, WatchEvent
from .watch_backoff import WatchBackoff

_log = logging.getLogger(__name__)

_MIN_WATCH_SECONDS = 1.0
"""A watch that ends sooner counts as failed."""
_UNKNOWN_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""The answers of an API server that cannot list and watch in one stream."""
_FORBIDDEN_SECONDS = 60.0
"""A collection that was served, and is forbidden for so long, is not served any more. An API server
that has just started refuses what it allows a moment later, once it knows the roles."""
_PAGE = 20
"""Objects in one page by default: each may have 1.5 MB, and a page is in memory as a whole."""


K = TypeVar("K", bound=HasMetadata)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _ListWatch(Generic[K]):
    """The two calls for one collection."""

    api: Api
    path: str
    decode_as: type[K]
    params: Params | None
    page: int

    def list_pages(self, on_unreadable: OnUnreadable) -> AsyncIterator[tuple[Iterable[K], str]]:
        """Yield the pages of the collection, each with the list's version."""
        return self.api.list_pages(
            self.path,
            self.decode_as,
            params=self.params,
            limit=self.page,
            on_unreadable=on_unreadable,
        )

    def in_one(self, on_open: Callable[[bool], None]) -> AsyncIterator[WatchEvent[K]]:
        """Yield the collection, and then what changes, in one stream."""
        return self.api.list_and_watch(
            self.path, self.decode_as, params=self.params, on_open=on_open
        )

    def watch(self, version: str) -> AsyncIterator[WatchEvent[K]]:
        """Yield what has changed since the version."""
        return self.api.watch(
            self.path, self.decode_as, resource_version=version, params=self.params
        )


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
        is_compressed: bool = False,
    ) -> None:
        """If `absent_retry_seconds` is set, a collection that is not served counts as empty.

        It is then requested again at this interval. `absent_statuses` are the answers for a
        collection that is not served; 403 is one of them if the permission to read is optional. A
        collection that was served is kept for a minute of such answers.

        `is_compressed` requests a compressed watch where the API server has it. Such a watch begins
        with the whole collection whenever it is opened again: use it for one that is small, and
        changes much.
        """
        self._list_watch = _ListWatch(api, path, decode_as, params, page)
        self.store = ReflectorStore(transform, on_delete)
        self._absent_retry_seconds = absent_retry_seconds
        self._absent_statuses = absent_statuses
        self._absent_status: int | None = None
        """The last answer that the collection is not served, `None` while it is served."""
        self._forbidden_since: float | None = None
        """Of the answers since the last one that was not 403."""
        self._synced = asyncio.Event()
        self._version = ""
        self._is_compressed = is_compressed
        """False once the API server has not compressed a watch, or not begun it completely."""
        self._backoff = WatchBackoff()
        self._last_event_at, self._last_response_at = -math.inf, time.monotonic()

    @property
    def items(self) -> Mapping[Key, V]:
        """The current items. A new list replaces the mapping itself, so read it anew each time."""
        return self.store.items

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
        return self.store.unreadable

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
                pause = await self._list_and_watch()
                self._forbidden_since = None
            except ApiError as error:
                pause = self._retry_delay(error)
            except msgspec.MsgspecError as error:
                # The answer itself is unreadable, not one object of it.
                pause = self._retry_delay(unreadable_error(error))
            await asyncio.sleep(pause)

    def _retry_delay(self, error: ApiError) -> float:
        """Note an error; return the seconds until the next try."""
        if error.status:
            self._last_response_at = time.monotonic()
        if self._backoff.must_relist(error):
            self._version = ""
        is_absent = self._is_absent(error)
        if is_absent and self._absent_retry_seconds is not None:
            self._absent_status, self._version = error.status, ""
            self.store.clear()
            self._note_list()
            return self._absent_retry_seconds
        if error.status != HTTPStatus.GONE:
            _log.warning(
                "watch interrupted", extra={"path": self._list_watch.path, "error": str(error)}
            )
        return self._backoff.next_delay(error.retry_after_seconds or 0)

    def _is_absent(self, error: ApiError) -> bool:
        """True for an answer that the collection is not served."""
        if error.status != HTTPStatus.FORBIDDEN:
            self._forbidden_since = None
        elif self.is_served:
            now = time.monotonic()
            self._forbidden_since = self._forbidden_since or now
            if now - self._forbidden_since < _FORBIDDEN_SECONDS:
                return False
        return error.status in self._absent_statuses

    async def _list_and_watch(self) -> float:
        """Follow the collection until a watch ends; return the seconds until the next may begin."""
        if self._is_compressed:
            return await self._watch_compressed()
        if not self._version:
            await self._list()
        return await self._watch()

    async def _list(self) -> None:
        listed = self.store.begin_list()
        version = ""
        try:
            async for page, page_version in self._list_watch.list_pages(listed.on_unreadable):
                version = page_version
                self._last_response_at = time.monotonic()
                listed.add_page(page)
        except (ApiError, msgspec.MsgspecError):
            self.store.abandon_list(listed)
            raise
        self._finish_list(listed, version)

    def _finish_list(self, listed: ListInProgress[K, V], version: str) -> None:
        self._absent_status = None
        self.store.finish_list(listed)
        self._note_list()
        self._version = version
        self._backoff.reset()

    def _note_list(self) -> None:
        self._note_event()
        self._synced.set()

    async def _watch(self) -> float:
        """Follow changes until the watch ends; return the seconds until the next may begin."""
        began_at = time.monotonic()
        async for event in self._list_watch.watch(self._version):
            self._handle_event(event)
        return self._pause_after(began_at)

    async def _watch_compressed(self) -> float:
        """List and follow the collection in one stream, until that ends."""
        began_at, listed = time.monotonic(), self.store.begin_list()
        is_listing, is_compressed = True, False

        def on_open(is_answer_compressed: bool) -> None:  # noqa: FBT001 - a callback
            nonlocal is_compressed
            is_compressed = is_answer_compressed
            # Without this, a server that never ends the list would be asked for it for ever.
            self._is_compressed = False

        try:
            async for event in self._list_watch.in_one(on_open):
                if not is_listing:
                    self._handle_event(event)
                elif event.ends_list:
                    is_listing, self._is_compressed = False, is_compressed
                    self._finish_list(listed, event.identity.metadata.resourceVersion)
                else:
                    listed.handle_event(event)
                    self._last_response_at = time.monotonic()
        except ApiError as error:
            if error.status not in _UNKNOWN_STATUSES:
                raise
            self._is_compressed = False
            return 0.0
        finally:
            if is_listing:
                self.store.abandon_list(listed)
        return self._pause_after(began_at)

    def _handle_event(self, event: WatchEvent[K]) -> None:
        self.store.handle_event(event)
        self._version = event.identity.metadata.resourceVersion or self._version
        self._note_event()
        self._backoff.reset()

    def _pause_after(self, began_at: float) -> float:
        """Return the seconds until the next watch may begin.

        Without this, watches that end at once, as behind a proxy that allows none, would be
        restarted in a busy loop.
        """
        return (
            0.0 if time.monotonic() - began_at > _MIN_WATCH_SECONDS else self._backoff.next_delay()
        )

    def _note_event(self) -> None:
        self._last_event_at = self._last_response_at = time.monotonic()
        self._forbidden_since = None
