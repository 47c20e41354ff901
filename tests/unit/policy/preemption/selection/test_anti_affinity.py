"""Pods that keep a preemptor away, or pretend to: which victims are chosen on their nodes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus, snapshot_builder
from reprieve_policy.preemption.selection.snapshot import (
    TOO_LARGE,
    AntiAffinity,
    GangKey,
    Preemptor,
    ScheduledPod,
)
from reprieve_testing.objects.builders import NOW
from reprieve_testing.objects.snapshots import (
    ALL_PODS,
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

DATABASE = a_preemptor(labels={"app": "db"}, namespace_labels={"team": "blue"})
TO_DATABASES = {"matchLabels": {"app": "db"}}
ZONE = "topology.kubernetes.io/zone"


def terms(*found: Mapping[str, Any]) -> tuple[AntiAffinity, ...]:
    """Return the anti-affinity of a pod of Namespace `tenant` with these terms."""
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": found}
    document = {
        "metadata": {"name": "tiny", "namespace": "tenant", "uid": "tiny"},
        "spec": {"nodeName": "a", "affinity": {"podAntiAffinity": rules}},
    }
    pod = msgspec.convert(document, Pod)
    return snapshot_builder.scheduled_pod_of(pod, Facts(), now=NOW).anti_affinity


def term(**fields: Any) -> Mapping[str, Any]:
    """Return a term about all pods of all Namespaces; a field `None` is left out."""
    every = {"labelSelector": {}, "namespaceSelector": {}, "topologyKey": ZONE, **fields}
    return {key: value for key, value in every.items() if value is not None}


def names(decision: selection.PreemptionDecision) -> list[str] | None:
    return None if decision.best is None else sorted(pod.name for pod in decision.best.victims)


TINY = a_scheduled_pod("tiny", cpu=0.25, priority=1000)
"""It may not be a victim: its priority is the preemptor's."""
VICTIM = a_scheduled_pod("victim")
PROTECTED = a_scheduled_pod("protected", is_non_preemptible=True)
MANY = range(200)


def beside(tiny: ScheduledPod) -> selection.PreemptionDecision:
    """Decide on a node with this pod, where the scheduler proposes a protected pod."""
    node_info = a_node_info("a", tiny, VICTIM, PROTECTED, cpu=2.25, labels={ZONE: "z"})
    return selection.decide(DATABASE, a_snapshot(node_info).build(), ["a"], {"a": {"protected"}})


PRETENDED = {
    "seventeen terms without a selector": [term(labelSelector=None)] * 17,
    "seventeen terms about other pods": [
        term(labelSelector={"matchLabels": {"app": f"none-{number}"}}) for number in range(17)
    ],
    "a selector of no Namespace": [term(namespaceSelector={"matchLabels": {"team": "none"}})],
    "a selector of no Namespace, by an expression": [
        term(namespaceSelector={"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})
    ],
    "only the pod's own Namespace": [term(namespaceSelector=None)],
    "another Namespace": [term(namespaceSelector=None, namespaces=["other"])],
    "a label of the preemptor, and another": [
        term(labelSelector={"matchLabels": {"app": "db", "tier": "none"}})
    ],
    "a topology of which the node is no part": [term(topologyKey="none")],
}


@pytest.mark.parametrize("pretended", PRETENDED.values(), ids=PRETENDED)
def test_a_pod_with_anti_affinity_to_no_pod_there_ends_no_choice(
    pretended: list[Mapping[str, Any]],
) -> None:
    """Without this, a tenant would protect all pods of a node by one small pod."""
    assert names(beside(replace(TINY, anti_affinity=terms(*pretended)))) == ["victim"]


REAL = {
    "every pod": term(),
    "the preemptor's label": term(labelSelector=TO_DATABASES),
    "the preemptor's Namespace, by its labels": term(
        namespaceSelector={"matchLabels": {"team": "blue"}}
    ),
    "the preemptor's Namespace, by its name": term(namespaceSelector=None, namespaces=["team"]),
    "by its name, beside a selector of another": term(
        namespaces=["team"], namespaceSelector={"matchLabels": {"team": "none"}}
    ),
}


@pytest.mark.parametrize("real", REAL.values(), ids=REAL)
def test_where_a_pod_that_stays_keeps_the_preemptor_away_the_scheduler_chooses(
    real: Mapping[str, Any],
) -> None:
    found = beside(replace(TINY, anti_affinity=terms(real)))
    assert found.best is None
    assert found.node_statuses == {"a": DryRunStatus.PROPOSAL_REJECTED}


@pytest.mark.parametrize("real", REAL.values(), ids=REAL)
def test_a_possible_victim_that_keeps_the_preemptor_away_leaves_with_the_others(
    real: Mapping[str, Any],
) -> None:
    tiny = a_scheduled_pod("tiny", cpu=0.25, anti_affinity=terms(real))
    assert names(beside(tiny)) == ["tiny", "victim"]


def test_one_that_keeps_the_preemptor_away_by_too_many_terms_does_so_once() -> None:
    """Whom it keeps away is not known: its scheduler insists, if that is the preemptor."""
    other = ({"matchLabels": {"app": f"none-{number}"}} for number in MANY)
    hidden = terms(*(term(labelSelector=one) for one in other), term())
    assert hidden == (TOO_LARGE,)
    tiny = replace(TINY, anti_affinity=hidden)
    assert names(beside(tiny)) == ["victim"]
    freed = a_snapshot(a_node_info("a", tiny, PROTECTED, cpu=2.25)).build()
    again = selection.decide(DATABASE, freed, ["a"], {"a": {"tiny"}}, reported_room={"a"})
    assert again.node_statuses == {"a": DryRunStatus.PROPOSAL_REJECTED}


def test_no_pod_with_anti_affinity_to_no_pod_there_hides_a_zone_that_was_not_offered() -> None:
    tiny = replace(
        TINY, anti_affinity=terms(*PRETENDED["a selector of no Namespace"], term(topologyKey="x"))
    )
    built = a_snapshot(
        a_node_info("a", tiny, PROTECTED, cpu=1.25, labels={ZONE: "z"}),
        a_node_info("b", VICTIM, cpu=1, labels={ZONE: "z"}),
    ).build()
    found = selection.decide(DATABASE, built, ["a"], {"a": {"protected"}}, other_nodes=["b"])
    assert found.best is not None
    assert found.best.node == "b"


def in_gang(name: str, **fields: Any) -> ScheduledPod:
    return a_scheduled_pod(name, gang=GangKey("team", "old"), **fields)


def decided_on(
    *pods: ScheduledPod, preemptor: Preemptor = DATABASE, **gang: Any
) -> list[str] | None:
    settings = PolicySettings(max_victims=4)
    fixture = a_snapshot(a_node_info("a", *pods, cpu=len(pods))).with_settings(settings)
    built = (fixture.with_gang("old", **gang) if gang else fixture).build()
    return names(selection.decide(preemptor, built, ["a"]))


def test_of_a_gang_that_is_evicted_as_a_unit_all_leave_with_the_pod_that_must() -> None:
    pods = in_gang("near", anti_affinity=ALL_PODS), in_gang("mate"), a_scheduled_pod("low")
    assert decided_on(*pods, mode=DisruptionMode.ALL) == ["mate", "near"]


def test_a_gang_loses_no_more_pods_than_it_can_spare_with_the_pod_that_must_leave() -> None:
    near = in_gang("near", anti_affinity=ALL_PODS)
    mates = in_gang("m1"), in_gang("m2"), a_scheduled_pod("low", started=-99999)
    two = a_preemptor(cpu=2)
    single = {"mode": DisruptionMode.SINGLE}
    assert decided_on(near, *mates, preemptor=two, **single, min_available=2) == ["low", "near"]
    both = near, in_gang("m1", anti_affinity=ALL_PODS), in_gang("m2"), a_scheduled_pod("low")
    assert decided_on(*both, **single, min_available=2) is None


def test_a_node_that_is_too_small_stays_so_without_the_pod_that_must_leave() -> None:
    pods = a_scheduled_pod("near", anti_affinity=ALL_PODS), PROTECTED
    assert decided_on(*pods, preemptor=a_preemptor(cpu=2)) is None
