"""A scene through Reprieve's own core, without a cluster: from the objects that a watch would have seen to the decision."""

from datetime import datetime, timedelta

import msgspec

from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import api_objects, snapshot_builder
from reprieve_policy.preemption.selection.evaluator import PreemptionCandidate

from . import documents
from .documents import REPRIEVE, Json
from .scene import Scenario, ScenarioOutcome, ScenarioPod


def decide(scene: Scenario, now: datetime, facts: Facts | None = None) -> ScenarioOutcome:
    """Return what Reprieve would have done, once kube-scheduler has found that the preemptor has no room."""
    decision = _decision(scene, now, facts or Facts())
    return ScenarioOutcome() if decision is None else _outcome(scene, decision)


def _decision(scene: Scenario, now: datetime, facts: Facts) -> PreemptionCandidate | None:
    """Return the best choice among all of the scene's nodes."""
    classes = {
        name: msgspec.convert(documents.priority_class(named), Resource)
        for name, named in scene.priority_classes().items()
        if not named.is_gone
    }
    facts = Facts(settings=facts.settings, namespace=facts.namespace, priority_classes=classes)
    tenants = [
        snapshot_builder.scheduled_pod_of(
            _pod(pod, documents.pod(scene, REPRIEVE, pod, node.name, now), now), facts, now=now
        )
        for node in scene.nodes
        for pod in node.pods
    ]
    nodes = [
        msgspec.convert(documents.node(scene, REPRIEVE, node), api_objects.Node)
        for node in scene.nodes
    ]
    budgets = [
        snapshot_builder.disruption_budget_of(
            msgspec.convert(
                documents.budget(scene, REPRIEVE, number, told, now),
                api_objects.PodDisruptionBudget,
            )
        )
        for number, told in enumerate(scene.budgets)
    ]
    preemptor = snapshot_builder.preemptor_of(
        _pod(scene.preemptor, documents.preemptor(scene, REPRIEVE), now), facts
    )
    cluster = snapshot_builder.snapshot_of(
        nodes, tenants, [preemptor], budgets, facts.settings, now
    )
    return selection.decide(preemptor, cluster, list(cluster.nodes)).best


def _pod(told: ScenarioPod, document: Json, now: datetime) -> api_objects.Pod:
    """Return a pod with what the API server's admission and deletion add."""
    document["metadata"]["uid"] = told.name
    if told.is_terminating:
        document["metadata"]["deletionTimestamp"] = (now + timedelta(seconds=30)).isoformat()
    named = told.priority_class
    document["spec"] |= {
        "priority": told.priority,
        "preemptionPolicy": "Never" if named and named.never_preempts else "PreemptLowerPriority",
    }
    return msgspec.convert(document, api_objects.Pod)


def _outcome(scene: Scenario, choice: PreemptionCandidate) -> ScenarioOutcome:
    nodes = {REPRIEVE.node(scene, node.name): node.name for node in scene.nodes}
    return ScenarioOutcome(nodes[choice.node], frozenset(victim.uid for victim in choice.victims))
