"""The HTTP route of reports."""

from http import HTTPStatus

from aiohttp import web

from reprieve_runtime.serving.bounded_server import peer_of
from reprieve_webhooks.http.request_body import (
    RequestBodyReader,
    text_response,
    with_connection_close,
)
from reprieve_webhooks.http.routes import Routes

from .answer import Answer, unauthorized
from .metrics import ReportMetrics, ReportOutcome
from .pod_tokens import token_of
from .service import CheckpointReports

PATH = "/checkpoints"
MAX_BYTES = 1024
"""The limit of a report; a usual one has 20 bytes."""


def routes(reports: CheckpointReports, bodies: RequestBodyReader, metrics: ReportMetrics) -> Routes:
    """Return the route."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        token, peer = token_of(request.headers.get("Authorization", "")), peer_of(request.transport)
        if token is None:
            # The body stays unread.
            answer = unauthorized(
                "a ServiceAccount's token is required: Authorization: Bearer TOKEN"
            )
        else:
            body = await bodies.read(request)
            if isinstance(body, web.Response):
                metrics.count(ReportOutcome.MALFORMED)
                return body
            answer = await reports.answer(token, body, peer)
        metrics.count(answer.outcome)
        # An agent reports rarely: its connections would only use up those of API servers.
        return with_connection_close(_response(answer))

    return {("POST", PATH): respond}


def _response(answer: Answer) -> web.Response:
    if answer.status is HTTPStatus.OK:
        return web.json_response({"lastCheckpointAt": answer.message})
    response = text_response(answer.status, answer.message)
    if answer.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(answer.retry_after_seconds)
    return response
