"""Parts of the operator for tests without an API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection, NotLeading
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.leader import Leader
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.build import build_registry
from reprieve_operator.victims.hold import Hold
from reprieve_operator.victims.preemptors import Preemptors
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_operator.victims.reporter import Reporter
from reprieve_operator.victims.victim_sets import VictimSets
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_runtime.client.api import Api
from reprieve_testing.servers.stub_api import until

REQUEST = CheckpointRequest(
    eviction_id="u-1",
    attempt=1,
    deadline=datetime(2026, 11, 21, 12, 10, tzinfo=UTC),
    reason="",
    preemption_class=4,
    may_extend=True,
)


@dataclass
class Leadership:
    """The part of the election that `Writes` uses."""

    is_leading: bool = True

    def require_leadership(self) -> None:
        if not self.is_leading:
            raise NotLeading


class LeadingReplica:
    """An election that this replica has won."""

    def require_leadership(self) -> float:
        return 60.0


def writes_of(api: Api) -> Writes:
    """Return the writes of an operator that leads."""
    election = cast("LeaderElection", LeadingReplica())
    return Writes(api, CallLimiter(4), election, OperatorMetrics(), Clock())


def a_registry(
    *,
    policy: PolicySource,
    namespaces: NamespacePolicies,
    recorder: EventRecorder,
    metrics: OperatorMetrics | None = None,
    **parts: Any,
) -> ReconcilerRegistry:
    """Return a registry with these parts; those that a test does not name must not be used."""
    absent = dict.fromkeys(("client", "ledger", "jobs", "bare_pods", "lost_nodes"))
    usual = {
        "hold": Hold(policy, namespaces, "reprieve-system"),
        "reporter": Reporter(recorder, metrics or OperatorMetrics(), namespaces),
        "victim_sets": VictimSets(Clock()),
        "preemptors": Preemptors(cast("Api", None), VictimSets(Clock()), Clock()),
        "clock": Clock(),
        "refusal_of": lambda _: None,
    }
    given: dict[str, Any] = {**absent, **usual, **parts}
    return build_registry(policy=policy, namespaces=namespaces, recorder=recorder, **given)


@contextlib.asynccontextmanager
async def leading(api: Api, lease_api: Api, settings: OperatorSettings) -> AsyncIterator[Leader]:
    """Run the operator's leader, which has the lease, on a stub."""
    leader = Leader(api, lease_api, settings, Clock(), OperatorMetrics())
    work = [
        asyncio.create_task(leader.policy.reflector.run()),
        asyncio.create_task(leader.election.run(leader.lead)),
    ]
    try:
        await until(lambda: leader._term is not None and leader.policy.reflector.is_synced)
        yield leader
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
