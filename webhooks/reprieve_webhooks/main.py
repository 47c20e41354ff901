"""The program `reprieve-webhooks`: watches, certificates and the open port, from start to drain."""

import asyncio
import base64
import gc
import ipaddress
import logging
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import uvloop

from reprieve_certs.inject import ConfigurationWatch, WebhookConfigurations
from reprieve_certs.issue import ServingNames
from reprieve_certs.rotator import Rotator
from reprieve_certs.serving import CertificateFiles, ServingContext, load_self_signed
from reprieve_certs.store import KubernetesSecretStore
from reprieve_policy.checkpointing.agent import CheckpointService
from reprieve_runtime import logs
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.client.watch_metrics import WatchedCollection
from reprieve_runtime.serving.bounded_server import OpenPort
from reprieve_runtime.serving.file_limit import raise_file_limit
from reprieve_runtime.serving.memory import return_freed_buffers
from reprieve_runtime.serving.metrics_access import MetricsAccess
from reprieve_runtime.serving.metrics_port import MetricsProtection, serve_metrics
from reprieve_runtime.settings import exit_with_errors, load, port_errors

from . import listener
from .admission.remembered_pods import RememberedPods
from .checkpoints import route as checkpoint_route
from .checkpoints.metrics import ReportMetrics
from .checkpoints.service import CheckpointReports
from .extender.metrics import ExtenderMetrics
from .extender.route import routes
from .extender.service import Extender
from .facts.cluster_facts import ClusterFacts
from .guard.handler import Guard
from .guard.secret_path import PATH, GuardPathAnchors
from .http.request_body import RequestBodyReader
from .http.routes import Routes
from .metrics import WebhookMetrics
from .server import Webhooks
from .settings import Settings, to_message
from .snapshot.informers import ClusterInformers
from .snapshot.recent_choices import RecentVictimSets
from .snapshot.refusal_recorder import RefusalRecorder
from .workers.further import FurtherWorkers
from .workers.summed_metrics import SummedMetrics

_LOG = logging.getLogger(__name__)
PROGRAM = "reprieve-webhooks"


def main(argv: Sequence[str] | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    settings = load(
        Settings,
        program=PROGRAM,
        description="Admission webhooks of Reprieve: preemption with notice for Kubernetes.",
        argv=sys.argv[1:] if argv is None else argv,
    )
    errors = port_errors(listen_port=settings.listen_port, metrics_port=settings.metrics_port)
    if settings.workers < 1:
        errors.append("--workers must be 1 or more")
    if not settings.agent_image:
        errors.append("--agent-image must be the name of an image")
    if errors:
        exit_with_errors(PROGRAM, errors)
    try:
        logs.configure(settings.log_format, settings.log_level)
        names = serving_names(settings)
    except ValueError as error:
        exit_with_errors(PROGRAM, [str(error)])
    raise_file_limit()
    return_freed_buffers()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, names))
    except (ApiError, OSError) as error:
        _LOG.critical("cannot run", extra={"error": str(error)})
        raise SystemExit(1) from error


class Program:
    """The parts of the program, and whether all of them are ready."""

    def __init__(self, settings: Settings, names: ServingNames, api: Api) -> None:
        self.metrics = WebhookMetrics()
        self.serving = ServingContext(client_ca=settings.client_ca_file)
        self.is_trusted = listener.trusts(settings.client_names)
        self.facts = ClusterFacts(
            api,
            settings.namespace,
            settings.policy_config_map,
            operator_lease=settings.operator_lease,
            lookup_timeout_seconds=settings.lookup_timeout_seconds,
            show_policy=self.metrics.observe_policy,
            count_gang_lookup=self.metrics.count_gang_lookup,
            checkpoint_service=lambda: _checkpoint_service(settings, self.certificates.trusted_pem),
            own_image=settings.agent_image,
        )
        self.victim_sets = RecentVictimSets()
        self.cluster_view = ClusterInformers(api, self.facts) if settings.extender else None
        self.guard = Guard(
            api,
            self.facts,
            operator=f"system:serviceaccount:{settings.namespace}:{settings.operator_account}",
            timeout_seconds=settings.lookup_timeout_seconds,
            victim_sets=self.victim_sets,
            cluster_view=self.cluster_view,
        )
        self.webhooks = Webhooks(
            self.facts,
            self.metrics,
            self,
            max_review_bytes=settings.max_review_bytes,
            read_timeout_seconds=settings.read_timeout_seconds,
            guard=self.guard,
            remembered=RememberedPods(self.facts),
            is_trusted=self.is_trusted,
            further_routes={
                **self._checkpoint_routes(api, settings),
                **(
                    {}
                    if self.cluster_view is None
                    else self._extender_routes(api, self.cluster_view, settings)
                ),
            },
        )
        self.configuration_watch: ConfigurationWatch | None = None
        """`None` where another program manages the certificates."""
        self.certificates = _certificate_source(settings, names, api, self)
        self.metrics.register_watches(self._watches)
        self.metrics.register_certificate_expiry("serving", lambda: self.serving.expires_at)

    async def listen(self, settings: Settings) -> OpenPort:
        """Open the port, which further workers open too."""
        return await listener.listen(
            self.webhooks,
            self.serving.listener,
            address=settings.listen_address,
            port=settings.listen_port,
            is_trusted=self.is_trusted,
            is_shared=settings.workers > 1,
        )

    def background_tasks(self, settings: Settings) -> Iterator[Coroutine[None, None, None]]:
        """Yield the coroutines that run the watches and keep the certificates."""
        yield self.facts.run()
        yield self.guard.nominated_pods.reflector.run()
        if self.cluster_view is not None:
            yield self.cluster_view.run()
        if self.configuration_watch is not None:
            yield self.configuration_watch.run()
        yield self.certificates.run(settings.certificate_check_seconds)

    def _checkpoint_routes(self, api: Api, settings: Settings) -> Routes:
        reports = CheckpointReports(api, timeout_seconds=settings.lookup_timeout_seconds)
        bodies = RequestBodyReader(
            "report",
            max_bytes=checkpoint_route.MAX_BYTES,
            timeout_seconds=settings.read_timeout_seconds,
        )
        return checkpoint_route.routes(reports, bodies, ReportMetrics(self.metrics.registry))

    def _extender_routes(
        self, api: Api, cluster_view: ClusterInformers, settings: Settings
    ) -> Routes:
        seconds, metrics = settings.extender_timeout_seconds, ExtenderMetrics(self.metrics.registry)
        bodies = RequestBodyReader(
            "call", max_bytes=settings.max_extender_bytes, timeout_seconds=seconds
        )
        extender = Extender(
            cluster_view,
            self.victim_sets,
            metrics,
            timeout_seconds=seconds,
            schedulers=settings.extender_schedulers,
            searches_all_nodes=settings.extender_all_nodes,
            refusal_recorder=RefusalRecorder(api, timeout_seconds=settings.lookup_timeout_seconds),
        )
        return routes(extender, bodies)

    def _watches(self) -> Mapping[str, WatchedCollection]:
        return {**self.facts.watches(), **self._scheduling_reflectors()}

    def _scheduling_reflectors(self) -> Mapping[str, Reflector[Any, Any]]:
        """Return the watches for the guard and the extender, which readiness waits for too."""
        extender = {} if self.cluster_view is None else self.cluster_view.watches()
        return {"nominated-pods": self.guard.nominated_pods.reflector, **extender}

    def missing(self) -> tuple[str, ...]:
        """Return what is missing for correct responses; empty once ready."""
        unsynced = (
            name for name, watch in self._scheduling_reflectors().items() if not watch.is_synced
        )
        certificates = () if self.certificates.is_ready else ("certificates",)
        return tuple(dict.fromkeys((*certificates, *self.facts.unsynced, *unsynced)))


async def _serve(settings: Settings, names: ServingNames) -> None:
    stopped = stop_signal(signal.SIGTERM, signal.SIGINT)
    api = await Api.connect(settings.kubeconfig, user_agent=PROGRAM)
    try:
        program = Program(settings, names, api)
        # A self-signed certificate at first. Probes do not verify it, and so can report from the
        # start what is missing.
        load_self_signed(program.serving, names, datetime.now(UTC))
        open_port = await program.listen(settings)
        workers = program.webhooks.others = FurtherWorkers(
            settings.workers - 1,
            (sys.executable, "-P", "-m", f"{__package__}.worker"),
            settings=to_message(replace(settings, listen_port=open_port.port)),
            first_missing=program.missing,
        )
        metrics_port = await _serve_metrics(settings, program, workers, api)
        async with asyncio.TaskGroup() as tasks:
            background = (
                *map(tasks.create_task, program.background_tasks(settings)),
                tasks.create_task(_log_when_ready(program)),
            )
            workers.start(tasks)
            _LOG.info(
                "listening",
                extra={"address": settings.listen_address, "port": settings.listen_port},
            )
            await stopped.wait()
            workers.terminate()
            await drain(program.webhooks, stopped, settings.drain_seconds)
            # Side by side: clients can delay each, and the kubelet kills the program after 30 s.
            await asyncio.gather(open_port.close(), metrics_port.close(), workers.end())
            for task in background:
                task.cancel()
    finally:
        await api.close()


async def _serve_metrics(
    settings: Settings, program: Program, workers: FurtherWorkers, api: Api
) -> OpenPort:
    is_alone = settings.workers == 1
    summed = SummedMetrics(program.metrics.registry, workers.metrics)
    return await serve_metrics(
        program.metrics.registry if is_alone else summed.registry,
        address=settings.listen_address,
        port=settings.metrics_port,
        protection=None
        if settings.metrics_authentication == "none"
        else MetricsProtection(program.serving.listener, MetricsAccess(api)),
        refresh=None if is_alone else summed.refresh,
    )


async def _log_when_ready(program: Program) -> None:
    await until_ready(program)
    _LOG.info("ready")


async def until_ready(program: Program) -> None:
    """Wait, and exclude the objects so far from garbage collection: they live long."""
    while program.missing():  # noqa: ASYNC110 - no single event spans the watches and the certificates
        await asyncio.sleep(0.05)
    gc.collect()
    gc.freeze()


async def drain(webhooks: Webhooks, stopped: asyncio.Event, seconds: float) -> None:
    """Answer on while endpoints and load balancers drop this replica; a second signal ends it."""
    webhooks.is_draining = True
    stopped.clear()
    _LOG.info("draining", extra={"seconds": seconds})
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        _LOG.info("drained")


def stop_signal(*numbers: signal.Signals) -> asyncio.Event:
    """Return what these signals set."""
    stopped = asyncio.Event()
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def serving_names(settings: Settings) -> ServingNames:
    """Return the names in the certificate; `ValueError` where an address is none."""
    ips = tuple(ipaddress.ip_address(text) for text in settings.serving_ips)
    return ServingNames((_service_name(settings), *settings.serving_names), ips)


def _service_name(settings: Settings) -> str:
    return f"{settings.service_name}.{settings.namespace}.svc"


def _checkpoint_service(settings: Settings, trusted_pem: bytes | None) -> CheckpointService | None:
    """Return where agents report; `None` if they report nothing, or the CA is not known."""
    if trusted_pem is None or settings.checkpoint_url == "none":
        return None
    url = settings.checkpoint_url or f"https://{_service_name(settings)}{checkpoint_route.PATH}"
    return CheckpointService(url, base64.b64encode(trusted_pem).decode("ascii"))


def _certificate_source(
    settings: Settings, names: ServingNames, api: Api, program: Program
) -> Rotator | CertificateFiles:
    serve, count_failure = program.webhooks.serve_guard_at, program.metrics.count_certificate_error
    if settings.cert_dir is not None:
        serve((PATH,))
        return CertificateFiles(settings.cert_dir, program.serving, count_failure=count_failure)
    store = KubernetesSecretStore(api, settings.namespace, settings.secret_name)
    anchors = WebhookConfigurations(api, settings.webhook_configuration)
    rotator = Rotator(
        store,
        GuardPathAnchors(anchors, store, api, settings.webhook_configuration, serve),
        program.serving,
        names,
        # All replicas go by one clock: without this, one whose clock is wrong would replace the
        # certificates of the others in each pass.
        clock=api.server_time.now,
        count_failure=count_failure,
    )
    program.configuration_watch = ConfigurationWatch(
        api, settings.webhook_configuration, rotator.wake
    )
    program.metrics.register_certificate_expiry("ca", lambda: rotator.ca_expires_at)
    return rotator


if __name__ == "__main__":
    main()
