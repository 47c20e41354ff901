"""`/healthz`, `/readyz` and `/metrics` over plain HTTP, for probes and scrapers."""

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from .metrics import OperatorMetrics


class ProbeServer:
    """Answers as soon as the program runs; ready once the policy has been read."""

    def __init__(
        self,
        metrics: OperatorMetrics,
        *,
        is_ready: Callable[[], bool],
        is_healthy: Callable[[], bool],
    ) -> None:
        self._metrics = metrics
        self._is_ready = is_ready
        self._is_healthy = is_healthy
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(application, access_log=None)

    async def start(self, address: str, port: int) -> None:
        """Listen; raises `OSError` if the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, shutdown_timeout=1.0).start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        if self._is_healthy():
            return web.Response(text="ok")
        return web.Response(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            text="the API server answers, but the watch of victims receives nothing",
        )

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._is_ready():
            return web.Response(text="ok")
        return web.Response(
            status=HTTPStatus.SERVICE_UNAVAILABLE, text="the policy has not been read yet"
        )

    async def _show_metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(
            body=encode(self._metrics.registry), headers={"Content-Type": content_type}
        )
