"""Gangs, as victims and as preemptors: all of one or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.selection import DryRunStatus, RefusalReason
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.release import UNKNOWN_PREEMPTOR
from reprieve_policy.preemption.selection.snapshot import (
    GangKey,
    HostPortInfo,
    NodeInfo,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_testing.objects.builders import NOW
from reprieve_testing.objects.snapshots import (
    ALL_PODS,
    SnapshotFixture,
    a_budget,
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    amounts,
)

OLD, MINE = GangKey("team", "old"), GangKey("team", "mine")
ANY_NUMBER = PolicySettings(max_victims=1000)


def of_gang(name: str, **fields: object) -> ScheduledPod:
    return a_scheduled_pod(name, **{"gang": OLD, **fields})  # type: ignore[arg-type]  # named by these tests


def a_gang_of(count: int, *, cpu: float = 1, **fields: object) -> Preemptor:
    """Return the first of so many pods that must all find room."""
    rest = tuple(a_pod_demand(f"mate-{index}", cpu=cpu) for index in range(1, count))
    return a_preemptor(cpu=cpu, gang=MINE, pending_members=rest, devices=cpu * count, **fields)


def decided(
    preemptor: Preemptor, snapshot_fixture: SnapshotFixture, nodes: Sequence[str] = ()
) -> selection.PreemptionDecision:
    built = snapshot_fixture.build()
    return selection.decide(preemptor, built, nodes or built.nodes)


def names(pods: Sequence[ScheduledPod]) -> list[str]:
    return sorted(pod.name for pod in pods)


@dataclass(frozen=True, kw_only=True)
class Case:
    preemptor: Preemptor
    snapshot_fixture: SnapshotFixture
    victims: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    later: Sequence[str] = ()
    units: int = 0


ONE = a_preemptor()
CASES = {
    "a gang evicted as a unit, on two nodes, counts once": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(
            a_node_info("a", of_gang("a1"), of_gang("a2"), cpu=2),
            a_node_info("b", of_gang("b1"), cpu=1),
        ).with_gang("old"),
        victims=["a1", "a2"],
        elsewhere=["b1"],
        units=1,
    ),
    "a gang with one protected pod is not preempted": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(
            a_node_info("a", of_gang("a1"), a_scheduled_pod("single", priority=9), cpu=2),
            a_node_info("b", of_gang("b1", is_non_preemptible=True), cpu=1),
        ).with_gang("old"),
        victims=["single"],
        units=1,
    ),
    "by priority, a gang is reprieved before single pods of its priority": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(
            a_node_info("a", of_gang("a1", started=-5), a_scheduled_pod("single"), cpu=2)
        )
        .with_gang("old")
        .with_settings(PolicySettings(victim_order="priority")),
        victims=["single"],
        units=1,
    ),
    "a larger gang is reprieved before a smaller one": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(
            a_node_info(
                "a", of_gang("a1"), a_scheduled_pod("s1", gang=GangKey("team", "small")), cpu=2
            ),
            a_node_info("b", of_gang("b1", priority=0), cpu=0.5),
        )
        .with_gang("old")
        .with_gang("small"),
        victims=["s1"],
        units=1,
    ),
    "a gang evicted pod by pod loses one pod": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(
            a_node_info("a", of_gang("a1"), of_gang("a2", started=-5), cpu=2)
        ).with_gang("old", DisruptionMode.SINGLE),
        victims=["a2"],
        units=1,
    ),
    "an unknown gang is evicted pod by pod": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(a_node_info("a", of_gang("a1"), cpu=1)),
        victims=["a1"],
        units=1,
    ),
    "a gang loses the pods beyond its minimum only": Case(
        preemptor=ONE,
        snapshot_fixture=a_snapshot(
            a_node_info(
                "a", of_gang("a1"), of_gang("a2", started=-5), of_gang("a3", started=-9), cpu=3
            )
        ).with_gang("old", DisruptionMode.SINGLE, min_available=2),
        victims=["a2"],
        units=1,
    ),
    "a gang on several nodes frees room for a gang of preemptors": Case(
        preemptor=a_gang_of(3),
        snapshot_fixture=a_snapshot(
            a_node_info("a", of_gang("a1"), cpu=1),
            a_node_info("b", of_gang("b1"), cpu=1),
            a_node_info("c", of_gang("c1"), a_scheduled_pod("single", priority=9), cpu=2),
        ).with_gang("old"),
        victims=["a1"],
        elsewhere=["b1", "c1"],
        units=1,
    ),
    "all pods of the preemptor's gang on one node": Case(
        preemptor=a_gang_of(2),
        snapshot_fixture=a_snapshot(
            a_node_info("a", a_scheduled_pod("a1"), a_scheduled_pod("a2"), cpu=2)
        ),
        victims=["a1", "a2"],
        units=2,
    ),
    "victims for other members on other nodes count": Case(
        preemptor=a_gang_of(2),
        snapshot_fixture=a_snapshot(
            a_node_info("a", a_scheduled_pod("a1"), cpu=1),
            a_node_info("b", a_scheduled_pod("b1"), cpu=1),
        ),
        victims=["a1"],
        later=["b1"],
        units=2,
    ),
    "free room is used first": Case(
        preemptor=a_gang_of(2),
        snapshot_fixture=a_snapshot(
            a_node_info("a", a_scheduled_pod("a1"), cpu=1),
            a_node_info("b", a_scheduled_pod("b1"), cpu=1),
            a_node_info("free", cpu=1),
        ),
        victims=["a1"],
        units=1,
    ),
    "a smaller gang that is not needed is reprieved": Case(
        preemptor=replace(a_gang_of(1), pending_members=(a_pod_demand("mate", cpu=8),)),
        snapshot_fixture=a_snapshot(
            a_node_info(
                "a",
                a_scheduled_pod("s1", gang=GangKey("team", "small")),
                of_gang("a1", priority=5),
                cpu=2,
            ),
            a_node_info("b", of_gang("b1", priority=5, cpu=8), cpu=8),
        )
        .with_gang("old")
        .with_gang("small"),
        victims=["a1"],
        elsewhere=["b1"],
        units=1,
    ),
    "a single victim frees room for two members": Case(
        preemptor=a_gang_of(2),
        snapshot_fixture=a_snapshot(a_node_info("a", a_scheduled_pod("large", cpu=2), cpu=2)),
        victims=["large"],
        units=1,
    ),
    "a single pod that is not needed is reprieved": Case(
        # Nothing but the large gang has room for the second mate, and it leaves room for the first,
        # too.
        preemptor=replace(a_gang_of(1), pending_members=(a_pod_demand("mate", cpu=8),)),
        snapshot_fixture=a_snapshot(
            a_node_info("a", a_scheduled_pod("single"), of_gang("a1", priority=5), cpu=2),
            a_node_info("b", of_gang("b1", priority=5, cpu=8), cpu=8),
        ).with_gang("old"),
        victims=["a1"],
        elsewhere=["b1"],
        units=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_which_gang_pods_are_victims(case: Case):
    best = decided(case.preemptor, case.snapshot_fixture, ["a"]).best

    assert best is not None
    assert names(best.victims) == list(case.victims)
    assert names(best.gang_members_elsewhere) == list(case.elsewhere)
    assert names(best.other_victims) == list(case.later)
    assert best.victim_count == case.units


def full(name: str, cpu: int = 1) -> NodeInfo:
    return a_node_info(name, *(a_scheduled_pod(f"{name}-{index}") for index in range(cpu)), cpu=cpu)


FOR_A_MATE: dict[str, Any] = {"cpu": 1, "nominated_pods": (a_pod_demand("nominated"),)}
"""All the room there is on a node is the one's that is nominated to it."""


def going_for(uid: str) -> Sequence[ScheduledPod]:
    return [a_scheduled_pod(f"b-{index}", is_leaving=True, preemptor_uid=uid) for index in range(3)]


NO_VICTIM = {
    "the rest of its gang has no room anywhere": (
        a_gang_of(3, cpu=2),
        a_snapshot(
            full("a", 2), a_node_info("b", a_scheduled_pod("high", priority=2000, cpu=2), cpu=2)
        ).with_settings(ANY_NUMBER),
        {"a": DryRunStatus.GANG_NOT_PLACED, "b": DryRunStatus.NO_VICTIMS},
    ),
    "the rest of its gang may run on no node": (
        replace(
            a_gang_of(1),
            pending_members=(
                a_pod_demand("mate", cpu=1, priority=1000, amounts={"nvidia.com/gpu": 1}),
            ),
        ),
        a_snapshot(full("a")),
        {"a": DryRunStatus.GANG_NOT_PLACED},
    ),
    "two of its gang want one port of each node": (
        replace(
            a_gang_of(1),
            demand=a_pod_demand(ports=frozenset({HostPortInfo("0.0.0.0", "TCP", 80)})),
            pending_members=(
                a_pod_demand("mate", ports=frozenset({HostPortInfo("10.0.0.1", "TCP", 80)})),
            ),
        ),
        a_snapshot(full("a", 3)),
        {"a": DryRunStatus.GANG_NOT_PLACED},
    ),
    "all members need more victims than a decision may have": (
        a_gang_of(4),
        a_snapshot(full("a", 4)),
        {"a": DryRunStatus.TOO_MANY_VICTIMS},
    ),
    "too many victims with those of other members": (
        a_gang_of(
            1, member_nominated_nodes=("b", "gone"), nominated_member_uids=frozenset({"mate"})
        ),
        a_snapshot(full("a"), a_node_info("b", *going_for("mate"), **FOR_A_MATE)),
        {"a": DryRunStatus.TOO_MANY_VICTIMS},
    ),
    "too many victims with those of an unknown preemptor": (
        a_gang_of(
            1, member_nominated_nodes=("b", "gone"), nominated_member_uids=frozenset({"mate"})
        ),
        a_snapshot(full("a"), a_node_info("b", *going_for(UNKNOWN_PREEMPTOR), **FOR_A_MATE)),
        {"a": DryRunStatus.TOO_MANY_VICTIMS},
    ),
    "the victims of all members cost more than the gang is worth": (
        a_gang_of(2),
        a_snapshot(full("a", 2)).with_settings(PolicySettings(preemptor_worth_seconds=3600)),
        {"a": DryRunStatus.TOO_EXPENSIVE},
    ),
    "the victim's gang is at its minimum": (
        ONE,
        a_snapshot(
            a_node_info("a", of_gang("a1"), cpu=1),
            a_node_info("b", of_gang("b1", is_leaving=True), cpu=9),
        ).with_gang("old", DisruptionMode.SINGLE, min_available=1),
        {"a": DryRunStatus.NO_VICTIMS},
    ),
}


@pytest.mark.parametrize(
    ("preemptor", "snapshot_fixture", "want"), NO_VICTIM.values(), ids=NO_VICTIM.keys()
)
def test_no_gang_is_preempted_if(
    preemptor: Preemptor, snapshot_fixture: SnapshotFixture, want: dict[str, DryRunStatus]
):
    found = decided(preemptor, snapshot_fixture, list(want))

    assert found.candidates == ()
    assert found.node_statuses == want


def ends_in(seconds: float) -> WorkProgress:
    return WorkProgress(started_at=NOW, walltime=Walltime(NOW, int(seconds)))


NEAR = of_gang("a1", progress=ends_in(60))
COMPLETING = {
    "a pod is near its walltime": ([NEAR, of_gang("a2")], [None, None]),
    "a pod is near its walltime, and another is protected": (
        [NEAR, of_gang("a2", is_non_preemptible=True)],
        [RefusalReason.GANG, RefusalReason.NON_PREEMPTIBLE],
    ),
    "the pod near its walltime is protected by its class": (
        [replace(NEAR, preemption_class=10), of_gang("a2")],
        [RefusalReason.CLASS, RefusalReason.GANG],
    ),
    "all pods are near their walltime": (
        [NEAR, of_gang("a2", progress=ends_in(90))],
        [RefusalReason.GANG, RefusalReason.GANG],
    ),
}


@pytest.mark.parametrize(("members", "want"), COMPLETING.values(), ids=COMPLETING.keys())
def test_why_pods_of_a_gang_evicted_as_a_unit_are_protected(
    members: Sequence[ScheduledPod], want: Sequence[RefusalReason | None]
):
    built = a_snapshot(a_node_info("a", *members, cpu=2)).with_gang("old").build()
    refusals = [selection.refusal_for(ONE, pod, built) for pod in built.nodes["a"].pods]

    assert [refusal and refusal.reason for refusal in refusals] == want


def test_a_gang_near_completion_is_protected_until_its_last_pod_ends():
    last = of_gang("a2", progress=ends_in(90))
    built = (
        a_snapshot(a_node_info("a", NEAR, last, of_gang("a3", progress=ends_in(30)), cpu=3))
        .with_gang("old")
        .build()
    )
    (gang,) = built.gangs.values()

    assert Eligibility(ONE, built).protecting_member(gang) == (
        replace(last, node="a"),
        RefusalReason.NEAR_COMPLETION,
    )


def refused_for(seconds: float, pod: ScheduledPod) -> ScheduledPod:
    return replace(pod, refused_since=NOW - timedelta(seconds=seconds))


COUNTED = {
    "a gang near completion": ([NEAR, of_gang("a2", progress=ends_in(90))], ["a1", "a2"]),
    "a gang of which a pod was refused before": (
        [NEAR, refused_for(60, of_gang("a2", progress=ends_in(90)))],
        ["a1"],
    ),
    "a gang of which a pod was refused for the ceiling": (
        [NEAR, refused_for(1800, of_gang("a2", progress=ends_in(90)))],
        [],
    ),
    "a gang that is protected for good": ([NEAR, of_gang("a2", is_non_preemptible=True)], []),
    "a pod near completion, and one that is not": (
        [a_scheduled_pod("a1", progress=ends_in(60)), a_scheduled_pod("a2")],
        ["a1"],
    ),
    "a pod that ends late": ([a_scheduled_pod("a1", progress=ends_in(3600))], []),
}


@pytest.mark.parametrize(("members", "want"), COUNTED.values(), ids=COUNTED.keys())
def test_the_first_refusal_is_recorded_of_pods_whose_owner_can_renew_its_ground(
    members: Sequence[ScheduledPod], want: Sequence[str]
):
    built = a_snapshot(a_node_info("a", *members, cpu=2)).with_gang("old").build()

    def found(preemptor: Preemptor, limit: int = 9) -> list[str]:
        pods = selection.renewably_refused(preemptor, built, ["a", "unknown"], limit)
        return names(pods)

    assert found(ONE) == want
    assert found(ONE, 1) == want[:1]
    assert found(replace(ONE, never_preempts=True)) == []
    refusals = [selection.refusal_for(ONE, pod, built) for pod in built.nodes["a"].pods]
    is_renewable = [bool(refusal and refusal.is_renewable) for refusal in refusals]
    assert any(is_renewable) == bool(want)


def test_the_first_refusal_of_the_oldest_pods_is_recorded_first():
    """Without this, a user who keeps creating such pods would keep an older one unrecorded."""
    ages = {"new": 1, "newest": 0, "oldest": 50, "old": 40}
    pods = [
        a_scheduled_pod(
            name, progress=replace(ends_in(60), started_at=NOW - timedelta(seconds=age))
        )
        for name, age in ages.items()
    ]
    built = a_snapshot(a_node_info("a", *pods, cpu=4)).build()

    found = selection.renewably_refused(ONE, built, ["a"], 2)

    assert [pod.name for pod in found] == ["oldest", "old"]


def test_a_pod_of_an_unknown_gang_is_not_protected_by_its_own_completion():
    snapshot_fixture = a_snapshot(
        a_node_info(
            "a",
            of_gang("a1", progress=ends_in(60), disruption_mode=DisruptionMode.ALL),
            of_gang("a2", progress=ends_in(60)),
        )
    ).build()
    whole, alone = (
        selection.refusal_for(ONE, pod, snapshot_fixture)
        for pod in snapshot_fixture.nodes["a"].pods
    )

    assert whole is None
    assert alone is not None
    assert alone.reason is RefusalReason.NEAR_COMPLETION


def test_a_gang_whose_victims_leave_other_nodes_may_continue_to_preempt():
    going = a_node_info(
        "b", of_gang("b1", is_leaving=True), of_gang("b2", is_leaving=True), **FOR_A_MATE
    )
    snapshot_fixture = a_snapshot(full("a"), going).with_gang("old")

    assert (
        decided(a_gang_of(1, member_nominated_nodes=("b",)), snapshot_fixture, ["a"]).best
        is not None
    )


def test_a_gang_with_a_leaving_pod_releases_capacity_on_all_its_nodes():
    """Also before the others are notified: a second gang must not be preempted for the members of
    the first preemptor's gang.
    """
    snapshot_fixture = a_snapshot(
        a_node_info("a", of_gang("a1"), cpu=1),
        a_node_info("b", of_gang("b1", is_leaving=True), cpu=1),
        full("c"),
    )

    found = decided(ONE, snapshot_fixture.with_gang("old"), ["a", "c"])

    assert found.candidates == ()
    assert found.node_statuses["a"] is DryRunStatus.ROOM_BEING_RELEASED


def test_pods_of_a_gang_with_a_leaving_pod_are_not_victims_again():
    snapshot_fixture = a_snapshot(
        a_node_info("a", of_gang("a1"), cpu=1),
        a_node_info("b", of_gang("b1", is_leaving=True), cpu=1),
    ).with_gang("old")
    built = snapshot_fixture.build()

    refused = selection.refusal_for(ONE, built.nodes["a"].pods[0], built)

    assert refused is not None
    assert refused.reason is RefusalReason.ALREADY_LEAVING


def test_a_leaving_gang_counts_once_among_the_victims_of_a_round():
    going = a_node_info(
        "b", *(of_gang(f"b{index}", is_leaving=True) for index in range(8)), **FOR_A_MATE
    )
    snapshot_fixture = a_snapshot(full("a", 2), going).with_gang("old")

    assert (
        decided(a_gang_of(2, member_nominated_nodes=("b",)), snapshot_fixture, ["a"]).best
        is not None
    )


def test_no_gang_loses_more_pods_over_all_nodes_than_it_can_spare():
    node_infos = [a_node_info(name, of_gang(name + "1"), cpu=1) for name in "abc"]
    snapshot_fixture = a_snapshot(*node_infos, full("d")).with_gang(
        "old", DisruptionMode.SINGLE, min_available=2
    )

    best = decided(a_gang_of(2), snapshot_fixture, ["a"]).best

    assert best is not None
    assert names(best.other_victims) == ["d-0"]


def test_the_best_plan_counts_even_if_the_best_node_of_one_pod_has_no_plan():
    # On its own, the preemptor would take the single pod; then its mates would take three more.
    node_infos = [a_node_info(name, of_gang(f"{name}1"), cpu=1) for name in "abcd"]
    singles = a_node_info("s", a_scheduled_pod("single", started=-1), cpu=1)
    snapshot_fixture = (
        a_snapshot(singles, *node_infos)
        .with_gang("old")
        .with_settings(PolicySettings(max_victims=1))
    )

    best = decided(a_gang_of(4), snapshot_fixture).best

    assert best is not None
    assert best.victim_count == 1
    assert len(best.all_pods) == 4


def test_pods_of_the_preemptors_gang_are_never_victims():
    snapshot_fixture: Snapshot = a_snapshot(
        a_node_info("a", a_scheduled_pod("mate", gang=MINE), cpu=1)
    ).build()
    (pod,) = snapshot_fixture.nodes["a"].pods

    refused = selection.refusal_for(a_gang_of(1), pod, snapshot_fixture)

    assert refused is not None
    assert refused.reason is RefusalReason.OWN_GANG


def test_the_refusal_names_the_gang_pod_that_is_protected():
    snapshot_fixture = (
        a_snapshot(a_node_info("a", of_gang("a1"), of_gang("a2", is_non_preemptible=True), cpu=2))
        .with_gang("old")
        .build()
    )

    found = selection.refusal_for(ONE, snapshot_fixture.nodes["a"].pods[0], snapshot_fixture)
    assert found == selection.Refusal(
        RefusalReason.GANG,
        "its gang is evicted as a unit, and a2 may not be a victim: it is not "
        "preemptible: by its class and checkpoint, or by its label",
    )


@pytest.mark.parametrize("order", ["loss", "priority"])
def test_what_was_found_for_a_node_counts_where_the_others_of_a_gang_then_need_its_pods(order: str):
    """Without this, the victims of the other nodes would be evicted in vain."""
    small = [a_scheduled_pod(f"small-{number}", cpu=0.25, started=-60) for number in range(9)]
    snapshot = (
        a_snapshot(
            a_node_info("a", a_scheduled_pod("a1", cpu=16, started=-86_400), cpu=16),
            a_node_info(
                "b",
                of_gang("b1", cpu=8, started=-7200),
                of_gang("b2", cpu=0.25, started=-60),
                *small,
                cpu=10.5,
            ),
            a_node_info("c", of_gang("c1", cpu=4, started=-60), cpu=4),
            a_node_info("d", of_gang("d1", started=-60), cpu=1),
        )
        .with_gang("old", DisruptionMode.SINGLE, min_available=2)
        .with_settings(PolicySettings(victim_order=order))
    )
    preemptor = a_preemptor(
        cpu=16,
        gang=MINE,
        pending_members=(a_pod_demand("eight", cpu=8), a_pod_demand("four", cpu=4)),
        devices=28,
    )
    best = decided(preemptor, snapshot).best
    assert best is not None
    assert names(best.victims) == ["a1"]
    assert names(best.other_victims) == ["b1", "c1"]


def requesting(pod: ScheduledPod, cpu: float, memory: float) -> ScheduledPod:
    return replace(pod, amounts=amounts(cpu=cpu, memory=memory))


def test_what_was_found_for_a_node_counts_where_a_second_search_finds_nothing():
    """Without this, node `c` would keep all its pods, and another pod of the gang has no place."""
    other = GangKey("team", "other")
    a = requesting(of_gang("a1", started=-100, gang=other), 2, 0)
    b = requesting(of_gang("b1", started=-20), 2, 4)
    c = (
        requesting(of_gang("c1", started=-1000), 4, 2),
        requesting(of_gang("c2", started=-1000, gang=other), 4, 4),
        requesting(of_gang("c3", started=-10), 0, 4),
    )
    snapshot = (
        a_snapshot(
            a_node_info("a", a, allocatable=amounts(cpu=4, memory=2, pods=110)),
            a_node_info("b", b, allocatable=amounts(cpu=2, memory=6, pods=110)),
            a_node_info("c", *c, allocatable=amounts(cpu=8, memory=10, pods=110)),
        )
        .with_gang("old", DisruptionMode.SINGLE, min_available=1)
        .with_gang("other", DisruptionMode.SINGLE, min_available=1)
        .with_settings(PolicySettings(max_victims=10, victim_order="priority"))
    )
    first, *rest = (
        replace(a_pod_demand(f"pod-{number}"), amounts=amounts(cpu=cpu, memory=memory))
        for number, (cpu, memory) in enumerate(((4, 2), (4, 1), (1, 4)))
    )
    preemptor = replace(
        a_preemptor(gang=MINE, pending_members=tuple(rest), devices=3), demand=first
    )
    best = decided(preemptor, snapshot).best
    assert best is not None
    assert names((*best.all_pods, *best.other_victims)) == ["a1", "b1", "c1"]


def test_budgets_count_on_all_nodes_of_a_plan():
    snapshot = a_snapshot(
        a_node_info("a", a_scheduled_pod("a1", cpu=4, started=-30), cpu=4),
        a_node_info("b", a_scheduled_pod("b1", cpu=4, started=-30, labels={"app": "db"}), cpu=4),
        a_node_info("c", a_scheduled_pod("c1", started=-600), cpu=1),
    ).with_budgets(a_budget("db"))
    preemptor = a_preemptor(gang=MINE, pending_members=(a_pod_demand("mate", cpu=4),), devices=5)
    found = decided(preemptor, snapshot)
    best = found.best
    assert best is not None
    assert (names((*best.all_pods, *best.other_victims)), best.pdb_violations) == (["a1", "c1"], 0)
    assert {
        one.pdb_violations
        for one in found.candidates
        if "b1" in names((*one.all_pods, *one.other_victims))
    } == {1}


def test_budgets_of_gang_pods_on_other_nodes_count():
    snapshot_fixture = (
        a_snapshot(
            a_node_info("a", of_gang("a1"), a_scheduled_pod("single", priority=9), cpu=2),
            a_node_info(
                "b",
                of_gang("b1", labels={"app": "web"}),
                of_gang("b2", labels={"app": "web"}),
                cpu=2,
            ),
        )
        .with_gang("old")
        .with_budgets(a_budget("web", allowed=1))
    )

    best = decided(ONE, snapshot_fixture, ["a"]).best

    assert best is not None
    assert names(best.victims) == ["single"]


@pytest.mark.parametrize("uid", ["", "stranger"])
def test_pods_that_leave_for_no_pod_of_the_preemptors_gang_do_not_count(uid: str):
    """Without this, a user who deletes or marks small pods of their own on the node of one member
    would keep the rest of the gang from preempting.
    """
    snapshot_fixture = a_snapshot(full("a"), a_node_info("b", *going_for(uid), **FOR_A_MATE))

    preemptor = a_gang_of(
        1, member_nominated_nodes=("b",), nominated_member_uids=frozenset({"mate"})
    )

    assert decided(preemptor, snapshot_fixture, ["a"]).best is not None


DEPENDENT = a_preemptor(depends_on_other_pods=True)
REPELLING = a_snapshot(
    a_node_info(
        "a",
        a_scheduled_pod("near", anti_affinity=ALL_PODS, priority=5),
        a_scheduled_pod("low"),
        cpu=3,
    )
)


def test_with_inter_pod_constraints_the_schedulers_victims_are_preempted():
    built = REPELLING.build()

    best = selection.decide(DEPENDENT, built, ["a"], {"a": {"near"}}).best

    assert best is not None
    assert names(best.victims) == ["near"]


def test_with_inter_pod_constraints_no_victim_is_reprieved_for_a_gang():
    built = replace(
        REPELLING.build(), nodes={**REPELLING.build().nodes, **a_snapshot(full("b")).build().nodes}
    )
    preemptor = a_gang_of(2, depends_on_other_pods=True)

    best = selection.decide(preemptor, built, ["a"], {"a": {"near"}}).best

    assert best is not None
    assert names(best.victims) == ["near"]


def test_a_native_gangs_pods_on_other_nodes_are_proposed_as_well_and_have_not_left():
    """kube-scheduler 1.37 names all pods of a PodGroup disrupted as a whole, on any node."""
    near, far = of_gang("near", anti_affinity=ALL_PODS), of_gang("far")
    built = (
        a_snapshot(a_node_info("a", near, cpu=1), a_node_info("b", far, cpu=1))
        .with_gang("old")
        .build()
    )

    best = selection.decide(DEPENDENT, built, ["a"], {"a": {"near", "far"}}).best

    assert best is not None
    assert (names(best.victims), names(best.gang_members_elsewhere)) == (["near"], ["far"])
    proposed = {"near", "far", "gone"}
    assert selection.decide(DEPENDENT, built, ["a"], {"a": proposed}).best is None


BESIDE = {
    "a pod may not be a victim": ({"near", "protected"}, {"a": DryRunStatus.PROPOSAL_REJECTED}),
    "all are leaving": ({"going"}, {"a": DryRunStatus.ROOM_BEING_RELEASED}),
    "a pod no longer exists": ({"near", "gone"}, {"a": DryRunStatus.PROPOSAL_OUTDATED}),
}


@pytest.mark.parametrize(("proposed", "want"), BESIDE.values(), ids=BESIDE.keys())
def test_none_of_the_schedulers_victims_is_preempted_if(
    proposed: set[str], want: dict[str, DryRunStatus]
):
    pods = (
        a_scheduled_pod("near"),
        a_scheduled_pod("protected", is_non_preemptible=True),
        a_scheduled_pod("going", is_leaving=True),
    )
    built = a_snapshot(a_node_info("a", *pods, cpu=3)).build()

    assert selection.decide(DEPENDENT, built, ["a"], {"a": proposed}).node_statuses == want


def test_none_of_the_schedulers_victims_is_preempted_on_an_unsuitable_node():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("near", anti_affinity=ALL_PODS), is_unschedulable=True)
    ).build()

    assert selection.decide(ONE, built, ["a"], {"a": {"near"}}).node_statuses == {
        "a": DryRunStatus.UNSUITABLE
    }


def of_many_kinds(kinds: int) -> Preemptor:
    """Return one of a gang of small pods that all ask for something else."""
    return a_preemptor(
        cpu=1,
        gang=MINE,
        pending_members=[
            a_pod_demand(f"mate-{index}", cpu=index / 1000) for index in range(1, kinds)
        ],
    )


@pytest.mark.parametrize(("kinds", "is_placed"), [(8, True), (9, False), (40, False)])
def test_a_gang_with_too_many_kinds_of_pods_gets_no_victims(kinds: int, is_placed: bool):  # noqa: FBT001
    """Each kind is evaluated on all nodes. Without this, one gang would hold up all preemption."""
    found = decided(of_many_kinds(kinds), a_snapshot(full("a"), full("b")), ["a"])

    assert (found.best is not None) == is_placed


def test_the_evaluation_of_a_gang_that_needs_too_many_victims_ends_early():
    node_infos = [full(f"n{index:03}") for index in range(200)]
    looked: list[None] = []

    def is_over() -> bool:
        looked.append(None)
        return False

    found = selection.decide(
        a_gang_of(200), a_snapshot(*node_infos).build(), ["n000"], None, is_over
    )

    assert found.best is None
    # Once for each node, and once for each pod that was placed.
    assert len(looked) < 2 * len(node_infos)


def test_a_gang_that_is_not_placed_in_time_gets_no_victims():
    looks = iter([False, True, True, True])
    built = a_snapshot(full("a"), full("b"), full("c")).build()

    found = selection.decide(a_gang_of(2), built, ["a"], None, lambda: next(looks, True))

    assert found.node_statuses == {"a": DryRunStatus.GANG_NOT_PLACED}
