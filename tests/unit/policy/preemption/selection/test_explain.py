"""What `explain` says of who may preempt a pod, and from when, is what would be decided."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import PreemptionToleration, VictimToleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.keys import HOME_NAMESPACE
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.selection import RefusalReason, refusal_for
from reprieve_policy.preemption.selection.explain import (
    ToleratedPriorities,
    VictimExplanation,
    explain_victim,
)
from reprieve_policy.preemption.selection.snapshot import (
    NO_TOLERATION,
    GangInfo,
    GangKey,
    NodeInfo,
    PodDemand,
    Preemptor,
    Release,
    ScheduledPod,
    Snapshot,
)
from reprieve_testing.objects.builders import NOW, after

GANG = GangKey("team", "g")
NORMAL = ScheduledPod(
    uid="u",
    namespace="team",
    name="p",
    node="n",
    priority=100,
    preemption_priority=100,
    preemption_class=3,
)
ABOVE_3 = (4, 5, 6, 7, 8, 9, 10)


def tolerating(minimum: int, seconds: int, scheduled: float | None = -60) -> VictimToleration:
    since = None if scheduled is None else after(scheduled)
    return VictimToleration(
        has_priority_class=True, policy=PreemptionToleration(minimum, seconds), scheduled_at=since
    )


def ending_in(seconds: float) -> WorkProgress:
    return WorkProgress(walltime=Walltime(after(seconds - 3600), 3600))


def snapshot_of(
    pod: ScheduledPod,
    others: Sequence[ScheduledPod] = (),
    settings: PolicySettings | None = None,
    home: str = "",
) -> Snapshot:
    members = (pod, *others)
    groups = (
        {}
        if pod.gang is None
        else {GANG: GangInfo(key=GANG, disruption_mode=pod.disruption_mode, members=members)}
    )
    node_info = NodeInfo(name="n", labels={HOME_NAMESPACE: home} if home else {}, pods=members)
    return Snapshot(
        now=NOW, nodes={"n": node_info}, gangs=groups, settings=settings or PolicySettings()
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: ScheduledPod = NORMAL
    others: Sequence[ScheduledPod] = ()
    settings: PolicySettings | None = None
    classes: tuple[int, ...] = ABOVE_3
    ground: RefusalReason | None = None
    until: float | None = None
    tolerated: ToleratedPriorities | None = None


MATE = replace(NORMAL, uid="v", name="mate", gang=GANG, disruption_mode=DisruptionMode.ALL)
CASES = {
    "strictly higher classes may preempt the pod": Case(),
    "the default class may preempt a pod without preferences": Case(
        pod=replace(NORMAL, preemption_class=4), classes=(4, 5, 6, 7, 8, 9, 10)
    ),
    "by the banded rule, the bands above may preempt the pod": Case(
        settings=PolicySettings(class_rule="banded")
    ),
    "by the banded rule, fewer classes may preempt a pod of class 5": Case(
        pod=replace(NORMAL, preemption_class=5),
        settings=PolicySettings(class_rule="banded"),
        classes=(7, 8, 9, 10),
    ),
    "a non-preemptible pod is never preempted": Case(
        pod=replace(NORMAL, is_non_preemptible=True),
        classes=(),
        ground=RefusalReason.NON_PREEMPTIBLE,
    ),
    "a pod near its walltime may finish, and is like any other afterwards": Case(
        pod=replace(NORMAL, progress=WorkProgress(walltime=Walltime(after(-3500), 3600))),
        ground=RefusalReason.NEAR_COMPLETION,
        until=100,
    ),
    "a leaving pod is preempted by no other": Case(
        pod=replace(NORMAL, release=Release()), classes=(), ground=RefusalReason.ALREADY_LEAVING
    ),
    "a service at home stays": Case(
        pod=replace(NORMAL, is_service=True), classes=(), ground=RefusalReason.NODE_NOT_LENT
    ),
    "a gang evicted as a unit is protected if one member is": Case(
        pod=replace(NORMAL, gang=GANG, disruption_mode=DisruptionMode.ALL),
        others=[replace(MATE, is_non_preemptible=True)],
        classes=(),
        ground=RefusalReason.GANG,
    ),
    "a gang that is evicted as a unit is preempted by preemptors of all its pods": Case(
        pod=replace(NORMAL, gang=GANG, disruption_mode=DisruptionMode.ALL),
        others=[replace(MATE, preemption_class=7)],
        classes=(8, 9, 10),
    ),
    ("a gang near its walltime may finish, and is like any other after its last pod"): Case(
        pod=replace(NORMAL, gang=GANG, disruption_mode=DisruptionMode.ALL, progress=ending_in(60)),
        others=[replace(MATE, preemption_class=5, progress=ending_in(120))],
        classes=(6, 7, 8, 9, 10),
        ground=RefusalReason.GANG,
        until=120,
    ),
    "a gang that is not near completion is not reprieved": Case(
        pod=replace(NORMAL, gang=GANG, disruption_mode=DisruptionMode.ALL, progress=ending_in(60)),
        others=[MATE],
    ),
    "each pod of a gang that is evicted pod by pod may finish": Case(
        pod=replace(NORMAL, gang=GANG, progress=ending_in(60)),
        others=[replace(MATE, disruption_mode=DisruptionMode.SINGLE)],
        ground=RefusalReason.NEAR_COMPLETION,
        until=60,
    ),
    "a PriorityClass may refuse lower priorities for a time": Case(
        pod=replace(NORMAL, toleration=tolerating(1000, 600)),
        tolerated=ToleratedPriorities(minimum=1000, until=after(540)),
    ),
    "a PriorityClass may refuse lower priorities for ever": Case(
        pod=replace(NORMAL, toleration=tolerating(1000, -1)),
        tolerated=ToleratedPriorities(minimum=1000, until=None),
    ),
    "a PriorityClass refuses lower priorities until the pod is scheduled": Case(
        pod=replace(NORMAL, toleration=tolerating(1000, 0, None)),
        tolerated=ToleratedPriorities(minimum=1000, until=None),
    ),
    "the toleration of its PriorityClass ends": Case(
        pod=replace(NORMAL, toleration=tolerating(1000, 60))
    ),
    "the toleration omits priorities that could not preempt the pod anyway": Case(
        pod=replace(NORMAL, toleration=tolerating(101, -1))
    ),
    "an unreadable toleration has no effect": Case(
        pod=replace(NORMAL, toleration=replace(NO_TOLERATION, has_priority_class=True))
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_which_preemptors_may_preempt_a_pod_and_from_when(case: Case) -> None:
    found = explain_victim(case.pod, snapshot_of(case.pod, case.others, case.settings))
    assert found.preemptor_classes == case.classes
    assert (found.protected_by and found.protected_by.reason) == case.ground
    assert found.until == (None if case.until is None else after(case.until))
    assert found.tolerated == case.tolerated
    assert (found.preemption_class, found.preemption_priority) == (
        case.pod.preemption_class,
        case.pod.preemption_priority,
    )


SECONDS = st.integers(-400, 400)
TOLERATIONS = st.one_of(
    st.just(NO_TOLERATION),
    st.builds(
        tolerating, st.integers(0, 30), st.sampled_from([-1, 0, 30, 90]), st.none() | SECONDS
    ),
)
WALLTIMES = st.none() | st.builds(Walltime, st.builds(after, SECONDS), st.integers(0, 800))
PODS = st.builds(
    ScheduledPod,
    uid=st.sampled_from("ab"),
    namespace=st.just("team"),
    name=st.just("p"),
    node=st.just("n"),
    preemption_priority=st.integers(0, 20),
    preemption_class=st.integers(0, 10),
    is_non_preemptible=st.sampled_from([False, False, False, True]),
    is_service=st.booleans(),
    release=st.sampled_from([None, None, None, Release()]),
    lacks_priority_class=st.sampled_from([False, False, False, True]),
    toleration=TOLERATIONS,
    progress=st.builds(WorkProgress, walltime=WALLTIMES),
    gang=st.none(),
)
SETTINGS = st.builds(
    PolicySettings,
    class_rule=st.sampled_from(["strict", "banded"]),
    default_class=st.integers(0, 6),
)


def is_explained_as_possible(found: VictimExplanation, preemptor: Preemptor) -> bool:
    """True where the prospect says that this preemptor may take the pod now."""
    tolerated = found.tolerated is not None and preemptor.demand.priority < found.tolerated.minimum
    is_above = preemptor.demand.priority > found.preemption_priority
    return (
        found.protected_by is None
        and preemptor.preemption_class in found.preemptor_classes
        and is_above
        and not tolerated
    )


@given(
    PODS,
    SETTINGS,
    st.integers(0, 10),
    st.integers(0, 35),
    st.sampled_from(["", "team", "other"]),
)
def test_the_explanation_agrees_with_the_decision(
    pod: ScheduledPod, settings: PolicySettings, preemption_class: int, priority: int, home: str
) -> None:
    snapshot = snapshot_of(pod, settings=settings, home=home)
    preemptor = Preemptor(
        demand=PodDemand(uid="x", priority=priority), preemption_class=preemption_class
    )
    assert is_explained_as_possible(explain_victim(pod, snapshot), preemptor) == (
        refusal_for(preemptor, pod, snapshot) is None
    )
