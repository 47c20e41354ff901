"""The guard's route over TLS against a stub API server that serves lists and watches.

A test sets the requester, the nominated pods and the extender's choice.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_testing.servers import reviews
from reprieve_testing.servers.reviews import RunningServer, a_review, running_server
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.admission.review import AdmissionRequest
from reprieve_webhooks.guard import nominated_pods, reader
from reprieve_webhooks.guard.handler import Guard
from reprieve_webhooks.snapshot.cluster_view import ClusterView
from reprieve_webhooks.snapshot.recent_choices import PodIdentity, VictimSet

SCHEDULER = {"username": "system:kube-scheduler", "groups": ["system:authenticated"]}
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
PODS = "/api/v1/pods"
TEAM = "/api/v1/namespaces/team-a/pods"
HINT = {keys.CHECKPOINT_HINT: "annotation:"}
NODE = "node-1"
GANG = {"scheduling.x-k8s.io/pod-group": "gang"}
MARKED = {keys.SOFT_EVICTION: "requested"}
REQUESTED_AT = datetime.now(UTC) + timedelta(hours=3)
"""Of evictions in progress: their ceilings are not over, however long all tests take."""
WAIT_FOR_NO_NOMINATION_SECONDS = 0.05
"""Most tests send no nomination during a review: to wait for one would show nothing more."""
_WAIT_SECONDS = nominated_pods.NOMINATION_WAIT_SECONDS
HINTED = eviction.render(
    Eviction(
        eviction_id="e",
        phase=Phase.HINTED,
        requested_at=REQUESTED_AT,
        deadline=REQUESTED_AT + timedelta(minutes=5),
    )
)


@dataclass
class FixedGuardFacts:
    """Fixed facts, and a count of the reads."""

    facts: Facts = field(default_factory=lambda: Facts(operator_is_live=True))
    reads: int = 0

    is_synced: bool = True

    def watched_facts(self, namespace: str) -> Facts:  # noqa: ARG002 - the same holds for all
        return self.facts

    def watches(self) -> Mapping[str, Any]:
        return defaultdict(lambda: SimpleNamespace(store=SimpleNamespace(changes=0)))

    async def facts_for(self, request: AdmissionRequest, resource: Resource) -> Facts:
        assert request.object is resource
        self.reads += 1
        return self.facts


@dataclass
class FixedVictimSets:
    """The victim set that an extender returned, or `None`."""

    victim_set: VictimSet | None = None

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:
        if self.victim_set is None or (node, by) != (NODE, self.victim_set.preemptor.uid):
            return None
        return (
            self.victim_set if victim_uid in {one.uid for one in self.victim_set.victims} else None
        )

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:
        by = self.victim_set.preemptor.uid if self.victim_set else ""
        return {by} if self.find(node, victim_uid, by=by) else ()

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:
        return (
            self.victim_set is not None
            and by == self.victim_set.preemptor.uid
            and victim_uid in self.victim_set.whole_gang_uids
        )

    def choose(self, by: str, *victims: str) -> None:
        named = tuple(PodIdentity(f"uid-of-{name}", "team-a", name) for name in victims)
        self.victim_set = VictimSet(
            preemptor=PodIdentity(f"uid-of-{by}", "team-b", by), node=NODE, victims=named
        )


@dataclass
class GuardFixture:
    server: RunningServer
    stub: StubApi
    facts: FixedGuardFacts
    victim_sets: FixedVictimSets
    guard: Guard
    clock_seconds: float = 1000.0
    """The clock by which the age of nominations is measured."""

    async def delete(self, pod: Any, **changes: Any) -> Any:
        review = a_review(None, old=pod, operation="DELETE", **({"userInfo": SCHEDULER} | changes))
        return await self.server.ask("/guard", review)

    async def evict(
        self, name: str = "train", body: Any = None, *, namespace: str = "team-a", **changes: Any
    ) -> Any:
        kind = {"group": "policy", "version": "v1", "kind": "Eviction"}
        review = a_review(
            None,
            operation="CREATE",
            kind=kind,
            name=name,
            namespace=namespace,
            object=body or {},
            **changes,
        )
        return await self.server.ask("/guard", review)

    async def delete_and_nominate(
        self, pod: Any, name: str = "high", priority: int = 1000, **spec: Any
    ) -> Any:
        """Delete as an asynchronous scheduler does.

        The scheduler nominates its preemptor while the deletion is under review.
        """
        before = self.facts.reads
        with waiting_for_nominations():
            deletion = asyncio.create_task(self.delete(pod))
            await until(lambda: self.facts.reads > before)
            self.stub.send("ADDED", a_nominee(name, priority, **spec), PODS)
            return await deletion

    async def nominate(
        self, name: str = "high", priority: int = 1000, *, ago: float = 60.0, **spec: Any
    ) -> None:
        """Nominate a pod before the first request."""
        number = len(self.guard.nominated_pods.reflector.items) + 1
        self.clock_seconds -= ago
        self.stub.send("ADDED", a_nominee(name, priority, **spec), PODS)
        await until(lambda: len(self.guard.nominated_pods.reflector.items) == number)
        self.clock_seconds += ago

    def marks(self) -> list[Any]:
        """Return the marks that the guard wrote, or tried to write."""
        return [patch for _, patch in self.stub.patches if "labels" in patch["metadata"]]

    def marked(self) -> list[str]:
        """Return the names of the pods to which the guard wrote, or tried to write, a mark."""
        return [path.rpartition("/")[2] for path, _ in self.stub.patches]


@asynccontextmanager
async def guard_fixture(
    directory: Path,
    *pods: Any,
    cluster_view: ClusterView | None = None,
    list_timeout_seconds: float = 20.0,
) -> AsyncIterator[GuardFixture]:
    """Run the guard. The timeout of a list is longer than in a cluster: a busy machine is slow."""
    stored = {pod["metadata"]["name"]: pod for pod in pods}
    async with stub_api(directory, collections={TEAM: stored, PODS: {}}) as (stub, api):
        stub.lists_released.set()
        facts, victim_sets = FixedGuardFacts(), FixedVictimSets()
        guard = Guard(
            api,
            facts,
            operator=OPERATOR,
            timeout_seconds=20.0,
            victim_sets=victim_sets,
            cluster_view=cluster_view,
        )
        with (
            patch.object(reader, "_LIST_TIMEOUT_SECONDS", list_timeout_seconds),
            waiting_for_nominations(WAIT_FOR_NO_NOMINATION_SECONDS),
        ):
            async with watching(guard, stub), running_server(guard=guard) as server:
                fixture = GuardFixture(server, stub, facts, victim_sets, guard)
                guard.nominated_pods.monotonic = lambda: fixture.clock_seconds
                yield fixture


@contextmanager
def waiting_for_nominations(seconds: float = _WAIT_SECONDS) -> Iterator[None]:
    """Let a review wait this long for a nomination; by default, as long as in a cluster."""
    with patch.object(nominated_pods, "NOMINATION_WAIT_SECONDS", seconds):
        yield


@asynccontextmanager
async def watching(guard: Guard, stub: StubApi) -> AsyncIterator[None]:
    running = asyncio.create_task(guard.nominated_pods.reflector.run())
    try:
        await until(lambda: stub.open_watches == 1)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


def a_victim(**metadata: Any) -> Any:
    pod = reviews.a_pod(labels={keys.PREEMPTION_CLASS: "4"}, annotations=HINT)
    pod["metadata"] |= {"uid": "uid-of-train", "resourceVersion": "7", **metadata}
    pod["spec"] |= {"nodeName": NODE}
    pod["status"] = {"phase": "Running"}
    return pod


def a_nominee(
    name: str, priority: int, *, is_binding: bool = False, node: str = NODE, **spec: Any
) -> Any:
    """Return a nominated pod.

    kube-scheduler found no room for it and preempts for it; with `is_binding`, it has found room
    and the scheduler binds it.
    """
    conditions = (
        []
        if is_binding
        else [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    )
    return {
        "metadata": {
            "name": name,
            "namespace": "team-b",
            "uid": f"uid-of-{name}",
            "resourceVersion": "9",
        },
        "spec": {"priority": priority, "containers": [], **spec},
        "status": {"phase": "Pending", "nominatedNodeName": node, "conditions": conditions},
    }


def another_victim(name: str, **metadata: Any) -> Any:
    return a_victim(**{"name": name, "uid": f"uid-of-{name}", **metadata})


def seconds_of(response: Any) -> int | None:
    """Return the retry time in a refusal, or `None`."""
    assert response["allowed"] is False
    found: int | None = response["status"]["details"].get("retryAfterSeconds")
    return found


def code_of(response: Any) -> int:
    """Return the status code of a refusal: 404 has no retry time."""
    assert response["allowed"] is False
    code: int = response["status"]["code"]
    assert code != 404 or "retryAfterSeconds" not in response["status"]["details"]
    return code
