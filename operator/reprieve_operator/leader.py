"""What a leader does while it leads: watch, keep, sweep, announce. All of it ends with the term."""

import asyncio
import contextlib
import logging
import time
from functools import partial

from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.watch_metrics import Watch

from .background import beside
from .checkpointing.client import Switchboard, lines_of
from .clock import Clock
from .cluster.call_limiter import Slots
from .cluster.event_recorder import Announcer
from .cluster.leader_election import Election
from .cluster.namespace_policies import NamespacePolicies
from .cluster.pods import Pod
from .cluster.policy_source import PolicySource
from .cluster.writes import Effects
from .eviction_responder import Responder
from .gangs.divergence import GangCensus
from .gangs.gate_controller import Gatekeeper
from .metrics import Metrics
from .replacements.bare_pod_store import BareStore
from .replacements.bare_pods import Requeuer
from .replacements.job_resumer import Resumer
from .replacements.ledger_writer import LedgerKeeper
from .replacements.owner_jobs import OwnerJobs
from .resync import Sweep
from .settings import OperatorSettings
from .victims.context import Tools
from .victims.lost_nodes import Nodes
from .victims.registry import Keepers
from .victims.reporter import Tally
from .victims.watch import PodWatch

_log = logging.getLogger(__name__)

_DRAIN_SECONDS = 2.0
_POLICY_SECONDS = 10.0
_RESWEEP_SECONDS = 10.0
"""After a sweep that failed: the API server was busy, say."""
_LONGEST_SILENCE_SECONDS = 300.0
"""Three watches, each given up after a minute and a half without a word."""
_MAX_CALLS = 32
"""To the API server at once, about victims. Without a limit, those of a thousand victims would time out while they wait
for each other, and each connection's buffers take a quarter of a megabyte."""


class Terms:
    """Makes terms: everything that outlives one is here."""

    def __init__(self, api: Api, lease_api: Api, settings: OperatorSettings, clock: Clock, metrics: Metrics) -> None:
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._keepers: Keepers | None = None
        self._gatekeeper: Gatekeeper | None = None
        self._census: GangCensus | None = None
        self._watches: dict[str, Watch] = {}
        self._watch: PodWatch | None = None
        self.election = Election(lease_api, settings, clock)
        self._slots = Slots(_MAX_CALLS)
        self._announcer = Announcer(api, self._slots, settings.holder, metrics, clock)
        self.policy = PolicySource(
            api, settings.namespace, self._announcer, metrics, is_leading=lambda: self.election.is_leading
        )
        metrics.leader.set_function(lambda: self.election.is_leading)
        metrics.gated_pods.set_function(lambda: self._gatekeeper.count_held() if self._gatekeeper else 0)
        metrics.diverging_gangs.set_function(lambda: self._census.count_diverging() if self._census else 0)
        metrics.show_watches(lambda: {"policy": self.policy.reflector, **self._watches})
        metrics.show_victims(
            lambda: self._keepers.by_phase() if self._keepers else {},
            lambda: self._keepers.stuck() if self._keepers else 0,
            lambda: self._keepers.queue_age_seconds() if self._keepers else 0.0,
        )

    @property
    def is_healthy(self) -> bool:
        """False where the API server renews our lease, by a connection of its own, and has long said nothing to the watch.

        Another process may be answered. An API server that is away, or refuses, is none of a restart's business.
        """
        silent_seconds = 0.0 if self._watch is None else self._watch.reflector.silent_seconds
        return silent_seconds < _LONGEST_SILENCE_SECONDS or not self.election.is_leading

    async def lead(self) -> None:
        """Handle victims until cancelled."""
        namespaces = NamespacePolicies(self._api)
        async with beside(namespaces.reflector.run):
            # Without the admin's policy, the first victims after a start would get the defaults.
            with contextlib.suppress(TimeoutError):
                await self.policy.reflector.wait_synced(_POLICY_SECONDS)
                await namespaces.reflector.wait_synced(_POLICY_SECONDS)
            self.policy.show()
            await self._handle_victims(namespaces)

    async def _handle_victims(self, namespaces: NamespacePolicies) -> None:
        lines = Switchboard(lines_of(self._api))
        effects = Effects(self._api, self._slots, self.election, self._metrics, self._clock)
        requeuer = self._make_requeuer(effects)
        keepers = Keepers(
            Tools(
                settings=self._settings,
                clock=self._clock,
                policy=self.policy,
                namespaces=namespaces,
                effects=effects,
                ledger=LedgerKeeper(effects),
                jobs=OwnerJobs(effects, self._clock),
                nodes=Nodes(effects, self.policy),
                requeuer=requeuer,
                lines=lines,
                announcer=self._announcer,
                tally=Tally(self._announcer, self._metrics, namespaces),
            ),
        )
        census = GangCensus(self._api, effects, self._announcer, self.policy, namespaces, self._clock)
        sweep = Sweep(self._api, effects, keepers, self._announcer, census)
        gatekeeper = self._make_gatekeeper(effects)
        responder = Responder(self._api, effects, keepers, self.policy, self._clock, self._settings)
        seconds = self._settings.resync_interval_seconds
        resumer = Resumer(effects, self._announcer, self._clock, interval_seconds=seconds)
        self._keepers, self._gatekeeper, self._census = keepers, gatekeeper, census
        try:
            sweeping = partial(self._sweep, sweep)
            self._watch = watch = PodWatch(self._api, partial(self._see, keepers), keepers.lose)
            self._watches = {"pods": watch.reflector, "namespaces": namespaces.reflector}
            beside_them = (self._announcer.run, sweeping, gatekeeper.run, resumer.run, requeuer.run, responder.run)
            async with beside(watch.run, *beside_them):
                await asyncio.Event().wait()
        finally:
            await keepers.close()
            await lines.close()
            await self._announcer.drain(_DRAIN_SECONDS)
            self._keepers = self._gatekeeper = self._census = self._watch = None
            self._watches = {}

    def _make_requeuer(self, effects: Effects) -> Requeuer:
        return Requeuer(
            effects,
            BareStore(effects, self._settings.namespace),
            policy=self.policy,
            announcer=self._announcer,
            metrics=self._metrics,
            clock=self._clock,
            interval_seconds=self._settings.resync_interval_seconds,
        )

    def _make_gatekeeper(self, effects: Effects) -> Gatekeeper:
        return Gatekeeper(
            self._api,
            effects,
            self.policy,
            self._announcer,
            self._metrics,
            self._clock,
            recount_seconds=self._settings.resync_interval_seconds,
        )

    def _see(self, keepers: Keepers, pod: Pod) -> None:
        self._metrics.last_event_at.set(time.time())
        keepers.see(pod)

    async def _sweep(self, sweep: Sweep) -> None:
        interval = self._settings.sweep_interval_seconds
        while True:
            pause = interval
            try:
                await sweep.run_once()
                self._metrics.last_sweep_at.set(time.time())
            except ApiError as error:
                _log.warning("sweep failed", extra={"error": str(error)})
                pause = min(interval, _RESWEEP_SECONDS)
            await asyncio.sleep(pause)
