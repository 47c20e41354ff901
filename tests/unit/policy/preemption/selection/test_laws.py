"""What holds of every decision, whatever the cluster: laws on random snapshots, with gangs on both
sides.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from reprieve_policy.config.settings import LOSS, PRIORITY, PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import CostInputs
from reprieve_policy.preemption.loss import LossInputs, SaveWay
from reprieve_policy.preemption.selection import (
    WAITING_IS_ENOUGH,
    DryRunStatus,
    PreemptionCandidate,
    PreemptionDecision,
    RefusalReason,
)
from reprieve_policy.preemption.selection.evaluator import worth_hours
from reprieve_policy.preemption.selection.snapshot import (
    DisruptionBudget,
    GangInfo,
    GangKey,
    NodeInfo,
    PodDemand,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import (
    a_budget,
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
)

GANGS = [GangKey("team", name) for name in ("one", "two", "three")]
MINE = GangKey("team", "mine")
GOING: list[dict[str, Any]] = [
    {"is_leaving": True},
    {"is_leaving": True, "notified": False, "is_being_deleted": True},
    {"is_leaving": True, "notified": False, "release_expected_at": None},
    {"is_leaving": True, "release_expected_at": after(10**8)},
    {"is_leaving": True, "notified": False, "is_held_by_budget": True},
    {
        "is_leaving": True,
        "notified": False,
        "is_held_by_budget": True,
        "release_expected_at": after(-(10**8)),
    },
]
FEW = settings(max_examples=2000, phases=[Phase.generate])


@st.composite
def scheduled_pods(draw: st.DrawFn, uid: str) -> ScheduledPod:
    states_preferences = draw(st.booleans())
    pod = a_scheduled_pod(
        uid,
        priority=draw(st.sampled_from([0, 5, 5, 2000])),
        cpu=draw(st.integers(0, 3)),
        **draw(st.sampled_from([{}] * 20 + GOING)),
        gang=draw(st.sampled_from([None, None, *GANGS[:2], *GANGS, MINE])),
        labels={"app": draw(st.sampled_from("ab"))},
        is_non_preemptible=draw(st.sampled_from([False] * 9 + [True])),
        preemption_class=draw(st.integers(1, 6)) if states_preferences else 4,
        states_preferences=states_preferences,
    )
    work = replace(pod.progress, started_at=draw(st.none() | st.integers(-9, 0).map(after)))
    devices = draw(st.integers(0, 2))
    saves = draw(st.sampled_from([LossInputs(), LossInputs(way=SaveWay.WHEN_ASKED)]))
    return replace(
        pod,
        progress=work,
        cost_inputs=CostInputs(devices=devices),
        loss_inputs=saves._replace(devices=devices),
    )


@st.composite
def node_infos(draw: st.DrawFn, name: str) -> NodeInfo:
    pods = [draw(scheduled_pods(f"{name}-{index}")) for index in range(draw(st.integers(0, 5)))]
    nominees = [
        a_pod_demand(uid, priority=2000, cpu=1)
        for uid in draw(st.sampled_from([[]] * 4 + [["nominee"], ["nominated-mate"]]))
    ]
    cordoned = draw(st.integers(0, 9)) == 0
    full = sum(pod.amounts["cpu"] for pod in pods) / NANOS or 1
    cpu = full if draw(st.booleans()) else draw(st.integers(1, 8))
    return a_node_info(name, *pods, cpu=cpu, is_unschedulable=cordoned, nominated_pods=nominees)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = [draw(node_infos(name)) for name in ("n1", "n2", "n3")[: draw(st.integers(1, 3))]]
    all_pods = [pod for node_info in found for pod in node_info.pods]
    groups = {}
    for key in GANGS:
        members = tuple(pod for pod in all_pods if pod.gang == key)
        mode, minimum = draw(
            st.sampled_from(
                [(DisruptionMode.ALL, 0), (DisruptionMode.SINGLE, 0), (DisruptionMode.SINGLE, 2)]
            )
        )
        groups[key] = GangInfo(
            key=key, disruption_mode=mode, min_available=minimum, members=members
        )
    allowed = draw(st.sampled_from([None, 0, 1]))
    budgets: dict[str, list[DisruptionBudget]] = (
        {} if allowed is None else {"team": [a_budget("a", allowed=allowed)]}
    )
    policy = PolicySettings(
        max_victims=draw(st.integers(1, 9)),
        preemptor_worth_seconds=draw(st.sampled_from([None, None, 5, 20])),
        victim_order=draw(st.sampled_from([LOSS, LOSS, PRIORITY])),
    )
    return Snapshot(
        now=NOW,
        nodes={node_info.name: node_info for node_info in found},
        budgets=budgets,
        gangs=groups,
        settings=policy,
    )


@st.composite
def preemptors(draw: st.DrawFn) -> Preemptor:
    sizes = draw(st.lists(st.integers(1, 3), max_size=2))
    rest = tuple(a_pod_demand(f"mate-{index}", cpu=cpu) for index, cpu in enumerate(sizes))
    in_gang = draw(st.sampled_from([True, True, False]))
    return a_preemptor(
        cpu=draw(st.integers(1, 4)),
        gang=MINE if in_gang else None,
        pending_members=rest if in_gang else (),
        preemption_class=draw(st.sampled_from([4, 5, 9])),
        nominated_member_uids=frozenset({"nominated-mate"}) if in_gang else frozenset(),
        devices=1.0,
    )


def decided(preemptor: Preemptor, snapshot: Snapshot) -> PreemptionDecision:
    return selection.decide(preemptor, snapshot, snapshot.nodes)


def all_of(choice: PreemptionCandidate) -> list[ScheduledPod]:
    return [*choice.all_pods, *choice.other_victims]


def fits(
    node_info: NodeInfo, staying: Iterable[ScheduledPod], demands: Iterable[PodDemand]
) -> bool:
    """Say whether all have room; nominees have a higher priority than every preemptor."""
    if node_info.is_unschedulable:
        return False
    used = sum(pod.amounts.get("cpu", 0) for pod in (*staying, *node_info.nominated_pods, *demands))
    return used <= node_info.allocatable["cpu"]


def staying(
    preemptor: Preemptor, snapshot: Snapshot, node_info: NodeInfo, gone: Iterable[ScheduledPod]
) -> list[ScheduledPod]:
    uids = {pod.uid for pod in gone}
    return [
        pod
        for pod in node_info.pods
        if pod.uid not in uids and not leaves(preemptor, snapshot, pod)
    ]


def is_going(pod: ScheduledPod) -> bool:
    release = pod.release
    return release is not None and not (release.is_held_by_budget and release.expected_at != NOW)


def leaves(
    preemptor: Preemptor, snapshot: Snapshot, pod: ScheduledPod, *, notified_only: bool = False
) -> bool:
    """Say whether the pod goes soon anyway, by itself or with its gang."""
    going = [pod] if is_going(pod) else []
    refused = selection.refusal_for(preemptor, pod, snapshot)
    if not going and refused is not None and refused.reason is RefusalReason.ALREADY_LEAVING:
        assert pod.gang is not None
        going = [member for member in members_of(snapshot.gangs[pod.gang]) if member.is_leaving]
    return any(
        found.release is not None
        and found.release.expected_at == NOW
        and (found.release.notified or not notified_only)
        for found in going
    )


def placements(
    demands: tuple[PodDemand, ...], names: list[str]
) -> Iterator[dict[str, list[PodDemand]]]:
    """Yield every way to spread the demands over the nodes."""
    if not demands:
        yield {}
        return
    for name in names:
        for others in placements(demands[1:], names):
            yield {**others, name: [demands[0], *others.get(name, [])]}


def can_place(
    preemptor: Preemptor, snapshot: Snapshot, node: str, gone: list[ScheduledPod]
) -> bool:
    left = {
        name: staying(preemptor, snapshot, node_info, gone)
        for name, node_info in snapshot.nodes.items()
    }
    return any(
        all(
            fits(snapshot.nodes[name], left[name], demands)
            for name, demands in {**spread, node: [preemptor.demand, *spread.get(node, [])]}.items()
        )
        for spread in placements(tuple(preemptor.pending_members), list(snapshot.nodes))
    )


@given(preemptors(), snapshots())
def test_no_refused_pod_is_preempted(preemptor: Preemptor, snapshot: Snapshot):
    for choice in decided(preemptor, snapshot).candidates:
        for victim in all_of(choice):
            assert selection.refusal_for(preemptor, victim, snapshot) is None


@given(preemptors(), snapshots())
def test_no_decision_exceeds_the_limits_of_victims_and_cost(
    preemptor: Preemptor, snapshot: Snapshot
):
    worth = worth_hours(preemptor, snapshot)
    for choice in decided(preemptor, snapshot).candidates:
        wholes = {pod.gang for pod in all_of(choice) if is_whole(pod, snapshot)}
        singles = [pod for pod in all_of(choice) if not is_whole(pod, snapshot)]
        assert len(wholes) + len(singles) == choice.victim_count <= snapshot.settings.max_victims
        assert worth is None or choice.cost_hours < worth


def is_whole(pod: ScheduledPod, snapshot: Snapshot) -> bool:
    return pod.gang in snapshot.gangs and is_evicted_as_a_unit(snapshot.gangs[pod.gang])


def is_evicted_as_a_unit(group: GangInfo) -> bool:
    left = members_of(group)
    return group.disruption_mode is DisruptionMode.ALL or (
        len(left) <= group.min_available and not any(map(is_going, left))
    )


def members_of(group: GangInfo) -> list[ScheduledPod]:
    return [
        member
        for member in group.members
        if member.release is None or not member.release.is_only_deleted
    ]


@given(preemptors(), snapshots())
def test_no_gang_is_preempted_in_part_or_below_its_minimum(
    preemptor: Preemptor, snapshot: Snapshot
):
    for choice in decided(preemptor, snapshot).candidates:
        gone = {victim.uid for victim in all_of(choice)}
        assert len(gone) == len(all_of(choice))
        for group in snapshot.gangs.values():
            taken = [member for member in group.members if member.uid in gone]
            left = [
                member
                for member in group.members
                if member.uid not in gone and not is_going(member)
            ]
            if is_evicted_as_a_unit(group):
                assert len(taken) in (0, len(members_of(group)))
            elif taken:
                assert len(left) >= group.min_available


@given(preemptors(), snapshots())
def test_every_pod_of_the_preemptors_gang_has_room_without_the_victims(
    preemptor: Preemptor, snapshot: Snapshot
):
    for choice in decided(preemptor, snapshot).candidates:
        assert choice.victims
        assert can_place(preemptor, snapshot, choice.node, all_of(choice))


@given(preemptors(), snapshots())
def test_no_victim_of_a_single_pod_could_stay(preemptor: Preemptor, snapshot: Snapshot):
    alone = replace(preemptor, pending_members=())
    for choice in decided(alone, snapshot).candidates:
        for spared in all_of(choice):
            others = [
                pod for pod in all_of(choice) if unit_of(pod, snapshot) != unit_of(spared, snapshot)
            ]
            assert not can_place(alone, snapshot, choice.node, others)


def unit_of(pod: ScheduledPod, snapshot: Snapshot) -> object:
    return pod.gang if is_whole(pod, snapshot) else pod.uid


@given(preemptors(), snapshots())
def test_no_pod_is_preempted_if_leaving_pods_release_enough(
    preemptor: Preemptor, snapshot: Snapshot
):
    own = preemptor.nominated_member_uids

    def is_shared(node_info: NodeInfo) -> bool:
        return any(demand.uid not in own for demand in node_info.nominated_pods)

    def has_room(node_info: NodeInfo, *, notified_only: bool) -> bool:
        left = [
            pod
            for pod in node_info.pods
            if not leaves(preemptor, snapshot, pod, notified_only=notified_only)
        ]
        return fits(node_info, left, [preemptor.demand])

    # Where another pod is nominated, only room that is there already counts as enough.
    waits = any(
        has_room(node_info, notified_only=True)
        if not is_shared(node_info)
        else fits(node_info, node_info.pods, [preemptor.demand])
        for node_info in snapshot.nodes.values()
    )
    found = decided(preemptor, snapshot)

    assert (not WAITING_IS_ENOUGH.isdisjoint(found.node_statuses.values())) == waits
    assert not (waits and found.candidates)
    for choice in found.candidates:
        assert not has_room(snapshot.nodes[choice.node], notified_only=False)


@given(preemptors(), snapshots())
def test_every_node_is_a_candidate_or_has_a_status(preemptor: Preemptor, snapshot: Snapshot):
    found = decided(preemptor, snapshot)
    chosen = {choice.node for choice in found.candidates}

    assert not chosen & found.node_statuses.keys()
    waits = not WAITING_IS_ENOUGH.isdisjoint(found.node_statuses.values())
    assert waits or chosen | found.node_statuses.keys() == snapshot.nodes.keys()


@given(preemptors(), snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_pods_and_nodes_does_not_matter(
    preemptor: Preemptor, snapshot: Snapshot, random: st.DataObject
):
    def shuffled(items: Iterable[ScheduledPod]) -> tuple[ScheduledPod, ...]:
        return tuple(random.sample(list(items), len(list(items))))  # type: ignore[attr-defined]  # it is a `Random`

    groups = {
        key: replace(group, members=shuffled(group.members))
        for key, group in reversed(snapshot.gangs.items())
    }
    seen = {
        name: replace(node_info, pods=shuffled(node_info.pods))
        for name, node_info in reversed(snapshot.nodes.items())
    }
    other = replace(snapshot, nodes=seen, gangs=groups)

    assert summary(decided(preemptor, other)) == summary(decided(preemptor, snapshot))


def summary(found: PreemptionDecision) -> object:
    choices = [
        (
            choice.node,
            {v.uid for v in choice.victims},
            {v.uid for v in all_of(choice)},
            choice.pdb_violations,
        )
        for choice in found.candidates
    ]
    return choices, dict(found.node_statuses)


@given(preemptors(), snapshots())
def test_a_single_pod_finds_victims_wherever_some_suffice(preemptor: Preemptor, snapshot: Snapshot):
    """By trying every set of victims of a node; a gang that is cut pod by pod is another law's."""
    unlimited = replace(snapshot.settings, max_victims=1000, preemptor_worth_seconds=None)
    groups = {key: replace(group, min_available=0) for key, group in snapshot.gangs.items()}
    alone, free = (
        replace(preemptor, pending_members=()),
        replace(snapshot, settings=unlimited, gangs=groups),
    )
    found = decided(alone, free)
    assume(WAITING_IS_ENOUGH.isdisjoint(found.node_statuses.values()))
    chosen = {choice.node for choice in found.candidates}

    for name, node_info in free.nodes.items():
        possible = [
            pod for pod in node_info.pods if selection.refusal_for(alone, pod, free) is None
        ]
        sets = (
            gone for size in range(1, len(possible) + 1) for gone in combinations(possible, size)
        )
        helps = any(
            fits(node_info, staying(alone, free, node_info, gone), [alone.demand]) for gone in sets
        )
        assert (name in chosen) == (
            helps and found.node_statuses.get(name) is not DryRunStatus.ROOM_MAY_BE_RELEASED
        )


@given(preemptors(), snapshots())
def test_the_best_candidate_is_the_same_if_only_that_is_wanted(
    preemptor: Preemptor, snapshot: Snapshot
):
    best = decided(preemptor, snapshot).best
    only = selection.decide(preemptor, snapshot, snapshot.nodes, is_only_best_wanted=True)

    assert only.best == best


@given(preemptors(), snapshots(), st.data())
def test_the_best_candidate_is_the_same_if_only_some_nodes_are_offered(
    preemptor: Preemptor, snapshot: Snapshot, data: st.DataObject
):
    every = decided(preemptor, snapshot)
    # A scheduler that has room for a pod places it, and asks for no victims.
    assume(DryRunStatus.HAS_ROOM not in every.node_statuses.values())
    offered = data.draw(st.sets(st.sampled_from(sorted(snapshot.nodes)), min_size=1))
    proposed = {node: [pod.uid for pod in snapshot.nodes[node].pods] for node in offered}
    others = [node for node in snapshot.nodes if node not in offered]

    found = selection.decide(
        preemptor, snapshot, sorted(offered), proposed, other_nodes=others, is_only_best_wanted=True
    )

    assert found.best == every.best


ABOUT: dict[str, Callable[[PreemptionCandidate], bool]] = {
    "gangs that run on several nodes": lambda choice: bool(choice.gang_members_elsewhere),
    "victims for the rest of a gang": lambda choice: bool(choice.other_victims),
    "several victims": lambda choice: choice.victim_count > 1,
    "broken budgets": lambda choice: choice.pdb_violations > 0,
}


@pytest.fixture(scope="module")
def subjects() -> set[str]:
    """Decide random snapshots until each of `ABOUT` is in one; return those that are."""
    found: set[str] = set()

    def has_all(pair: tuple[Preemptor, Snapshot]) -> bool:
        for candidate in decided(*pair).candidates:
            found.update(name for name, is_found in ABOUT.items() if is_found(candidate))
        return len(found) == len(ABOUT)

    with suppress(NoSuchExample):
        find(st.tuples(preemptors(), snapshots()), has_all, settings=FEW)
    return found


@pytest.mark.heavy  # decides hundreds of snapshots
@pytest.mark.parametrize("subject", ABOUT)
def test_the_generated_snapshots_cover(subject: str, subjects: set[str]):
    """Without this, a law could hold because it is never at stake."""
    assert subject in subjects
