"""The extender's path over HTTP. 200 is an answer; with any other status a scheduler keeps to its own choice (`ignorable`)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web

from reprieve_webhooks.http.raw_response import RawResponse
from reprieve_webhooks.http.request_body import (
    RequestBodyReader,
    text_response,
    with_connection_close,
)

from .service import Extender

PATH = "/scheduler/preempt"
"""`urlPrefix` of a scheduler's configuration, a slash, and its `preemptVerb`."""

RouteHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[tuple[str, str], RouteHandler]


def routes(extender: Extender, bodies: RequestBodyReader) -> Routes:
    """Return the route."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        said = await extender.answer(
            partial(bodies.read, request), lambda: _is_disconnected(request)
        )
        if isinstance(said, web.StreamResponse):
            return said
        if said.status == 200:
            return RawResponse(said.body)
        # Its body may not have been read, and is not waited for.
        return with_connection_close(text_response(said.status, said.body.decode()))

    return {("POST", PATH): respond}


def _is_disconnected(request: web.BaseRequest) -> bool:
    return request.transport is None or request.transport.is_closing()
