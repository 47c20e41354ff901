"""With `victimOrder: loss`, the set of victims that loses the least goes, on whichever node."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reprieve_policy.config.settings import LOSS, PRIORITY, PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.loss import LossInputs, SaveWay
from reprieve_policy.preemption.selection import (
    DryRunStatus,
    PreemptionDecision,
    pdb_usage,
    select_victims,
    victim_units,
)
from reprieve_policy.preemption.selection.budget_uses import BudgetUses
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.least_loss import MAX_EXACT_UNITS
from reprieve_policy.preemption.selection.node_fit import CombinedDemand
from reprieve_policy.preemption.selection.snapshot import (
    GangKey,
    HostPortInfo,
    NodeInfo,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_policy.preemption.selection.victim_units import Selection, VictimUnit
from reprieve_testing.objects.builders import NOW
from reprieve_testing.objects.snapshots import (
    SnapshotFixture,
    a_budget,
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    amounts,
)

OLD = GangKey("team", "old")
PORT = frozenset({HostPortInfo("0.0.0.0", "TCP", 80)})
ONE, TWO = a_preemptor(), a_preemptor(cpu=2)


def losing(name: str, seconds: float, *, cpu: float = 1, **fields: object) -> ScheduledPod:
    """Return a pod that loses this many device-seconds."""
    return a_scheduled_pod(name, started=-seconds / cpu, cpu=cpu, **fields)  # type: ignore[arg-type]  # named by these tests


def saving(name: str, seconds: int, *, devices: float = 1, **fields: object) -> ScheduledPod:
    """Return a pod that has run for an hour, and saves in this time when it is asked."""
    inputs = LossInputs(
        devices=devices, way=SaveWay.WHEN_ASKED, save_seconds=seconds, is_save_time_known=True
    )
    return a_scheduled_pod(name, loss_inputs=inputs, **fields)  # type: ignore[arg-type]  # named by these tests


def decided(snapshot_fixture: SnapshotFixture, preemptor: Preemptor) -> PreemptionDecision:
    built = snapshot_fixture.build()
    return selection.decide(preemptor, built, built.nodes)


@dataclass(frozen=True, kw_only=True)
class Case:
    preemptor: Preemptor = ONE
    snapshot_fixture: SnapshotFixture
    want: Sequence[str]
    elsewhere: Sequence[str] = ()


def on_one_node(*pods: ScheduledPod, **fields: object) -> SnapshotFixture:
    cpu = sum(pod.amounts["cpu"] for pod in pods) / NANOS
    return a_snapshot(a_node_info("n", *pods, cpu=cpu, **fields))  # type: ignore[arg-type]  # named by these tests


MANY = [losing(f"many-{number:02}", 500 + number) for number in range(MAX_EXACT_UNITS)]
CASES = {
    "the pod that loses the least goes, whatever its priority": Case(
        snapshot_fixture=on_one_node(losing("low", 900), losing("high", 100, priority=9)),
        want=["high"],
    ),
    "between equal losses the lower priority goes": Case(
        snapshot_fixture=on_one_node(losing("low", 100), losing("high", 100, priority=9)),
        want=["low"],
    ),
    "a difference of less than a device-second is none": Case(
        snapshot_fixture=on_one_node(losing("low", 100.4), losing("high", 100, priority=9)),
        want=["low"],
    ),
    "a pod that saves when asked loses only the save": Case(
        snapshot_fixture=on_one_node(losing("silent", 900), saving("asked", 60, priority=9)),
        want=["asked"],
    ),
    "one large pod goes if two small ones lose more": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            losing("a", 300), losing("b", 300), losing("large", 500, cpu=2)
        ),
        want=["large"],
    ),
    "two small pods go if a large one loses more": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            losing("a", 200), losing("b", 200), losing("large", 500, cpu=2)
        ),
        want=["a", "b"],
    ),
    "but not more than a decision may take": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            losing("a", 200), losing("b", 200), losing("large", 500, cpu=2)
        ).with_settings(PolicySettings(max_victims=1)),
        want=["large"],
    ),
    "a budget counts before the loss": Case(
        snapshot_fixture=on_one_node(
            losing("held", 1, labels={"app": "web"}), losing("free", 900)
        ).with_budgets(a_budget("web")),
        want=["free"],
    ),
    "a budget that allows one eviction allows any one of its pods": Case(
        snapshot_fixture=on_one_node(
            losing("old", 900, priority=9, labels={"app": "web"}),
            losing("young", 1, labels={"app": "web"}),
            losing("free", 500),
        ).with_budgets(a_budget("web", allowed=1)),
        want=["young"],
    ),
    "but not two of them": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            losing("a", 1, labels={"app": "web"}),
            losing("b", 2, labels={"app": "web"}),
            losing("free", 500),
        ).with_budgets(a_budget("web", allowed=1)),
        want=["a", "free"],
    ),
    "a gang that is evicted as a unit loses what all its pods lose": Case(
        snapshot_fixture=a_snapshot(
            a_node_info("a", losing("a1", 50, gang=OLD), losing("single", 120), cpu=2),
            a_node_info("b", losing("b1", 100, gang=OLD), cpu=1),
        ).with_gang("old"),
        want=["single"],
    ),
    "and goes if that is the least": Case(
        snapshot_fixture=a_snapshot(
            a_node_info("a", losing("a1", 50, gang=OLD), losing("single", 180), cpu=2),
            a_node_info("b", losing("b1", 100, gang=OLD, priority=2000), cpu=1),
            a_node_info("c", losing("c1", 20, gang=OLD), cpu=1, is_unschedulable=True),
        ).with_gang("old", DisruptionMode.SINGLE),
        want=["a1"],
    ),
    "of a gang that is disrupted one by one, those that lose the least go": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            losing("a", 900, gang=OLD),
            losing("b", 100, gang=OLD, priority=9),
            losing("c", 800, gang=OLD),
            losing("single", 850),
        ).with_gang("old", DisruptionMode.SINGLE, min_available=2),
        want=["b", "single"],
    ),
    "with more units than all sets are compared of, too": Case(
        snapshot_fixture=on_one_node(*MANY, losing("least", 1, priority=9)), want=["least"]
    ),
    "then, too, a large pod goes if the small ones lose more": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(*MANY, losing("large", 900, cpu=2)),
        want=["large"],
    ),
    "then, too, a gang keeps the pods that it needs": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            *MANY,
            losing("a", 1, gang=OLD),
            losing("b", 2, gang=OLD),
            losing("large", 2000, cpu=2),
        ).with_gang("old", DisruptionMode.SINGLE, min_available=1),
        want=["a", "many-00"],
    ),
    "the example of docs/choosing.md": Case(
        preemptor=TWO,
        snapshot_fixture=on_one_node(
            losing("sweep", 21_600),
            losing("probe", 300, priority=100),
            saving("train", 120, cpu=2, devices=2, priority=200),
        ),
        want=["train"],
    ),
    "the only pod on the port goes": Case(
        preemptor=replace(ONE, demand=a_pod_demand(cpu=0, ports=PORT)),
        snapshot_fixture=on_one_node(losing("port", 900, ports=PORT), losing("other", 1)),
        want=["port"],
    ),
    "one pod goes where the node has as many pods as it may": Case(
        preemptor=a_preemptor(cpu=0),
        snapshot_fixture=on_one_node(losing("a", 900), losing("b", 1), pods=2),
        want=["b"],
    ),
    "on another node, if its victims lose less": Case(
        snapshot_fixture=a_snapshot(
            a_node_info("a", losing("low", 900), cpu=1),
            a_node_info("b", losing("high", 100, priority=9), cpu=1),
        ),
        want=["high"],
    ),
    "with equal losses on the node with the lowest priority": Case(
        snapshot_fixture=a_snapshot(
            a_node_info("a", losing("high", 100, priority=9), cpu=1),
            a_node_info("b", losing("low", 100), cpu=1),
        ),
        want=["low"],
    ),
    "on the node without violated budgets": Case(
        snapshot_fixture=a_snapshot(
            a_node_info("a", losing("held", 1, labels={"app": "web"}), cpu=1),
            a_node_info("b", losing("free", 900), cpu=1),
        ).with_budgets(a_budget("web")),
        want=["free"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_victims_lose_the_least(case: Case) -> None:
    best = decided(case.snapshot_fixture, case.preemptor).best

    assert best is not None
    assert sorted(victim.name for victim in best.victims) == sorted(case.want)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_so_they_do_if_only_the_best_is_wanted(case: Case) -> None:
    built = case.snapshot_fixture.build()
    found = selection.decide(case.preemptor, built, built.nodes, is_only_best_wanted=True).best

    assert found == decided(case.snapshot_fixture, case.preemptor).best


def test_a_candidate_tells_its_loss() -> None:
    best = decided(on_one_node(losing("a", 120), losing("b", 300)), TWO).best

    assert best is not None
    assert best.loss(NOW) == 420


def test_a_worse_node_is_no_candidate_if_only_the_best_is_wanted() -> None:
    node_infos = (
        a_node_info("a", losing("a", 100), cpu=1),
        a_node_info("b", losing("b", 900), cpu=1),
        a_node_info("c", losing("c1", 60), losing("c2", 60, cpu=2), cpu=3),
    )
    built = a_snapshot(*node_infos).build()
    found = selection.decide(ONE, built, built.nodes, is_only_best_wanted=True)

    assert [candidate.node for candidate in found.candidates] == ["c", "a"]
    assert found.node_statuses == {"b": DryRunStatus.LOSES_MORE}


def test_a_node_is_no_candidate_if_only_its_search_shows_that_it_is_worse() -> None:
    # In parts, its pods would lose 80. Two of them must go, and lose 120.
    pods = (losing("x", 60, cpu=1.5), losing("y", 60, cpu=1.5), losing("z", 1, cpu=0.1))
    node_infos = (
        a_node_info("a", losing("a", 100, cpu=2), cpu=2),
        a_node_info("b", *pods, cpu=3.1),
    )
    built = a_snapshot(*node_infos).build()
    found = selection.decide(TWO, built, built.nodes, is_only_best_wanted=True)

    assert found.node_statuses == {"b": DryRunStatus.LOSES_MORE}


def test_a_node_needs_no_search_if_its_pods_lose_more_even_in_parts() -> None:
    pods = (losing("x", 90, cpu=1.5), losing("y", 90, cpu=1.5), losing("z", 1, cpu=0.1))
    node_infos = (
        a_node_info("a", losing("a", 100, cpu=2), cpu=2),
        a_node_info("b", *pods, cpu=3.1),
    )
    built = a_snapshot(*node_infos).build()
    found = selection.decide(TWO, built, built.nodes, is_only_best_wanted=True)

    assert found.node_statuses == {"b": DryRunStatus.LOSES_MORE}


def test_of_a_gang_that_goes_together_each_pod_counts() -> None:
    """One pod of the gang loses 60, which is less than the other node's; both lose 120."""
    members = [losing("m1", 60, gang=OLD), losing("m2", 60, gang=OLD)]
    node_infos = (
        a_node_info("a", losing("a", 100, cpu=2), cpu=2),
        a_node_info("b", *members, cpu=2),
    )
    built = a_snapshot(*node_infos).with_gang("old", DisruptionMode.ALL).build()
    found = selection.decide(TWO, built, built.nodes, is_only_best_wanted=True)

    assert found.node_statuses == {"b": DryRunStatus.LOSES_MORE}


def test_the_best_is_found_beside_a_worth_that_rejects_it() -> None:
    """The node that loses the least may have victims that cost too much."""
    dear = losing("dear", 100)
    node_infos = (
        a_node_info("a", replace(dear, cost_inputs=dear.cost_inputs._replace(devices=1000)), cpu=1),
        a_node_info("b", losing("cheap", 900), cpu=1),
    )
    bounded = PolicySettings(preemptor_worth_seconds=3600)
    built = a_snapshot(*node_infos).with_settings(bounded).build()
    preemptor = replace(ONE, devices=1.0)
    found = selection.decide(preemptor, built, built.nodes, is_only_best_wanted=True)

    assert found.best is not None
    assert found.best.node == "b"
    assert found.node_statuses == {"a": DryRunStatus.TOO_EXPENSIVE}


def test_the_best_is_found_beside_a_node_with_too_many_victims() -> None:
    """Those of a gang that can spare only some pods: no node is worse than a rejected one."""
    members = [losing(f"m{number}", 10, gang=OLD) for number in range(4)]
    node_infos = (a_node_info("a", *members, cpu=4), a_node_info("b", losing("b", 900), cpu=2))
    built = (
        a_snapshot(*node_infos)
        .with_gang("old", DisruptionMode.SINGLE, min_available=1)
        .with_settings(PolicySettings(max_victims=1))
        .build()
    )
    found = selection.decide(TWO, built, built.nodes, is_only_best_wanted=True)

    assert found.best is not None
    assert found.best.node == "b"
    assert found.node_statuses == {"a": DryRunStatus.TOO_MANY_VICTIMS}


def test_a_decision_takes_no_more_victims_than_it_may() -> None:
    small = [losing(f"p{number}", 1 + number, cpu=0.5) for number in range(4)]
    for pods in (small, [*small, *MANY, losing("large", 2, cpu=1.2)]):
        built = on_one_node(*pods).with_settings(PolicySettings(max_victims=1)).build()
        found = selection.decide(TWO, built, built.nodes)
        assert found.node_statuses == {"n": DryRunStatus.TOO_MANY_VICTIMS}


def test_no_victims_suffice_where_a_gang_needs_its_pods() -> None:
    members = [losing(f"m{number}", 10, gang=OLD) for number in range(3)]
    snapshot_fixture = on_one_node(*members).with_gang(
        "old", DisruptionMode.SINGLE, min_available=2
    )

    assert decided(snapshot_fixture, TWO).node_statuses == {"n": DryRunStatus.TOO_SMALL}
    assert decided(snapshot_fixture, ONE).best is not None


def test_nor_where_there_are_more_than_all_sets_are_compared_of() -> None:
    members = [losing(f"m{number}", 10, gang=OLD, cpu=0.1) for number in range(12)]
    large = [losing(f"l{number}", 10, gang=OLD, cpu=2) for number in range(2)]
    snapshot_fixture = on_one_node(*members, *large).with_gang(
        "old", DisruptionMode.SINGLE, min_available=13
    )

    assert decided(snapshot_fixture, a_preemptor(cpu=4)).node_statuses == {
        "n": DryRunStatus.TOO_SMALL
    }


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("others", [0, MAX_EXACT_UNITS])
def test_of_a_gang_that_may_lose_one_pod_the_one_goes_that_is_large_enough(
    order: str, others: int
) -> None:
    """Without this, a tiny second pod would keep every preemptor from a large one."""
    small = [a_scheduled_pod(f"small-{number}", cpu=(1 + number) / 64) for number in range(others)]
    large = a_scheduled_pod("large", cpu=8, started=-7200, gang=OLD)
    tiny = a_scheduled_pod("tiny", cpu=0.25, started=-60, gang=OLD)
    gang = (
        on_one_node(large, tiny, *small)
        .with_gang("old", DisruptionMode.SINGLE, min_available=1)
        .with_settings(PolicySettings(victim_order=order))
    )
    best = decided(gang, a_preemptor(cpu=8)).best
    assert best is not None
    assert [pod.name for pod in best.victims] == ["large"]


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("small", [8, MAX_EXACT_UNITS, 20])
def test_one_large_victim_goes_where_small_ones_would_be_too_many(order: str, small: int) -> None:
    """Also one with a higher priority. Without this, one more small pod would end a preemption."""
    node = on_one_node(
        a_scheduled_pod("large", cpu=8, started=-86_400, priority=5),
        # Each of another size: of alike pods only a few are compared.
        *(
            a_scheduled_pod(f"small-{number}", cpu=1 - number / 64, started=-60)
            for number in range(small)
        ),
    ).with_settings(PolicySettings(victim_order=order))
    best = decided(node, a_preemptor(cpu=8)).best
    assert best is not None
    assert [pod.name for pod in best.victims] == ["large"]


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
def test_too_many_victims_are_needed_where_those_that_a_gang_needs_fit_beside_no_large_one(
    order: str,
) -> None:
    """Of three pods that may lose one, the smallest fits beside none of the others."""
    of_gang = [
        a_scheduled_pod(name, gang=OLD, started=started)
        for name, started in (("cpu", -300), ("memory", -200), ("both", -100))
    ]
    requests = ({"cpu": 4}, {"memory": 4}, {"cpu": 1, "memory": 1})
    small = [
        a_scheduled_pod(f"small-{number}", cpu=1 - number / 64, started=-60) for number in range(11)
    ]
    node = a_node_info(
        "a",
        *(
            replace(pod, amounts=amounts(**request))
            for pod, request in zip(of_gang, requests, strict=True)
        ),
        *small,
        allocatable=amounts(cpu=16, memory=10, pods=110),
    )
    snapshot = (
        a_snapshot(node)
        .with_gang("old", DisruptionMode.SINGLE, min_available=2)
        .with_settings(PolicySettings(victim_order=order))
    )
    demand = replace(a_pod_demand(), amounts=amounts(cpu=12, memory=6))
    found = decided(snapshot, replace(ONE, demand=demand))
    assert found.node_statuses == {"a": DryRunStatus.TOO_MANY_VICTIMS}


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
def test_no_pod_of_a_gang_goes_where_there_is_room(order: str) -> None:
    pods = [a_scheduled_pod(name, gang=OLD) for name in "ab"]
    node = (
        a_snapshot(a_node_info("n", *pods, cpu=3))
        .with_gang("old", DisruptionMode.SINGLE, min_available=1)
        .with_settings(PolicySettings(victim_order=order))
    )
    assert decided(node, ONE).node_statuses == {"n": DryRunStatus.HAS_ROOM}


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_gang_that_may_lose_one_pod_moves_no_eviction_to_a_more_important_pod(
    order: str,
    is_first: bool,  # noqa: FBT001 - a case
) -> None:
    """Without this, a user could have pods of others evicted: with a tiny second pod in a gang."""
    small = [a_scheduled_pod(f"small-{number}", cpu=(1 + number) / 64) for number in range(9)]
    mine = [
        a_scheduled_pod("mine", cpu=4, started=-600, gang=OLD),
        a_scheduled_pod("mine-tiny", cpu=0.25, started=-60, gang=OLD),
    ]
    other = GangKey("team", "other")
    others = [
        a_scheduled_pod("other", cpu=4, started=-864_000, priority=900, gang=other),
        a_scheduled_pod("other-tiny", cpu=0.25, started=-60, priority=900, gang=other),
    ]
    of_gangs = [*mine, *others] if is_first else [*others, *mine]
    node = (
        on_one_node(*of_gangs, *small)
        .with_gang("old", DisruptionMode.SINGLE, min_available=1)
        .with_gang("other", DisruptionMode.SINGLE, min_available=1)
        .with_settings(PolicySettings(victim_order=order))
    )
    best = decided(node, a_preemptor(cpu=4)).best
    assert best is not None
    assert [pod.name for pod in best.victims] == ["mine"]


def unlike(number: int, cpu: float) -> list[ScheduledPod]:
    """Return so many pods of about these CPUs: of alike ones only a few are compared."""
    return [
        a_scheduled_pod(f"small-{index}", cpu=cpu + index / 1024, started=-60)
        for index in range(number)
    ]


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("small", [8, 11])
def test_of_the_large_pods_that_are_enough_the_cheapest_goes(order: str, small: int) -> None:
    node = on_one_node(
        a_scheduled_pod("production", cpu=8.5, started=-864_000, priority=900),
        a_scheduled_pod("development", cpu=8, started=-100, priority=1),
        *unlike(small, 8 / small),
    ).with_settings(PolicySettings(victim_order=order))
    best = decided(node, a_preemptor(cpu=8)).best
    assert best is not None
    assert [pod.name for pod in best.victims] == ["development"]


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("small", [8, 11])
def test_a_budget_of_the_large_pod_is_no_veto(order: str, small: int) -> None:
    large = a_scheduled_pod("large", cpu=8, started=-86_400, labels={"app": "db"})
    node = on_one_node(large, *unlike(small, 0.75)).with_settings(
        PolicySettings(victim_order=order)
    )
    best = decided(node.with_budgets(a_budget("db")), a_preemptor(cpu=8)).best
    assert best is not None
    assert [pod.name for pod in best.victims] == ["large"]
    assert best.pdb_violations == 1


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("small", [8, 11])
def test_a_pod_is_as_large_as_what_it_releases_of_what_is_missing(order: str, small: int) -> None:
    """Without this, pods that request much of what is not scarce would keep a large one."""
    pods = [
        replace(a_scheduled_pod("large", started=-86_400), amounts=amounts(gpu=8, cpu=8)),
        *(
            replace(pod, amounts=amounts(gpu=1, cpu=16 + number / 64))
            for number, pod in enumerate(unlike(small, 1))
        ),
    ]
    node = a_node_info("n", *pods, allocatable=amounts(gpu=8 + small, cpu=1000, pods=110))
    demand = replace(a_pod_demand(), amounts=amounts(gpu=8, cpu=8))
    snapshot = a_snapshot(node).with_settings(PolicySettings(victim_order=order))
    best = decided(snapshot, replace(ONE, demand=demand)).best
    assert best is not None
    assert [pod.name for pod in best.victims] == ["large"]


def test_the_example_of_the_page_by_priority() -> None:
    example = CASES["the example of docs/choosing.md"].snapshot_fixture
    by_priority = example.with_settings(PolicySettings(victim_order=PRIORITY))
    best = decided(by_priority, TWO).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["probe", "sweep"]


NOTIFIED = a_scheduled_pod("leaving", is_leaving=True)
BESIDE = {
    "no other pod": ([], DryRunStatus.ROOM_BEING_RELEASED),
    "the preemptor itself": (["preemptor"], DryRunStatus.ROOM_BEING_RELEASED),
    "a pod of its own gang": (["mate"], DryRunStatus.ROOM_BEING_RELEASED),
    "another pod": (["other"], DryRunStatus.ROOM_MAY_BE_RELEASED),
    "one of its own gang and another": (["mate", "other"], DryRunStatus.ROOM_MAY_BE_RELEASED),
}


@pytest.mark.parametrize("order", [LOSS, PRIORITY])
@pytest.mark.parametrize("priority", [0, 5000])
@pytest.mark.parametrize(("uids", "status"), BESIDE.values(), ids=BESIDE.keys())
def test_a_preemptor_waits_for_room_to_which_no_other_pod_is_nominated(
    uids: Sequence[str], status: DryRunStatus, priority: int, order: str
) -> None:
    nominated = [a_pod_demand(uid, priority=priority, cpu=1) for uid in uids]
    node_infos = (
        a_node_info("a", NOTIFIED, cpu=1, nominated_pods=nominated),
        a_node_info("b", losing("victim", 100), cpu=1),
    )
    gang = GangKey("team", "own")
    preemptor = replace(ONE, gang=gang, nominated_member_uids=frozenset({"mate"}))
    found = decided(
        a_snapshot(*node_infos).with_settings(PolicySettings(victim_order=order)), preemptor
    )

    holds_room = priority == 5000 and uids not in ([], ["preemptor"])
    assert found.node_statuses["a"] is (DryRunStatus.NO_VICTIMS if holds_room else status)
    waits = found.node_statuses["a"] is DryRunStatus.ROOM_BEING_RELEASED
    assert (found.best is None) == waits


# Laws


@st.composite
def nodes_with_pods(draw: st.DrawFn, least: int, most: int) -> Snapshot:
    """Return a cluster of which one node is full; a gang may have a pod on another."""
    pods = [
        replace(
            losing(
                f"p{number}",
                draw(st.integers(0, 5)) * 100,
                priority=draw(st.sampled_from([0, 5, 500])),
                labels={"app": draw(st.sampled_from("abc"))},
                gang=draw(st.sampled_from([None, None, None, OLD])),
                ports=draw(st.sampled_from([frozenset(), frozenset(), PORT])),
            ),
            amounts=amounts(cpu=draw(st.integers(0, 3)), memory=draw(st.integers(0, 2))),
            states_preferences=draw(st.booleans()),
        )
        for number in range(draw(st.integers(least, most)))
    ]
    full = {
        name: sum(pod.amounts[name] for pod in pods) + draw(st.integers(0, 1)) * NANOS
        for name in ("cpu", "memory")
    }
    node_info = a_node_info("n", *pods, pods=len(pods) + draw(st.integers(0, 1)))
    other = a_node_info("o", losing("elsewhere", 200, gang=OLD), cpu=1)
    mode, minimum = draw(
        st.sampled_from(
            [(DisruptionMode.ALL, 0), (DisruptionMode.SINGLE, 0), (DisruptionMode.SINGLE, 2)]
        )
    )
    fixture = a_snapshot(
        replace(node_info, allocatable={**node_info.allocatable, **full}), other
    ).with_gang("old", mode, min_available=minimum)
    budgets = draw(st.sampled_from([(), (), (a_budget("a"), a_budget("b", allowed=1))]))
    settings = PolicySettings(max_victims=draw(st.integers(1, 4)))
    return fixture.with_budgets(*budgets).with_settings(settings).build()


@st.composite
def demanding(draw: st.DrawFn) -> Preemptor:
    demand = a_preemptor().demand
    wanted = amounts(cpu=draw(st.integers(0, 5)), memory=draw(st.integers(0, 3)))
    ports = draw(st.sampled_from([frozenset(), frozenset(), PORT]))
    return replace(a_preemptor(), demand=replace(demand, amounts=wanted, ports=ports))


def selected(preemptor: Preemptor, snapshot: Snapshot) -> Selection | DryRunStatus:
    demand = CombinedDemand().plus(preemptor.demand)
    return select_victims.select(snapshot.nodes["n"], demand, Eligibility(preemptor, snapshot))


def units_on(preemptor: Preemptor, snapshot: Snapshot) -> list[VictimUnit]:
    """Return all units that may go, the most important first."""
    eligibility = Eligibility(preemptor, snapshot)
    possible = [pod for pod in snapshot.nodes["n"].pods if eligibility.reason(pod) is None]
    order = (
        victim_units.costliest_first
        if any(pod.states_preferences for pod in possible)
        else victim_units.scheduler_order
    )
    units = victim_units.units_of(possible, eligibility)
    return sorted(units, key=lambda unit: order(unit, snapshot.now))


def has_room(preemptor: Preemptor, node_info: NodeInfo, victims: Sequence[VictimUnit]) -> bool:
    gone = {pod.uid for unit in victims for pod in unit.on_node}
    staying = [pod for pod in node_info.pods if pod.uid not in gone]
    demand = preemptor.demand
    return (
        all(
            amount + sum(pod.amounts[name] for pod in staying) <= node_info.allocatable[name]
            for name, amount in demand.amounts.items()
            if amount
        )
        and len(staying) + 1 <= node_info.allocatable["pods"] // NANOS
        and not any(demand.ports & pod.ports for pod in staying)
    )


def is_spared(preemptor: Preemptor, snapshot: Snapshot, victims: Sequence[VictimUnit]) -> bool:
    lost = sum(unit.members[0].gang == OLD for unit in victims if unit.gang is None)
    return lost <= max(0, Eligibility(preemptor, snapshot).spare_members(OLD))


def sets_of(
    preemptor: Preemptor, snapshot: Snapshot, units: Sequence[VictimUnit]
) -> Iterator[tuple[VictimUnit, ...]]:
    """Yield every set of victims that a decision may take."""
    for size in range(1, min(len(units), snapshot.settings.max_victims) + 1):
        for victims in combinations(units, size):
            if is_spared(preemptor, snapshot, victims) and has_room(
                preemptor, snapshot.nodes["n"], victims
            ):
                yield victims


def losses(victims: Sequence[VictimUnit], snapshot: Snapshot) -> tuple[int, int]:
    return pdb_usage.violations_of(victims, BudgetUses(snapshot.budgets)), sum(
        unit.loss for unit in victims
    )


def importance(victims: Sequence[VictimUnit], units: Sequence[VictimUnit]) -> tuple[bool, ...]:
    """Return for each unit, the most important first, whether it goes: the lowest stays longest."""
    gone = {unit.on_node[0].uid for unit in victims}
    return tuple(unit.on_node[0].uid in gone for unit in units)


@given(demanding(), nodes_with_pods(1, 6))
def test_no_other_set_of_victims_loses_less(preemptor: Preemptor, snapshot: Snapshot) -> None:
    assume(not has_room(preemptor, snapshot.nodes["n"], ()))
    units, found = units_on(preemptor, snapshot), selected(preemptor, snapshot)
    all_sets = list(sets_of(preemptor, snapshot, units))

    if not all_sets:
        assert not isinstance(found, Selection) or len(found.units) > snapshot.settings.max_victims
        return
    best = min(
        all_sets, key=lambda victims: (losses(victims, snapshot), importance(victims, units))
    )
    assert isinstance(found, Selection)
    assert importance(found.units, units) == importance(best, units)
    assert (found.violations, found.loss) == losses(best, snapshot)


@given(demanding(), nodes_with_pods(11, 15))
def test_the_greedy_choice_loses_no_more_than_the_choice_by_priority(
    preemptor: Preemptor, snapshot: Snapshot
) -> None:
    units = {unit.on_node[0].uid: unit for unit in units_on(preemptor, snapshot)}
    by_priority = replace(snapshot, settings=replace(snapshot.settings, victim_order=PRIORITY))
    other, found = selected(preemptor, by_priority), selected(preemptor, snapshot)
    assume(isinstance(other, Selection) and len(other.units) <= snapshot.settings.max_victims)
    assert isinstance(other, Selection)
    victims = [
        unit for uid, unit in units.items() if uid in {u.on_node[0].uid for u in other.units}
    ]

    assert isinstance(found, Selection)
    assert (found.violations, found.loss) <= losses(victims, snapshot)
    assert has_room(preemptor, snapshot.nodes["n"], found.units)
    assert is_spared(preemptor, snapshot, found.units)
    assert len(found.units) <= snapshot.settings.max_victims


@given(demanding(), nodes_with_pods(1, 12))
def test_no_victim_could_stay(preemptor: Preemptor, snapshot: Snapshot) -> None:
    found = selected(preemptor, snapshot)
    if isinstance(found, Selection):
        for unit in found.units:
            others = [one for one in found.units if one is not unit]
            assert not has_room(preemptor, snapshot.nodes["n"], others)
