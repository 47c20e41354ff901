"""The correct answer to a body: the same policy, evaluated in this process for the same cluster.

The oracle shares the decoder and the rules with the server and nothing else: no socket, no process,
no order of arrival. The rules have their own tests. These runs show that an answer does not depend
on what else the server receives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from msgspec import Raw

from bench import stub_api
from reprieve_policy.gangs import membership
from reprieve_policy.keys import PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube.objects import Resource, annotations_of, pod_views
from reprieve_runtime.client.api import JSON, Api, ApiError, Params
from reprieve_runtime.client.stored import ObjectIdentity, WatchEvent
from reprieve_webhooks.admission import handlers, review
from reprieve_webhooks.admission.review import AdmissionRequest, Malformed
from reprieve_webhooks.facts.cluster_facts import ClusterFacts
from reprieve_webhooks.http.body_budget import SMALL_BYTES

VALIDATE, MUTATE = "/validate", "/mutate"
_HANDLERS = {VALIDATE: handlers.validate, MUTATE: handlers.mutate}
OK, BAD_REQUEST, LATE, TOO_LARGE, NOT_KNOWN = 200, 400, 408, 413, 503
NOT_READ = frozenset((LATE, 429, 503))
"""Of a large body that was not read before its time was over: others were under way."""
LOOKUP_SECONDS = 10.0
"""Seconds for one lookup: the stub API server shares a core with everything else here."""

T = TypeVar("T")


@dataclass(frozen=True)
class Expected:
    """The correct statuses, and the body if exactly one answer to a review is correct."""

    statuses: frozenset[int]
    body: bytes | None = None

    def complaint(self, status: int, body: bytes) -> str | None:
        """Return what is wrong with an answer, or `None`."""
        if status not in self.statuses:
            wanted = " or ".join(str(each) for each in sorted(self.statuses))
            return f"answered {status} instead of {wanted}: {body[:300]!r}"
        if status == OK and self.body is not None and body != self.body:
            return f"answered {body[:600]!r} instead of {self.body[:600]!r}"
        return None


def one_of(*statuses: int) -> Expected:
    """Expect one of these statuses, with any text."""
    return Expected(frozenset(statuses))


class _InProcessApi(Api):
    """Reads the same objects as the server does, without a socket."""

    def __init__(self, collections: stub_api.Collections) -> None:
        self._collections = collections

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,  # noqa: ARG002 - its collections need no selecting
        body: object = None,  # noqa: ARG002
        content_type: str = JSON,  # noqa: ARG002
        accept: str = JSON,  # noqa: ARG002
        timeout_seconds: float = 0.0,  # noqa: ARG002
        max_bytes: int | None = None,  # noqa: ARG002
    ) -> bytes:
        assert method == "GET", f"{method} {path}: only reading is supported here"
        found = stub_api.read(self._collections, path)
        if found is None:
            raise ApiError(404, "NotFound", path)
        return json.dumps(found).encode()

    async def watch(
        self,
        path: str,  # noqa: ARG002
        decode_as: type[T],
        *,
        resource_version: str,  # noqa: ARG002 - nothing ever changes
        params: Params | None = None,  # noqa: ARG002
    ) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.Event().wait()
        yield WatchEvent(decode_as, "BOOKMARK", ObjectIdentity(), Raw(b"{}"))


class Oracle:
    """Returns the correct answer of each request."""

    def __init__(self, collections: stub_api.Collections, max_review_bytes: int) -> None:
        api, own = _InProcessApi(collections), ("reprieve-system", "reprieve-policy")
        self._facts = ClusterFacts(api, *own, lookup_timeout_seconds=LOOKUP_SECONDS)
        self._known = {item["metadata"]["name"] for items in collections.values() for item in items}
        self._max_review_bytes = max_review_bytes

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep the cluster's objects for the block."""
        watches = asyncio.ensure_future(self._facts.run())
        try:
            yield
        finally:
            watches.cancel()

    async def expect(self, path: str, body: bytes) -> Expected:
        """Return the correct answer to a body that arrives completely at a path."""
        expected = await self._expect(path, body)
        if len(body) <= SMALL_BYTES:
            return expected
        # All clients of this program have one address, and some send large bodies slowly.
        return replace(expected, statuses=expected.statuses | NOT_READ)

    async def _expect(self, path: str, body: bytes) -> Expected:
        if len(body) > self._max_review_bytes:
            return one_of(TOO_LARGE)
        request = review.parse(body, self._facts.template_kinds)
        return (
            one_of(BAD_REQUEST)
            if isinstance(request, Malformed)
            else await self._judge(path, request)
        )

    async def _judge(self, path: str, request: AdmissionRequest) -> Expected:
        try:
            answered = await _HANDLERS[path](request, self._facts)
        except ApiError:
            return one_of(OK, NOT_KNOWN)
        if isinstance(answered, Malformed):
            return one_of(BAD_REQUEST)
        resource = request.object
        statuses = frozenset(
            {OK}
            if resource is None or self._knows(request.namespace, resource)
            else {OK, NOT_KNOWN}
        )
        if (
            path == VALIDATE
            and resource is not None
            and any(membership.read(view) for view in pod_views(resource))
        ):
            # The rest of a gang depends on what other clients sent before.
            return Expected(statuses)
        return Expected(statuses, answered.body)

    def _knows(self, namespace: str, resource: Resource) -> bool:
        """Return whether all named objects are watched.

        Unwatched ones are looked up, at a limited rate.
        """
        annotations, named = [annotations_of(resource.metadata)], {namespace}
        for view in pod_views(resource):
            annotations.append(view.annotations)
            named.add(view.spec.priorityClassName or "")
        named |= {each.get(PREEMPTION_PRIORITY_CLASS, "") for each in annotations}
        return named <= self._known | {""}


def check_form(sent: bytes, answered: bytes) -> str | None:
    """Return what is wrong with the form of an answer, or `None`; reads with `json` alone."""
    try:
        document = json.loads(answered)
        response: Mapping[str, Any] = document["response"]
        is_review = (document["kind"], document["apiVersion"]) == (
            "AdmissionReview",
            "admission.k8s.io/v1",
        )
        is_whole = is_review and isinstance(response["allowed"], bool)
        is_denied_well = response["allowed"] or response["status"]["code"] in (400, 403, 429)
    except (ValueError, KeyError, TypeError) as error:
        return f"no AdmissionReview ({error!r}): {answered[:300]!r}"
    if not (is_whole and is_denied_well):
        return f"no whole answer: {answered[:300]!r}"
    uid = _uid_of(sent)
    return (
        None
        if uid in (None, response["uid"])
        else f"the answer is to another review than {uid}: {answered[:300]!r}"
    )


def _uid_of(sent: bytes) -> str | None:
    """Return the uid of a review as `json` reads it, or `None` if `json` cannot read it.

    The server skips what no rule reads, whatever its characters or depth: it reads more reviews.
    """
    try:
        uid: str = json.loads(sent)["request"]["uid"]
    except (ValueError, RecursionError):
        return None
    return uid
