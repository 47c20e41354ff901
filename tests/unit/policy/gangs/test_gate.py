"""Which new pods wait for their gang, and when they are released."""

from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import gate
from reprieve_policy.gangs.gate import GatedPod, GateReleaseReason, PodController, StatefulSetStatus
from reprieve_policy.kube.objects import NameOnly, ObjectMeta, Resource, SchedulingGroup, Spec
from reprieve_policy.verdict import GateAddition, MetadataChange
from reprieve_testing.objects.builders import NOW, PodBuilder, a_namespace, a_pod, after

ON = PolicySettings(gang_gate=True, gang_gate_timeout_seconds=600)
READY = Facts(settings=ON, operator_is_live=True, pods_created_together=4)
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
    "gates of other controllers do not prevent the gate": Created(
        pod=with_gates(a_member(), "example.com/quota"), want=HELD
    ),
    "no pod waits if the gate is switched off": Created(
        facts=replace(READY, settings=PolicySettings())
    ),
    "no pod waits without a live operator": Created(facts=replace(READY, operator_is_live=False)),
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


def members(number: int, of: int | None = 4, *, waiting_since: datetime = NOW) -> list[GatedPod]:
    return [GatedPod(waiting_since, of)] * number


RELEASED = {
    "three of four pods keep waiting": (members(3), 0, ON, NOW, None),
    "four of four pods are released": (members(4), 0, ON, NOW, GateReleaseReason.COMPLETE),
    "more pods than the minimum are released": (members(6), 0, ON, NOW, GateReleaseReason.COMPLETE),
    "a recreated pod joins three running ones": (
        members(1),
        3,
        ON,
        NOW,
        GateReleaseReason.COMPLETE,
    ),
    "a recreated pod waits while two others are missing": (members(1), 1, ON, NOW, None),
    "the lowest of several minimums counts": (
        [*members(1, of=2), *members(1, of=4)],
        0,
        ON,
        NOW,
        GateReleaseReason.COMPLETE,
    ),
    "just before the timeout, the pods wait": (members(3), 0, ON, after(599), None),
    "at the timeout, the pods are released": (
        members(3),
        0,
        ON,
        after(600),
        GateReleaseReason.TIMED_OUT,
    ),
    "the timeout counts from the oldest pod": (
        [*members(1), *members(1, waiting_since=after(599))],
        0,
        ON,
        after(600),
        GateReleaseReason.TIMED_OUT,
    ),
    "a complete gang that waited for the operator's return is complete": (
        members(4),
        0,
        ON,
        after(6000),
        GateReleaseReason.COMPLETE,
    ),
    "a pod without a minimum is released": (
        members(1, of=None),
        0,
        ON,
        NOW,
        GateReleaseReason.NOT_NEEDED,
    ),
    "a gang of one is released": (members(1, of=1), 0, ON, NOW, GateReleaseReason.NOT_NEEDED),
    "all pods are released if the gate is switched off": (
        members(3),
        0,
        PolicySettings(),
        NOW,
        GateReleaseReason.NOT_NEEDED,
    ),
}


@pytest.mark.parametrize(
    ("waiting", "others", "settings", "now", "want"), RELEASED.values(), ids=RELEASED
)
def test_when_waiting_pods_are_released(
    waiting: list[GatedPod],
    others: int,
    settings: PolicySettings,
    now: datetime,
    want: GateReleaseReason | None,
) -> None:
    assert gate.decide_release(waiting, others, settings, now) is want


@given(
    st.integers(1, 20), st.integers(0, 20), st.none() | st.integers(-1, 30), st.integers(-600, 3600)
)
def test_no_pod_waits_for_ever(number: int, others: int, wanted: int | None, now: int) -> None:
    waiting = members(number, of=wanted)
    end = gate.deadline(waiting, ON)
    assert gate.decide_release(waiting, others, ON, max(after(now), end)) is not None
    # Pods that may be released now may be released later, and with more members.
    if gate.decide_release(waiting, others, ON, after(now)) is not None:
        assert gate.decide_release(waiting, others + 1, ON, after(now + 1)) is not None
