"""Which fields are filled in, and in which cases none."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts, GangStatement
from reprieve_policy.kube.objects import Resource, Spec, Unread
from reprieve_policy.lifecycle.eviction import Checkpoint
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_policy.verdict import AnnotationRemoval
from reprieve_testing.objects.builders import (
    NOW,
    a_namespace,
    a_pod,
    a_pod_group,
    a_priority_class,
    after,
    being_deleted,
)

MINIMUM = keys.TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY
SECONDS = keys.TOLERATION_PREFIX + keys.TOLERATION_SECONDS
KOORDINATOR = keys.KOORDINATOR_SOFT_EVICTION

A_POD = a_pod().in_class(4)
"""It has said its class, so that only what the sentence names is filled in."""

KOORDINATOR_DEFAULTS = Facts(
    settings=PolicySettings(default_preemptible=True, default_can_preempt=False)
)
PREEMPTED_TWICE = LedgerEntry(
    preempted_count=2,
    first_submitted_at=NOW,
    eviction_ids=("uid-2",),
    checkpoint=Checkpoint(saved_at=after(60), path="/ckpt/4200"),
)
OF_A_WORKLOAD = Facts(
    workload_annotations={
        keys.PREEMPTION_PRIORITY_CLASS: "urgent",
        keys.DISRUPTION_MODE: "pod",
        "example.com/other": "",
    }
)
OFF = NamespacePolicy(enforcement="off")


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object, what it was before, what is known of the cluster; what is written."""

    resource: Resource
    old: Resource | None = None
    facts: Facts = field(default_factory=Facts)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    """Annotations that the object loses."""


def a_deployment_with(*annotations: str) -> Resource:
    deployment = A_POD.in_template_of("Deployment")
    metadata = replace(deployment.metadata, annotations=dict.fromkeys(annotations, "1"))
    return replace(deployment, metadata=metadata)


STAMPS = {
    keys.PREEMPTED_COUNT: "2",
    keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z",
    keys.RESUME_FROM_CHECKPOINT: "/ckpt/4200",
    keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z",
}
MARKED = {keys.SOFT_EVICTION: "marked"}

CASES = {
    "a pod without a class gets the cluster's": Case(
        resource=a_pod().build(), labels={keys.PREEMPTION_CLASS: "4"}
    ),
    "a pod with a class keeps it, even an invalid one": Case(resource=a_pod().in_class(11).build()),
    "a pod gets its class at creation only": Case(resource=a_pod().build(), old=a_pod().build()),
    "a pod gets nothing where enforcement is off": Case(
        resource=a_pod().build(), facts=Facts(namespace=OFF)
    ),
    "a pod that is being deleted gets nothing": Case(
        resource=a_pod().marked_by("a").being_deleted().build()
    ),
    "Koordinator's labels are written where an admin set a default": Case(
        resource=A_POD.build(),
        facts=KOORDINATOR_DEFAULTS,
        labels={keys.PREEMPTIBLE: "true", keys.CAN_PREEMPT: "false"},
    ),
    "Koordinator's labels stay as they are where a pod has them": Case(
        resource=A_POD.labelled(keys.PREEMPTIBLE, "false")
        .labelled(keys.CAN_PREEMPT, "true")
        .build(),
        facts=KOORDINATOR_DEFAULTS,
    ),
    "a replacement inherits from its predecessor": Case(
        resource=A_POD.owned_by("ReplicaSet").build(),
        facts=Facts(ledger_entry=PREEMPTED_TWICE),
        annotations=STAMPS,
    ),
    "a template is never changed": Case(
        resource=a_pod().marked_by("somebody").in_template_of("Deployment"),
        facts=KOORDINATOR_DEFAULTS,
    ),
    "a Namespace is never changed": Case(resource=a_namespace().for_workloads("service").build()),
    "a new mark of Koordinator's gets our label, whenever it comes": Case(
        resource=A_POD.marked_by("descheduler").build(), old=A_POD.build(), labels=MARKED
    ),
    "a mark that cannot be read gets none: its author could not correct it": Case(
        resource=A_POD.annotated(KOORDINATOR, "{").build(), old=A_POD.build()
    ),
    "a mark at creation": Case(resource=A_POD.marked_by("descheduler").build(), labels=MARKED),
    "a mark where enforcement is off: it needs a right, not a rule": Case(
        resource=A_POD.marked_by("descheduler").build(), facts=Facts(namespace=OFF), labels=MARKED
    ),
    "a mark as Koordinator's label gets it too": Case(
        resource=A_POD.labelled(KOORDINATOR, "job2").build(), old=A_POD.build(), labels=MARKED
    ),
    "a mark that changes is a new one": Case(
        resource=A_POD.marked_by("descheduler", "again").build(),
        old=A_POD.marked_by("descheduler").build(),
        labels=MARKED,
    ),
    "an old mark whose label was taken away stays without": Case(
        resource=A_POD.marked_by("descheduler").build(),
        old=A_POD.marked_by("descheduler").marked().build(),
    ),
    "a mark beside our label needs no other": Case(
        resource=A_POD.marked_by("descheduler").marked().build()
    ),
    "a pod in a later phase keeps it": Case(
        resource=A_POD.marked_by("descheduler").labelled(keys.SOFT_EVICTION, "hinted").build(),
        old=A_POD.build(),
    ),
    "a mark that is taken back needs no label": Case(
        resource=A_POD.build(), old=A_POD.labelled(KOORDINATOR, "true").build()
    ),
    "a PriorityClass that tolerates for a time gets the minimum that upstream assumes": Case(
        resource=a_priority_class().worth(8000).tolerating(seconds="600").build(),
        annotations={MINIMUM: "8001"},
    ),
    "a PriorityClass that has a minimum gets the seconds that upstream assumes": Case(
        resource=a_priority_class().worth(8000).tolerating(below="10000").build(),
        annotations={SECONDS: "0"},
    ),
    "a PriorityClass with both keys keeps both": Case(
        resource=a_priority_class().tolerating(seconds="600", below="10000").build()
    ),
    "a pod gets what the object of its gang states": Case(
        resource=A_POD.in_gang("train").build(),
        facts=Facts(gang_statement=GangStatement("pod", 2)),
        annotations={keys.DISRUPTION_MODE: "pod", keys.MIN_MEMBER: "2"},
    ),
    "a pod keeps the disruption mode that it states": Case(
        resource=A_POD.in_gang("train").annotated(keys.DISRUPTION_MODE, "gang").build(),
        facts=Facts(gang_statement=GangStatement("pod", 2)),
    ),
    "a PodGroup gets what its Workload states": Case(
        resource=a_pod_group().build(),
        facts=OF_A_WORKLOAD,
        annotations={keys.PREEMPTION_PRIORITY_CLASS: "urgent", keys.DISRUPTION_MODE: "pod"},
    ),
    "a PodGroup keeps what it states itself": Case(
        resource=a_pod_group().defended_as("low").annotated(keys.DISRUPTION_MODE, "gang").build(),
        facts=OF_A_WORKLOAD,
    ),
    "a PodGroup that is evicted as a unit by its field stays so": Case(
        resource=replace(a_pod_group().build(), spec=Spec(disruptionMode={"all": Unread()})),
        facts=OF_A_WORKLOAD,
        annotations={keys.PREEMPTION_PRIORITY_CLASS: "urgent"},
    ),
    "a PodGroup without a spec gets it as well": Case(
        resource=replace(a_pod_group().build(), spec=None),
        facts=Facts(workload_annotations={keys.DISRUPTION_MODE: "gang"}),
        annotations={keys.DISRUPTION_MODE: "gang"},
    ),
    "a PodGroup that exists stays as it is": Case(
        resource=a_pod_group().build(), old=a_pod_group().build(), facts=OF_A_WORKLOAD
    ),
    "a Deployment loses what a rollback copies to it from a ReplicaSet, whenever it comes": Case(
        resource=a_deployment_with(keys.LEDGER, keys.LAST_CHECKPOINT_AT, "example.com/other"),
        old=a_deployment_with(keys.LEDGER),
        removed=[keys.LEDGER, keys.LAST_CHECKPOINT_AT],
    ),
    "a new Deployment loses it as well": Case(
        resource=a_deployment_with(keys.LAST_CHECKPOINT_AT), removed=[keys.LAST_CHECKPOINT_AT]
    ),
    "a Deployment that is being deleted keeps it": Case(
        resource=being_deleted(a_deployment_with(keys.LEDGER))
    ),
    "a ReplicaSet keeps it": Case(
        resource=replace(a_deployment_with(keys.LEDGER), kind="ReplicaSet")
    ),
    "a PriorityClass without both keys stays as it is": Case(resource=a_priority_class().build()),
    "a PriorityClass that cannot be read stays as it is": Case(
        resource=a_priority_class().tolerating(seconds="1h").build()
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_defaults(case: Case) -> None:
    decided = decide_defaults(case.resource, case.old, case.facts)
    removals = [change.key for change in decided if isinstance(change, AnnotationRemoval)]
    assert removals == case.removed
    changes = [change for change in decided if not isinstance(change, AnnotationRemoval)]
    assert {
        change.key: change.value for change in changes if change.field == "labels"
    } == case.labels
    assert {
        change.key: change.value for change in changes if change.field == "annotations"
    } == case.annotations
    assert len(changes) == len(case.labels) + len(case.annotations)


def test_a_pod_that_replaces_no_other_gets_no_variables() -> None:
    pod = A_POD.owned_by("ReplicaSet").annotated(keys.REQUEUE_ENV, "true").build()
    assert decide_defaults(pod, None, Facts()) == ()
