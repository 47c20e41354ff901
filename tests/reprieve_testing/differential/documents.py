"""A scene as objects of a real API server, once for each side: its own nodes, its own pods, nobody else's business.

Both sides are there at once and say the same. What keeps scenes apart is a label: on nodes, which the preemptor selects, and on
pods, which budgets select. Nobody plays kubelet: a pod that is deleted stays as it is, being deleted, for as long as the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .scene import (
    DEFENDED_AS,
    Scenario,
    ScenarioBudget,
    ScenarioNode,
    ScenarioPod,
    ScenarioPriorityClass,
)

Json = Any

SCENARIO_LABEL = "differential/scene"
"""The label of all that belongs to one side of one scene."""
PREEMPTOR = "preemptor"
_TAINT = "differential/taint"
_NOT_READY = "node.kubernetes.io/not-ready"
"""The API server gives it to new nodes, and there is no controller that would take it away."""


@dataclass(frozen=True)
class Side:
    """One of the two that choose."""

    name: str

    @property
    def scheduler_name(self) -> str:
        """The scheduler that this side's preemptors ask for."""
        return f"differential-{self.name}"

    def namespace(self, name: str) -> str:
        """Return the Namespace that this side has for a scene's `name`."""
        return f"differential-{self.name}-{name}"

    def label_value(self, scene: Scenario) -> str:
        """Return the value of the label `SCENE` on all that this side has of a scene."""
        return f"{scene.name}-{self.name}"

    def node(self, scene: Scenario, node: str) -> str:
        """Return a node's name in the cluster."""
        return f"{self.label_value(scene)}-{node}"

    def pod(self, scene: Scenario, pod: str) -> str:
        """Return a pod's name in the cluster."""
        return f"{scene.name}-{pod}"


UPSTREAM, REPRIEVE = SIDES = (Side("upstream"), Side("reprieve"))
NAMESPACES = ("one", "two")


def priority_class(named: ScenarioPriorityClass) -> Json:
    """Return the PriorityClass."""
    return {
        "metadata": {"name": named.name, "annotations": dict(named.annotations)},
        "value": named.value,
        "preemptionPolicy": "Never" if named.never_preempts else "PreemptLowerPriority",
    }


def node(scene: Scenario, side: Side, told: ScenarioNode) -> Json:
    """Return a node that runs nothing."""
    room = {"cpu": str(told.cpu), "memory": f"{told.memory}Gi", "pods": str(told.most_pods)}
    return {
        "metadata": {
            "name": side.node(scene, told.name),
            "labels": {SCENARIO_LABEL: side.label_value(scene)},
        },
        "spec": {
            "unschedulable": told.is_cordoned,
            "taints": [{"key": _TAINT, "effect": "NoSchedule"}] if told.is_tainted else [],
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def budget(scene: Scenario, side: Side, number: int, told: ScenarioBudget, now: datetime) -> Json:
    """Return a budget with what its controller would write."""
    disrupted = {side.pod(scene, name): _time(now, 0) for name in told.disrupted}
    return {
        "metadata": {"name": f"{scene.name}-{number}", "namespace": side.namespace(told.namespace)},
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": {SCENARIO_LABEL: side.label_value(scene), **told.selects}},
        },
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": told.allowed,
            "disruptedPods": disrupted,
            "currentHealthy": told.allowed + 1,
            "desiredHealthy": 1,
            "expectedPods": told.allowed + 1,
        },
    }


def pod(scene: Scenario, side: Side, told: ScenarioPod, node_name: str, now: datetime) -> Json:
    """Return a pod that has room on a node."""
    document = _pod(scene, side, told)
    document["spec"]["nodeName"] = side.node(scene, node_name)
    document["status"] = {"phase": "Running", "conditions": list(_conditions(told, now))}
    if told.started_ago is not None:
        document["status"]["startTime"] = _time(now, told.started_ago)
    return document


def preemptor(scene: Scenario, side: Side) -> Json:
    """Return the pod that finds no room."""
    document = _pod(scene, side, scene.preemptor)
    tolerated = [_NOT_READY, *([_TAINT] if scene.tolerates_taint else [])]
    document["metadata"]["labels"][PREEMPTOR] = "true"
    document["spec"] |= {
        "schedulerName": side.scheduler_name,
        "nodeSelector": {SCENARIO_LABEL: side.label_value(scene)},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in tolerated
        ],
    }
    return document


def _pod(scene: Scenario, side: Side, told: ScenarioPod) -> Json:
    port = {"containerPort": told.host_port, "hostPort": told.host_port}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": str(told.cpu), "memory": f"{told.memory}Gi"}},
        "ports": [port] if told.host_port else [],
    }
    return {
        "metadata": {
            "name": side.pod(scene, told.name),
            "namespace": side.namespace(told.namespace),
            "labels": {SCENARIO_LABEL: side.label_value(scene), **told.labels},
            "annotations": {**told.annotations, **_defence(told)},
        },
        "spec": {
            "priorityClassName": told.priority_class.name if told.priority_class else "",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def _defence(told: ScenarioPod) -> dict[str, str]:
    return {DEFENDED_AS: told.defended_as.name} if told.defended_as else {}


def _conditions(told: ScenarioPod, now: datetime) -> Iterator[Json]:
    if told.scheduled_ago is not None:
        yield {
            "type": "PodScheduled",
            "status": str(told.is_scheduled),
            "lastTransitionTime": _time(now, told.scheduled_ago),
        }


def _time(now: datetime, seconds_ago: int) -> str:
    return (now - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
