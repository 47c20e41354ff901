"""`/healthz` and `/readyz` over plain HTTP, for the kubelet's probes."""

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from reprieve_runtime.serving.bounded_server import Bounds, OpenPort, listen

_BOUNDS = Bounds(connections=50, per_peer=10, idle_seconds=10.0)
"""A kubelet opens a connection for each probe."""


class ProbeServer:
    """Answers as soon as the program runs; ready once the policy has been read."""

    def __init__(self, *, is_ready: Callable[[], bool], is_healthy: Callable[[], bool]) -> None:
        self._probes = {
            "/healthz": (
                is_healthy,
                "the API server answers, but the watch of victims receives nothing",
            ),
            "/readyz": (is_ready, "the policy has not been read yet"),
        }

    async def start(self, address: str, port: int) -> OpenPort:
        """Listen; raises `OSError` if the port is taken."""
        return await listen(self._respond, _BOUNDS, address=address, port=port)

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        probe = self._probes.get(request.path)
        if probe is None or request.method != "GET":
            return web.Response(status=HTTPStatus.NOT_FOUND, text="no such path\n")
        holds, otherwise = probe
        if holds():
            return web.Response(text="ok")
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=otherwise)
