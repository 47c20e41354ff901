"""A scenario as objects of a real API server, once for each side, with its own nodes and pods.

Both sides exist at once with the same contents. A label separates the scenarios: on nodes, which
the preemptor selects, and on pods, which budgets select. No kubelet runs: a deleted pod stays
terminating for the whole run.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .scenario import (
    DEFENDED_AS,
    Scenario,
    ScenarioBudget,
    ScenarioNode,
    ScenarioPod,
    ScenarioPriorityClass,
)

Json = Any

SCENARIO_LABEL = "differential/scenario"
"""The label of all objects of one side of one scenario."""
PREEMPTOR = "preemptor"
_TAINT = "differential/taint"
_NOT_READY = "node.kubernetes.io/not-ready"
"""The API server sets it on new nodes, and no controller runs that would remove it."""


@dataclass(frozen=True)
class Side:
    """One of the two schedulers under comparison."""

    name: str

    @property
    def scheduler_name(self) -> str:
        """The scheduler name of this side's preemptors."""
        return f"differential-{self.name}"

    def namespace(self, scenario: Scenario, name: str) -> str:
        """Return the Namespace of this side that a scenario calls `name`."""
        return self.namespace_in_part(zlib.crc32(scenario.name.encode()) % PARTS, name)

    def namespace_in_part(self, part: int, name: str) -> str:
        """Return the Namespace for the scenarios of one of the `PARTS`."""
        return f"differential-{self.name}-{name}-{part}"

    def label_value(self, scenario: Scenario) -> str:
        """Return the value of `SCENARIO_LABEL` on all objects of this side of a scenario."""
        return f"{scenario.name}-{self.name}"

    def node(self, scenario: Scenario, node: str) -> str:
        """Return a node's name in the cluster."""
        return f"{self.label_value(scenario)}-{node}"

    def pod(self, scenario: Scenario, pod: str) -> str:
        """Return a pod's name in the cluster."""
        return f"{scenario.name}-{pod}"


UPSTREAM, REPRIEVE = SIDES = (Side("upstream"), Side("reprieve"))
NAMESPACES = ("one", "two")
PARTS = 20
"""The scenarios are spread over so many Namespaces of each name. More than 200 budgets in one would
count for no decision of Reprieve."""


def priority_class(named: ScenarioPriorityClass) -> Json:
    """Return the PriorityClass."""
    return {
        "metadata": {"name": named.name, "annotations": dict(named.annotations)},
        "value": named.value,
        "preemptionPolicy": "Never" if named.never_preempts else "PreemptLowerPriority",
    }


def node(scenario: Scenario, side: Side, wanted: ScenarioNode) -> Json:
    """Return a node without pods."""
    capacity = {
        "cpu": str(wanted.cpu),
        "memory": f"{wanted.memory}Gi",
        "pods": str(wanted.most_pods),
    }
    return {
        "metadata": {
            "name": side.node(scenario, wanted.name),
            "labels": {SCENARIO_LABEL: side.label_value(scenario)},
        },
        "spec": {
            "unschedulable": wanted.is_cordoned,
            "taints": [{"key": _TAINT, "effect": "NoSchedule"}] if wanted.is_tainted else [],
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def budget(
    scenario: Scenario, side: Side, number: int, wanted: ScenarioBudget, now: datetime
) -> Json:
    """Return a budget with the status that its controller would write."""
    disrupted = {side.pod(scenario, name): _time(now, 0) for name in wanted.disrupted}
    return {
        "metadata": {
            "name": f"{scenario.name}-{number}",
            "namespace": side.namespace(scenario, wanted.namespace),
        },
        "spec": {
            "minAvailable": 1,
            "selector": {
                "matchLabels": {SCENARIO_LABEL: side.label_value(scenario), **wanted.selects}
            },
        },
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": wanted.allowed,
            "disruptedPods": disrupted,
            "currentHealthy": wanted.allowed + 1,
            "desiredHealthy": 1,
            "expectedPods": wanted.allowed + 1,
        },
    }


def pod(scenario: Scenario, side: Side, wanted: ScenarioPod, node_name: str, now: datetime) -> Json:
    """Return a pod that is bound to a node."""
    document = _pod(scenario, side, wanted)
    document["spec"]["nodeName"] = side.node(scenario, node_name)
    document["status"] = {"phase": "Running", "conditions": list(_conditions(wanted, now))}
    if wanted.started_ago is not None:
        document["status"]["startTime"] = _time(now, wanted.started_ago)
    return document


def preemptor(scenario: Scenario, side: Side) -> Json:
    """Return the pod that finds no room."""
    document = _pod(scenario, side, scenario.preemptor)
    tolerated = [_NOT_READY, *([_TAINT] if scenario.tolerates_taint else [])]
    document["metadata"]["labels"][PREEMPTOR] = "true"
    document["spec"] |= {
        "schedulerName": side.scheduler_name,
        "nodeSelector": {SCENARIO_LABEL: side.label_value(scenario)},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in tolerated
        ],
    }
    return document


def _pod(scenario: Scenario, side: Side, wanted: ScenarioPod) -> Json:
    port = {"containerPort": wanted.host_port, "hostPort": wanted.host_port}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": str(wanted.cpu), "memory": f"{wanted.memory}Gi"}},
        "ports": [port] if wanted.host_port else [],
    }
    return {
        "metadata": {
            "name": side.pod(scenario, wanted.name),
            "namespace": side.namespace(scenario, wanted.namespace),
            "labels": {SCENARIO_LABEL: side.label_value(scenario), **wanted.labels},
            "annotations": {**wanted.annotations, **_defence(wanted)},
        },
        "spec": {
            "priorityClassName": wanted.priority_class.name if wanted.priority_class else "",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def _defence(wanted: ScenarioPod) -> dict[str, str]:
    return {DEFENDED_AS: wanted.defended_as.name} if wanted.defended_as else {}


def _conditions(wanted: ScenarioPod, now: datetime) -> Iterator[Json]:
    if wanted.scheduled_ago is not None:
        yield {
            "type": "PodScheduled",
            "status": str(wanted.is_scheduled),
            "lastTransitionTime": _time(now, wanted.scheduled_ago),
        }


def _time(now: datetime, seconds_ago: int) -> str:
    return (now - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
