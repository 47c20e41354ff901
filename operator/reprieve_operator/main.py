"""The program `reprieve-operator`: starts its parts, and stops them in order."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

import uvloop

from reprieve_certs.issue import ServingNames
from reprieve_certs.serving import CertificateFiles, ServingContext, keep_self_signed
from reprieve_runtime import logs
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.serving.file_limit import raise_file_limit
from reprieve_runtime.serving.metrics_access import MetricsAccess
from reprieve_runtime.serving.metrics_port import Handler, MetricsProtection, serve_metrics
from reprieve_runtime.settings import exit_with_errors

from . import settings as options
from .clock import Clock
from .history import History
from .leader import Leader
from .metrics import OperatorMetrics
from .server import ProbeServer
from .settings import OperatorSettings
from .ui import pages
from .ui.document import PageDocument, build, state_of

_log = logging.getLogger(__name__)
_CERTIFICATE_CHECK_SECONDS = 60.0


def main() -> None:
    """Run until SIGTERM or SIGINT; exit with 0 then, with 1 if the operator cannot run."""
    settings = options.read(sys.argv[1:])
    try:
        logs.configure(settings.log_format, settings.log_level)
    except ValueError as error:
        exit_with_errors(options.PROGRAM, [str(error)])
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except (ApiError, OSError) as error:
        _log.critical("cannot run", extra={"error": str(error)})
        raise SystemExit(1) from error


async def run(settings: OperatorSettings) -> None:
    """Serve probes, compete for the lease, lead; return after a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = OperatorMetrics()
    api = await Api.connect(settings.kubeconfig, user_agent=options.PROGRAM)
    # Without connections of its own, a renewal of the lease would wait for the calls about
    # thousands of victims.
    lease_api = await Api.connect(settings.kubeconfig, user_agent=options.PROGRAM)
    # A leader has read the Lease, so that it knows the API server's time before its first victim.
    clock = Clock(now=lease_api.server_time.now)
    history = History(clock) if settings.ui else None
    leader = Leader(api, lease_api, settings, clock, metrics, history)
    probes = ProbeServer(
        is_ready=lambda: leader.policy.reflector.is_synced,
        is_healthy=lambda: leader.is_healthy,
    )
    serving = ServingContext()
    ports = (
        await probes.start(settings.listen_address, settings.listen_port),
        await serve_metrics(
            metrics.registry,
            address=settings.listen_address,
            port=settings.metrics_port,
            protection=None
            if settings.metrics_authentication == "none"
            else MetricsProtection(serving.listener, MetricsAccess(api)),
            handlers={} if history is None else _ui_handlers(api, settings, leader, history, clock),
        ),
    )
    work = [
        asyncio.create_task(_keep_certificate(settings, serving), name="certificate"),
        asyncio.create_task(leader.policy.reflector.run(), name="policy"),
        asyncio.create_task(leader.run(), name="election"),
    ]
    stopping = asyncio.create_task(stop.wait(), name="signals")
    try:
        await asyncio.wait([stopping, *work], return_when=asyncio.FIRST_COMPLETED)
    finally:
        _log.info("stopping")
        for task in (stopping, *work):
            task.cancel()
        # The first task that failed by itself is the reason why the program ends.
        results = await asyncio.gather(*work, return_exceptions=True)
        # Side by side, as in the webhooks: clients can delay each of them.
        await asyncio.gather(*(port.close() for port in ports))
        await lease_api.close()
        await api.close()
    failures = [result for result in results if isinstance(result, Exception)]
    if failures:
        raise failures[0]


def _ui_handlers(
    api: Api, settings: OperatorSettings, leader: Leader, history: History, clock: Clock
) -> Mapping[str, Handler]:
    def document() -> PageDocument:
        term = leader.term
        return build(
            identity=settings.holder_identity,
            leader=leader.election.holder,
            now=clock.now(),
            state=None if term is None else state_of(term),
            history=history,
        )

    return pages.handlers(MetricsAccess(api, path=pages.PATH, role=pages.ROLE), document)


def _keep_certificate(
    settings: OperatorSettings, serving: ServingContext
) -> Coroutine[Any, Any, None]:
    """Return what serves the certificate of `/metrics`: that of the files, or one of its own."""
    if settings.metrics_cert_dir is not None:
        files = CertificateFiles(settings.metrics_cert_dir, serving, count_failure=lambda: None)
        return files.run(_CERTIFICATE_CHECK_SECONDS)
    names = ServingNames((f"{settings.deployment_name}.{settings.namespace}.svc",))
    return keep_self_signed(serving, names, clock=lambda: datetime.now(UTC))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
