"""What holds of every decision, whatever the cluster: laws on random scenes, with gangs on both sides."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.kube.quantity import NANOS
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import Stake
from reprieve_policy.preemption.selection import WAITING_IS_ENOUGH, Choice, Decision, Ground, Obstacle
from reprieve_policy.preemption.selection.evaluator import worth_hours
from reprieve_policy.preemption.selection.snapshot import Budget, Group, GroupKey, Guest, Preemptor, Room, Scene, Tenant
from reprieve_testing.builders import NOW, after
from reprieve_testing.scenes import a_budget, a_guest, a_preemptor, a_room, a_tenant

GANGS = [GroupKey("team", name) for name in ("one", "two", "three")]
MINE = GroupKey("team", "mine")
GOING: list[dict[str, Any]] = [
    {"is_going": True},
    {"is_going": True, "is_told": False, "is_deleted": True},
    {"is_going": True, "is_told": False, "goes_at": None},
    {"is_going": True, "goes_at": after(10**8)},
    {"is_going": True, "is_told": False, "is_held": True},
    {"is_going": True, "is_told": False, "is_held": True, "goes_at": after(-(10**8))},
]
FEW = settings(max_examples=2000, phases=[Phase.generate])


@st.composite
def tenants(draw: st.DrawFn, uid: str) -> Tenant:
    speaks = draw(st.booleans())
    tenant = a_tenant(
        uid,
        priority=draw(st.sampled_from([0, 5, 5, 2000])),
        cpu=draw(st.integers(0, 3)),
        **draw(st.sampled_from([{}] * 20 + GOING)),
        group=draw(st.sampled_from([None, None, *GANGS[:2], *GANGS, MINE])),
        labels={"app": draw(st.sampled_from("ab"))},
        is_non_preemptible=draw(st.sampled_from([False] * 9 + [True])),
        preemption_class=draw(st.integers(1, 6)) if speaks else 4,
        speaks=speaks,
    )
    work = replace(tenant.work, started_at=draw(st.none() | st.integers(-9, 0).map(after)))
    return replace(tenant, work=work, stake=Stake(devices=draw(st.integers(0, 2))))


@st.composite
def rooms(draw: st.DrawFn, name: str) -> Room:
    pods = [draw(tenants(f"{name}-{index}")) for index in range(draw(st.integers(0, 5)))]
    nominees = [a_guest("nominee", priority=2000, cpu=1)] if draw(st.integers(0, 5)) == 0 else []
    cordoned = draw(st.integers(0, 9)) == 0
    full = sum(pod.amounts["cpu"] for pod in pods) / NANOS or 1
    cpu = full if draw(st.booleans()) else draw(st.integers(1, 8))
    return a_room(name, *pods, cpu=cpu, is_unschedulable=cordoned, nominees=nominees)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    found = [draw(rooms(name)) for name in ("n1", "n2", "n3")[: draw(st.integers(1, 3))]]
    everybody = [tenant for room in found for tenant in room.tenants]
    groups = {}
    for key in GANGS:
        members = tuple(tenant for tenant in everybody if tenant.group == key)
        mode, minimum = draw(st.sampled_from([(Mode.ALL, 0), (Mode.SINGLE, 0), (Mode.SINGLE, 2)]))
        groups[key] = Group(key=key, mode=mode, min_available=minimum, members=members)
    allowed = draw(st.sampled_from([None, 0, 1]))
    budgets: dict[str, list[Budget]] = {} if allowed is None else {"team": [a_budget("a", allowed=allowed)]}
    policy = PolicySettings(
        max_victims=draw(st.integers(1, 9)), preemptor_worth_seconds=draw(st.sampled_from([None, None, 5, 20]))
    )
    return Scene(now=NOW, rooms={room.name: room for room in found}, budgets=budgets, groups=groups, settings=policy)


@st.composite
def preemptors(draw: st.DrawFn) -> Preemptor:
    sizes = draw(st.lists(st.integers(1, 3), max_size=2))
    rest = tuple(a_guest(f"mate-{index}", cpu=cpu) for index, cpu in enumerate(sizes))
    in_gang = draw(st.sampled_from([True, True, False]))
    return a_preemptor(
        cpu=draw(st.integers(1, 4)),
        group=MINE if in_gang else None,
        rest=rest if in_gang else (),
        preemption_class=draw(st.sampled_from([4, 5, 9])),
        devices=1.0,
    )


def decided(preemptor: Preemptor, scene: Scene) -> Decision:
    return selection.decide(preemptor, scene, scene.rooms)


def all_of(choice: Choice) -> list[Tenant]:
    return [*choice.everyone, *choice.later]


def fits(room: Room, staying: Iterable[Tenant], guests: Iterable[Guest]) -> bool:
    """Say whether all have room; nominees of these scenes are above every preemptor."""
    if room.is_unschedulable:
        return False
    used = sum(pod.amounts.get("cpu", 0) for pod in (*staying, *room.nominees, *guests))
    return used <= room.allocatable["cpu"]


def staying(preemptor: Preemptor, scene: Scene, room: Room, gone: Iterable[Tenant]) -> list[Tenant]:
    uids = {tenant.uid for tenant in gone}
    return [pod for pod in room.tenants if pod.uid not in uids and not goes(preemptor, scene, pod)]


def is_going(pod: Tenant) -> bool:
    return pod.is_going and not (pod.is_held and pod.goes_at != NOW)


def goes(preemptor: Preemptor, scene: Scene, pod: Tenant, *, is_told: bool = False) -> bool:
    """Say whether the pod goes soon anyway, by itself or with its gang."""
    going = [pod] if pod.is_going else []
    refused = selection.why_not(preemptor, pod, scene)
    if not going and refused is not None and refused.ground is Ground.GOING:
        assert pod.group is not None
        going = [member for member in members_of(scene.groups[pod.group]) if member.is_going]
    return any(found.goes_at == NOW and (found.is_told or not is_told) for found in going)


def placements(guests: tuple[Guest, ...], names: list[str]) -> Iterator[dict[str, list[Guest]]]:
    """Yield every way to spread the guests over the nodes."""
    if not guests:
        yield {}
        return
    for name in names:
        for others in placements(guests[1:], names):
            yield {**others, name: [guests[0], *others.get(name, [])]}


def can_place(preemptor: Preemptor, scene: Scene, node: str, gone: list[Tenant]) -> bool:
    left = {name: staying(preemptor, scene, room, gone) for name, room in scene.rooms.items()}
    return any(
        all(
            fits(scene.rooms[name], left[name], guests)
            for name, guests in {**spread, node: [preemptor.guest, *spread.get(node, [])]}.items()
        )
        for spread in placements(tuple(preemptor.rest), list(scene.rooms))
    )


@given(preemptors(), scenes())
def test_nobody_goes_who_is_refused(preemptor: Preemptor, scene: Scene):
    for choice in decided(preemptor, scene).choices:
        for victim in all_of(choice):
            assert selection.why_not(preemptor, victim, scene) is None


@given(preemptors(), scenes())
def test_no_more_go_than_a_decision_may_take_nor_dearer_ones(preemptor: Preemptor, scene: Scene):
    worth = worth_hours(preemptor, scene)
    for choice in decided(preemptor, scene).choices:
        wholes = {pod.group for pod in all_of(choice) if is_whole(pod, scene)}
        singles = [pod for pod in all_of(choice) if not is_whole(pod, scene)]
        assert len(wholes) + len(singles) == choice.units <= scene.settings.max_victims
        assert worth is None or choice.hours < worth


def is_whole(pod: Tenant, scene: Scene) -> bool:
    return pod.group in scene.groups and goes_whole(scene.groups[pod.group])


def goes_whole(group: Group) -> bool:
    left = members_of(group)
    return group.mode is Mode.ALL or (len(left) <= group.min_available and not any(map(is_going, left)))


def members_of(group: Group) -> list[Tenant]:
    return [member for member in group.members if not member.is_only_deleted]


@given(preemptors(), scenes())
def test_no_gang_is_taken_in_part_or_below_its_minimum(preemptor: Preemptor, scene: Scene):
    for choice in decided(preemptor, scene).choices:
        gone = {victim.uid for victim in all_of(choice)}
        assert len(gone) == len(all_of(choice))
        for group in scene.groups.values():
            taken = [member for member in group.members if member.uid in gone]
            left = [member for member in group.members if member.uid not in gone and not is_going(member)]
            if goes_whole(group):
                assert len(taken) in (0, len(members_of(group)))
            elif taken:
                assert len(left) >= group.min_available


@given(preemptors(), scenes())
def test_all_of_the_preemptors_gang_has_room_then(preemptor: Preemptor, scene: Scene):
    for choice in decided(preemptor, scene).choices:
        assert choice.victims
        assert can_place(preemptor, scene, choice.node, all_of(choice))


@given(preemptors(), scenes())
def test_none_of_a_single_pods_victims_could_stay(preemptor: Preemptor, scene: Scene):
    alone = replace(preemptor, rest=())
    for choice in decided(alone, scene).choices:
        for spared in all_of(choice):
            others = [pod for pod in all_of(choice) if unit_of(pod, scene) != unit_of(spared, scene)]
            assert not can_place(alone, scene, choice.node, others)


def unit_of(pod: Tenant, scene: Scene) -> object:
    return pod.group if is_whole(pod, scene) else pod.uid


@given(preemptors(), scenes())
def test_where_waiting_is_enough_nobody_goes(preemptor: Preemptor, scene: Scene):
    def has_room(room: Room, *, is_told: bool) -> bool:
        left = [pod for pod in room.tenants if not goes(preemptor, scene, pod, is_told=is_told)]
        return fits(room, left, [preemptor.guest])

    waits = any(has_room(room, is_told=True) for room in scene.rooms.values())
    found = decided(preemptor, scene)

    assert (not WAITING_IS_ENOUGH.isdisjoint(found.obstacles.values())) == waits
    assert not (waits and found.choices)
    for choice in found.choices:
        assert not has_room(scene.rooms[choice.node], is_told=False)


@given(preemptors(), scenes())
def test_every_node_is_a_choice_or_says_why_not(preemptor: Preemptor, scene: Scene):
    found = decided(preemptor, scene)
    chosen = {choice.node for choice in found.choices}

    assert not chosen & found.obstacles.keys()
    waits = not WAITING_IS_ENOUGH.isdisjoint(found.obstacles.values())
    assert waits or chosen | found.obstacles.keys() == scene.rooms.keys()


@given(preemptors(), scenes(), st.randoms(use_true_random=False))
def test_the_order_in_which_pods_and_nodes_are_seen_decides_nothing(
    preemptor: Preemptor, scene: Scene, random: st.DataObject
):
    def shuffled(items: Iterable[Tenant]) -> tuple[Tenant, ...]:
        return tuple(random.sample(list(items), len(list(items))))  # type: ignore[attr-defined]  # it is a `Random`

    groups = {key: replace(group, members=shuffled(group.members)) for key, group in reversed(scene.groups.items())}
    seen = {name: replace(room, tenants=shuffled(room.tenants)) for name, room in reversed(scene.rooms.items())}
    other = replace(scene, rooms=seen, groups=groups)

    assert summary(decided(preemptor, other)) == summary(decided(preemptor, scene))


def summary(found: Decision) -> object:
    choices = [
        (choice.node, {v.uid for v in choice.victims}, {v.uid for v in all_of(choice)}, choice.violations)
        for choice in found.choices
    ]
    return choices, dict(found.obstacles)


@given(preemptors(), scenes())
def test_a_single_pod_finds_victims_wherever_any_would_do(preemptor: Preemptor, scene: Scene):
    """By trying every set of victims of a node; a gang that is cut pod by pod is another law's."""
    unlimited = replace(scene.settings, max_victims=1000, preemptor_worth_seconds=None)
    groups = {key: replace(group, min_available=0) for key, group in scene.groups.items()}
    alone, free = replace(preemptor, rest=()), replace(scene, settings=unlimited, groups=groups)
    found = decided(alone, free)
    assume(WAITING_IS_ENOUGH.isdisjoint(found.obstacles.values()))
    chosen = {choice.node for choice in found.choices}

    for name, room in free.rooms.items():
        possible = [pod for pod in room.tenants if selection.why_not(alone, pod, free) is None]
        sets = (gone for size in range(1, len(possible) + 1) for gone in combinations(possible, size))
        helps = any(fits(room, staying(alone, free, room, gone), [alone.guest]) for gone in sets)
        assert (name in chosen) == (helps and found.obstacles.get(name) is not Obstacle.CLEARING)


ABOUT: dict[str, Callable[[Choice], bool]] = {
    "gangs that run on several nodes": lambda choice: bool(choice.elsewhere),
    "victims for the rest of a gang": lambda choice: bool(choice.later),
    "several victims": lambda choice: choice.units > 1,
    "broken budgets": lambda choice: choice.violations > 0,
}


@pytest.mark.parametrize("is_found", ABOUT.values(), ids=ABOUT.keys())
def test_the_scenes_are_about(is_found: Callable[[Choice], bool]):
    """Without this, a law could hold because it is never at stake."""
    pairs = st.tuples(preemptors(), scenes())

    assert find(pairs, lambda pair: any(map(is_found, decided(*pair).choices)), settings=FEW)
