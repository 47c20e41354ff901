"""One run of a plan on a cluster, and what it found."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reprieve_testing.chaos.chaos_namespace import ChaosNamespace
from reprieve_testing.chaos.proxy import ApiProxy
from reprieve_testing.chaos.scripted_victims import WorkloadServer, utc_now
from reprieve_testing.cluster.connection import connected
from reprieve_testing.cluster.handle import ClusterHandle

from . import resources
from .call_faults import CallFaults
from .faults import FaultInjector
from .outages import without_leader
from .plan import Fault, PlannedRound, RobustnessPlan
from .programs import RobustnessPrograms
from .resources import ResourceSample
from .rounds import RoundPlayer

_SAMPLE_SECONDS = 5.0
_SAY_SECONDS = 60.0
_LEADER_SECONDS = 120.0
"""For the first leader; some seconds are usual."""


@dataclass
class RobustnessOutcome:
    """What a run did and found."""

    plan: RobustnessPlan
    seconds: float = 0.0
    played: int = 0
    failed_round: PlannedRound | None = None
    broken: list[str] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    """Calls that each fault of calls has met."""
    worked: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    samples: list[ResourceSample] = field(default_factory=list)
    calls: int = 0
    outage_seconds: float = 0.0
    """How long no operator could be held to its promises in time."""

    def never_injected(self) -> list[str]:
        """Return the planned faults that never took effect: what they would show was not seen."""
        planned = self.plan.planned()
        return [fault for fault in Fault if planned[fault] and not self.injected[fault]]


async def play(
    handle: ClusterHandle, plan: RobustnessPlan, folder: Path, say: Callable[[str], None]
) -> RobustnessOutcome:
    """Play a plan up to its first round with a broken promise."""
    cluster, outcome = handle.cluster, RobustnessOutcome(plan)
    calls = CallFaults(Random(plan.seed))
    with handle.namespace("robustness") as name:
        async with (
            connected(cluster.kubeconfig, "robustness") as api,
            ApiProxy(cluster.api_server, cluster.ca_file) as proxy,
            WorkloadServer() as workloads,
        ):
            proxy.before, proxy.after = calls.before, calls.after
            programs = RobustnessPrograms(handle, proxy, folder)
            namespace = ChaosNamespace(api, name, cluster.settings.kwok_nodes)
            faults = FaultInjector(programs, calls, namespace)
            player = RoundPlayer(
                api, namespace, workloads, faults, cluster.audit_log, cluster.settings.kwok_nodes
            )
            began = time.monotonic()
            beside: list[asyncio.Task[None]] = []
            try:
                await asyncio.to_thread(programs.start)
                async with asyncio.timeout(_LEADER_SECONDS):
                    while not calls.leader:  # noqa: ASYNC110 - it waits for the cluster
                        await asyncio.sleep(0.1)
                began = time.monotonic()
                beside = [
                    asyncio.create_task(_sample(programs, outcome.samples)),
                    asyncio.create_task(_report(plan, player, say)),
                ]
                await _rounds(plan, player, outcome)
            finally:
                for task in beside:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                # In a thread, because the proxy answers meanwhile.
                await asyncio.to_thread(handle.stop_programs)
            outcome.seconds = time.monotonic() - began
            outages = without_leader(calls.renewals, faults.operator_windows, utc_now())
            outcome.outage_seconds = sum((one.until - one.since).total_seconds() for one in outages)
            outcome.injected, outcome.hits = faults.injected, calls.hits
            outcome.worked, outcome.checks = player.worked, player.checks
            outcome.calls = calls.calls
    return outcome


async def _rounds(plan: RobustnessPlan, player: RoundPlayer, outcome: RobustnessOutcome) -> None:
    for planned in plan.rounds:
        outcome.broken = await player.play(planned)
        outcome.played += 1
        if outcome.broken:
            outcome.failed_round = planned
            return


async def _sample(programs: RobustnessPrograms, samples: list[ResourceSample]) -> None:
    began = time.monotonic()
    while True:
        now = time.monotonic() - began
        found = (resources.read_sample(name, pid, now) for name, pid in programs.running().items())
        samples.extend(sample for sample in found if sample is not None)
        await asyncio.sleep(_SAMPLE_SECONDS)


async def _report(plan: RobustnessPlan, player: RoundPlayer, say: Callable[[str], None]) -> None:
    for minutes in _minutes():
        await asyncio.sleep(_SAY_SECONDS)
        done, faults = player.checks, player.faults
        say(
            f"{minutes} min: {done['rounds']} of {len(plan.rounds)} rounds, "
            f"{done['victims']} victims, {sum(faults.injected.values())} faults, "
            f"{faults.calls.calls} calls of the operator; no promise broken so far"
        )


def _minutes() -> Iterator[int]:
    minutes = 0
    while True:
        minutes += 1
        yield minutes
