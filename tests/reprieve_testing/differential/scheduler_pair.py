"""Both schedulers on one API server: scenarios are created, then both start and are watched.

Upstream's is scheduler-plugins v0.34.7 with PreemptionToleration in the place of DefaultPreemption;
the other is the stock scheduler. They start when all objects exist: their first list shows the
whole of each scenario, so they decide nothing on half of one.
"""

import asyncio
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from realcluster import lifecycle
from realcluster.binaries import build
from realcluster.progress import Progress
from realcluster.state import Cluster, write_private

from . import documents
from .bulk_client import BulkClient
from .documents import NAMESPACES, PARTS, PREEMPTOR, REPRIEVE, SCENARIO_LABEL, SIDES, UPSTREAM, Side
from .scenario import Scenario, ScenarioOutcome, ScenarioPriorityClass

Json = Any

_PROGRAMS = {UPSTREAM: "kube-scheduler-plugins", REPRIEVE: "kube-scheduler"}
_NOT_NEEDED = ("kwok", "kube-scheduler", "kube-controller-manager")
"""They would overwrite what the scenarios set: a node's health, a pod's start, a budget's
status.
"""
_USER = "system:kube-scheduler"
_UPSTREAM: Json = {
    "profiles": [
        {
            "plugins": {
                "postFilter": {
                    "enabled": [{"name": "PreemptionToleration"}],
                    "disabled": [{"name": "DefaultPreemption"}],
                }
            }
        }
    ]
}
"""The configuration of upstream's scheduler, as upstream documents it."""
_COUNT = re.compile(r"preempting (\d+) victims")
"""In the condition that 1.37 sets on a preemptor, while its victims are deleted. Before 1.37
they have been deleted by then.
"""
_QUIET_SECONDS = 1.0


@dataclass
class ObservedDecision:
    """The actions of a scheduler about one scenario so far."""

    is_decided: bool = False
    node: str | None = None
    count: int = 0
    """The number of victims, as the scheduler reports it."""
    victims_in_deletion: set[str] = field(default_factory=set)


class SchedulerPair:
    """A cluster, the scenarios in it, and the two schedulers beside it.

    One cluster can have several, one after another.
    """

    def __init__(self, cluster: Cluster, scenarios: Sequence[Scenario]) -> None:
        self._cluster = cluster
        self._places = {
            side.label_value(scenario): (scenario, side) for scenario in scenarios for side in SIDES
        }

    def clear(self) -> None:
        """Stop the components that would interfere."""
        for name in _NOT_NEEDED:
            lifecycle.stop_component(self._cluster, name, kill=False)

    async def fill(self) -> None:
        """Create all objects, the preemptors last; no scheduler runs yet."""
        now = datetime.now(UTC)
        async with BulkClient.connect(self._cluster) as client:
            await self._create_shared_objects(client)
            await client.for_each(
                self._places.values(), lambda found: _create_objects(client, *found, now)
            )
            gone = [name for name, named in self._priority_classes().items() if named.is_gone]
            await client.for_each(gone, lambda name: client.delete(f"{_PRIORITY_CLASSES}/{name}"))

    async def run(self, stock: Json, *, seconds: float) -> dict[tuple[str, str], ScenarioOutcome]:
        """Start both schedulers; return the outcome by the scenario's and the side's name.

        `stock` is the configuration of the stock scheduler.
        """
        programs = build.ensure(list(_PROGRAMS.values()), Progress())
        async with asyncio.timeout(seconds), BulkClient.connect(self._cluster) as client:

            def start() -> None:
                for side, config in ((UPSTREAM, _UPSTREAM), (REPRIEVE, stock)):
                    self._start(side, programs[_PROGRAMS[side]], config)

            observed = await self._watch(client, start)
        return {
            (scenario.name, side.name): _outcome(observed[place], scenario, side)
            for place, (scenario, side) in self._places.items()
        }

    async def stop(self) -> None:
        """Stop both schedulers, and delete the preemptors: the next schedulers would try them."""
        self._cluster.processes.stop(side.scheduler_name for side in SIDES)
        preemptors = (documents.preemptor(*place) for place in self._places.values())
        async with BulkClient.connect(self._cluster) as client:
            await client.for_each(
                (f"{_pods(found)}/{found['metadata']['name']}" for found in preemptors),
                client.delete,
            )

    async def _create_shared_objects(self, client: BulkClient) -> None:
        for side, part in itertools.product(SIDES, range(PARTS)):
            for name in (side.namespace_in_part(part, name) for name in NAMESPACES):
                await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
                await client.create(
                    f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}}
                )
        classes = map(documents.priority_class, self._priority_classes().values())
        await client.for_each(classes, lambda document: client.create(_PRIORITY_CLASSES, document))
        for path, document in _RIGHTS.items():
            await client.create(path, document)

    def _priority_classes(self) -> dict[str, ScenarioPriorityClass]:
        return {
            name: named
            for scenario, _ in self._places.values()
            for name, named in scenario.priority_classes().items()
        }

    def _start(self, side: Side, program: Path, config: Json) -> None:
        """Start a scheduler for this side's pods."""
        complete = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            # The default of 50 calls a second would make 500 concurrent preemptors wait for each
            # other.
            "clientConnection": {
                "kubeconfig": str(self._cluster.write_kubeconfig(_USER)),
                "qps": 2000,
                "burst": 4000,
            },
            "leaderElection": {"leaderElect": False},
            **config,
            "profiles": [
                profile | {"schedulerName": side.scheduler_name} for profile in config["profiles"]
            ],
        }
        file = self._cluster.home / "conf" / f"{side.scheduler_name}.json"
        write_private(file, json.dumps(complete))
        self._cluster.processes.start(
            side.scheduler_name, [program, f"--config={file}", "--secure-port=0"]
        )

    async def _watch(
        self, client: BulkClient, start: Callable[[], None]
    ) -> dict[str, ObservedDecision]:
        """Return the decisions by place, once all are made."""
        observed: dict[str, ObservedDecision] = defaultdict(ObservedDecision)
        undone = set(self._places)
        # Watch before the first decision: a later attempt of a scheduler overwrites its earlier
        # message.
        async with aclosing(
            client.watch(f"/api/v1/pods?labelSelector={SCENARIO_LABEL}&resourceVersion=0")
        ) as events:
            start()
            while True:
                try:
                    event = await asyncio.wait_for(
                        anext(events), None if undone else _QUIET_SECONDS
                    )
                except TimeoutError:
                    return observed
                pod = event["object"]
                place = pod["metadata"]["labels"][SCENARIO_LABEL]
                _record(observed[place], pod)
                if place in undone and self._is_done(place, observed[place]):
                    undone.remove(place)

    def _is_done(self, place: str, observed: ObservedDecision) -> bool:
        scenario, side = self._places[place]
        # Exclude pods that are terminating already: the scheduler may count them as victims, but
        # need not delete them.
        there = {side.node(scenario, node.name): node for node in scenario.nodes}.get(
            observed.node or ""
        )
        before = sum(pod.is_terminating for pod in there.pods) if there else 0
        return (
            observed.is_decided
            and len(observed.victims_in_deletion - _already_terminating(scenario, side))
            >= observed.count - before
        )


_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ROLE = {
    "apiGroup": "rbac.authorization.k8s.io",
    "kind": "ClusterRole",
    "name": "differential-scheduler",
}
_RIGHTS: dict[str, Json] = {
    f"{_RBAC}/clusterroles": {
        "metadata": {"name": _ROLE["name"]},
        "rules": [
            {
                "apiGroups": ["scheduling.k8s.io"],
                "resources": ["priorityclasses"],
                "verbs": ["get", "list", "watch"],
            }
        ],
    },
    f"{_RBAC}/clusterrolebindings": {
        "metadata": {"name": _ROLE["name"]},
        "roleRef": _ROLE,
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _USER}],
    },
}
"""The plugin reads PriorityClasses; the scheduler's own role has no such right."""


async def _create_objects(
    client: BulkClient, scenario: Scenario, side: Side, now: datetime
) -> None:
    """Create the objects of one side of a scenario."""
    for node in scenario.nodes:
        await client.create("/api/v1/nodes", documents.node(scenario, side, node))
    for number, budget in enumerate(scenario.budgets):
        document = documents.budget(scenario, side, number, budget, now)
        path = (
            f"/apis/policy/v1/namespaces/{document['metadata']['namespace']}/poddisruptionbudgets"
        )
        await client.create(path, document, with_status=True)
    for node in scenario.nodes:
        for pod in node.pods:
            document = documents.pod(scenario, side, pod, node.name, now)
            path = _pods(document)
            await client.create(path, document, with_status=True)
            if pod.is_terminating:
                await client.delete(f"{path}/{document['metadata']['name']}")
    preemptor = documents.preemptor(scenario, side)
    await client.create(_pods(preemptor), preemptor)


def _pods(document: Json) -> str:
    return f"/api/v1/namespaces/{document['metadata']['namespace']}/pods"


def _record(observed: ObservedDecision, pod: Json) -> None:
    """Record a pod's state; for a preemptor, only the first decision counts."""
    if PREEMPTOR not in pod["metadata"]["labels"]:
        if "deletionTimestamp" in pod["metadata"]:
            observed.victims_in_deletion.add(pod["metadata"]["name"])
        return
    conditions = pod["status"].get("conditions", [])
    condition = next((found for found in conditions if found["type"] == "PodScheduled"), None)
    if observed.is_decided or condition is None:
        return
    observed.is_decided = True
    observed.node = (
        pod["status"].get("nominatedNodeName") if condition["status"] == "False" else None
    )
    count = _COUNT.search(condition.get("message", ""))
    observed.count = int(count[1]) if count else 0


def _outcome(observed: ObservedDecision, scenario: Scenario, side: Side) -> ScenarioOutcome:
    nodes = {side.node(scenario, node.name): node.name for node in scenario.nodes}
    pods = {side.pod(scenario, pod.name): pod.name for pod in scenario.pods()}
    victims = observed.victims_in_deletion - _already_terminating(scenario, side)
    return ScenarioOutcome(
        nodes[observed.node] if observed.node else None, frozenset(pods[name] for name in victims)
    )


def _already_terminating(scenario: Scenario, side: Side) -> set[str]:
    return {side.pod(scenario, pod.name) for pod in scenario.pods() if pod.is_terminating}
