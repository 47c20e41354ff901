"""The answer to a report: a status, a document, and its outcome in the metrics."""

from http import HTTPStatus
from typing import NamedTuple

from .metrics import ReportOutcome


class Answer(NamedTuple):
    """An answer; `message` is one sentence, or the recorded time."""

    status: HTTPStatus
    message: str
    outcome: ReportOutcome
    retry_after_seconds: int | None = None


def malformed(message: str) -> Answer:
    """Return a 400."""
    return Answer(HTTPStatus.BAD_REQUEST, message, ReportOutcome.MALFORMED)


def unauthorized(message: str) -> Answer:
    """Return a 401."""
    return Answer(HTTPStatus.UNAUTHORIZED, message, ReportOutcome.UNAUTHORIZED)


def forbidden(message: str) -> Answer:
    """Return a 403."""
    return Answer(HTTPStatus.FORBIDDEN, message, ReportOutcome.FORBIDDEN)


def limited(message: str, retry_after_seconds: int) -> Answer:
    """Return a 429."""
    return Answer(HTTPStatus.TOO_MANY_REQUESTS, message, ReportOutcome.LIMITED, retry_after_seconds)


def failed(message: str, retry_after_seconds: int | None = None) -> Answer:
    """Return a 503."""
    return Answer(
        HTTPStatus.SERVICE_UNAVAILABLE, message, ReportOutcome.FAILED, retry_after_seconds
    )
