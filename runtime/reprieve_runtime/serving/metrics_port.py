"""`/metrics` on a port of its own: by HTTPS to clients with the right, or by HTTP to any client.

A NetworkPolicy can so admit scrapers to the metrics and to nothing else, and API servers to
reviews and to nothing else.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Literal, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from .bounded_server import Bounds, OpenPort, listen, peer_of
from .metrics_access import PATH, MetricsAccess

_BOUNDS = Bounds(connections=50, per_peer=10, idle_seconds=60.0)
"""A Prometheus keeps one connection for each target."""

MetricsAuthentication = Literal["token", "none"]
"""The values of `--metrics-authentication`."""
AUTHENTICATION_HELP = (
    'who may read /metrics: "token", clients whose token has the right, over HTTPS; '
    '"none", any client, over HTTP'
)


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class MetricsProtection(NamedTuple):
    """HTTPS, without which another client could read the token on the network; and the check."""

    context: ssl.SSLContext
    access: MetricsAccess


async def serve_metrics(
    registry: CollectorRegistry,
    *,
    address: str,
    port: int,
    protection: MetricsProtection | None,
    refresh: Callable[[], Awaitable[None]] | None = None,
    handlers: Mapping[str, Handler] = MappingProxyType({}),
) -> OpenPort:
    """Open the port, to any client where there is no protection; `OSError` where it is taken.

    `refresh` is awaited before the metrics are read. `handlers` answer further paths, and check for
    themselves who may read them.
    """

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path in handlers:
            return await handlers[request.path](request)
        if (request.method, request.path) != ("GET", PATH):
            return web.Response(status=HTTPStatus.NOT_FOUND, text="no such path\n")
        if protection is not None:
            refused = await refuse(request, protection.access)
            if refused is not None:
                return refused
        if refresh is not None:
            await refresh()
        encode, content_type = _encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    context = None if protection is None else protection.context
    return await listen(respond, _BOUNDS, address=address, port=port, context=context)


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the encoder that a header asks for; the usual one where it cannot be read."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        # A version that is no number.
        return choose_encoder("")


async def refuse(request: web.BaseRequest, access: MetricsAccess) -> web.Response | None:
    """Return the answer to a request without a token that has the right; `None`: it has one."""
    header = request.headers.get("Authorization", "")
    refusal = await access.refusal(header, peer_of(request.transport))
    if refusal is None:
        return None
    response = web.Response(status=refusal.status, text=refusal.message + "\n")
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
