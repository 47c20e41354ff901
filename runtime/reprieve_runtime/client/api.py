"""A thin client of the API server: JSON in, typed objects out.

Credentials and TLS come from the official client (kubeconfig, in-cluster, token renewal). Its
generated models are not used: they decode whole objects, of which Reprieve reads a few fields.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient

from reprieve_policy.kube.objects import ObjectMeta
from reprieve_runtime.deep import decode

from .api_error import ANSWER_TOO_LARGE, Status, error_from_status, unreadable_error
from .api_error import ApiError as ApiError  # noqa: PLC0414 - callers import both from here
from .login import connection_configuration
from .page_retry import PageRetry
from .paths import has_dot_segment
from .server_time import ServerTime
from .stored import OnUnreadable, WatchEvent, log_unreadable, read_event, read_items

T = TypeVar("T")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
METADATA_ONLY = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
"""For one object; an API server that cannot send metadata only sends the whole object."""
VERSION_ONLY = f"application/json;as=Table;g=meta.k8s.io;v=v1,{JSON}"
"""For an object whose new version is all that is read of the answer: a table of a fixed size, with
`WITHOUT_OBJECT`. The metadata alone grow with the pod, because they name the writer of each field.
"""
_METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
Params = Mapping[str, str]
WITHOUT_OBJECT: Params = {"includeObject": "None"}
"""Leaves the objects out of a table."""
_WATCH_SECONDS = 290
"""The server ends a watch after this; without it, one behind a dead load balancer never ends."""
_WATCH: Params = {
    "watch": "true",
    "allowWatchBookmarks": "true",
    "timeoutSeconds": str(_WATCH_SECONDS),
}
_WATCH_IDLE_SECONDS = 90.0
"""Bookmarks arrive about once a minute: a watch without data for longer is dead."""
_MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of a page of a collection, unless one object is larger. An object may have 1.5 MB and more,
and a page is in memory as a whole, several times. Without the limit, fifty such pods of one tenant
would have every program killed for its memory that lists all pods."""
_MAX_ERROR_BYTES = 1024 * 1024
"""The limit of the answer that refuses a watch."""
_MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The limit of one watch event: an object may have 3 MB, and its JSON more."""


class _PageMetadata(msgspec.Struct, rename={"continuation": "continue"}):
    resourceVersion: str | None = None  # noqa: N815 - the API's own name
    continuation: str | None = None


class _Page(msgspec.Struct):
    metadata: _PageMetadata
    items: msgspec.Raw = msgspec.Raw(b"[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialObjectMetadata:
    """An object that was requested as metadata only."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class Api:
    """One connection pool with the credentials of one identity."""

    def __init__(self, client: ApiClient, user_agent: str) -> None:
        self._client = client
        self._user_agent = user_agent
        self.server_time = ServerTime()

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        context: str | None = None,
        *,
        user_agent: str,
        prefers_kubeconfig: bool = False,
    ) -> Self:
        """Use `kubeconfig`, else the pod's own ServiceAccount, else the user's default kubeconfig.

        `context` selects a context of the kubeconfig other than the current one. With
        `prefers_kubeconfig`, the default kubeconfig counts before the ServiceAccount, as for
        kubectl: for what a person runs, not for the programs of the cluster.
        """
        configuration = await connection_configuration(
            kubeconfig, context, prefers_kubeconfig=prefers_kubeconfig
        )
        return cls(ApiClient(configuration), user_agent)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float = 10.0,
        max_bytes: int | None = None,
    ) -> bytes:
        """Make one call and return its body of at most `max_bytes`; raises `ApiError`."""
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await self._send(
                    method,
                    path,
                    params,
                    body,
                    content_type,
                    accept=accept,
                )
                async with response:
                    text = await (
                        response.read() if max_bytes is None else _read_at_most(response, max_bytes)
                    )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(0, "Unreachable", str(error) or type(error).__name__) from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _to_api_error(response, text)
        return text

    async def get(
        self,
        path: str,
        decode_as: type[T],
        *,
        params: Params | None = None,
        accept: str = JSON,
        max_bytes: int | None = None,
    ) -> T:
        """Read one object of at most `max_bytes`; `accept` may request less than all of it."""
        text = await self.request("GET", path, params=params, accept=accept, max_bytes=max_bytes)
        return _read(text, decode_as)

    async def post(
        self,
        path: str,
        body: object,
        decode_as: type[T],
        *,
        params: Params | None = None,
        accept: str = JSON,
    ) -> T:
        """Create one object; `accept` may request less than the whole object back."""
        text = await self.request("POST", path, params=params, body=body, accept=accept)
        return _read(text, decode_as)

    async def put(self, path: str, body: object, decode_as: type[T]) -> T:
        """Replace one object."""
        return _read(await self.request("PUT", path, body=body), decode_as)

    async def patch(
        self,
        path: str,
        body: object,
        decode_as: type[T],
        *,
        content_type: str = MERGE_PATCH,
        params: Params | None = None,
        accept: str = JSON,
    ) -> T:
        """Change one object; `accept` may request less than the whole object back."""
        text = await self.request(
            "PATCH", path, params=params, body=body, content_type=content_type, accept=accept
        )
        return _read(text, decode_as)

    async def delete(self, path: str, body: object) -> None:
        """Delete one object; `body` is the DeleteOptions. The object is not sent back."""
        await self.request("DELETE", path, params=WITHOUT_OBJECT, body=body, accept=VERSION_ONLY)

    async def post_subresource(self, path: str, body: object) -> None:
        """Post to a subresource that answers with a `Status`; raise a failure for any HTTP status.

        Without this, the refused eviction of a pod with two disruption budgets would count as
        successful: its refusal has the HTTP status 201.
        """
        text = await self.request("POST", path, body=body)
        status = _read(text, Status)
        if status.status == "Failure":
            raise error_from_status(status, status.code)

    async def list_pages(
        self,
        path: str,
        decode_as: type[T],
        *,
        params: Params | None = None,
        metadata_only: bool = False,
        limit: int = 500,
        on_unreadable: OnUnreadable = log_unreadable,
    ) -> AsyncIterator[tuple[Iterable[T], str]]:
        """Yield a collection in pages, each with the resourceVersion to watch from.

        Unreadable objects are left out. A page has fewer objects than `limit` where they are large.
        Iterate over a page once: objects of a large one are decoded each time.

        A page after the first is read again where the API server refuses it for the moment. The
        first is not: its callers list again by themselves, some of them within a deadline.
        """
        accept = f"{_METADATA_ONLY_LIST},{JSON}" if metadata_only else JSON
        query, size, retry = dict(params or {}), limit, PageRetry()
        while True:
            query["limit"] = str(size)
            try:
                text = await self.request(
                    "GET",
                    path,
                    params=query,
                    accept=accept,
                    timeout_seconds=60.0,
                    max_bytes=_MAX_PAGE_BYTES if size > 1 else None,
                )
            except ApiError as error:
                if error.is_answer_too_large:
                    size //= 2
                elif "continue" in query and retry.may_retry(error):
                    await asyncio.sleep(retry.next_delay(error.retry_after_seconds or 0))
                else:
                    raise
                continue
            retry.reset()
            if len(text) < _MAX_PAGE_BYTES // 4:
                size = min(limit, 2 * size)
            page = _read(text, _Page)
            items = read_items(page.items, decode_as, on_unreadable)
            yield items, page.metadata.resourceVersion or ""
            if not page.metadata.continuation:
                return
            query["continue"] = page.metadata.continuation

    def watch(
        self, path: str, decode_as: type[T], *, resource_version: str, params: Params | None = None
    ) -> AsyncIterator[WatchEvent[T]]:
        """Yield events until the server ends the watch; raises `ApiError` (410: list again)."""
        query = {**(params or {}), **_WATCH, "resourceVersion": resource_version}
        return self._watch(path, decode_as, query, lambda _: None)

    def list_and_watch(
        self,
        path: str,
        decode_as: type[T],
        *,
        params: Params | None = None,
        on_open: Callable[[bool], None],
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the collection as ADDED events, a bookmark that ends it, and then its changes.

        `on_open` learns whether the stream is compressed: an API server from 1.37 on compresses
        only this kind of watch. Raises `ApiError`; 400 or 422 from one that does not know it.
        """
        query = {
            **(params or {}),
            **_WATCH,
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
        }
        return self._watch(path, decode_as, query, on_open)

    async def _watch(
        self, path: str, decode_as: type[T], query: Params, on_open: Callable[[bool], None]
    ) -> AsyncGenerator[WatchEvent[T], None]:
        try:
            async with asyncio.timeout(_WATCH_IDLE_SECONDS):
                response = await self._send("GET", path, query, None, JSON, accept=JSON)
            async with response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    async with asyncio.timeout(_WATCH_IDLE_SECONDS):
                        text = await _read_at_most(response, _MAX_ERROR_BYTES)
                    raise _to_api_error(response, text)
                on_open(response.headers.get("Content-Encoding") == "gzip")
                async for line in _read_lines(response):
                    yield read_event(line, decode_as)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(0, "Unreachable", str(error) or type(error).__name__) from error

    async def open_websocket(
        self,
        path: str,
        query: Sequence[tuple[str, str]],
        protocols: Sequence[str],
        *,
        max_message: int,
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket, which the caller closes; raises `ApiError`."""
        headers = await self._headers("GET", path)
        rest = self._client.rest_client
        if rest.pool_manager is None:
            # As the official client does for its own WebSockets.
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001
        url = f"{self._client.configuration.host}{path}?{urlencode(query)}"
        try:
            socket: aiohttp.ClientWebSocketResponse = await rest.pool_manager.ws_connect(
                url,
                headers=headers,
                protocols=protocols,
                max_msg_size=max_message,
                proxy=rest.proxy,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "NotUpgraded", error.message) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(0, "Unreachable", str(error) or type(error).__name__) from error
        return socket

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _send(
        self,
        method: str,
        path: str,
        params: Params | None,
        body: object,
        content_type: str,
        *,
        accept: str,
    ) -> aiohttp.ClientResponse:
        """Send the request, without a limit of time: that is the caller's.

        With one of aiohttp as well, a cancellation at the moment of the time-out would be taken for
        the time-out, and be lost: its two nested timers each take one back.
        """
        if has_dot_segment(path):
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"no object has the path {path}")
        headers = {"Accept": accept, "Content-Type": content_type} | await self._headers(
            method, path
        )
        query = f"?{urlencode(params)}" if params else ""
        url = self._client.configuration.host + path + query
        started_at = self.server_time.request_started()
        response = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=aiohttp.ClientTimeout()
        )
        raw: aiohttp.ClientResponse = response.response
        self.server_time.response_received(raw.headers.get("Date"), started_at)
        return raw

    async def _headers(self, method: str, path: str) -> dict[str, str]:
        """Return the user agent and the credentials; a token that is about to expire is renewed."""
        headers = {"User-Agent": self._user_agent}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        return headers


async def _read_lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. Without the limits, one endless line would take all memory."""
    pending = bytearray()
    while True:
        async with asyncio.timeout(_WATCH_IDLE_SECONDS):
            chunk = await response.content.readany()
        if not chunk:
            return
        pending += chunk
        *lines, rest = bytes(pending).split(b"\n")
        pending = bytearray(rest)
        if len(pending) > _MAX_EVENT_BYTES:
            raise ApiError(0, "TooLarge", "a watch event is larger than any object may be")
        for line in lines:
            if line.strip():
                yield line


async def _read_at_most(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    try:
        await response.content.readexactly(max_bytes + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    raise ApiError(0, ANSWER_TOO_LARGE, f"more than {max_bytes} bytes")


def _read(text: bytes, decode_as: type[T]) -> T:
    """Decode an answer.

    One that cannot be read, such as a page of a proxy, counts as none: what was asked for may have
    been done. Raises `ApiError`.
    """
    try:
        return decode(text, decode_as)
    except msgspec.MsgspecError as error:
        raise unreadable_error(error) from error


def _to_api_error(response: aiohttp.ClientResponse, text: bytes) -> ApiError:
    try:
        status = decode(text, Status)
    except msgspec.MsgspecError:
        status = Status(reason=response.reason or "", message=text[:200].decode("utf-8", "replace"))
    retry_after = response.headers.get("Retry-After", "")
    return error_from_status(
        status, response.status, int(retry_after) if retry_after.isdigit() else None
    )
