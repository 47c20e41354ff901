"""The HTTP routes: reviews and probes. Requests are limited in size and time.

A review that can be decoded is answered with 200, whatever the verdict. With any other status (400,
413, 415, 500, 503) the call counts as failed for the API server, and the `failurePolicy` of the
configuration decides.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Protocol, TypeVar

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from reprieve_runtime.client.api import ApiError
from reprieve_runtime.serving.bounded_server import IsTrusted, trusts_no_client

from .admission import handlers
from .admission.handlers import AdmissionResponse, FactsSource
from .admission.large_review import MAX_BYTES
from .admission.remembered_pods import RememberedPods
from .admission.review import IdentifiedRequest, Malformed
from .guard import review as guard_review
from .guard.review import GuardRequest
from .http import decoded_size
from .http.body_budget import BodyBudget
from .http.raw_response import RawResponse
from .http.request_body import RequestBodyReader, text_response
from .http.routes import RouteHandler, Routes
from .immediate_reviews import ImmediateReviews
from .metrics import WebhookMetrics

_LOG = logging.getLogger(__name__)


_DECODED_BYTES, _DECODED_BYTES_OF_PEER = 32 * 1024 * 1024, 24 * 1024 * 1024
"""What reviews under way decode to, beside small ones. An update of `MAX_VALUES` takes 15 MB; one
that may take more than a peer's share takes all of it."""

R = TypeVar("R", bound=IdentifiedRequest)
Parse = Callable[[bytes], R | Malformed]
Handle = Callable[[R], Awaitable[AdmissionResponse | Malformed]]


class PodGuard(Protocol):
    """Reviews deletions and evictions of pods."""

    async def answer(self, request: GuardRequest) -> AdmissionResponse:
        """Answer one review."""


class Readiness(Protocol):
    """Whether the program can answer the next review correctly."""

    def missing(self) -> tuple[str, ...]:
        """Return what is missing; empty once ready."""


class OtherWorkers(Protocol):
    """The other processes of the program, for which this one answers probes too."""

    async def missing(self) -> Sequence[str]:
        """Return what is missing until they answer reviews correctly."""

    async def silent(self) -> Sequence[str]:
        """Return the names of those that run and do not answer."""


class NoOtherWorkers:
    """`OtherWorkers` of a program that is one process."""

    async def missing(self) -> Sequence[str]:
        """Return nothing."""
        return ()

    async def silent(self) -> Sequence[str]:
        """Return no name."""
        return ()


class Webhooks:
    """The routes."""

    def __init__(
        self,
        facts: FactsSource,
        metrics: WebhookMetrics,
        readiness: Readiness,
        *,
        max_review_bytes: int,
        read_timeout_seconds: float,
        guard: PodGuard | None = None,
        remembered: RememberedPods,
        further_routes: Routes = MappingProxyType({}),
        is_trusted: IsTrusted = trusts_no_client,
    ) -> None:
        self._metrics, self._readiness = metrics, readiness
        # Room for one of the largest of one peer, and of another peer for one that is decoded.
        in_all = max_review_bytes + min(max_review_bytes, MAX_BYTES)
        self._budget = BodyBudget(in_all=in_all, per_peer=max_review_bytes)
        self._decoded = BodyBudget(in_all=_DECODED_BYTES, per_peer=_DECODED_BYTES_OF_PEER)
        self._bodies = RequestBodyReader(
            "review",
            max_bytes=max_review_bytes,
            timeout_seconds=read_timeout_seconds,
            budget=self._budget,
            is_trusted=is_trusted,
        )
        self._immediate = ImmediateReviews(
            facts, remembered, metrics.reviews, self._bodies, self._record
        )
        self.is_draining = False
        self.others: OtherWorkers = NoOtherWorkers()
        self._routes: dict[tuple[str, str], RouteHandler] = {
            ("POST", "/mutate"): self._review_handler(
                "mutate",
                self._immediate.parse,
                partial(handlers.mutate, source=facts, remembered=remembered),
            ),
            ("POST", "/validate"): self._review_handler(
                "validate",
                self._immediate.parse,
                partial(handlers.validate, source=facts, remembered=remembered),
            ),
            ("GET", "/healthz"): self._answer_health,
            ("GET", "/readyz"): self._answer_readiness,
            **further_routes,
        }
        self._guard = (
            None
            if guard is None
            else self._review_handler("guard", guard_review.parse, guard.answer)
        )

    def serve_guard_at(self, paths: Iterable[str]) -> None:
        """Answer the guard's reviews at these paths and at no other path."""
        assert self._guard is not None
        others = {
            route: handler for route, handler in self._routes.items() if handler is not self._guard
        }
        self._routes = others | {("POST", path): self._guard for path in paths}

    def answer_now(self, message: RawRequestMessage, body: bytes) -> bytes | None:
        """Answer a review at once if that is possible."""
        return None if self.is_draining else self._immediate.answer(message, body)

    def forget(self, handler: RequestHandler) -> None:
        """Have no review of a closed connection wait to be decoded.

        Without this, its body would be kept meanwhile, beside those of the connections that are
        open.
        """
        self._decoded.give_up(handler)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any request."""
        handler = self._routes.get((request.method, request.path))
        response = self._no_route(request) if handler is None else await handler(request)
        # The API server reuses a connection for long. Once one closes while draining, it opens its
        # next one to another replica. A connection on which the rest of a refused request is late
        # is closed after a moment: without this, the client would send its next request on it.
        if self.is_draining or not request.content.is_eof():
            response.force_close()
        return response

    def _no_route(self, request: web.BaseRequest) -> web.Response:
        if any(path == request.path for _, path in self._routes):
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, "method not allowed")
        return text_response(HTTPStatus.NOT_FOUND, "no such path")

    def _review_handler(self, name: str, parse: Parse[R], handle: Handle[R]) -> RouteHandler:
        durations, bodies, budget = (
            self._metrics.reviews.durations_of(name),
            self._bodies,
            self._budget,
        )

        async def answer_body(body: bytes) -> web.StreamResponse:
            started = time.perf_counter()
            response = await self._answer(name, parse, handle, body)
            durations.observe(time.perf_counter() - started)
            return response

        async def answer_in_turn(
            request: web.BaseRequest, body: bytes | web.Response
        ) -> web.StreamResponse:
            if not isinstance(body, bytes):
                return body
            size = decoded_size.most_bytes(body)
            return await (
                self._answer_large(request, size, partial(answer_body, body))
                if size
                else answer_body(body)
            )

        async def respond(request: web.BaseRequest) -> web.StreamResponse:
            body = bodies.read_now(request)
            if body is not None:
                return await answer_in_turn(request, body)
            try:
                return await answer_in_turn(request, await bodies.read_coming(request))
            finally:
                budget.release(request.protocol)

        return respond

    async def _answer_large(
        self,
        request: web.BaseRequest,
        size: int,
        answer: Callable[[], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Answer a review that decodes to so many bytes, once there is room for these."""
        try:
            refused = await self._bodies.wait_for_decoding(
                request, self._decoded, min(size, _DECODED_BYTES_OF_PEER)
            )
            return await answer() if refused is None else refused
        finally:
            self._decoded.release(request.protocol)

    async def _answer(
        self, name: str, parse: Parse[R], handle: Handle[R], body: bytes
    ) -> web.StreamResponse:
        try:
            request = parse(body)
        except Exception:  # noqa: BLE001 - as below; the uid of the review is not known yet
            _LOG.exception("could not decode the review", extra={"webhook": name})
            self._count(name, "unknown", "error")
            return text_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log")
        if isinstance(request, Malformed):
            return self._malformed(name, request)
        try:
            answer = await handle(request)
        except ApiError as error:
            extra = {"uid": request.uid, "webhook": name, "error": str(error)}
            _LOG.warning("review failed: a read of the API server failed", extra=extra)
            return self._failed(
                name,
                request,
                HTTPStatus.SERVICE_UNAVAILABLE,
                "could not read the facts for the rules",
            )
        except Exception:  # noqa: BLE001 - our own fault, which must not end the process
            _LOG.exception("review failed", extra={"uid": request.uid, "webhook": name})
            return self._failed(name, request, HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")
        if isinstance(answer, Malformed):
            return self._malformed(name, answer)
        self._record(name, request, answer)
        return RawResponse(answer.body)

    def _record(self, name: str, request: IdentifiedRequest, answer: AdmissionResponse) -> None:
        self._metrics.reviews.count(name, answer.kind, answer.outcome)
        if _LOG.isEnabledFor(logging.DEBUG):
            extra = {
                "uid": request.uid,
                "webhook": name,
                "kind": answer.kind,
                "outcome": answer.outcome,
            }
            _LOG.debug("review answered", extra=extra)

    def _malformed(self, name: str, problem: Malformed) -> web.Response:
        self._count(name, "unknown", "malformed")
        return text_response(HTTPStatus.BAD_REQUEST, problem.detail)

    def _failed(
        self, name: str, request: IdentifiedRequest, status: HTTPStatus, reason: str
    ) -> web.Response:
        # Only reviews of kinds with rules can fail: this label has few values.
        self._count(name, request.kind.kind, "error")
        return text_response(status, f"{reason} at review {request.uid}; see the log")

    def _count(self, name: str, kind: str, outcome: str) -> None:
        self._metrics.reviews.count(name, kind, outcome)

    async def _answer_health(self, request: web.BaseRequest) -> web.Response:  # noqa: ARG002
        silent = await self.others.silent()
        return (
            text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"no answer from {', '.join(silent)}")
            if silent
            else text_response(HTTPStatus.OK, "ok")
        )

    async def _answer_readiness(self, request: web.BaseRequest) -> web.Response:  # noqa: ARG002
        missing = (
            ("draining",)
            if self.is_draining
            else (*self._readiness.missing(), *await self.others.missing())
        )
        return (
            text_response(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {', '.join(missing)}")
            if missing
            else text_response(HTTPStatus.OK, "ok")
        )
