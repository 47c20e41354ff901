"""A stub API server of lists and watches on loopback, for what a real one cannot be made to do.

It holds its first list back, falls silent in the middle of a watch, and counts calls. Tests of a
real API server's behaviour use a real one.
"""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from reprieve_runtime.client.api import Api

from . import deep_json

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
API_SERVER = "https://kubernetes.default.svc"
"""The audience of tokens for the API server itself, which a TokenReview without audiences means."""
DEADLINE_SECONDS = 60.0
END_OF_LIST = {
    "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
}
"""The bookmark after the last object of a collection with which a watch begins."""


@dataclass
class StubToken:
    """What a TokenReview says of a token."""

    audiences: list[str]
    username: str
    extra: dict[str, list[str]] = field(default_factory=dict)


class _Watch(NamedTuple):
    path: str
    selector: str


@dataclass
class StubApi:
    """Collections by path, and objects by name within them. Anything else is a 404."""

    collections: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    """Reads by path; a watch is counted apart, as `PATH?watch`."""
    lists_released: asyncio.Event = field(default_factory=asyncio.Event)
    absent: set[str] = field(default_factory=set)
    """Collections that are not served."""
    barred: set[str] = field(default_factory=set)
    """Collections that may not be read."""
    granted: set[str] = field(default_factory=set)
    """Users that have every right."""
    asked: list[Any] = field(default_factory=list)
    """The specs of the SubjectAccessReviews."""
    tokens: dict[str, StubToken] = field(default_factory=dict)
    """The tokens that are valid."""
    patches: list[tuple[str, Any]] = field(default_factory=list)
    """Path and body of each."""
    patch_types: list[str] = field(default_factory=list)
    """The content type of each."""
    patched_version: str = ""
    """The new version of what is patched; the answer is a table without rows."""
    accepts: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path with query, and header `Accept` of each call."""
    refuses: dict[str, int] = field(default_factory=dict)
    """The status with which a patch of a path is refused; 0 hangs up."""
    refusal: str = "no"
    """The message with which a patch is refused."""
    on_patch: Callable[[str, Any], None] = lambda _path, _body: None
    """What a patch does that is not refused."""
    patches_held: dict[str, asyncio.Event] = field(default_factory=dict)
    """By path, the event for which a patch waits, as beside a webhook that hangs."""
    reads_held: dict[str, asyncio.Event] = field(default_factory=dict)
    """By path, the event for which a read waits."""
    deletions: list[tuple[str, Any]] = field(default_factory=list)
    """Path and options of each."""
    applies_selectors: bool = False
    """A label selector that is only a key selects the objects with that label."""
    serves_pages: bool = False
    """A list has no more objects than asked for; the others are on further pages."""
    pages_refused: dict[str, list[int]] = field(default_factory=dict)
    """The statuses with which each page is refused before it is served, by its `continue`; 0 hangs
    up."""
    retry_after: str = "0"
    """The header `Retry-After` of a refused page."""
    date: str = ""
    """The header `Date` of each answer, where it is not that of this machine's clock."""
    is_failing: bool = False
    is_logged_out: bool = False
    """The credentials of the client have expired."""
    watches_refused: list[tuple[int, str]] = field(default_factory=list)
    """The status and the cause with which each of the next watches is refused; 0 hangs up."""
    watched_from: list[str] = field(default_factory=list)
    """The resourceVersion of each watch; "" for one that begins with the whole collection."""
    begins_watches: bool = False
    """A watch may begin with the whole collection, as since Kubernetes 1.34."""
    compresses: bool = False
    """Such a watch is compressed, as since Kubernetes 1.37; each event by itself."""
    exec: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None
    """The handler of `pods/exec`."""
    _watches: dict[asyncio.Queue[bytes | None], _Watch] = field(default_factory=dict)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.exec is not None and request.path.endswith("/exec"):
            return await self.exec(request)
        self.accepts.append((request.method, request.path_qs, request.headers.get("Accept", "")))
        handlers = {"PATCH": self._patch, "DELETE": self._delete}
        response = await handlers.get(request.method, self.answer)(request)
        if self.date:
            response.headers["Date"] = self.date
        return response

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path in self.barred | self.absent:
            self.calls[path] += 1
            code, reason = (403, "Forbidden") if path in self.barred else (404, "NotFound")
            return web.json_response(
                {"code": code, "reason": reason, "message": "not for you"}, status=code
            )
        if "watch" in request.query:
            return await self._answer_watch(request)
        self.calls[path] += 1
        if path in self.reads_held:
            await self.reads_held[path].wait()
        if self.is_logged_out or self.is_failing:
            return self._fail()
        reviews = {ACCESS_REVIEWS: self._review_access, TOKEN_REVIEWS: self._review_token}
        if path in reviews:
            return await reviews[path](request)
        collection, _, name = path.rpartition("/")
        if collection in self.collections:
            found = self.collections[collection].get(name)
            missing = {"code": 404, "reason": "NotFound", "message": f"no {name}"}
            return web.json_response(
                found or missing, status=200 if found else 404, dumps=deep_json.dumps
            )
        await self.lists_released.wait()
        return self._list(request)

    def _list(self, request: web.BaseRequest) -> web.Response:
        selector = request.query.get("labelSelector", "")
        stored = self.collections.get(request.path, {}).values()
        left_out = request.query.get("fieldSelector", "").partition("metadata.namespace!=")[2]
        items = [
            each
            for each in stored
            if self._selects(selector, each)
            and (not left_out or each["metadata"].get("namespace") != left_out)
        ]
        metadata = {"resourceVersion": "1"}
        page = request.query.get("continue", "0")
        if self.pages_refused.get(page):
            return self._refuse_page(request, self.pages_refused[page].pop(0))
        if self.serves_pages:
            begins = int(page)
            ends = begins + int(request.query["limit"])
            metadata |= {"continue": str(ends)} if ends < len(items) else {}
            items = items[begins:ends]
        return web.json_response({"metadata": metadata, "items": items}, dumps=deep_json.dumps)

    def _refuse_page(self, request: web.BaseRequest, status: int) -> web.Response:
        if not status and request.transport is not None:
            request.transport.abort()
        return web.json_response(
            {"code": status, "reason": "Refused", "message": "no"},
            status=status or 502,
            headers={"Retry-After": self.retry_after},
        )

    def _fail(self) -> web.Response:
        code, reason = (401, "Unauthorized") if self.is_logged_out else (500, "InternalError")
        document = {"code": code, "reason": reason, "message": "failing"}
        return web.json_response(document, status=code)

    async def _patch(self, request: web.BaseRequest) -> web.Response:
        self.patches.append((request.path, await request.json()))
        self.patch_types.append(request.content_type)
        if request.path in self.patches_held:
            await self.patches_held[request.path].wait()
        status = self.refuses.get(request.path, 200)
        if status == 200:
            self.on_patch(*self.patches[-1])
        if not status and request.transport is not None:
            request.transport.abort()
        refused = {"code": status, "reason": "Refused", "message": self.refusal}
        return web.json_response(
            {"metadata": {"resourceVersion": self.patched_version}} if status == 200 else refused,
            status=status or 502,
        )

    async def _delete(self, request: web.BaseRequest) -> web.StreamResponse:
        self.deletions.append((request.path, await request.json()))
        return await self.answer(request)

    def _selects(self, selector: str, document: Any) -> bool:
        if not self.applies_selectors or not selector or "=" in selector:
            return True
        return selector in document["metadata"].get("labels", {})

    async def _review_access(self, request: web.BaseRequest) -> web.Response:
        document = await request.json()
        assert request.method == "POST"
        assert (document["apiVersion"], document["kind"]) == (
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
        )
        self.asked.append(document["spec"])
        return web.json_response(
            {"status": {"allowed": document["spec"]["user"] in self.granted}}, status=201
        )

    async def _review_token(self, request: web.BaseRequest) -> web.Response:
        document = await request.json()
        assert request.method == "POST"
        assert (document["apiVersion"], document["kind"]) == (
            "authentication.k8s.io/v1",
            "TokenReview",
        )
        wanted = document["spec"].get("audiences", [API_SERVER])
        token = self.tokens.get(document["spec"]["token"])
        audiences = [each for each in wanted if token is not None and each in token.audiences]
        status: dict[str, Any] = {"user": {}}
        if token is not None and audiences:
            user = {"username": token.username, "uid": "u", "extra": token.extra}
            status = {"authenticated": True, "audiences": audiences, "user": user}
        # A real one repeats the spec.
        return web.json_response({**document, "status": status}, status=201)

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def is_watched(self, path: str, selector: str) -> bool:
        return _Watch(path, selector) in self._watches.values()

    def send(self, kind: str, document: Any, only: str = "") -> None:
        """Send an event to every watch, or to those of one path."""
        line = event_line(kind, document)
        for queue, watch in self._watches.items():
            if only in ("", watch.path) and self._selects(watch.selector, document):
                queue.put_nowait(line)

    def end_watches(self) -> None:
        for watch in self._watches:
            watch.put_nowait(None)

    async def _answer_watch(self, request: web.BaseRequest) -> web.StreamResponse:
        if "sendInitialEvents" in request.query and not self.begins_watches:
            return refusal_of_initial_events()
        self.calls[f"{request.path}?watch"] += 1
        self.watched_from.append(request.query.get("resourceVersion", ""))
        return self._refuse_watch(request) if self.watches_refused else await self._watch(request)

    def _refuse_watch(self, request: web.BaseRequest) -> web.Response:
        status, cause = self.watches_refused.pop(0)
        if not status and request.transport is not None:
            request.transport.abort()
        details = {"causes": [{"reason": cause}] if cause else []}
        refusal = {"code": status, "reason": "Refused", "message": "no", "details": details}
        return web.json_response(refusal, status=status or 502)

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        begins = "sendInitialEvents" in request.query
        is_compressed = begins and self.compresses
        headers = {"Content-Type": "application/json"}
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        if begins:
            for document in self.collections.get(request.path, {}).values():
                lines.put_nowait(event_line("ADDED", document))
            if self.lists_released.is_set():
                lines.put_nowait(event_line("BOOKMARK", END_OF_LIST))
        self._watches[lines] = _Watch(request.path, request.query.get("labelSelector", ""))
        try:
            while line := await lines.get():
                await response.write(gzip.compress(line) if is_compressed else line)
        finally:
            del self._watches[lines]
        return response


def event_line(kind: str, document: Any) -> bytes:
    """Return an event of a watch."""
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def refusal_of_initial_events() -> web.Response:
    """Return the answer of an API server before Kubernetes 1.34 to a watch with the collection."""
    message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch"
    return web.json_response({"code": 422, "reason": "Invalid", "message": message}, status=422)


@asynccontextmanager
async def stub_api(directory: Path, **collections: Any) -> AsyncIterator[tuple[StubApi, Api]]:
    """Serve a stub, and connect to it."""
    stub = StubApi(**collections)
    runner = web.ServerRunner(web.Server(stub.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api = await connect(directory, runner.addresses[0][1])
    try:
        yield stub, api
    finally:
        stub.end_watches()
        await api.close()
        await runner.cleanup()


async def connect(directory: Path, port: int) -> Api:
    """Return a connection to a stub on this port; a file in the directory names it."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{port}")))
    return await Api.connect(kubeconfig, user_agent="test")


def _kubeconfig(server: str) -> Any:
    return {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


async def until(holds: Callable[[], bool], *, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until a condition holds; the deadline is generous."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - a watch on a socket triggers no event
            await asyncio.sleep(0.01)
