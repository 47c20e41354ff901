"""The room of gangs: cases, and the law that two gangs never take each other's room."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.preemption.selection import node_fit
from reprieve_policy.preemption.selection.gangs import kinds as gang_kinds
from reprieve_policy.preemption.selection.gangs.kinds import (
    MAX_ENTRIES,
    MAX_KINDS,
    MAX_PLACEMENTS,
    MAX_VALUES,
    DemandKind,
    FreeNode,
    group_by_kind,
)
from reprieve_policy.preemption.selection.gangs.room import (
    MAX_NAMESPACE_KINDS,
    MAX_UNGATED_KINDS,
    GangDemand,
    GangRoom,
    ReleasedGang,
    RoomLimits,
)
from reprieve_policy.preemption.selection.snapshot import (
    HostPortInfo,
    NodeAffinityTerm,
    NodeInfo,
    PodDemand,
    Requirement,
    SchedulingConstraints,
    Snapshot,
    TaintToleration,
)
from reprieve_testing.objects.builders import NOW
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    amounts,
)

WEB = frozenset({HostPortInfo("0.0.0.0", "TCP", 80)})


def demands(name: str, count: int, cpu: float = 1, **fields: object) -> list[PodDemand]:
    return [a_pod_demand(f"{name}-{index}", cpu=cpu, **fields) for index in range(count)]


def on_pool(pool: str) -> SchedulingConstraints:
    return SchedulingConstraints(node_selector={"pool": pool})


def tolerating(key: str) -> SchedulingConstraints:
    return SchedulingConstraints(tolerations=(TaintToleration(key, "Exists", "", ""),))


def a_gang(pods: Iterable[PodDemand], **fields: Any) -> GangDemand:
    needed = [replace(a_preemptor(), demand=demand, name=demand.uid) for demand in pods]
    return GangDemand(pods=needed, **{"namespace": "team", **fields})


def nodes(*sizes: float, **fields: Any) -> list[NodeInfo]:
    return [a_node_info(f"n{index}", cpu=cpu, **fields) for index, cpu in enumerate(sizes)]


def released_gang(namespace: str, pods: list[PodDemand]) -> ReleasedGang:
    was_large = len(group_by_kind(pods)) > MAX_NAMESPACE_KINDS
    return ReleasedGang(namespace=namespace, pods=pods, was_large=was_large)


def room_in(
    node_infos: list[NodeInfo],
    gang: GangDemand,
    *released: list[PodDemand],
    settings: PolicySettings | None = None,
    ungated: Iterable[list[PodDemand]] = (),
) -> GangRoom[str]:
    snapshot = Snapshot(
        now=NOW,
        nodes={one.name: one for one in node_infos},
        settings=settings or PolicySettings(),
    )
    free = map(FreeNode, node_infos)
    placing = [released_gang("team", pods) for pods in released]
    return GangRoom(snapshot, free, {"gang": gang}, placing, ungated=ungated)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster, the gangs that are released, and whether another one has room."""

    nodes: list[NodeInfo]
    pods: list[PodDemand]
    want: bool
    released: list[list[PodDemand]] = field(default_factory=list)
    ungated: list[list[PodDemand]] = field(default_factory=list)
    gang: dict[str, Any] = field(default_factory=dict)


LOW, KEPT = {"priority": 0}, {"priority": 0, "is_non_preemptible": True}
CASES = {
    "a gang that fits": Case(nodes=nodes(4, 4), pods=demands("a", 8), want=True),
    "a gang of which one pod does not fit": Case(
        nodes=nodes(4, 4), pods=demands("a", 9), want=False
    ),
    "free CPUs on several nodes are no room for one pod": Case(
        nodes=nodes(4, 4), pods=demands("a", 1, cpu=5), want=False
    ),
    "a node takes no more pods than its kubelet allows": Case(
        nodes=nodes(4, pods=3), pods=demands("a", 4, cpu=0), want=False
    ),
    "pods that run take room": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", cpu=2, **KEPT))],
        pods=demands("a", 3),
        want=False,
    ),
    "pods that are leaving still take room": Case(
        nodes=[a_node_info("n", a_scheduled_pod("goes", cpu=2, is_leaving=True, **LOW))],
        pods=demands("a", 3),
        want=False,
    ),
    "pods that are nominated take room": Case(
        nodes=[a_node_info("n", nominated_pods=tuple(demands("other", 2)))],
        pods=demands("a", 3),
        want=False,
    ),
    "a node that the pods may not run on is no room": Case(
        nodes=nodes(4, labels={"pool": "other"}),
        pods=demands("a", 1, constraints=on_pool("mine")),
        want=False,
    ),
    "required node affinity counts": Case(
        nodes=nodes(4, labels={"pool": "mine"}),
        pods=demands(
            "a",
            1,
            constraints=SchedulingConstraints(
                node_affinity_terms=(NodeAffinityTerm((Requirement("pool", "In", ("mine",)),)),)
            ),
        ),
        want=True,
    ),
    "a host port is on each node once": Case(
        nodes=nodes(4, 4), pods=demands("a", 3, ports=WEB), want=False
    ),
    "and free on each node": Case(nodes=nodes(4, 4), pods=demands("a", 2, ports=WEB), want=True),
    "a host port that another pod has is taken": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", ports=WEB, **KEPT))],
        pods=demands("a", 1, ports=WEB),
        want=False,
    ),
    "two kinds of which one needs the port that is left": Case(
        nodes=nodes(2, 1),
        pods=[*demands("a", 1, cpu=2, ports=WEB), *demands("b", 1, ports=WEB)],
        want=True,
    ),
    "pods of several sizes that fill the nodes exactly": Case(
        nodes=nodes(4, 2),
        pods=[*demands("small", 2, cpu=1), *demands("large", 1, cpu=4)],
        want=True,
    ),
    "pods of several sizes that do not fit": Case(
        nodes=nodes(4, 2),
        pods=[*demands("small", 3, cpu=1), *demands("large", 1, cpu=4)],
        want=False,
    ),
    "two gangs that fit wherever their pods go": Case(
        nodes=nodes(4, 4), pods=demands("a", 4), released=[demands("b", 4)], want=True
    ),
    "a gang for which the other leaves too little": Case(
        nodes=nodes(4, 4), pods=demands("a", 4), released=[demands("b", 5)], want=False
    ),
    "a gang that fits only where the other goes to the right nodes": Case(
        nodes=nodes(4, 4), pods=demands("a", 1, cpu=4), released=[demands("b", 2)], want=False
    ),
    "a gang that would take the places of the other": Case(
        nodes=nodes(4, 4), pods=demands("a", 2), released=[demands("b", 1, cpu=4)], want=False
    ),
    "gangs on different nodes do not contend": Case(
        nodes=[*nodes(4, labels={"pool": "one"}), a_node_info("m", labels={"pool": "two"})],
        pods=demands("a", 4, constraints=on_pool("one")),
        released=[demands("b", 4, constraints=on_pool("two"))],
        want=True,
    ),
    "beside a gang that finds no room, none is released on the same nodes": Case(
        nodes=nodes(4, 4), pods=demands("a", 1), released=[demands("b", 9)], want=False
    ),
    "a gang beside two others": Case(
        nodes=nodes(4, 4),
        pods=demands("a", 3),
        released=[demands("b", 3), demands("c", 3)],
        want=False,
    ),
    "a pod that no gate held and that fits nowhere holds up no gang": Case(
        nodes=nodes(4, 4), pods=demands("a", 8), ungated=[demands("b", 1, cpu=9)], want=True
    ),
    "nor does it where it is more important, and no victims would help it": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", **LOW))],
        pods=demands("a", 3),
        ungated=[demands("b", 1, cpu=9, priority=2000)],
        want=True,
    ),
    "a more important one that victims would help is waited for": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", **LOW))],
        pods=demands("a", 3),
        ungated=[demands("b", 1, cpu=4, priority=2000)],
        want=False,
    ),
    "one of the same priority, too": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", **LOW))],
        pods=demands("a", 3, priority=9),
        ungated=[demands("b", 1, cpu=4, priority=9)],
        want=False,
    ),
    "a less important one is not, unless it has room": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", **LOW))],
        pods=demands("a", 3, priority=9),
        ungated=[demands("b", 1, cpu=4, priority=8)],
        want=True,
    ),
    "pods that no gate held and that have room are waited for": Case(
        nodes=nodes(4, 4), pods=demands("a", 5), ungated=[demands("b", 4)], want=False
    ),
    "of a gang that no gate held, pods that have room may take it": Case(
        nodes=nodes(4, 4),
        pods=demands("a", 8),
        ungated=[[*demands("b", 1, cpu=9), *demands("c", 1)]],
        want=False,
    ),
    "where there is room beside them, a gang is released": Case(
        nodes=nodes(4, 4),
        pods=demands("a", 7),
        ungated=[[*demands("b", 1, cpu=9), *demands("c", 1)]],
        want=True,
    ),
    "a released gang whose room is gone keeps the rest from its equals": Case(
        nodes=nodes(4, 4), pods=demands("a", 8), released=[demands("b", 1, cpu=5)], want=False
    ),
    "and not from a more important gang": Case(
        nodes=nodes(4, 4),
        pods=demands("a", 8, priority=9),
        released=[demands("b", 1, cpu=5, priority=8)],
        want=True,
    ),
    "many sizes of pods count as if each were the largest": Case(
        nodes=nodes(*(9 for _ in range(9))),
        pods=[pod for size in range(1, 10) for pod in demands(f"a{size}", 1, cpu=size)],
        want=True,
    ),
    "and so may find no room that they have": Case(
        nodes=nodes(*range(1, 10)),
        pods=[pod for size in range(1, 10) for pod in demands(f"a{size}", 1, cpu=size)],
        want=False,
    ),
    "pods that differ in many ways by where they may run get no room": Case(
        nodes=nodes(999),
        pods=[
            pod
            for number in range(MAX_PLACEMENTS + 1)
            for pod in demands(f"a{number}", 1, constraints=tolerating(str(number)))
        ],
        want=False,
    ),
    "and take none": Case(
        nodes=nodes(4),
        pods=demands("a", 4),
        ungated=[
            [
                pod
                for number in range(MAX_PLACEMENTS + 1)
                for pod in demands(f"a{number}", 1, constraints=tolerating(str(number)))
            ]
        ],
        want=True,
    ),
    "victims make room": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", cpu=2, **LOW))],
        pods=demands("a", 3),
        want=True,
    ),
    "more victims than one decision may take": Case(
        nodes=[a_node_info("n", *(a_scheduled_pod(f"runs-{i}", **LOW) for i in range(4)))],
        pods=demands("a", 4),
        want=False,
    ),
    "a gang that would not fit into the empty nodes": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", cpu=2, **LOW))],
        pods=demands("a", 5),
        want=False,
    ),
    "pods of the same priority are no victims": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", cpu=2, priority=1000))],
        pods=demands("a", 3),
        want=False,
    ),
    "pods that are leaving make no victims necessary: the gang waits for them": Case(
        nodes=[
            a_node_info("n", a_scheduled_pod("goes", cpu=3, is_leaving=True, **LOW)),
        ],
        pods=demands("a", 3),
        want=False,
    ),
    "no victims are taken beside another gang": Case(
        nodes=[a_node_info("n", a_scheduled_pod("runs", cpu=2, **LOW))],
        pods=demands("a", 3),
        released=[demands("b", 1)],
        want=False,
    ),
    "minResources that are free": Case(
        nodes=nodes(4, 4), pods=demands("a", 2), gang={"min_resources": amounts(cpu=8)}, want=True
    ),
    "minResources that are not free": Case(
        nodes=nodes(4, 4), pods=demands("a", 2), gang={"min_resources": amounts(cpu=9)}, want=False
    ),
    "minResources that no node has": Case(
        nodes=nodes(4, 4), pods=demands("a", 2), gang={"min_resources": amounts(gpu=1)}, want=False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_which_gangs_have_room(case: Case) -> None:
    gang = a_gang(case.pods, **case.gang)
    room = room_in(case.nodes, gang, *case.released, ungated=case.ungated)
    assert room.has_room("gang") is case.want


def test_a_gang_that_never_preempts_gets_no_victims() -> None:
    node_infos = [a_node_info("n", a_scheduled_pod("runs", cpu=2, **LOW))]
    gang = a_gang(demands("a", 3))
    pods = [replace(pod, never_preempts=True) for pod in gang.pods]
    assert not room_in(node_infos, replace(gang, pods=pods)).has_room("gang")


def on_time() -> bool:
    return False


def over() -> bool:
    return True


def limited_room(limits: RoomLimits, **kinds: list[PodDemand]) -> GangRoom[str]:
    """Return a node of 4 CPUs, on which a victim of 2 CPUs runs."""
    node_infos = [a_node_info("n", a_scheduled_pod("runs", cpu=2, **LOW))]
    snapshot = Snapshot(now=NOW, nodes={"n": node_infos[0]})
    gangs = {name: a_gang(pods) for name, pods in kinds.items()}
    return GangRoom(snapshot, map(FreeNode, node_infos), gangs, [], limits)


def test_no_plan_is_made_once_the_time_is_over() -> None:
    room = limited_room(RoomLimits(are_plans_over=over), gang=demands("a", 3), fits=demands("b", 2))
    assert not room.has_room("gang")
    assert room.without_turn == {"gang"}
    assert room.has_room("fits"), "what is free is still given"


def test_a_plan_that_the_time_cuts_short_is_made_again() -> None:
    times = iter([False])
    limits = RoomLimits(are_plans_over=lambda: next(times, True))
    room = limited_room(limits, gang=demands("a", 3))
    assert not room.has_room("gang")
    assert room.without_turn == {"gang"}


def test_a_gang_for_which_there_are_no_victims_had_its_turn() -> None:
    gang = a_gang(demands("a", 3))
    pods = [replace(pod, never_preempts=True) for pod in gang.pods]
    room = room_in([a_node_info("n", a_scheduled_pod("runs", cpu=2, **LOW))], GangDemand(pods=pods))
    assert not room.has_room("gang")
    assert room.without_turn == set()


def test_no_gang_is_counted_once_the_time_is_over() -> None:
    room = limited_room(RoomLimits(is_over=over), gang=demands("a", 1))
    assert not room.has_room("gang")
    assert room.without_turn == {"gang"}


DIFFERENT = [
    pod
    for number in range(9)
    for pod in demands(f"a{number}", 1, cpu=0.1, constraints=tolerating(str(number)))
]


def test_a_gang_of_many_kinds_that_are_not_all_counted_in_time_has_another_turn() -> None:
    times = iter([False, False, True])
    room = limited_room(RoomLimits(is_over=lambda: next(times)), gang=DIFFERENT)
    assert not room.has_room("gang")
    assert room.without_turn == {"gang"}
    assert limited_room(RoomLimits(), gang=DIFFERENT).has_room("gang")


def test_pods_that_no_gate_held_take_no_time_of_the_gangs_that_wait() -> None:
    node_infos = nodes(4)
    snapshot = Snapshot(now=NOW, nodes={"n0": node_infos[0]})
    gangs = {"gang": a_gang(demands("a", 4))}
    others = [demands(f"b{number}", 4, cpu=1 + number) for number in range(3)]
    asked: list[str] = []

    def is_over() -> bool:
        asked.append("queue")
        return False

    def is_ungated_over() -> bool:
        asked.append("others")
        return True

    limits = RoomLimits(is_over=is_over, is_ungated_over=is_ungated_over)
    free = map(FreeNode, node_infos)
    room = GangRoom(snapshot, free, gangs, [], limits, ungated=others)
    assert asked == ["others"]
    assert room.ungated_turns == 0
    assert room.has_room("gang"), "those that are not counted hold up no gang"
    assert asked == ["others", "queue"]


def gangs_of_many_kinds(number: int) -> list[list[PodDemand]]:
    return [
        [
            pod
            for kind in range(MAX_PLACEMENTS)
            for pod in demands(
                f"b{gang}-{kind}", 1, 0.001, constraints=tolerating(f"{gang}-{kind}")
            )
        ]
        for gang in range(number)
    ]


class Stopwatch:
    """A time that is over once it was asked for so many times, and how often kinds are compared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: float = math.inf) -> None:
        self.asked, self.most, self.compared = 0, most, 0
        compare = gang_kinds._places_lost

        def counted(kind: DemandKind, placed: DemandKind) -> int:
            self.compared += 1
            return compare(kind, placed)

        monkeypatch.setattr(gang_kinds, "_places_lost", counted)

    def is_over(self) -> bool:
        self.asked += 1
        return self.asked > self.most


def room_beside(
    limits: RoomLimits,
    released: list[list[PodDemand]],
    ungated: list[list[PodDemand]],
    size: float = 8,
) -> GangRoom[str]:
    """Return the room of three gangs of one pod on two nodes; each released is of a Namespace."""
    node_infos = nodes(size, size, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    gangs = {name: a_gang(demands(name, 1)) for name in "xyz"}
    placing = [released_gang(f"other-{number}", pods) for number, pods in enumerate(released)]
    return GangRoom(snapshot, map(FreeNode, node_infos), gangs, placing, limits, ungated=ungated)


def test_gangs_that_no_gate_held_take_bounded_time_however_many_kinds_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopwatch = Stopwatch(monkeypatch)
    room = room_beside(RoomLimits(), [], gangs_of_many_kinds(60), size=999)
    assert room.ungated_turns == math.ceil(MAX_UNGATED_KINDS / MAX_PLACEMENTS)
    for name in "xyz":
        assert room.has_room(name)
        room.reserve(name)
    most = room.ungated_turns * MAX_PLACEMENTS
    # All of them with each other once, and each with each gang: as it asks, and as it is reserved.
    assert stopwatch.compared <= most * most + 12 * most


@pytest.mark.parametrize("most", range(1, 5))
def test_a_gang_that_cannot_be_compared_with_all_others_in_time_is_not_released(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    others = [demands("b", 1, cpu=1), demands("c", 1, cpu=2)]
    stopwatch = Stopwatch(monkeypatch, most)
    room = room_beside(RoomLimits(is_over=stopwatch.is_over), others, [])
    assert not room.has_room("x")
    assert room.without_turn == {"x"}
    assert stopwatch.compared <= 6


def test_no_gang_is_compared_for_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    released = [of_kinds(first, first + FULL) for first in range(0, 4 * MAX_PLACEMENTS, FULL)]
    stopwatch = Stopwatch(monkeypatch, most=200)
    room = room_beside(RoomLimits(is_over=stopwatch.is_over), released, [], size=999)
    assert not any(map(room.has_room, "xyz"))
    assert room.without_turn == set("xyz")
    assert stopwatch.compared <= 200 * (4 * MAX_PLACEMENTS + 1)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_no_gang_is_released_beside_released_ones_that_cannot_be_counted_in_time(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    others = [demands("b", 1), demands("c", 1), demands("d", 1)]
    stopwatch = Stopwatch(monkeypatch, most)
    room = room_beside(RoomLimits(is_released_over=stopwatch.is_over), others, [])
    assert not room.has_room("x")
    assert room.without_turn == {"x"}
    stopwatch = Stopwatch(monkeypatch, 3)
    assert room_beside(RoomLimits(is_released_over=stopwatch.is_over), others, []).has_room("x")


def test_a_released_gang_of_which_some_kinds_cannot_be_counted_in_time_is_not_counted() -> None:
    looks = iter([False, True])
    room = room_beside(RoomLimits(is_released_over=lambda: next(looks)), [of_kinds(0, 2)], [])
    assert not room.has_room("x")
    assert room.without_turn == {"x"}


def test_pods_that_no_gate_holds_of_which_some_kinds_cannot_be_counted_in_time_had_no_turn() -> (
    None
):
    looks = iter([False, True])
    room = room_beside(RoomLimits(is_ungated_over=lambda: next(looks)), [], [of_kinds(0, 2)])
    assert room.ungated_turns == 0
    assert room.has_room("x")


def of_kinds(first: int, end: int) -> list[PodDemand]:
    """Return a pod of each of these kinds."""
    return [
        pod
        for number in range(first, end)
        for pod in demands(f"k{number}", 1, 0.001, constraints=tolerating(str(number)))
    ]


@dataclass(frozen=True, kw_only=True)
class ShareCase:
    """Gangs that are being placed, by Namespace, and whether a gang of `team` has room."""

    placing: list[tuple[str, list[PodDemand]]]
    pods: list[PodDemand]
    want: bool
    ungated: list[list[PodDemand]] = field(default_factory=list)


FULL = MAX_NAMESPACE_KINDS
HALF, LARGE = FULL // 2, FULL + 1
TWO_HALVES = [("team", of_kinds(0, HALF)), ("team", of_kinds(HALF, FULL))]
SHARES = {
    "a Namespace whose gangs have many kinds gets no gang of another kind": ShareCase(
        placing=TWO_HALVES, pods=of_kinds(FULL, FULL + 1), want=False
    ),
    "it gets one of the same kinds": ShareCase(
        placing=TWO_HALVES, pods=of_kinds(1, FULL), want=True
    ),
    "one more once one of them is placed": ShareCase(
        placing=TWO_HALVES[1:], pods=of_kinds(FULL, FULL + 1), want=True
    ),
    "another Namespace gets one": ShareCase(
        placing=[("other", pods) for _, pods in TWO_HALVES], pods=of_kinds(FULL, LARGE), want=True
    ),
    "pods that no gate held take none of its share": ShareCase(
        placing=[], ungated=[of_kinds(0, FULL)], pods=of_kinds(FULL, FULL + 1), want=True
    ),
    "a gang with more kinds is released": ShareCase(
        placing=[], pods=of_kinds(0, MAX_PLACEMENTS), want=True
    ),
    "and takes none of the share of its Namespace": ShareCase(
        placing=[("team", of_kinds(0, LARGE))], pods=of_kinds(90, 90 + FULL), want=True
    ),
    "but one of all Namespaces at a time": ShareCase(
        placing=[("other", of_kinds(0, LARGE))], pods=of_kinds(90, 90 + LARGE), want=False
    ),
    "none while another of its Namespace is being placed": ShareCase(
        placing=[("team", of_kinds(0, 1))], pods=of_kinds(90, 90 + LARGE), want=False
    ),
    "also if that has been placed but for a few pods": ShareCase(
        placing=[("team", of_kinds(1, LARGE))], pods=of_kinds(90, 90 + LARGE), want=False
    ),
    "those of other Namespaces do not matter then": ShareCase(
        placing=[("other", of_kinds(1, LARGE))], pods=of_kinds(90, 90 + LARGE), want=True
    ),
}


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_a_namespace_has_few_kinds_of_pods_in_flight(case: ShareCase) -> None:
    node_infos = nodes(999, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    gangs = {"gang": a_gang(case.pods)}
    free = map(FreeNode, node_infos)
    placing = [released_gang(*gang) for gang in case.placing]
    room = GangRoom(snapshot, free, gangs, placing, ungated=case.ungated)
    assert room.has_room("gang") is case.want
    assert room.without_turn == set(), "it waits for the others, not for time"


@pytest.mark.parametrize("was_large", [False, True])
def test_kinds_that_grow_after_the_release_take_bounded_time_and_hold_up_no_other_namespace(
    monkeypatch: pytest.MonkeyPatch, *, was_large: bool
) -> None:
    """A user may add tolerations to pods that were released."""
    looks: list[str] = []
    look = node_fit.satisfies_constraints

    def counted(constraints: SchedulingConstraints, node_info: NodeInfo) -> bool:
        looks.append(node_info.name)
        return look(constraints, node_info)

    monkeypatch.setattr(node_fit, "satisfies_constraints", counted)
    firsts = range(0, 10 * MAX_PLACEMENTS, MAX_PLACEMENTS)
    grown = [
        ReleasedGang(namespace="team", pods=of_kinds(first, first + MAX_PLACEMENTS))
        for first in firsts
    ]
    grown[-1] = replace(grown[-1], was_large=was_large)
    node_infos = nodes(999, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    gangs = {"small": a_gang(demands("x", 1)), "large": a_gang(of_kinds(900, 900 + LARGE))}
    gangs = {name: replace(gang, namespace="other") for name, gang in gangs.items()}
    room = GangRoom(snapshot, map(FreeNode, node_infos), gangs, grown)
    assert len(looks) == MAX_PLACEMENTS * was_large, "of the one that was released so"
    assert room.has_room("small")
    assert room.has_room("large") is not was_large


def test_the_room_of_a_large_gang_is_kept_whatever_grows_beside_it() -> None:
    grown = replace(released_gang("team", of_kinds(0, LARGE)), was_large=False)
    large = released_gang("other", [*of_kinds(90, 90 + LARGE), *demands("few", 2, 3)])
    node_infos = nodes(3.5, 3.5, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    free = list(map(FreeNode, node_infos))
    gangs = {"x": a_gang(demands("x", 1))}
    assert GangRoom(snapshot, free, gangs, [grown]).has_room("x")
    assert not GangRoom(snapshot, free, gangs, [grown, large]).has_room("x")


def test_a_gang_whose_sizes_become_few_as_its_pods_are_placed_has_no_more_kinds() -> None:
    sizes = [
        pod for size in range(MAX_KINDS + 1) for pod in demands(f"s{size}", 1, 0.01 + size / 999)
    ]
    left = ReleasedGang(namespace="team", pods=sizes[1:], placed=sizes[:1])
    node_infos = nodes(999, 999, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    gangs = {"other": a_gang(of_kinds(0, FULL - 1)), "more": a_gang(of_kinds(0, FULL))}
    room = GangRoom(snapshot, map(FreeNode, node_infos), gangs, [left])
    assert room.has_room("other")
    assert not room.has_room("more")


def test_a_gang_reserved_takes_of_the_share_of_its_namespace() -> None:
    node_infos = nodes(999, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    gangs = {"a": a_gang(of_kinds(0, FULL)), "b": a_gang(of_kinds(FULL, FULL + 1))}
    gangs["c"] = replace(gangs["b"], namespace="other")
    room = GangRoom(snapshot, map(FreeNode, node_infos), gangs, [])
    room.reserve("a")
    assert [room.has_room(name) for name in "bc"] == [False, True]
    assert room.large == set()


def test_of_a_large_gang_reserved_is_said_that_it_is() -> None:
    node_infos = nodes(999, pods=9999)
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    gangs = {"large": a_gang(of_kinds(0, LARGE)), "next": a_gang(of_kinds(90, 90 + LARGE))}
    room = GangRoom(snapshot, map(FreeNode, node_infos), gangs, [])
    room.reserve("large")
    assert room.large == {"large"}
    assert not room.has_room("next")


def test_a_gang_that_must_wait_for_others_of_its_namespace_takes_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    look = node_fit.satisfies_constraints

    def counted(constraints: SchedulingConstraints, node_info: NodeInfo) -> bool:
        looks.append(node_info.name)
        return look(constraints, node_info)

    room = room_in(nodes(999), a_gang(of_kinds(FULL, 2 * FULL)), *(pods for _, pods in TWO_HALVES))
    monkeypatch.setattr(node_fit, "satisfies_constraints", counted)
    assert not room.has_room("gang")
    assert looks == []


def test_any_number_of_equal_gangs_is_compared_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = Stopwatch(monkeypatch)
    room = room_beside(RoomLimits(), [of_kinds(0, FULL)] * 50, [], size=999)
    for name in "xyz":
        assert room.has_room(name)
        room.reserve(name)
    assert stopwatch.compared <= FULL * FULL + 12 * FULL


def test_a_gang_that_waits_alone_is_released_however_little_time_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopwatch = Stopwatch(monkeypatch, most=1)
    assert room_beside(RoomLimits(is_over=stopwatch.is_over), [], []).has_room("x")


def test_where_many_gangs_might_have_victims_the_empty_nodes_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[DemandKind] = []
    count = gang_kinds.places_in

    def places_in(kind: DemandKind, free: Mapping[str, int]) -> int:
        counted.append(kind)
        return count(kind, free)

    node_infos = [a_node_info("n", a_scheduled_pod("runs", cpu=3, **LOW))]
    room = room_in(node_infos, a_gang(demands("a", 1)), ungated=[demands("b", 2, priority=2000)])
    assert not room.has_room("gang")
    monkeypatch.setattr(gang_kinds, "places_in", places_in)
    assert not room.has_room("gang")
    assert counted == []


NAMED = NodeAffinityTerm((), [Requirement("metadata.name", "In", ("n0",))])
ENTRIES = {
    "terms, each with a requirement": (
        MAX_ENTRIES // 2,
        lambda count: SchedulingConstraints(node_affinity_terms=[NAMED] * count),
    ),
    "requirements in one term": (
        MAX_ENTRIES - 1,
        lambda count: SchedulingConstraints(
            node_affinity_terms=[NodeAffinityTerm([Requirement("x", "DoesNotExist")] * count)]
        ),
    ),
    "values": (
        MAX_VALUES,
        lambda count: SchedulingConstraints(
            node_affinity_terms=[NodeAffinityTerm([Requirement("x", "NotIn", ["y"] * count)])]
        ),
    ),
    "tolerations": (
        MAX_ENTRIES,
        lambda count: SchedulingConstraints(
            tolerations=[TaintToleration("x", "Exists", "", "")] * count
        ),
    ),
}


@pytest.mark.parametrize(("most", "constraints"), ENTRIES.values(), ids=ENTRIES)
def test_a_pod_that_says_in_too_many_ways_where_it_may_run_costs_no_time(
    most: int, constraints: Callable[[int], SchedulingConstraints]
) -> None:
    usual, large = (demands("a", 1, constraints=constraints(most + more)) for more in (0, 1))
    assert room_in(nodes(4), a_gang(usual)).has_room("gang")
    room = room_in(nodes(4), a_gang(large))
    assert not room.has_room("gang")
    assert room.without_turn == set(), "more time would not help"
    assert room_in(nodes(1), a_gang(usual), ungated=[large]).has_room("gang")


def test_a_reserved_gang_counts_as_released() -> None:
    node_infos = nodes(4, 4)
    gangs = {name: a_gang(demands(name, 5)) for name in "ab"}
    snapshot = Snapshot(now=NOW, nodes={one.name: one for one in node_infos})
    room = GangRoom(snapshot, map(FreeNode, node_infos), gangs, [])
    assert room.has_room("a")
    assert room.has_room("b")
    room.reserve("a")
    assert not room.has_room("b")


@dataclass
class Cluster:
    """A cluster whose scheduler places pods in any order and on any node that has room."""

    sizes: list[int]
    gangs: dict[str, list[PodDemand]]
    placed: dict[str, str] = field(default_factory=dict)
    """The node of each placed pod, by uid."""
    released: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def node_infos(self) -> list[NodeInfo]:
        by_uid = {pod.uid: pod for pods in self.gangs.values() for pod in pods}
        return [
            a_node_info(
                f"n{index}",
                *(
                    replace(a_scheduled_pod(uid), amounts=by_uid[uid].amounts)
                    for uid, node in self.placed.items()
                    if node == f"n{index}"
                ),
                cpu=size,
            )
            for index, size in enumerate(self.sizes)
        ]

    def unplaced(self, gang: str) -> list[PodDemand]:
        return [pod for pod in self.gangs[gang] if pod.uid not in self.placed]

    def places(self, pod: PodDemand) -> list[str]:
        return [
            node.info.name
            for node in map(FreeNode, self.node_infos())
            if all(node.free.get(name, 0) >= amount for name, amount in pod.amounts.items())
        ]

    def stuck(self) -> list[str]:
        """Return the gangs that hold room while one of their pods finds none."""
        return [
            gang
            for gang in self.released
            if any(pod.uid in self.placed for pod in self.gangs[gang])
            and any(not self.places(pod) for pod in self.unplaced(gang))
        ]

    def gate(self) -> None:
        """Release the gangs that have room."""
        node_infos = self.node_infos()
        snapshot = Snapshot(
            now=NOW,
            nodes={one.name: one for one in node_infos},
            settings=PolicySettings(),
        )
        waiting = [gang for gang in self.gangs if gang not in self.released | self.ended]
        demanded = {gang: a_gang(self.gangs[gang]) for gang in waiting}
        demanded = {
            gang: replace(one, pods=[replace(pod, never_preempts=True) for pod in one.pods])
            for gang, one in demanded.items()
        }
        in_flight = [
            ReleasedGang(namespace="team", pods=left, was_large=True)
            for gang in sorted(self.released)
            if (left := self.unplaced(gang))
        ]
        room = GangRoom(snapshot, map(FreeNode, node_infos), demanded, in_flight)
        for gang in waiting:
            if room.has_room(gang):
                room.reserve(gang)
                self.released.add(gang)

    def end(self, gang: str) -> None:
        for pod in self.gangs[gang]:
            self.placed.pop(pod.uid, None)
        self.released.discard(gang)
        self.ended.add(gang)


@st.composite
def clusters(draw: st.DrawFn, *, are_mixed: bool) -> Cluster:
    gangs = {}
    for number in range(draw(st.integers(2, 5))):
        kinds = draw(st.integers(1, 2 if are_mixed else 1))
        gangs[f"g{number}"] = [
            pod
            for kind in range(kinds)
            for pod in demands(
                f"g{number}-{kind}", draw(st.integers(1, 4)), cpu=draw(st.integers(1, 4))
            )
        ]
    return Cluster(draw(st.lists(st.integers(1, 8), min_size=1, max_size=5)), gangs)


def run(cluster: Cluster, data: st.DataObject) -> Iterable[list[str]]:
    """Let the gate and the scheduler act in any order; yield the gangs that are stuck each time."""
    for _ in range(60):
        cluster.gate()
        pods = [
            pod
            for gang in sorted(cluster.released)
            for pod in cluster.unplaced(gang)
            if cluster.places(pod)
        ]
        if pods:
            pod = data.draw(st.sampled_from(pods))
            cluster.placed[pod.uid] = data.draw(st.sampled_from(cluster.places(pod)))
        yield cluster.stuck()
        done = [gang for gang in sorted(cluster.released) if not cluster.unplaced(gang)]
        if done and data.draw(st.booleans()):
            cluster.end(data.draw(st.sampled_from(done)))
        if not (pods or done):
            return


@given(clusters(are_mixed=True), st.data())
def test_two_gangs_are_never_half_placed(cluster: Cluster, data: st.DataObject) -> None:
    for stuck in run(cluster, data):
        assert len(stuck) <= 1, "one gang may be in its own way, never in that of another"


@given(clusters(are_mixed=False), st.data())
def test_a_gang_of_equal_pods_is_never_half_placed(cluster: Cluster, data: st.DataObject) -> None:
    for stuck in run(cluster, data):
        assert stuck == []


@given(clusters(are_mixed=False))
def test_every_gang_that_fits_into_the_empty_cluster_runs_in_the_end(cluster: Cluster) -> None:
    for _ in cluster.gangs:
        cluster.gate()
        for gang in sorted(cluster.released):
            for pod in cluster.unplaced(gang):
                cluster.placed[pod.uid] = cluster.places(pod)[0]
            cluster.end(gang)
    for gang in cluster.gangs.keys() - cluster.ended:
        alone = Cluster(cluster.sizes, {gang: cluster.gangs[gang]})
        alone.gate()
        assert not alone.released
