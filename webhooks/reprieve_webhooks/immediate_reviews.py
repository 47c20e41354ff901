"""Answers to reviews that are remembered, or that no rule concerns: given without a task.

All other reviews, and all that is wrong with one, are left to `server`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import HttpVersion11
from aiohttp.http import RawRequestMessage

from .admission import handlers, review
from .admission.handlers import AdmissionResponse, FactsSource
from .admission.remembered_pods import RememberedPods
from .admission.review import AdmissionRequest, Malformed
from .http.raw_response import render
from .http.request_body import JSON, RequestBodyReader
from .review_counts import Durations, ReviewCounts


class _Webhook(NamedTuple):
    name: str
    answer: Callable[[AdmissionRequest, RememberedPods], AdmissionResponse | Malformed | None]
    durations: Durations


class ImmediateReviews:
    """The two webhooks that have remembered answers."""

    def __init__(
        self,
        facts: FactsSource,
        remembered: RememberedPods,
        counts: ReviewCounts,
        bodies: RequestBodyReader,
        record: Callable[[str, AdmissionRequest, AdmissionResponse], None],
    ) -> None:
        """`record` counts and logs an answer."""
        self._facts, self._remembered, self._bodies = facts, remembered, bodies
        self._record = record
        self._webhooks = {
            "/mutate": _Webhook("mutate", handlers.mutate_now, counts.durations_of("mutate")),
            "/validate": _Webhook(
                "validate", handlers.validate_now, counts.durations_of("validate")
            ),
        }
        self._parsed: tuple[bytes, AdmissionRequest | Malformed] | None = None
        """The last body that was parsed, and not answered."""

    def parse(self, body: bytes) -> AdmissionRequest | Malformed:
        """Return the request of a review, which may have been parsed already."""
        parsed, self._parsed = self._parsed, None
        if parsed is not None and parsed[0] is body:
            return parsed[1]
        return review.parse(body, self._facts.template_kinds)

    def answer(self, message: RawRequestMessage, body: bytes) -> bytes | None:
        """Return the whole response; `None` if the review has to be answered in the usual way."""
        path, _, _ = message.path.partition("?")
        webhook = self._webhooks.get(path)
        if (
            webhook is None
            or message.method != "POST"
            or message.version != HttpVersion11
            or message.headers.get("Content-Type") != JSON
            or not isinstance(self._bodies.check(body), bytes)
        ):
            return None
        try:
            return self._answer(webhook, body)
        except Exception:  # noqa: BLE001 - it happens again in the usual way, which logs it
            return None

    def _answer(self, webhook: _Webhook, body: bytes) -> bytes | None:
        started = time.perf_counter()
        request = self.parse(body)
        answer = (
            None if isinstance(request, Malformed) else webhook.answer(request, self._remembered)
        )
        if isinstance(request, Malformed) or not isinstance(answer, AdmissionResponse):
            self._parsed = body, request
            return None
        response = render(answer.body)
        webhook.durations.observe(time.perf_counter() - started)
        self._record(webhook.name, request, answer)
        return response
