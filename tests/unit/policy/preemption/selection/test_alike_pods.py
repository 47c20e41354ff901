"""A decision that looks at groups of alike pods is the one that looks at each pod."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import PreemptionToleration, VictimToleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import CostInputs, WorkProgress
from reprieve_policy.preemption.loss import LossInputs, SaveWay
from reprieve_policy.preemption.selection import DryRunStatus, alike_pods, totals, victim_units
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.snapshot import (
    AlikePods,
    GangKey,
    NodeInfo,
    Preemptor,
    Release,
    ScheduledPod,
    Snapshot,
)
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import (
    a_budget,
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    amounts,
)

DEFAULT = PreemptionToleration(6, 0)
ALWAYS, ENDING = PreemptionToleration(2000, -1), PreemptionToleration(2000, 200)


times = st.integers(-200, 5).map(after)
TEMPLATE = replace(
    a_scheduled_pod("template", priority=5),
    cost_inputs=CostInputs(devices=1),
    loss_inputs=LossInputs(devices=1),
    toleration=VictimToleration(has_priority_class=True, policy=DEFAULT, scheduled_at=NOW),
)
SAVING = LossInputs(devices=1, way=SaveWay.WHEN_ASKED, save_seconds=30)
CHANGES: list[st.SearchStrategy[dict[str, Any]]] = [
    st.fixed_dictionaries({name: st.sampled_from(values)})
    for name, values in {
        "namespace": ["other"],
        "preemption_priority": [6, 2000],
        "preemption_class": [2, 9],
        "is_non_preemptible": [True],
        "is_service": [True],
        "lacks_priority_class": [True],
        "cost_inputs": [CostInputs(devices=1, stated=7)],
        "loss_inputs": [SAVING, LossInputs(devices=2)],
        "states_preferences": [True],
        "amounts": [amounts(cpu=2)],
        "quota": [("team", "q")],
        "gang": [GangKey("team", "one")],
        "release": [Release(expected_at=NOW, notified=True)],
    }.items()
]
tolerations = st.builds(
    VictimToleration,
    has_priority_class=st.booleans(),
    policy=st.sampled_from([None, DEFAULT, ALWAYS, ENDING, ENDING]),
    scheduled_at=st.none() | times,
)
progresses = st.builds(
    WorkProgress,
    started_at=st.none() | times,
    saved_at=st.none() | times,
    walltime=st.none() | st.just(Walltime(NOW, 100)),
)
changes = st.one_of(
    *CHANGES,
    st.fixed_dictionaries({"toleration": tolerations}),
    st.fixed_dictionaries({"progress": progresses}),
)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> ScheduledPod:
    """Draw a pod of one template, most often alike to the others; else it differs in one field."""
    at = draw(times)
    policy = draw(st.sampled_from([DEFAULT, DEFAULT, ENDING]))
    saved_at = draw(st.sampled_from([None, None, after(-50), after(-20)]))
    pod = replace(
        TEMPLATE,
        uid=uid,
        name=uid,
        progress=WorkProgress(started_at=at, saved_at=saved_at),
        toleration=replace(TEMPLATE.toleration, policy=policy, scheduled_at=at),
    )
    return replace(pod, **draw(changes)) if draw(st.integers(0, 2)) == 0 else pod


@st.composite
def nodes(draw: st.DrawFn, name: str, most: int = 9) -> NodeInfo:
    found = [draw(pods(f"{name}-{index}")) for index in range(draw(st.integers(1, most)))]
    return a_node_info(name, *found, cpu=sum(pod.amounts["cpu"] for pod in found) / NANOS)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = [draw(nodes(name)) for name in ("a", "b", "c")]
    fixture = a_snapshot(*found).with_settings(PolicySettings(max_victims=draw(st.integers(1, 4))))
    built = (fixture.with_budgets(a_budget("web")) if draw(st.booleans()) else fixture).build()
    return replace(built, now=NOW + timedelta(seconds=draw(st.integers(0, 300))))


preemptors = st.builds(
    a_preemptor,
    quota=st.sampled_from([None, None, ("team", "q")]),
    cpu=st.integers(1, 4),
    priority=st.sampled_from([5, 6, 1000]),
    preemption_class=st.sampled_from([4, 9]),
    takes_back_nodes=st.sampled_from([False, False, True]),
)


@given(nodes("n"))
def test_each_pod_is_in_one_group(node_info: NodeInfo) -> None:
    groups = alike_pods.on(node_info).groups

    assert sorted(pod.uid for group in groups for pod in group) == sorted(
        pod.uid for pod in node_info.pods
    )


@given(snapshots(), preemptors.filter(lambda one: not one.takes_back_nodes))
def test_alike_pods_may_be_victims_all_or_none(snapshot: Snapshot, preemptor: Preemptor) -> None:
    eligibility = Eligibility(preemptor, snapshot)
    for group in _groups(snapshot):
        assert len({eligibility.reason(pod) for pod in group}) == 1
        assert len({eligibility.release_certainty(pod) for pod in group}) == 1


@given(snapshots(), st.integers(-100, 10**6))
def test_of_alike_pods_the_first_loses_least_and_is_the_least_important(
    snapshot: Snapshot, seconds: int
) -> None:
    now = NOW + timedelta(seconds=seconds)
    eligibility = Eligibility(a_preemptor(), snapshot)
    for group in _groups(snapshot):
        if group[0].gang is not None:
            continue
        units = [victim_units.units_of([pod], eligibility)[0] for pod in group]
        losses = [totals.loss_of(pod, now) for pod in group]
        assert losses == sorted(losses)
        for order in (victim_units.scheduler_order, victim_units.costliest_first):
            assert units == sorted(units, key=lambda unit: order(unit, now), reverse=True)


@given(snapshots(), preemptors, st.booleans())
def test_a_decision_is_the_same_with_each_pod_in_a_group_of_its_own(
    snapshot: Snapshot,
    preemptor: Preemptor,
    is_only_best_wanted: bool,  # noqa: FBT001 - a parameter
) -> None:
    found = _decide(preemptor, snapshot, is_only_best_wanted=is_only_best_wanted)

    assert found == _decide(
        preemptor, _ungrouped(snapshot), is_only_best_wanted=is_only_best_wanted
    )


@given(snapshots(), preemptors, nodes("b"))
def test_what_is_kept_of_a_node_is_what_is_computed_of_its_pods_now(
    snapshot: Snapshot, preemptor: Preemptor, changed: NodeInfo
) -> None:
    _decide(preemptor, snapshot)
    after_change = replace(
        snapshot,
        nodes={
            **snapshot.nodes,
            "b": replace(snapshot.nodes["b"], pods=changed.pods),
        },
    )
    anew = replace(
        after_change, nodes={name: replace(one) for name, one in after_change.nodes.items()}
    )

    assert _decide(preemptor, after_change) == _decide(preemptor, anew)


ALONE: dict[str, dict[str, Any]] = {
    "a gang": {"gang": GangKey("team", "one")},
    "a release": {"release": Release(notified=True)},
    "a walltime": {"progress": WorkProgress(started_at=NOW, walltime=Walltime(NOW, 100))},
    "a save": {"progress": WorkProgress(started_at=NOW, saved_at=NOW)},
    "no start yet": {"progress": WorkProgress()},
    "a toleration that ends": {
        "toleration": VictimToleration(has_priority_class=True, policy=ENDING, scheduled_at=NOW)
    },
}


@pytest.mark.parametrize("fields", ALONE.values(), ids=ALONE)
def test_what_changes_with_the_time_makes_a_group_of_its_own(fields: dict[str, Any]) -> None:
    both = [replace(TEMPLATE, uid=uid, **fields) for uid in ("a", "b")]

    assert sorted(map(len, alike_pods.on(a_node_info("n", *both)).groups)) == [1, 1]


def test_pods_of_one_template_are_one_group() -> None:
    started = WorkProgress(started_at=NOW)
    both = [replace(TEMPLATE, uid=uid, progress=started) for uid in ("a", "b")]

    assert list(map(len, alike_pods.on(a_node_info("n", *both)).groups)) == [2]


def test_of_many_alike_pods_no_more_are_searched_than_may_be_victims() -> None:
    """With each pod in a group of its own, so many are searched greedily."""
    many = [a_scheduled_pod(f"p{number:02}", cpu=1, started=-number) for number in range(30)]
    small = a_scheduled_pod("small", cpu=0.5, started=-1000)
    snapshot = a_snapshot(a_node_info("n", *many, small, cpu=30.5)).build()
    best = _decide(a_preemptor(cpu=2), snapshot).best

    assert best is not None
    assert {victim.name for victim in best.victims} == {"p00", "p01"}


def test_a_node_with_too_few_possible_victims_within_the_limit_is_not_searched() -> None:
    many = [a_scheduled_pod(f"p{number}", cpu=1) for number in range(9)]
    snapshot = a_snapshot(a_node_info("n", *many, cpu=9)).build()
    found = _decide(a_preemptor(cpu=8), snapshot, is_only_best_wanted=True)

    assert found.node_statuses == {"n": DryRunStatus.TOO_MANY_VICTIMS}


def _decide(
    preemptor: Preemptor, snapshot: Snapshot, *, is_only_best_wanted: bool = False
) -> selection.PreemptionDecision:
    return selection.decide(
        preemptor, snapshot, snapshot.nodes, is_only_best_wanted=is_only_best_wanted
    )


def _groups(snapshot: Snapshot) -> Iterable[tuple[ScheduledPod, ...]]:
    return (
        tuple(group)
        for node_info in snapshot.nodes.values()
        for group in alike_pods.on(node_info).groups
    )


def _ungrouped(snapshot: Snapshot) -> Snapshot:
    nodes = {name: replace(node_info) for name, node_info in snapshot.nodes.items()}
    for node_info in nodes.values():
        node_info.alike_pods.append(AlikePods([(pod,) for pod in node_info.pods], None))
    return replace(snapshot, nodes=nodes)
