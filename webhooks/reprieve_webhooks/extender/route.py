"""The extender's path over HTTP. 200 is an answer; with any other status a scheduler keeps to its own choice (`ignorable`)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web

from reprieve_webhooks.http.raw_response import Reply
from reprieve_webhooks.http.request_body import Bodies, closing, text_response

from .service import Extender

PATH = "/scheduler/preempt"
"""`urlPrefix` of a scheduler's configuration, a slash, and its `preemptVerb`."""

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[tuple[str, str], Respond]


def routes(extender: Extender, bodies: Bodies) -> Routes:
    """Return the route."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        said = await extender.answer(partial(bodies.read, request), lambda: _has_hung_up(request))
        if isinstance(said, web.StreamResponse):
            return said
        if said.status == 200:
            return Reply(said.body)
        # Its body may not have been read, and is not waited for.
        return closing(text_response(said.status, said.body.decode()))

    return {("POST", PATH): respond}


def _has_hung_up(request: web.BaseRequest) -> bool:
    return request.transport is None or request.transport.is_closing()
