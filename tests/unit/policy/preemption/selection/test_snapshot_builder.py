"""A snapshot is built from decoded API objects and `Facts`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import PreemptionToleration as Refusal
from reprieve_policy.config.toleration import VictimToleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.limits.disruption_budgets import PodDisruptionBudget
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import Phase, Source, render
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.snapshot import (
    TOO_LARGE,
    AntiAffinity,
    DisruptionBudget,
    GangInfo,
    GangKey,
    HostPortInfo,
    NodeAffinityTerm,
    Preemptor,
    Release,
    Requirement,
    ScheduledPod,
    Snapshot,
    Taint,
    TaintToleration,
)
from reprieve_testing.objects.builders import NOW, a_priority_class, a_quota, after, an_eviction
from reprieve_testing.objects.snapshots import (
    a_budget,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    amounts,
)

FACTS = Facts()
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
TRAINING = a_priority_class("training").tolerating(seconds="600", below="5000").build()


def not_scheduled_since(seconds: float, reason: str) -> Mapping[str, Any]:
    return {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "lastTransitionTime": timestamp.render(after(seconds)),
            }
        ]
    }


def a_pod(spec: Mapping[str, Any] = {}, *, status: Mapping[str, Any] = {}, **metadata: Any) -> Pod:
    """Return a pod on a node, decoded from the JSON that the API server sends."""
    named = {"name": "web", "namespace": "team", "uid": "u", **metadata}
    container = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    document = {
        "metadata": named,
        "spec": {"nodeName": "n", "priority": 7, "containers": [container], **spec},
        "status": {
            "phase": "Running",
            "startTime": "2026-11-21T11:30:00Z",
            "conditions": [SCHEDULED],
            **status,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def repelling(*terms: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    }


def read(pod: Pod, facts: Facts = FACTS, **known: Any) -> ScheduledPod:
    return snapshot_builder.scheduled_pod_of(pod, facts, now=NOW, **known)


def test_a_pod_without_preemption_keys_has_only_the_fields_of_upstream():
    found = read(a_pod(labels={"app": "web"}))

    assert (found.uid, found.namespace, found.name, found.node) == ("u", "team", "web", "n")
    assert (found.priority, found.preemption_priority, found.preemption_class) == (7, 7, 4)
    assert found.amounts == amounts(cpu=0.5, memory=2**30)
    assert found.labels == {"app": "web"}
    assert found.progress.started_at == after(-1800)
    assert not any(
        (
            found.states_preferences,
            found.is_leaving,
            found.is_non_preemptible,
            found.is_service,
            found.anti_affinity,
        )
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: Pod
    facts: Facts = FACTS
    known: Mapping[str, Any] = field(default_factory=dict)
    want: Mapping[str, object]


def say(**annotations: str) -> dict[str, str]:
    return {f"{keys.PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()}


def in_class(value: int) -> dict[str, str]:
    return {keys.PREEMPTION_CLASS: str(value)}


SERVICES = Facts(namespace=NamespacePolicy(workload_type="service"))
OFF = Facts(namespace=NamespacePolicy(workload_type="service", enforcement="off"))
NON_PREEMPTIBLE_BY_DEFAULT = Facts(settings=PolicySettings(default_preemptible=False))
"""By `disableDefaultPreemptiable`."""
WITH_TRAINING = Facts(
    priority_classes={
        "training": TRAINING,
        "urgent": a_priority_class("urgent").worth(9000).build(),
    }
)
LIFTED = replace(WITH_TRAINING, settings=PolicySettings(max_preemption_priority_lift=9000))
IN_GANG = {keys.POD_GROUP: "train"}
IN_PHASE = an_eviction()
HINTED, ENDING = (
    IN_PHASE.hinted(deadline=after(60)).build(),
    IN_PHASE.in_phase(Phase.TERMINATING).build(),
)
TEAM = GangKey("team", "train")

SCHEDULED_PODS = {
    "a class of the pod's own is a preference": Case(
        pod=a_pod(labels=in_class(2)), want={"preemption_class": 2, "states_preferences": True}
    ),
    "a checkpoint is a preference": Case(
        pod=a_pod(annotations=say(checkpoint="auto", checkpoint_hint="http://:80/")),
        want={"states_preferences": True},
    ),
    "an eviction cost is a preference": Case(
        pod=a_pod(annotations={keys.EVICTION_COST: "5"}), want={"states_preferences": True}
    ),
    "a walltime is a preference": Case(
        pod=a_pod({"activeDeadlineSeconds": 3600}),
        want={"states_preferences": True, "progress.walltime": Walltime(after(-1800), 3600)},
    ),
    "the Job's deadline ends earlier": Case(
        pod=a_pod({"activeDeadlineSeconds": 3600}),
        known={"job_walltime": Walltime(after(-1900), 3000)},
        want={"progress.walltime": Walltime(after(-1900), 3000)},
    ),
    "the last checkpoint counts": Case(
        pod=a_pod(annotations=say(last_checkpoint_at="2026-11-21T11:45:00Z")),
        want={"progress.saved_at": after(-900)},
    ),
    "a class above 6 without a checkpoint is not preemptible": Case(
        pod=a_pod(labels=in_class(8)),
        facts=Facts(namespace=NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11))))),
        want={"preemption_class": 8, "is_non_preemptible": True},
    ),
    "a pod with Koordinator's label `preemptible: false` is not preemptible": Case(
        pod=a_pod(labels={keys.PREEMPTIBLE: "false"}), want={"is_non_preemptible": True}
    ),
    "a pod without preferences is not preemptible if that is the admin's default": Case(
        pod=a_pod(),
        facts=NON_PREEMPTIBLE_BY_DEFAULT,
        want={"is_non_preemptible": True, "preemption_class": 4},
    ),
    "a pod that is labelled preemptible is, despite the admin's default": Case(
        pod=a_pod(labels={keys.PREEMPTIBLE: "true"}),
        facts=NON_PREEMPTIBLE_BY_DEFAULT,
        want={"is_non_preemptible": False},
    ),
    "a Namespace of services runs services": Case(
        pod=a_pod(), facts=SERVICES, want={"is_service": True, "preemption_class": 6}
    ),
    "where nothing is enforced, nothing of Reprieve's counts": Case(
        pod=a_pod({"activeDeadlineSeconds": 60}, labels={**in_class(9), keys.PREEMPTIBLE: "false"}),
        facts=OFF,
        want={
            "preemption_class": 4,
            "is_service": False,
            "is_non_preemptible": False,
            "states_preferences": False,
        },
    ),
    "the toleration of the PriorityClass": Case(
        pod=a_pod({"priorityClassName": "training"}),
        facts=WITH_TRAINING,
        want={
            "toleration": VictimToleration(
                has_priority_class=True, policy=Refusal(5000, 600), scheduled_at=after(-3600)
            )
        },
    ),
    "a pod without a known time of scheduling tolerates for ever": Case(
        pod=a_pod(
            {"priorityClassName": "training"},
            status={"conditions": [{**SCHEDULED, "status": "False"}]},
        ),
        facts=WITH_TRAINING,
        want={"toleration.scheduled_at": None},
    ),
    "a pod that was scheduled without a time no longer tolerates": Case(
        pod=a_pod(
            {"priorityClassName": "training"},
            status={"conditions": [{"type": "PodScheduled", "status": "True"}]},
        ),
        facts=WITH_TRAINING,
        want={"toleration.scheduled_at": datetime.min.replace(tzinfo=UTC)},
    ),
    "a PriorityClass that does not exist is seen": Case(
        pod=a_pod({"priorityClassName": "gone"}),
        want={"lacks_priority_class": True, "toleration.policy": None},
    ),
    "the preemption priority of the named PriorityClass": Case(
        pod=a_pod(
            {"priorityClassName": "training"}, annotations=say(preemption_priority_class="urgent")
        ),
        facts=LIFTED,
        want={"priority": 7, "preemption_priority": 9000},
    ),
    "since when it is refused": Case(
        pod=a_pod(annotations={keys.REFUSED_SINCE: "2026-11-21T11:30:00Z u"}),
        want={"refused_since": datetime(2026, 11, 21, 11, 30, tzinfo=UTC)},
    ),
    "since when it is refused, where all rules are off": Case(
        pod=a_pod(annotations={keys.REFUSED_SINCE: "2026-11-21T11:30:00Z u"}),
        facts=OFF,
        want={"refused_since": datetime(2026, 11, 21, 11, 30, tzinfo=UTC)},
    ),
    "since when another pod was refused": Case(
        pod=a_pod(annotations={keys.REFUSED_SINCE: "2026-11-21T11:30:00Z another"}),
        want={"refused_since": None},
    ),
    "a preemption priority that no rule has checked": Case(
        pod=a_pod(
            {"priorityClassName": "training"}, annotations=say(preemption_priority_class="urgent")
        ),
        facts=WITH_TRAINING,
        want={"priority": 7, "preemption_priority": 7},
    ),
    "a preemption priority that no rule has checked, where all rules are off": Case(
        pod=a_pod(
            {"priorityClassName": "training"}, annotations=say(preemption_priority_class="urgent")
        ),
        facts=replace(WITH_TRAINING, namespace=OFF.namespace),
        want={"priority": 7, "preemption_priority": 7},
    ),
    "a preemption priority of a PodGroup that no rule has checked": Case(
        pod=a_pod({"schedulingGroup": {"podGroupName": "train"}}),
        facts=WITH_TRAINING,
        known={"native": PodGroupInfo(priority=7, preemption_priority_class="urgent")},
        want={"priority": 7, "preemption_priority": 7},
    ),
    "a defence is never below the priority that the pod is scheduled with": Case(
        pod=a_pod({"priority": 9999}, annotations=say(preemption_priority_class="urgent")),
        facts=WITH_TRAINING,
        want={"preemption_priority": 9999},
    ),
    "the priority of its PodGroup replaces its own": Case(
        pod=a_pod({"schedulingGroup": {"podGroupName": "train"}}),
        known={
            "native": PodGroupInfo(priority=99, disruption_mode=DisruptionMode.ALL, min_count=3)
        },
        want={
            "priority": 99,
            "gang": TEAM,
            "disruption_mode": DisruptionMode.ALL,
            "gang_minimum": 3,
        },
    ),
    "a gang that is stated to go pod by pod": Case(
        pod=a_pod(
            {},
            annotations={
                keys.KOORDINATOR_GANG: "train",
                keys.KOORDINATOR_MIN_AVAILABLE: "2",
                keys.DISRUPTION_MODE: "pod",
            },
        ),
        want={"disruption_mode": DisruptionMode.SINGLE, "gang_minimum": 2},
    ),
    "the preemption priority of its PodGroup protects it": Case(
        pod=a_pod({"schedulingGroup": {"podGroupName": "train"}}),
        facts=LIFTED,
        known={"native": PodGroupInfo(priority=7, preemption_priority_class="urgent")},
        want={"priority": 7, "preemption_priority": 9000},
    ),
    "and never lowers what the pod itself states": Case(
        pod=a_pod(
            {"schedulingGroup": {"podGroupName": "train"}},
            annotations=say(preemption_priority_class="urgent"),
        ),
        facts=LIFTED,
        known={"native": PodGroupInfo(priority=7, preemption_priority_class="training")},
        want={"priority": 7, "preemption_priority": 9000},
    ),
    "an unreadable PodGroup is evicted pod by pod": Case(
        pod=a_pod({"schedulingGroup": {"podGroupName": "train"}}),
        want={"gang": TEAM, "disruption_mode": DisruptionMode.SINGLE},
    ),
    "a declared gang is evicted as a unit": Case(
        pod=a_pod(labels=IN_GANG),
        want={"gang": TEAM, "disruption_mode": DisruptionMode.ALL, "gang_minimum": 0},
    ),
    "the minimum of the gang": Case(
        pod=a_pod(labels={keys.DRAFT_POD_GROUP: "train", keys.DRAFT_MIN_AVAILABLE: "2"}),
        want={"gang": TEAM, "gang_minimum": 2},
    ),
    "a minimum beside a Job's own gang protects none of it": Case(
        pod=a_pod(labels={keys.JOB: "train", keys.DRAFT_MIN_AVAILABLE: "2147483647"}),
        want={"disruption_mode": DisruptionMode.SINGLE, "gang_minimum": 0},
    ),
    "a minimum beside a native group protects none of it": Case(
        pod=a_pod(
            {"schedulingGroup": {"podGroupName": "train"}},
            annotations={keys.KOORDINATOR_MIN_AVAILABLE: "2147483647"},
        ),
        known={"native": PodGroupInfo(disruption_mode=DisruptionMode.SINGLE, min_count=3)},
        want={"disruption_mode": DisruptionMode.SINGLE, "gang_minimum": 3},
    ),
    "the guard evaluates a pod with a class": Case(
        pod=a_pod(labels=in_class(4)), want={"is_guarded": True}
    ),
    "the guard evaluates a pod with a checkpoint": Case(
        pod=a_pod(annotations={keys.CHECKPOINT: "auto"}), want={"is_guarded": True}
    ),
    "the guard does not evaluate a pod without preferences": Case(
        pod=a_pod(labels=IN_GANG), want={"is_guarded": False}
    ),
    "the guard does not evaluate a pod whose Namespace only warns": Case(
        pod=a_pod(labels=in_class(4)),
        facts=Facts(namespace=NamespacePolicy(enforcement="warn")),
        want={"is_guarded": False},
    ),
    "the guard does not evaluate a pod whose Namespace has no enforcement": Case(
        pod=a_pod(labels=in_class(4)),
        facts=Facts(namespace=NamespacePolicy(enforcement="off")),
        want={"is_guarded": False},
    ),
    "the quota that Koordinator would charge": Case(
        pod=a_pod(),
        facts=Facts(quotas=Quotas([a_quota("team", "team")])),
        want={"quota": ("team", "team")},
    ),
    "an anti-affinity names its Namespaces, and its topology": Case(
        pod=a_pod(
            repelling(
                {
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "namespaces": ["a", "b"],
                    "topologyKey": "rack",
                }
            )
        ),
        want={
            "anti_affinity": (
                AntiAffinity(frozenset({"a", "b"}), (Requirement("app", "In", ("db",)),), "rack"),
            )
        },
    ),
    "an anti-affinity without Namespaces is about the pod's own": Case(
        pod=a_pod(repelling({"labelSelector": {}})),
        want={"anti_affinity": (AntiAffinity(frozenset({"team"}), ()),)},
    ),
    "an anti-affinity with a Namespace selector is about what it selects, and names": Case(
        pod=a_pod(repelling({"labelSelector": {}, "namespaces": ["a"], "namespaceSelector": {}})),
        want={"anti_affinity": (AntiAffinity(frozenset({"a"}), (), "", ()),)},
    ),
    "an anti-affinity that only selects Namespaces is not about the pod's own": Case(
        pod=a_pod(
            repelling({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "blue"}}})
        ),
        want={
            "anti_affinity": (
                AntiAffinity(frozenset(), (), "", (Requirement("team", "In", ("blue",)),)),
            )
        },
    ),
    "an anti-affinity that says the same many times says it once": Case(
        pod=a_pod(repelling(*[{"labelSelector": {"matchLabels": {"app": "db"}}}] * 1000)),
        want={
            "anti_affinity": (
                AntiAffinity(frozenset({"team"}), (Requirement("app", "In", ("db",)),)),
            )
        },
    ),
    "an anti-affinity that is larger than any usual one is not kept": Case(
        pod=a_pod(
            repelling(
                *({"labelSelector": {}, "namespaces": [f"n{number}"]} for number in range(200))
            )
        ),
        want={"anti_affinity": (TOO_LARGE,)},
    ),
    "an anti-affinity without a selector is about no pod": Case(
        pod=a_pod(repelling({})), want={"anti_affinity": ()}
    ),
    "the guard evaluates no pod in Kubernetes' own Namespaces": Case(
        pod=a_pod({}, labels=in_class(4), namespace="kube-system"), want={"is_guarded": False}
    ),
    "host ports of containers and sidecars are the node's": Case(
        pod=a_pod(
            {
                "containers": [
                    {"ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}
                ],
                "initContainers": [
                    {
                        "restartPolicy": "Always",
                        "ports": [{"hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP"}],
                    },
                    {"ports": [{"hostPort": 99}]},
                ],
            }
        ),
        want={
            "ports": frozenset(
                {HostPortInfo("0.0.0.0", "TCP", 8080), HostPortInfo("10.0.0.1", "UDP", 53)}
            )
        },
    ),
    "a pod that is being deleted leaves until its grace period ends": Case(
        pod=a_pod(deletionTimestamp="2026-11-21T12:00:30Z"),
        want={"is_leaving": True, "release.expected_at": after(30), "release.notified": False},
    ),
    "a pod that the operator deletes was notified": Case(
        pod=a_pod(
            deletionTimestamp="2026-11-21T12:00:30Z",
            annotations={keys.EVICTION: render(IN_PHASE.in_phase(Phase.TERMINATING).build())},
        ),
        want={"release.expected_at": after(30), "release.notified": True},
    ),
    "a pod that is to be evicted and still runs is held by a budget": Case(
        pod=a_pod(annotations={keys.EVICTION: render(replace(ENDING, must_evict=True))}),
        want={
            "is_leaving": True,
            "release.notified": False,
            "release.is_held_by_budget": True,
            "release.expected_at": ENDING.requested_at,
        },
    ),
    "a terminating pod is not held by a budget, and leaves like any deleted pod": Case(
        pod=a_pod(
            deletionTimestamp="2026-11-21T12:00:30Z",
            annotations={keys.EVICTION: render(replace(ENDING, must_evict=True))},
        ),
        want={
            "release.expected_at": after(30),
            "release.notified": False,
            "release.is_held_by_budget": False,
        },
    ),
    "a saving pod is not held by a budget": Case(
        pod=a_pod(annotations={keys.EVICTION: render(replace(HINTED, must_evict=True))}),
        want={"release.notified": True, "release.is_held_by_budget": False},
    ),
    "a saving pod that a budget held before is held since then": Case(
        pod=a_pod(
            annotations={
                keys.EVICTION: render(replace(HINTED, must_evict=True, held_since=after(-60)))
            }
        ),
        want={
            "release.notified": False,
            "release.is_held_by_budget": True,
            "release.expected_at": after(-60),
        },
    ),
    "a pod whose eviction was cancelled stays, even if a budget held it before": Case(
        pod=a_pod(
            annotations={
                keys.EVICTION: render(
                    replace(
                        HINTED,
                        phase=Phase.CANCELLED,
                        deadline=None,
                        must_evict=True,
                        held_since=after(-60),
                    )
                )
            }
        ),
        want={"release": None},
    ),
    "a pod that is to be deleted was notified": Case(
        pod=a_pod(annotations={keys.EVICTION: render(ENDING)}),
        want={"release.notified": True, "release.is_held_by_budget": False},
    ),
    "a mark on a pod that is leaving has no effect": Case(
        pod=a_pod(
            labels={keys.SOFT_EVICTION: "requested"},
            annotations={keys.EVICTION: render(replace(ENDING, must_evict=True))},
        ),
        want={"release.is_held_by_budget": True, "release.expected_at": ENDING.requested_at},
    ),
    "a spared pod that is marked again is leaving": Case(
        pod=a_pod(
            labels={keys.SOFT_EVICTION: "requested"},
            annotations={keys.EVICTION: render(IN_PHASE.in_phase(Phase.SPARED).build())},
        ),
        want={"is_leaving": True, "release.notified": False, "release.expected_at": None},
    ),
    "a pod with our mark is leaving at an unknown time": Case(
        pod=a_pod(labels={keys.SOFT_EVICTION: "requested"}),
        want={"is_leaving": True, "release.expected_at": None, "release.notified": False},
    ),
    "an unreadable mark has no effect": Case(
        pod=a_pod(
            labels={keys.SOFT_EVICTION: "marked"},
            annotations={keys.KOORDINATOR_SOFT_EVICTION: "{bad"},
        ),
        want={"is_leaving": False},
    ),
    "a pod to be evicted is leaving at an unknown time": Case(
        pod=a_pod(labels={keys.SOFT_EVICTION: "evict"}),
        want={"is_leaving": True, "release.expected_at": None},
    ),
    "a pod with Koordinator's mark, which the operator sees, is leaving": Case(
        pod=a_pod(
            labels={keys.SOFT_EVICTION: "marked"},
            annotations={keys.KOORDINATOR_SOFT_EVICTION: "true"},
        ),
        want={"is_leaving": True},
    ),
    "a pod with Koordinator's mark, which no operator has seen, stays": Case(
        pod=a_pod(annotations={keys.KOORDINATOR_SOFT_EVICTION: "true"}), want={"is_leaving": False}
    ),
    "a pod that leaves for a preemptor that is not known was not only requested": Case(
        pod=a_pod(annotations={keys.EVICTION: render(HINTED), keys.PREEMPTOR: ""}),
        want={"release.notified": True, "release.is_requested": False},
    ),
    "a pod that leaves with its gang was not requested itself": Case(
        pod=a_pod(annotations={keys.EVICTION: render(replace(HINTED, source=Source.GANG))}),
        want={"release.notified": True, "release.is_requested": False},
    ),
    "a pod that its owner deletes leaves for no preemptor, also with its gang": Case(
        pod=a_pod(
            deletionTimestamp=timestamp.render(NOW),
            annotations={keys.EVICTION: render(replace(HINTED, source=Source.GANG))},
        ),
        want={"release.is_being_deleted": True, "release.leaves_for_none": True},
    ),
    "a deleted pod that was marked for a preemptor that is not known leaves for one": Case(
        pod=a_pod(deletionTimestamp=timestamp.render(NOW), annotations={keys.PREEMPTOR: ""}),
        want={"release.is_being_deleted": True, "release.leaves_for_none": False},
    ),
    **{
        f"a pod in phase {phase} {'is' if going else 'is not'} leaving": Case(
            pod=a_pod(
                labels={keys.SOFT_EVICTION: phase},
                annotations={
                    keys.EVICTION: render(IN_PHASE.in_phase(phase, deadline=after(60)).build())
                },
            ),
            want={
                "is_leaving": going,
                "release": Release(
                    expected_at=IN_PHASE.build().requested_at, notified=True, leaves_for_none=True
                )
                if going
                else None,
            },
        )
        for phase, going in {
            Phase.HINTED: True,
            Phase.SAVED: True,
            Phase.TERMINATING: True,
            Phase.REPRIEVED: False,
            Phase.SPARED: False,
            Phase.CANCELLED: False,
        }.items()
    },
}


@pytest.mark.parametrize("case", SCHEDULED_PODS.values(), ids=SCHEDULED_PODS.keys())
def test_a_scheduled_pod_is_decoded(case: Case):
    found = read(case.pod, case.facts, **case.known)

    assert {path: value_at(found, path) for path in case.want} == case.want


NATIVE = a_pod({"schedulingGroup": {"podGroupName": "train"}})
WHOLE = {
    "a pod without a gang is evicted alone": (a_pod(), None, False),
    "a member of a labelled gang is evicted with it": (
        a_pod(labels={keys.POD_GROUP: "train"}),
        None,
        True,
    ),
    "a member of a gang that is stated to go pod by pod is evicted alone": (
        a_pod(labels={keys.POD_GROUP: "train"}, annotations={keys.DISRUPTION_MODE: "pod"}),
        None,
        False,
    ),
    "a member of a native group with disruption mode all": (
        NATIVE,
        PodGroupInfo(disruption_mode=DisruptionMode.ALL),
        True,
    ),
    "a member of a native group without a disruption mode": (
        NATIVE,
        PodGroupInfo(),
        False,
    ),
    "a member of a native group that no longer exists is evicted alone": (NATIVE, None, False),
}


@pytest.mark.parametrize(("pod", "native", "want"), WHOLE.values(), ids=WHOLE.keys())
def test_which_leaving_pods_take_their_gang_with_them(
    pod: Pod, native: PodGroupInfo | None, *, want: bool
):
    assert snapshot_builder.evicted_as_a_unit(pod, native) is want


def waiting(name: str, *, nominated: str | None = None, **fields: Any) -> Preemptor:
    demand = a_pod_demand(name)
    return a_preemptor(
        demand=demand, name=name, nominated_node=nominated, gang=TEAM, devices=1.0, **fields
    )


NEVER = {"preemptionPolicy": "Never"}
PREEMPTORS = {
    "a pending pod has the values that upstream reads": Case(
        pod=a_pod(),
        want={
            "demand.priority": 7,
            "preemption_class": 4,
            "never_preempts": False,
            "can_preempt": True,
            "devices": 0.5,
        },
    ),
    "a preemptor of Kubernetes' own priorities is exempt": Case(
        pod=a_pod({"priority": 1_000_000_001}), want={"is_exempt": True}
    ),
    "a preemptor of the highest user-definable priority is not exempt": Case(
        pod=a_pod({"priority": 1_000_000_000}), want={"is_exempt": False}
    ),
    "a preemptor of an exempt Namespace is exempt": Case(
        pod=a_pod(namespace="kube-system"), want={"is_exempt": True}
    ),
    "a preemptor with preemptionPolicy Never may not preempt": Case(
        pod=a_pod(NEVER), want={"never_preempts": True, "can_preempt": False}
    ),
    "a preemptor may be forbidden to preempt by its label": Case(
        pod=a_pod(labels={keys.CAN_PREEMPT: "false"}), want={"can_preempt": False}
    ),
    "a preemptor may be forbidden to preempt by the cluster's policy": Case(
        pod=a_pod(),
        facts=Facts(settings=PolicySettings(default_can_preempt=False)),
        want={"can_preempt": False},
    ),
    "before the API server resolves it, its priority is its PriorityClass's": Case(
        pod=a_pod({"priority": None, "priorityClassName": "urgent"}),
        facts=WITH_TRAINING,
        want={"demand.priority": 9000},
    ),
    "a preemptor without a PriorityClass has priority 0": Case(
        pod=a_pod({"priority": None}), want={"demand.priority": 0}
    ),
    (
        "in a native group too it preempts by its own: kube-scheduler places "
        "none whose pods have another"
    ): Case(
        pod=a_pod({"schedulingGroup": {"podGroupName": "train"}}),
        known={"native": PodGroupInfo(priority=99)},
        want={"demand.priority": 7},
    ),
    "the nominated node of a preemptor is read": Case(
        pod=a_pod(status={"nominatedNodeName": "n"}), want={"nominated_node": "n"}
    ),
    "the scheduler of a preemptor is read": Case(
        pod=a_pod({"schedulerName": "ours"}), want={"scheduler": "ours", "is_gated": False}
    ),
    "a preemptor with a scheduling gate is gated": Case(
        pod=a_pod({"schedulingGates": [{"name": "wait"}]}), want={"is_gated": True}
    ),
    "since when a preemptor finds no node is read": Case(
        pod=a_pod(status=not_scheduled_since(-90, "Unschedulable")),
        want={"unschedulable_since": after(-90)},
    ),
    "the time at a scheduling gate is no time without a node": Case(
        pod=a_pod(status=not_scheduled_since(-90, "SchedulingGated")),
        want={"unschedulable_since": None},
    ),
    "nor does it count once the gate of gangs has let the pod go": Case(
        pod=a_pod(
            status=not_scheduled_since(-90, "Unschedulable"),
            annotations={keys.GANG_RELEASED_AT: timestamp.render(after(-10))},
        ),
        want={"unschedulable_since": after(-10)},
    ),
    "no longer nominated is not nominated": Case(
        pod=a_pod(status={"nominatedNodeName": ""}), want={"nominated_node": None}
    ),
    "the walltime of a preemptor is read": Case(
        pod=a_pod({"activeDeadlineSeconds": 60}), want={"walltime_seconds": 60}
    ),
    "the node labels that a preemptor requires are read": Case(
        pod=a_pod(
            {
                "nodeSelector": {"zone": "a"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [{"key": "gpu", "operator": "Exists"}],
                                    "matchFields": [
                                        {"key": "metadata.name", "operator": "In", "values": ["n"]}
                                    ],
                                }
                            ]
                        }
                    }
                },
            }
        ),
        want={
            "demand.constraints.node_selector": {"zone": "a"},
            "demand.constraints.node_affinity_terms": (
                NodeAffinityTerm(
                    (Requirement("gpu", "Exists"),), (Requirement("metadata.name", "In", ("n",)),)
                ),
            ),
        },
    ),
    "the tolerations of a preemptor are read": Case(
        pod=a_pod({"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]}),
        want={
            "demand.constraints.tolerations": (TaintToleration("k", "Exists", "", "NoSchedule"),)
        },
    ),
    "the labels of its Namespace are those that a selector of Namespaces reads": Case(
        pod=a_pod(),
        facts=Facts(namespace=namespace.read_leniently({"team": "blue"}, {})),
        want={"namespace_labels": {"team": "blue"}},
    ),
    "a preferred topology spread does not count": Case(
        pod=a_pod({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}),
        want={"depends_on_other_pods": False},
    ),
    "a required topology spread depends on other pods": Case(
        pod=a_pod({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
        want={"depends_on_other_pods": True},
    ),
    "a required pod affinity depends on other pods": Case(
        pod=a_pod(
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}
        ),
        want={"depends_on_other_pods": True},
    ),
    "a resource claim depends on other pods": Case(
        pod=a_pod({"resourceClaims": [{"name": "gpu"}]}), want={"depends_on_other_pods": True}
    ),
    "volumes of the pod alone limit no nodes": Case(
        pod=a_pod({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {}}]}),
        want={"volumes_limit_nodes": False},
    ),
    "a PersistentVolumeClaim limits the nodes": Case(
        pod=a_pod(
            {
                "volumes": [
                    {"name": "v", "emptyDir": {}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
                ]
            }
        ),
        want={"volumes_limit_nodes": True},
    ),
    "a generic ephemeral volume limits the nodes": Case(
        pod=a_pod({"volumes": [{"name": "v", "ephemeral": {}}]}),
        want={"volumes_limit_nodes": True},
    ),
    **{
        f"a volume of {source} limits the nodes: its CSI driver limits how many are attached": Case(
            pod=a_pod({"volumes": [{"name": "v", source: {}}]}),
            want={"volumes_limit_nodes": True},
        )
        for source in ("azureDisk", "cinder", "portworxVolume", "vsphereVolume")
    },
}


@pytest.mark.parametrize("case", PREEMPTORS.values(), ids=PREEMPTORS.keys())
def test_a_pending_pod_is_decoded(case: Case):
    found = snapshot_builder.preemptor_of(case.pod, case.facts, **case.known)

    assert {path: value_at(found, path) for path in case.want} == case.want


JOB = {"batch.kubernetes.io/job-name": "train"}
JOBS_GANG = GangKey("team", "job/train")
AS_A_UNIT = {keys.DISRUPTION_MODE: "gang"}


@pytest.mark.parametrize(
    ("metadata", "gang"),
    [
        ({"labels": JOB}, None),
        ({"labels": JOB, "annotations": AS_A_UNIT}, JOBS_GANG),
        ({"labels": JOB | IN_GANG}, TEAM),
        ({"labels": JOB | {keys.QUOTA_NAME: "q"}}, JOBS_GANG),
    ],
    ids=["no gang", "evicted as a unit", "a declared gang", "admitted by its quota as a whole"],
)
def test_the_pods_of_a_job_are_a_gang_only_where_something_says_so(
    metadata: Mapping[str, Any], gang: GangKey | None
):
    """Without this, `maxVictims` would keep a Job of many pods from preempting any pod."""
    pod, facts = a_pod(**metadata), Facts(quotas=Quotas([a_quota("q", "team")]))
    assert snapshot_builder.preemptor_of(pod, facts).gang == gang
    assert read(pod, facts).gang == gang


def test_a_pod_without_a_gang_has_no_members():
    alone = a_preemptor()

    assert snapshot_builder.with_gang(alone, [waiting("a")], placed=()) is alone


def test_all_pending_pods_of_a_gang_must_be_placed():
    me = waiting("a")
    found = snapshot_builder.with_gang(
        me, [me, waiting("c"), waiting("b"), waiting("d", nominated="n")], placed=()
    )

    assert [demand.uid for demand in found.pending_members] == ["b", "c"]
    assert found.devices == 3.0


def test_no_more_gang_pods_than_the_minimum_must_be_placed():
    me = waiting("a", gang_minimum=4)
    placed = [a_scheduled_pod("e", gang=TEAM)]
    found = snapshot_builder.with_gang(
        me, [me, waiting("b"), waiting("c"), waiting("d", nominated="n")], placed
    )

    assert [demand.uid for demand in found.pending_members] == ["b"]
    assert found.nominated_member_uids == {"d"}


def test_leaving_pods_of_a_gang_do_not_count_as_members():
    """Without this, the replacements of a preempted gang would be placed one by one."""
    me = waiting("a", gang_minimum=2)

    assert (
        len(
            snapshot_builder.with_gang(
                me, [me, waiting("b")], [a_scheduled_pod("old", gang=TEAM, is_leaving=True)]
            ).pending_members
        )
        == 1
    )
    assert (
        len(
            snapshot_builder.with_gang(
                me, [me, waiting("b")], [a_scheduled_pod("old", gang=TEAM)]
            ).pending_members
        )
        == 0
    )


def test_pods_of_two_gangs_are_not_members_of_each_other():
    other = replace(waiting("b"), gang=GangKey("team", "other"))

    assert snapshot_builder.with_gang(waiting("a"), [other], placed=()).pending_members == ()


@pytest.mark.parametrize(
    ("pod", "has_room", "wants_room"),
    [
        (a_pod(), True, False),
        (a_pod(status={"phase": "Succeeded"}), False, False),
        (a_pod({"nodeName": ""}, status={"phase": "Pending"}), False, True),
        (a_pod({"nodeName": ""}, deletionTimestamp="2026-11-21T12:00:00Z"), False, False),
    ],
    ids=[
        "a running pod",
        "a succeeded pod",
        "a pending pod without a node",
        "a pod without a node that is being deleted",
    ],
)
def test_which_pods_are_scheduled_and_which_are_pending(
    pod: Pod, *, has_room: bool, wants_room: bool
):
    assert (pod.occupies_node, pod.is_pending) == (has_room, wants_room)


def a_node(**document: Any) -> Node:
    return msgspec.json.decode(
        msgspec.json.encode({"metadata": {"name": "n"}, **document}), type=Node
    )


def test_a_node_is_decoded():
    found = snapshot_builder.node_info_of(
        a_node(
            spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            status={"allocatable": {"cpu": "4", "pods": "110"}},
        )
    )

    assert found.allocatable == amounts(cpu=4, pods=110)
    assert (found.is_unschedulable, found.taints) == (True, (Taint("k", "", "NoSchedule"),))


def test_a_node_without_a_status_has_no_capacity():
    assert snapshot_builder.node_info_of(a_node()).allocatable == {}


BUDGETS = {
    "a selector": (
        {
            "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "Exists"}],
            }
        },
        (Requirement("app", "In", ("web",)), Requirement("tier", "Exists")),
    ),
    "without a selector no pod is selected": ({}, ()),
    "with an empty selector no pod is selected, as in kube-scheduler": ({"selector": {}}, ()),
}


@pytest.mark.parametrize(("spec", "want"), BUDGETS.values(), ids=BUDGETS.keys())
def test_a_budget_is_decoded(spec: Mapping[str, Any], want: tuple[Requirement, ...]):
    document = {
        "metadata": {"name": "b", "namespace": "team"},
        "spec": spec,
        "status": {"disruptionsAllowed": 2, "disruptedPods": {"web-1": "2026-11-21T12:00:00Z"}},
    }
    found = snapshot_builder.disruption_budget_of(
        msgspec.json.decode(msgspec.json.encode(document), type=PodDisruptionBudget)
    )

    assert found.requirements == want
    assert (found.namespace, found.disruptions_allowed, found.disrupted_pods) == (
        "team",
        2,
        frozenset({"web-1"}),
    )


@pytest.mark.parametrize(
    ("values", "is_kept"),
    [(("web",), True), (("x" * 20_000,), False), (("",) * 1000, False)],
    ids=["usual", "of long texts", "of very many empty values"],
)
def test_a_budget_with_a_selector_beyond_any_usual_one_counts_as_none(
    values: tuple[str, ...], *, is_kept: bool
):
    budget = DisruptionBudget(namespace="team", requirements=(Requirement("app", "In", values),))
    assert snapshot_builder.usual_budget(budget) == (budget if is_kept else None)


@pytest.mark.parametrize(
    ("budgets", "requirements", "values", "are_kept"),
    [(200, 5, 0, True), (201, 1, 0, False), (100, 11, 0, False), (200, 1, 6, False)],
    ids=["usual", "too many", "too many requirements", "too many values"],
)
def test_a_namespace_with_more_budgets_than_any_usual_one_has_none(
    budgets: int, requirements: int, values: int, *, are_kept: bool
):
    selector = (Requirement("app", "NotIn", ("a",) * values),) * requirements
    found = [DisruptionBudget(namespace="team", requirements=selector)] * budgets
    assert snapshot_builder.usual_budgets(found) == (found if are_kept else ())


def test_a_budget_is_kept_without_more_names_than_the_api_server_writes():
    budget = DisruptionBudget(namespace="team", disrupted_pods=frozenset({"x" * 300_000}))
    assert snapshot_builder.usual_budget(budget) == DisruptionBudget(namespace="team")


def test_a_gang_is_evicted_as_a_unit_if_one_of_its_pods_declares_it():
    single, whole = (
        a_scheduled_pod("a", gang=TEAM),
        a_scheduled_pod("b", gang=TEAM, disruption_mode=DisruptionMode.ALL, gang_minimum=2),
    )

    found = snapshot_builder.gang_infos_of([single, a_scheduled_pod("c"), whole])

    assert found == {
        TEAM: GangInfo(
            key=TEAM, disruption_mode=DisruptionMode.ALL, min_available=2, members=(single, whole)
        )
    }


@pytest.mark.parametrize(
    ("minimum", "is_whole"), [(0, False), (1, False), (2, True), (2**31 - 1, True)]
)
def test_a_gang_that_can_spare_no_pod_is_evicted_as_a_unit(minimum: int, *, is_whole: bool):
    """Without this, a gang that declares all its pods as needed would never be preempted."""
    members = [a_scheduled_pod(name, gang=TEAM, gang_minimum=minimum) for name in ("a", "b")]
    snapshot = Snapshot(now=NOW, gangs={TEAM: snapshot_builder.gang_info_of(TEAM, members)})

    assert (Eligibility(a_preemptor(), snapshot).evicted_gang(members[0]) is not None) == is_whole


def test_a_snapshot_has_every_pod_on_its_node():
    pod, other = a_scheduled_pod("a", node="n"), a_scheduled_pod("b", node="gone")
    pending = waiting("c", nominated="n")
    budget = a_budget("web")

    found = snapshot_builder.snapshot_of(
        [a_node(), Node()],
        [pod, other],
        [pending, a_preemptor()],
        [budget],
        PolicySettings(),
        NOW,
    )

    assert list(found.nodes) == ["n"]
    assert found.nodes["n"].pods == (pod,)
    assert found.nodes["n"].nominated_pods == (pending.demand,)
    assert found.budgets == {"team": [budget]}


def value_at(found: object, path: str) -> object:
    for name in path.split("."):
        found = getattr(found, name)
    return found
