"""What the leading replica runs: watches, reconcilers, resync, Events. All ends with the term."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reprieve_policy.lifecycle import termination
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.client.watch_metrics import WatchedCollection

from .background import background
from .checkpointing.client import CheckpointClient, transport_factories
from .checkpointing.reserved_addresses import ReservedAddresses
from .clock import Clock
from .cluster.call_limiter import CallLimiter
from .cluster.event_recorder import EventRecorder, ObjectReference
from .cluster.leader_election import LeaderElection, NotLeading
from .cluster.pods import VictimPod
from .cluster.policies import NamespacePolicies, PolicySource
from .cluster.writes import Writes
from .gangs.divergence import DivergenceMonitor
from .gangs.gate_controller import GateController
from .history import History
from .metrics import OperatorMetrics
from .past_steps import read_past_steps
from .reclaim.controller import ReclaimController
from .replacements.bare_pod_store import BarePodStore
from .replacements.bare_pods import BarePodController
from .replacements.job_resumer import JobResumer
from .replacements.ledger_writer import LedgerWriter
from .replacements.owner_jobs import OwnerJobs
from .resync import PodResync
from .settings import OperatorSettings
from .unchecked_claims import UncheckedClaims
from .uninstall import Uninstall, VictimRelease
from .victims.build import build_registry
from .victims.hold import Hold
from .victims.lost_nodes import LostNodeChecker
from .victims.pod_tracker import VictimRef
from .victims.preemptors import Preemptors
from .victims.registry import ReconcilerRegistry
from .victims.reporter import Reporter
from .victims.victim_sets import VictimSets
from .victims.watch import VictimWatch

_log = logging.getLogger(__name__)

_DRAIN_SECONDS = 2.0
_POLICY_SECONDS = 10.0
"""Until it is reported that the policy is not known yet."""
_RESYNC_RETRY_SECONDS = 10.0
"""After a resync that failed: the API server was busy, say."""
_MAX_WATCH_SILENCE_SECONDS = 300.0
"""Three watch requests, each given up after a minute and a half without an event."""
_MAX_CALLS = 64
"""Concurrent calls to the API server about victims, of one namespace half as many. Without a limit,
those of a thousand victims would time out while they wait for each other, and the buffers of each
connection take 256 KiB."""


@dataclass(frozen=True, slots=True)
class Term:
    """What one term runs, as far as metrics, the health check and the page `/ui` read it."""

    registry: ReconcilerRegistry
    gate_controller: GateController
    divergence: DivergenceMonitor
    victim_watch: VictimWatch
    namespaces: NamespacePolicies
    victim_sets: VictimSets
    preemptors: Preemptors
    bare_pods: BarePodController
    job_resumer: JobResumer

    @property
    def watches(self) -> Mapping[str, WatchedCollection]:
        """The watches of victims and of Namespaces, by collection."""
        return {"pods": self.victim_watch.reflector, "namespaces": self.namespaces.reflector}


class Leader:
    """Runs one term after another; holds what outlives a term."""

    def __init__(
        self,
        api: Api,
        lease_api: Api,
        settings: OperatorSettings,
        clock: Clock,
        metrics: OperatorMetrics,
        history: History | None = None,
    ) -> None:
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._history = history
        self._clock = clock
        self._term: Term | None = None
        self._awaited: Sequence[Reflector[Any, Any]] = ()
        """What a term waits for before it begins."""
        self.election = LeaderElection(lease_api, settings, clock)
        self.uninstall = Uninstall(api, settings.namespace, settings.deployment_name)
        self._call_limiter = CallLimiter(_MAX_CALLS, keeps_share_free=True, first=_MAX_CALLS // 2)
        self._recorder = EventRecorder(
            api, self._call_limiter, settings.holder_identity, metrics, clock
        )
        if history is not None:
            self._recorder.on_event = partial(_add_step, history)
        self.policy = PolicySource(
            api,
            settings.namespace,
            self._recorder,
            metrics,
            is_leading=lambda: self.election.is_leading,
        )
        metrics.leader.set_function(lambda: self.election.is_leading)
        metrics.gated_pods.set_function(
            lambda: self._term.gate_controller.count_gated() if self._term else 0
        )
        metrics.diverging_gangs.set_function(
            lambda: self._term.divergence.count_diverging() if self._term else 0
        )
        metrics.register_watches(
            lambda: {
                "policy": self.policy.reflector,
                **(self._term.watches if self._term else {}),
            }
        )
        metrics.register_victims(
            lambda: self._term.registry.count_by_phase() if self._term else {},
            lambda: self._term.registry.count_stuck() if self._term else 0,
            lambda: self._term.registry.queue_age_seconds() if self._term else 0.0,
        )

    @property
    def is_healthy(self) -> bool:
        """False if the lease is renewed, on its own connection, but the watch has long been silent.

        A restarted process may get a working connection. A restart does not help against an API
        server that is down or refuses.
        """
        watches = self._awaited if self._term is None else [self._term.victim_watch.reflector]
        silent_seconds = max((each.seconds_since_response for each in watches), default=0.0)
        return silent_seconds < _MAX_WATCH_SILENCE_SECONDS or not self.election.is_leading

    @property
    def term(self) -> Term | None:
        """What runs while this replica leads; `None` while it does not."""
        return self._term

    async def run(self) -> None:
        """Compete for the lease, and lead, until cancelled."""
        # Before the lease is held: a replica that leads for a moment while all are stopped must
        # know that there was a Deployment.
        await self.uninstall.remember_deployment()
        await self.election.run(self.lead)

    async def lead(self) -> None:
        """Handle victims until cancelled."""
        if self._history is not None:
            self._history.begin()
        namespaces = NamespacePolicies(self._api)
        async with background(namespaces.reflector.run):
            await self._wait_for_policies(namespaces)
            self.policy.report()
            await self._run_controllers(namespaces)

    async def _wait_for_policies(self, namespaces: NamespacePolicies) -> None:
        """Wait until the policy and those of the Namespaces are known, however long that takes.

        Without this, a term that begins while the API server comes back, say, would evict pods that
        these protect, and evict others in another way than the admin wants.
        """
        reflectors: Mapping[str, Reflector[Any, Any]] = {
            "policy": self.policy.reflector,
            "namespaces": namespaces.reflector,
        }
        try:
            while missing := [name for name, one in reflectors.items() if not one.is_synced]:
                self._awaited = [reflectors[name] for name in missing]
                try:
                    await self._awaited[0].wait_synced(_POLICY_SECONDS)
                except TimeoutError:
                    _log.warning(
                        "no victim is handled before the policies are known",
                        extra={"missing": missing},
                    )
        finally:
            self._awaited = ()

    async def _run_controllers(self, namespaces: NamespacePolicies) -> None:
        client = CheckpointClient(transport_factories(self._api))
        writes = Writes(
            self._api,
            self._call_limiter,
            self.election,
            self._metrics,
            self._clock,
            is_urgent=lambda state: termination.is_urgent(
                state, self.policy.current, self._clock.now()
            ),
        )
        bare_pods = self._make_bare_pod_controller(writes)
        victim_sets = VictimSets(self._clock)
        preemptors = Preemptors(self._api, victim_sets, self._clock)
        hold = Hold(self.policy, namespaces, self._settings.namespace)
        addresses = ReservedAddresses(self._api)
        await self.uninstall.remember_deployment()
        reporter = Reporter(self._recorder, self._metrics, namespaces, self._history)
        registry = build_registry(
            writes=writes,
            client=client,
            policy=self.policy,
            namespaces=namespaces,
            ledger=LedgerWriter(writes),
            jobs=OwnerJobs(writes, self._clock),
            bare_pods=bare_pods,
            lost_nodes=LostNodeChecker(writes, self.policy),
            hold=hold,
            recorder=self._recorder,
            reporter=reporter,
            victim_sets=victim_sets,
            preemptors=preemptors,
            settings=self._settings,
            clock=self._clock,
            refusal_of=addresses.refusal,
        )
        # Those of all Namespaces, if it is the operator's own.
        namespaces.on_terminating = lambda name: registry.on_namespace_terminating(
            None if name == self._settings.namespace else name
        )
        divergence = DivergenceMonitor(
            self._api, writes, self._recorder, self.policy, namespaces, self._clock
        )
        claims = UncheckedClaims(writes, self._recorder, self._metrics)
        resync = PodResync(
            self._api, writes, registry, self._recorder, divergence, claims, self._clock
        )
        gate_controller = self._make_gate_controller(writes, namespaces)
        seconds = self._settings.resync_interval_seconds
        resumer = JobResumer(writes, self._recorder, self._clock, interval_seconds=seconds)
        reclaim_controller = ReclaimController(
            self._api,
            writes,
            self.policy,
            namespaces,
            self._recorder,
            reporter,
            self._clock,
            on_left=preemptors.note_left,
            interval_seconds=seconds,
        )
        watch = VictimWatch(
            self._api,
            partial(self._on_pod_update, registry),
            registry.on_pod_delete,
            on_listed=victim_sets.on_listed,
        )
        self._term = Term(
            registry,
            gate_controller,
            divergence,
            watch,
            namespaces,
            victim_sets,
            preemptors,
            bare_pods,
            resumer,
        )
        try:
            background_tasks = (
                self._recorder.run,
                addresses.run,
                preemptors.run,
                partial(self._resync_loop, resync, namespaces),
                gate_controller.run,
                resumer.run,
                bare_pods.run,
                reclaim_controller.run,
                self._read_past_steps,
            )
            async with background(watch.run, *background_tasks):
                await asyncio.Event().wait()
        finally:
            try:
                victims = registry.victims()
                await registry.close()
                await client.close()
                await self._release_if_uninstalled(writes, victims)
                await self._recorder.drain(_DRAIN_SECONDS)
            finally:
                self._term = None

    async def _release_if_uninstalled(self, writes: Writes, victims: Sequence[VictimRef]) -> None:
        """Release the victims if no operator follows this one.

        Without the lease, another one leads already.
        """
        if self.election.is_leading and await self.uninstall.is_in_progress():
            _log.info("uninstalled: releasing victims", extra={"pods": len(victims)})
            with contextlib.suppress(NotLeading):
                await VictimRelease(writes, victims).run()

    def _make_bare_pod_controller(self, writes: Writes) -> BarePodController:
        return BarePodController(
            writes,
            BarePodStore(writes, self._settings.namespace),
            policy=self.policy,
            recorder=self._recorder,
            metrics=self._metrics,
            clock=self._clock,
            interval_seconds=self._settings.resync_interval_seconds,
        )

    def _make_gate_controller(
        self, writes: Writes, namespaces: NamespacePolicies
    ) -> GateController:
        return GateController(
            self._api,
            writes,
            self.policy,
            namespaces,
            self._recorder,
            self._metrics,
            self._clock,
            recount_seconds=self._settings.resync_interval_seconds,
        )

    def _on_pod_update(self, registry: ReconcilerRegistry, pod: VictimPod) -> None:
        self._metrics.last_event_at.set(time.time())
        registry.on_pod_update(pod)

    async def _read_past_steps(self) -> None:
        if self._history is not None:
            await read_past_steps(self._api, self._history)

    async def _resync_loop(self, resync: PodResync, namespaces: NamespacePolicies) -> None:
        interval = self._settings.sweep_interval_seconds
        while True:
            pause = interval
            try:
                await resync.run_once()
                self._metrics.last_sweep_at.set(time.time())
                self._metrics.keep_namespaces(namespaces.names())
            except ApiError as error:
                _log.warning("resync failed", extra={"error": str(error)})
                pause = min(interval, _RESYNC_RETRY_SECONDS)
            await asyncio.sleep(pause)


def _add_step(history: History, regarding: ObjectReference, reason: str, note: str) -> None:
    if regarding.kind == "Pod" and regarding.uid:
        history.add_step(regarding.namespace, regarding.name, regarding.uid, reason, note)
