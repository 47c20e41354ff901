"""The operator's page `/ui` on loopback, by HTTPS, with victims that a test makes up.

The server, the check of tokens and the history are the operator's own. The reviews of tokens go to
a stub API server.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from reprieve_certs import issue
from reprieve_certs.serving import ServingContext, load_self_signed
from reprieve_operator.clock import Clock
from reprieve_operator.gangs.divergence import DivergingGang
from reprieve_operator.gangs.gate_status import GateStatus
from reprieve_operator.history import History
from reprieve_operator.replacements.bare_pods import PendingReplacement
from reprieve_operator.replacements.job_resumer import SuspendedJob
from reprieve_operator.ui import document, pages
from reprieve_operator.ui.document import LeaderState
from reprieve_operator.victims.pod_tracker import VictimRef
from reprieve_operator.victims.registry import CurrentVictim
from reprieve_policy.gangs.gate_steps import GateStep
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.kube.values.timestamp import render
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_runtime.serving.metrics_access import MetricsAccess
from reprieve_runtime.serving.metrics_port import MetricsProtection, serve_metrics
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.servers.stub_api import API_SERVER, StubApi, StubToken, stub_api

READER = "system:serviceaccount:monitoring:viewer"
GOOD, WITHOUT_RIGHT = "good", "no-right"
HOSTILE = "<img src=x onerror=alert(1)>"
"""A text of a user, which must stay a text."""


@dataclass
class UiPage:
    """The page, and what it is about."""

    history: History
    now: Callable[[], datetime]
    stub: StubApi
    url: str = ""
    is_leading: bool = True
    victims: list[CurrentVictim] = field(default_factory=list)
    gates: list[GateStatus] = field(default_factory=list)
    diverging: list[DivergingGang] = field(default_factory=list)
    sets: dict[str, VictimSetKey] = field(default_factory=dict)
    preemptors: dict[str, tuple[str, str]] = field(default_factory=dict)
    replacements: list[PendingReplacement] = field(default_factory=list)
    suspended: list[SuspendedJob] = field(default_factory=list)

    def add_victim(
        self, namespace: str, name: str, phase: Phase = Phase.HINTED, gang: str = ""
    ) -> None:
        """Add a victim that was asked to save a minute ago and has four more."""
        asked_at = self.now() - timedelta(minutes=1)
        state = replace(
            an_eviction().hinted(deadline=asked_at + timedelta(minutes=5)).build(),
            phase=phase,
            requested_at=asked_at,
            hinted_at=asked_at,
            initiator=HOSTILE,
            reason=HOSTILE,
            gang=gang,
        )
        ref = VictimRef(namespace, name, f"uid-{name}")
        self.victims.append(CurrentVictim(ref, phase, state, is_stuck=False))
        self.history.add_step(
            namespace, name, ref.uid, "CheckpointRequested", f"asked to save {HOSTILE}"
        )

    def end(self, namespace: str, name: str, outcome: CheckpointOutcome, reason: str) -> None:
        """Add a pod that has ended, with two hours of work."""
        metadata = VersionedMeta(namespace=namespace, name=name, uid=f"uid-{name}")
        self.history.note_work(metadata, render(self.now() - timedelta(hours=2)))
        self.history.add_step(namespace, name, f"uid-{name}", reason, "it is over")
        self.history.add_end(metadata, an_eviction().ended(outcome).build())

    def add_gang(self, namespace: str, name: str, turn: int, minimum: int = 4) -> None:
        """Add a gang that has all its pods, and waits for room."""
        self.gates.append(
            GateStatus(
                namespace=namespace,
                name=name,
                step=GateStep.QUEUE,
                minimum=minimum,
                count=minimum,
                bound=0,
                gated=minimum,
                priority=0,
                has_other_gates=False,
                turn=turn,
            )
        )

    def add_preemptor(self, namespace: str, name: str, node: str, *victims: str) -> None:
        """Add a pod that waits for the room of victims on a node."""
        self.preemptors[f"uid-{name}"] = (namespace, name)
        key = VictimSetKey(f"uid-{name}", node)
        self.sets |= {f"uid-{victim}": key for victim in victims}

    def document(self) -> document.PageDocument:
        """Return what the page shows now."""
        state = LeaderState(
            victims=self.victims,
            queue_age_seconds=0.0,
            gated_pods=3,
            gates=self.gates,
            diverging=self.diverging,
            sets=self.sets,
            preemptors=self.preemptors,
            replacements=self.replacements,
            suspended=self.suspended,
        )
        return document.build(
            identity="operator-a",
            leader="operator-a" if self.is_leading else "operator-b",
            now=self.now(),
            state=state if self.is_leading else None,
            history=self.history,
        )


@asynccontextmanager
async def ui_page(directory: Path, now: Callable[[], datetime]) -> AsyncIterator[UiPage]:
    """Serve the page, to the token `GOOD`."""
    async with stub_api(directory, granted={READER}) as (stub, api):
        stub.tokens = {
            GOOD: StubToken([API_SERVER], READER),
            WITHOUT_RIGHT: StubToken([API_SERVER], "system:serviceaccount:team:other"),
        }
        page = UiPage(History(Clock(now=now)), now, stub)
        serving = ServingContext()
        load_self_signed(serving, issue.ServingNames(("localhost",)), now())
        port = await serve_metrics(
            CollectorRegistry(),
            address="127.0.0.1",
            port=0,
            protection=MetricsProtection(serving.listener, MetricsAccess(api)),
            handlers=pages.handlers(
                MetricsAccess(api, path=pages.PATH, role=pages.ROLE), page.document
            ),
        )
        page.url = f"https://127.0.0.1:{port.port}{pages.PATH}"
        try:
            yield page
        finally:
            await port.close()
