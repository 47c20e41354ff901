"""The extender's HTTP route.

200 is a result; with any other status a scheduler keeps its own choice (`ignorable`).
"""

from functools import partial
from http import HTTPStatus

from aiohttp import web

from reprieve_webhooks.http.raw_response import RawResponse
from reprieve_webhooks.http.request_body import (
    RequestBodyReader,
    text_response,
    with_connection_close,
)
from reprieve_webhooks.http.routes import Routes

from .service import Extender

PATH = "/scheduler/preempt"
"""`urlPrefix` of a scheduler's configuration, a slash, and its `preemptVerb`."""


def routes(extender: Extender, bodies: RequestBodyReader) -> Routes:
    """Return the route."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        response = await extender.answer(
            partial(bodies.read, request), lambda: _is_disconnected(request)
        )
        if isinstance(response, web.StreamResponse):
            return response
        if response.status == HTTPStatus.OK:
            return RawResponse(response.body)
        # The request body may be unread; it is not waited for.
        return with_connection_close(text_response(response.status, response.body.decode()))

    return {("POST", PATH): respond}


def _is_disconnected(request: web.BaseRequest) -> bool:
    return request.transport is None or request.transport.is_closing()
