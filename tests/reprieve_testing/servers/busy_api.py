"""A stub API server under load: it keeps objects, and answers 504 to what exceeds its capacity.

For what a real one cannot be made to do at a chosen moment. It has conflicts, deletions with
preconditions, watches, and an owner for the ledger of its pods. Each workload saves at once: it
answers the request in its annotation.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from reprieve_policy import keys
from reprieve_runtime.client.api import Api

from .stub_api import connect, refusal_of_initial_events

_NAMED = ("pods", "jobs", "leases", "configmaps", "namespaces")
_STATUS_SECONDS = 0.05
"""How long a call waits that is then refused."""

_AS_TABLE = "application/json;as=Table;"
_AS_METADATA = "application/json;as=PartialObjectMetadata;"

Document = dict[str, Any]


@dataclass
class BusyApi:
    """Objects by path; `capacity` calls at a time are served, each for `latency_seconds`."""

    capacity: int = 1000
    latency_seconds: float = 0.002
    objects: dict[str, Document] = field(default_factory=dict)
    calls: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """By method, resource and status."""
    deleted_at: dict[str, list[float]] = field(default_factory=dict)
    """On the monotonic clock, by path."""
    most_at_once: int = 0
    _in_progress: int = 0
    _versions: "count[int]" = field(default_factory=lambda: count(1000))
    _watches: dict[asyncio.Queue[Document], tuple[str, str]] = field(default_factory=dict)

    def count(self, method: str = "", resource: str = "", status: int = 0) -> int:
        """Return how many calls were answered so."""
        wanted = (method, resource, status)
        return sum(
            number
            for key, number in self.calls.items()
            if all(not want or want == have for want, have in zip(wanted, key, strict=True))
        )

    def add(self, path: str, **document: Any) -> None:
        """Create or change an object."""
        self._store(path, document)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one call."""
        if "sendInitialEvents" in request.query:
            return refusal_of_initial_events()
        if "watch" in request.query:
            return await self._watch(request)
        resource = resource_of(request.path)
        is_counted = resource != "leases"
        self._in_progress += is_counted
        self.most_at_once = max(self.most_at_once, self._in_progress)
        try:
            if is_counted and self._in_progress > self.capacity:
                await asyncio.sleep(_STATUS_SECONDS)
                status, answer = _refusal(HTTPStatus.GATEWAY_TIMEOUT)
            else:
                await asyncio.sleep(self.latency_seconds)
                body = json.loads(await request.read() or b"{}")
                status, answer = self._answer(request, body)
        finally:
            self._in_progress -= is_counted
        self.calls[request.method, resource, status] += 1
        if status < HTTPStatus.BAD_REQUEST:
            answer = _as_requested(answer, request.headers.get("Accept", ""))
        return web.json_response(answer, status=status)

    def _answer(self, request: web.BaseRequest, body: Document) -> tuple[int, Document]:
        path = request.path.removesuffix("/status")
        if request.method == "POST":
            return HTTPStatus.CREATED, self._create(path, body)
        if request.method == "GET" and path not in self.objects and _is_collection(path):
            return HTTPStatus.OK, self._list(path, request.query.get("labelSelector", ""))
        found = self.objects.get(path)
        if found is None:
            return _refusal(HTTPStatus.NOT_FOUND)
        preconditions = body.get("preconditions") or body.get("metadata", {})
        version = preconditions.get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            return _refusal(HTTPStatus.CONFLICT)
        answers: dict[str, Callable[[], Document]] = {
            "GET": lambda: found,
            "DELETE": lambda: self._delete(path, found),
            "PUT": lambda: self._store(path, body),
            "PATCH": lambda: self._store(path, _merged(found, body)),
        }
        return HTTPStatus.OK, answers[request.method]()

    def _create(self, path: str, body: Document) -> Document:
        name = body.get("metadata", {}).get("name")
        return (
            body if path.rsplit("/", 1)[-1] not in _NAMED else self._store(f"{path}/{name}", body)
        )

    def _list(self, path: str, selector: str) -> Document:
        items = [one for of, one in self.objects.items() if _is_in(of, path, one, selector)]
        return {"metadata": {"resourceVersion": str(next(self._versions))}, "items": items}

    def _delete(self, path: str, found: Document) -> Document:
        self.deleted_at.setdefault(path, []).append(time.monotonic())
        del self.objects[path]
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell("DELETED", path, found)
        return found

    def _store(self, path: str, document: Document) -> Document:
        before = self.objects.get(path)
        document.setdefault("metadata", {})["resourceVersion"] = str(next(self._versions))
        self.objects[path] = document
        self._tell("MODIFIED" if before else "ADDED", path, document, before)
        asyncio.get_running_loop().call_later(self.latency_seconds, self._save, path)
        return document

    def _save(self, path: str) -> None:
        """Answer the request in a pod's annotation, as its workload does."""
        pod = self.objects.get(path, {"metadata": {}})
        annotations = pod["metadata"].get("annotations") or {}
        request = json.loads(annotations.get(keys.CHECKPOINT_REQUEST) or "{}")
        if request.get("id") and keys.CHECKPOINT_ANSWER not in annotations:
            answer = json.dumps({"id": request["id"], "state": "saved", "step": 1})
            patch = {"metadata": {"annotations": {keys.CHECKPOINT_ANSWER: answer}}}
            self._store(path, _merged(pod, patch))

    def _tell(
        self, kind: str, path: str, document: Document, before: Document | None = None
    ) -> None:
        """Send an event to each watch; for one, an object that loses the label is deleted."""
        for queue, (watched, selector) in self._watches.items():
            is_shown = _is_in(path, watched, document, selector)
            if is_shown or (before is not None and _is_in(path, watched, before, selector)):
                seen = json.loads(json.dumps(document))
                queue.put_nowait({"type": kind if is_shown else "DELETED", "object": seen})

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[Document] = asyncio.Queue()
        self._watches[queue] = (request.path, request.query.get("labelSelector", ""))
        try:
            while True:
                await response.write(json.dumps(await queue.get()).encode() + b"\n")
        finally:
            del self._watches[queue]


B = TypeVar("B", bound=BusyApi)


@asynccontextmanager
async def busy_api(directory: Path, **settings: Any) -> AsyncIterator[tuple[BusyApi, Api, Api]]:
    """Serve a stub with these settings, as `serving` does."""
    async with serving(BusyApi(**settings), directory) as served:
        yield served


@asynccontextmanager
async def serving(stub: B, directory: Path) -> AsyncIterator[tuple[B, Api, Api]]:
    """Serve a stub; yield it with two connections to it, as the operator has them."""
    runner = web.ServerRunner(web.Server(stub.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api, lease_api = [await connect(directory, runner.addresses[0][1]) for _ in range(2)]
    try:
        yield stub, api, lease_api
    finally:
        await api.close()
        await lease_api.close()
        await runner.cleanup()


def resource_of(path: str) -> str:
    """Return the plural of the kind that a path is about, like `pods`."""
    parts = path.removesuffix("/status").split("/")
    return parts[-1] if _is_collection(path) else parts[-2]


def _is_collection(path: str) -> bool:
    """True for `/api/v1/pods` and below a namespace; names of objects here have no such form."""
    parts = path.split("/")[3 if path.startswith("/api/") else 4 :]
    return len(parts) in (1, 3)


def _is_in(path: str, collection: str, document: Document, selector: str) -> bool:
    below, _, _ = path.rpartition("/")
    is_below = below == collection or (
        "/namespaces/" not in collection
        and below.rpartition("/")[2] == collection.rpartition("/")[2]
        and below.startswith(collection.rpartition("/")[0])
    )
    key, has_value, value = selector.partition("=")
    found = (document["metadata"].get("labels") or {}).get(key)
    return is_below and (not key or (found == value if has_value else found is not None))


def _merged(before: Document, patch: Document) -> Document:
    """Return the object after a merge patch; conditions are added, as a strategic one does."""
    after = dict(before)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            after[key] = _merged(after.get(key) or {}, value)
        elif key == "conditions":
            after[key] = [*(after.get(key) or []), *value]
        else:
            after[key] = value
    return after


def _as_requested(answer: Document, accept: str) -> Document:
    """Return as much of an object as the caller wants."""
    metadata = answer.get("metadata", {})
    if "items" in answer:
        return answer
    if accept.startswith(_AS_TABLE):
        return {"kind": "Table", "metadata": {"resourceVersion": metadata.get("resourceVersion")}}
    return {"metadata": metadata} if accept.startswith(_AS_METADATA) else answer


def _refusal(code: HTTPStatus) -> tuple[int, Document]:
    status = {"code": code, "reason": code.phrase, "message": "no", "status": "Failure"}
    return int(code), status
