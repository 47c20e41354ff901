"""A scenario through Reprieve's own core, without a cluster: from a watch's objects to the
decision, with `victimOrder: priority`, which is upstream's order.
"""

from datetime import datetime, timedelta

import msgspec

from reprieve_policy.config.settings import PRIORITY, PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits.disruption_budgets import PodDisruptionBudget
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.evaluator import PreemptionCandidate

from . import documents, rule
from .documents import REPRIEVE, Json
from .scenario import Scenario, ScenarioOutcome, ScenarioPod

_SETTINGS = PolicySettings(victim_order=PRIORITY, max_preemption_priority_lift=2_000_000_000)


def decide(scenario: Scenario, now: datetime, facts: Facts | None = None) -> ScenarioOutcome:
    """Return Reprieve's outcome, for a preemptor without room on any node."""
    decision = _decision(scenario, now, facts or Facts(settings=_SETTINGS))
    return ScenarioOutcome() if decision is None else _outcome(scenario, decision)


def _decision(scenario: Scenario, now: datetime, facts: Facts) -> PreemptionCandidate | None:
    """Return the best candidate, if kube-scheduler would offer any node."""
    classes = {
        name: msgspec.convert(documents.priority_class(named), Resource)
        for name, named in scenario.priority_classes().items()
        if not named.is_gone
    }
    facts = Facts(settings=facts.settings, namespace=facts.namespace, priority_classes=classes)
    scheduled = [
        snapshot_builder.scheduled_pod_of(
            _pod(pod, documents.pod(scenario, REPRIEVE, pod, node.name, now), now), facts, now=now
        )
        for node in scenario.nodes
        for pod in node.pods
    ]
    nodes = [
        msgspec.convert(documents.node(scenario, REPRIEVE, node), Node) for node in scenario.nodes
    ]
    budgets = [
        snapshot_builder.disruption_budget_of(
            msgspec.convert(
                documents.budget(scenario, REPRIEVE, number, wanted, now),
                PodDisruptionBudget,
            )
        )
        for number, wanted in enumerate(scenario.budgets)
    ]
    preemptor = snapshot_builder.preemptor_of(
        _pod(scenario.preemptor, documents.preemptor(scenario, REPRIEVE), now), facts
    )
    cluster = snapshot_builder.snapshot_of(
        nodes, scheduled, [preemptor], budgets, facts.settings, now
    )
    offered = [
        REPRIEVE.node(scenario, node.name)
        for node in scenario.nodes
        if rule.is_offered(scenario, node)
    ]
    others = [name for name in cluster.nodes if name not in offered] if offered else []
    return selection.decide(preemptor, cluster, offered, other_nodes=others).best


def _pod(wanted: ScenarioPod, document: Json, now: datetime) -> Pod:
    """Return a pod with the fields that the API server's admission and deletion set."""
    document["metadata"]["uid"] = wanted.name
    if wanted.is_terminating:
        document["metadata"]["deletionTimestamp"] = (now + timedelta(seconds=30)).isoformat()
    named = wanted.priority_class
    document["spec"] |= {
        "priority": wanted.priority,
        "preemptionPolicy": "Never" if named and named.never_preempts else "PreemptLowerPriority",
    }
    return msgspec.convert(document, Pod)


def _outcome(scenario: Scenario, choice: PreemptionCandidate) -> ScenarioOutcome:
    nodes = {REPRIEVE.node(scenario, node.name): node.name for node in scenario.nodes}
    return ScenarioOutcome(nodes[choice.node], frozenset(victim.uid for victim in choice.victims))
