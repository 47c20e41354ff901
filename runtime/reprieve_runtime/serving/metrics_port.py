"""`/metrics` on a port of its own, over plain HTTP.

A NetworkPolicy can so admit scrapers to the metrics and to nothing else, and API servers to
reviews and to nothing else.
"""

from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from .bounded_server import Bounds, OpenPort, listen

PATH = "/metrics"
_BOUNDS = Bounds(connections=50, per_peer=10, idle_seconds=60.0)
"""A Prometheus keeps one connection for each target."""


async def serve_metrics(registry: CollectorRegistry, *, address: str, port: int) -> OpenPort:
    """Open the port; raises `OSError` where it is taken."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if (request.method, request.path) != ("GET", PATH):
            return web.Response(status=HTTPStatus.NOT_FOUND, text="no such path\n")
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    return await listen(respond, _BOUNDS, address=address, port=port)
