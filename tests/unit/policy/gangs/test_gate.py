"""Which new pods wait for their gang."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts, GangStatement
from reprieve_policy.gangs import gate
from reprieve_policy.gangs.gate import PodController, StatefulSetStatus
from reprieve_policy.kube.objects import NameOnly, ObjectMeta, Resource, SchedulingGroup, Spec
from reprieve_policy.verdict import GateAddition, MetadataChange
from reprieve_testing.objects.builders import PodBuilder, a_namespace, a_pod

ON = PolicySettings(gang_gate=True, gang_gate_timeout_seconds=600)
READY = Facts(settings=ON, operator_opens_gates=True, pods_created_together=4)
"""The gate is on, an operator leads, and the owner creates four pods at once."""
LABEL = MetadataChange("labels", keys.GANG_GATE_LABEL, "waiting")
HELD = (LABEL, GateAddition("reprieve.dev/gang"))


def a_member(of: int | str = 4) -> PodBuilder:
    return (
        a_pod()
        .in_class(4)
        .labelled(keys.OLD_POD_GROUP, "train")
        .labelled(keys.OLD_MIN_AVAILABLE, str(of))
    )


def with_gates(pod: PodBuilder, *names: str) -> PodBuilder:
    return pod._with_spec(schedulingGates=tuple(NameOnly(name=name) for name in names))


@dataclass(frozen=True, kw_only=True)
class Created:
    """A new pod, the known facts, and the changes for its gang."""

    pod: PodBuilder = field(default_factory=a_member)
    facts: Facts = READY
    want: tuple[MetadataChange | GateAddition, ...] = ()


CREATED = {
    "a member of a gang that its owner makes at once waits": Created(want=HELD),
    "a gang of which the owner makes more than it needs waits": Created(
        pod=a_member(of=3), want=HELD
    ),
    "a gang declared by annotations waits": Created(
        pod=a_pod()
        .in_class(4)
        .annotated(keys.KOORDINATOR_GANG, "train")
        .annotated(keys.KOORDINATOR_MIN_AVAILABLE, "4"),
        want=HELD,
    ),
    "a gang whose PodGroup states how many it needs waits": Created(
        pod=a_pod().in_class(4).labelled(keys.POD_GROUP, "train"),
        facts=replace(READY, gang_statement=GangStatement(min_member=4)),
        want=HELD,
    ),
    "a PodGroup that states nothing lets its pods start": Created(
        pod=a_pod().in_class(4).labelled(keys.POD_GROUP, "train")
    ),
    "a PodGroup counts only for pods that name one": Created(
        pod=a_pod().in_class(4).labelled(keys.OLD_POD_GROUP, "train"),
        facts=replace(READY, gang_statement=GangStatement(min_member=4)),
    ),
    "gates of other controllers do not prevent the gate": Created(
        pod=with_gates(a_member(), "example.com/quota"), want=HELD
    ),
    "no pod waits if the gate is switched off": Created(
        facts=replace(READY, settings=PolicySettings())
    ),
    "no pod waits without a live operator": Created(
        facts=replace(READY, operator_opens_gates=False)
    ),
    "no pod waits for more than the owner creates": Created(pod=a_member(of=5)),
    "no pod waits if the owner creates one after another": Created(
        facts=replace(READY, pods_created_together=1)
    ),
    "a gang of one does not wait": Created(pod=a_member(of=1)),
    "an unreadable number of pods": Created(pod=a_member(of="many")),
    "a gang without a minimum does not wait": Created(
        pod=a_pod().in_class(4).labelled(keys.OLD_POD_GROUP, "train")
    ),
    "a pod in no gang does not wait": Created(pod=a_pod().in_class(4)),
    "a pod that has its node already cannot wait": Created(
        pod=a_member()._with_spec(nodeName="node-1")
    ),
    "a native group is the scheduler's": Created(
        pod=a_member()._with_spec(schedulingGroup=SchedulingGroup(podGroupName="train"))
    ),
    "a second pass adds nothing": Created(
        pod=with_gates(a_member(), keys.GANG_GATE).labelled(keys.GANG_GATE_LABEL, "waiting")
    ),
    "our gate in a template gets the label by which it is found": Created(
        pod=with_gates(a_pod().in_class(4), keys.GANG_GATE), facts=Facts(), want=(LABEL,)
    ),
}


@pytest.mark.parametrize("case", CREATED.values(), ids=CREATED)
def test_which_new_pods_get_the_gate(case: Created) -> None:
    assert decide_defaults(case.pod.build(), None, case.facts) == case.want


@pytest.mark.parametrize("case", CREATED.values(), ids=CREATED)
def test_the_owner_is_read_only_if_it_decides(case: Created) -> None:
    asks = gate.may_be_gated(case.pod.build(), case.facts.settings)
    assert asks or keys.GANG_GATE not in {
        change.name for change in case.want if isinstance(change, GateAddition)
    }


def test_a_pod_that_exists_never_gets_the_gate() -> None:
    pod = a_member().build()
    assert decide_defaults(pod, pod, READY) == ()


def test_only_pods_wait() -> None:
    assert not gate.may_be_gated(a_namespace().build(), ON)
    assert not gate.may_be_gated(a_member().in_template_of("Job"), ON)


def test_a_pod_without_a_spec_is_read_as_an_empty_one() -> None:
    assert not gate.may_be_gated(Resource(kind="Pod"), ON)
    assert not gate.has_gang_gate(None)
    assert not gate.has_gang_gate(Spec())


PARALLEL, ORDERED = "Parallel", "OrderedReady"
OWNERS = {
    "a Job makes as many as its parallelism": (
        PodController(kind="Job", spec=Spec(parallelism=4)),
        4,
    ),
    "a Job without parallelism makes one": (PodController(kind="Job"), 1),
    "a Job creates no more pods than its completions": (
        PodController(kind="Job", spec=Spec(parallelism=8, completions=3)),
        3,
    ),
    "a ReplicaSet makes all": (PodController(kind="ReplicaSet", spec=Spec(replicas=4)), 4),
    "a ReplicaSet creates one by default": (PodController(kind="ReplicaSet"), 1),
    "a StatefulSet that is Parallel makes all": (
        PodController(kind="StatefulSet", spec=Spec(replicas=4, podManagementPolicy=PARALLEL)),
        4,
    ),
    "a StatefulSet that is OrderedReady waits for each": (
        PodController(kind="StatefulSet", spec=Spec(replicas=4, podManagementPolicy=ORDERED)),
        1,
    ),
    "a StatefulSet is OrderedReady by default": (
        PodController(kind="StatefulSet", spec=Spec(replicas=4)),
        1,
    ),
    "a StatefulSet in a rollout waits for each": (
        PodController(
            kind="StatefulSet",
            spec=Spec(replicas=4, podManagementPolicy=PARALLEL),
            status=StatefulSetStatus(currentRevision="set-1", updateRevision="set-2"),
        ),
        1,
    ),
}


@pytest.mark.parametrize(("owner", "want"), OWNERS.values(), ids=OWNERS)
def test_how_many_pods_are_created_together(owner: PodController, want: int) -> None:
    assert gate.count_created_together(owner) == want


MEMBERS = {
    "a pending pod": ("Pending", None, True),
    "a running pod": ("Running", None, True),
    "a succeeded pod": ("Succeeded", None, True),
    "a failed pod, which is replaced": ("Failed", None, False),
    "a pod that is being deleted": ("Running", "2026-11-21T12:00:00Z", False),
}


@pytest.mark.parametrize(("phase", "deleted_at", "want"), MEMBERS.values(), ids=MEMBERS)
def test_which_pods_count(phase: str, deleted_at: str | None, *, want: bool) -> None:
    assert gate.counts_towards_minimum(ObjectMeta(deletionTimestamp=deleted_at), phase) is want
