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
from .http.raw_response import raw_response
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
            f"/{name}": _Webhook(name, answer, counts.durations_of(name))
            for name, answer in (
                ("mutate", handlers.mutate_now),
                ("validate", handlers.validate_now),
            )
        }

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
        request = review.parse(body, self._facts.template_kinds)
        if isinstance(request, Malformed):
            return None
        answer = webhook.answer(request, self._remembered)
        if not isinstance(answer, AdmissionResponse):
            return None
        self._record(webhook.name, request, answer)
        webhook.durations.observe(time.perf_counter() - started)
        return raw_response(answer.body)
