"""Whose turn it is where the time of one decision does not suffice for all gangs."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.gangs import gate_pods, gate_turns
from reprieve_operator.gangs.gang_counts import CountedGang
from reprieve_operator.gangs.gate_pods import GatePod
from reprieve_operator.gangs.gate_turns import GateTurns, WatchedGang
from reprieve_operator.gangs.room_store import PendingPod, RoomStore
from reprieve_operator.gangs.room_watch import RoomKnowledge, RoomWatch
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.gate_steps import GateDecision, GatedGang, GateStep
from reprieve_policy.gangs.start_requirements import NO_REQUIREMENTS
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.preemption.selection import node_fit
from reprieve_policy.preemption.selection.snapshot import (
    GangKey,
    NodeInfo,
    PodDemand,
    SchedulingConstraints,
    TaintToleration,
)
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import a_node_info, a_preemptor


@dataclass
class KnownRoom:
    """The room of a cluster without nodes."""

    store: RoomStore = field(default_factory=RoomStore)
    knowledge: RoomKnowledge = RoomKnowledge.KNOWN

    def want(self) -> None:
        return


@dataclass
class FixedPolicy:
    current: PolicySettings = field(default_factory=PolicySettings)


ANYWHERE = SchedulingConstraints()


def a_bare_pod(
    namespace: str, name: str, constraints: SchedulingConstraints = ANYWHERE
) -> PendingPod:
    pod = a_preemptor(name=name, gang=GangKey(namespace, name), gang_minimum=2)
    demand = replace(pod.demand, uid=name, constraints=constraints)
    return PendingPod(replace(pod, demand=demand), NOW)


def a_waiting_gang(name: str, namespace: str = "team", **demanded: Any) -> WatchedGang:
    labels = {keys.OLD_POD_GROUP: name, keys.OLD_MIN_AVAILABLE: "2"}
    pod = gate_pods.to_labelled_pod(
        GatePod(metadata=VersionedMeta(name=name, uid=name, labels=labels)), Facts(), NOW
    )
    demand = replace(pod.preemptor.demand, **demanded)
    # Without the gate, it would count as released.
    member = replace(pod.member, is_gated=True)
    pod = replace(pod, member=member, preemptor=replace(pod.preemptor, demand=demand))
    gang = GatedGang(members=[member], timeout_seconds=600)
    decision = GateDecision(GateStep.QUEUE, (member,))
    counted = CountedGang(settles_at=0)
    return WatchedGang((namespace, ("", name)), [pod], counted, NO_REQUIREMENTS, gang, decision)


@dataclass
class Decisions:
    """What the decisions were about: each has the time to count one gang, which has no room."""

    counted: list[str] = field(default_factory=list)
    ungated: list[list[str]] = field(default_factory=list)
    most_ungated: int = 200
    """For how many gangs that no gate holds there is time."""

    @property
    def seen_ungated(self) -> list[set[str]]:
        """Those of each decision for which there was time."""
        return [set(uids[: self.most_ungated]) for uids in self.ungated]


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    made = Decisions()

    class OneCount:
        def __class_getitem__(cls, _: object) -> type:
            return cls

        def __init__(self, *_: Any, ungated: Sequence[Sequence[PodDemand]]) -> None:
            made.ungated.append([pods[0].uid for pods in ungated])
            self.without_turn: set[Any] = set()
            self.large: set[Any] = set()
            self.ungated_turns = min(made.most_ungated, len(ungated))
            self.is_over = False

        def has_room(self, key: Any) -> bool:
            if self.is_over:
                self.without_turn.add(key)
            else:
                made.counted.append(key[1][1])
            self.is_over = True
            return False

    monkeypatch.setattr(gate_turns, "GangRoom", OneCount)
    monkeypatch.setattr(gate_turns, "_PAUSE_FACTOR", 0.0)
    return made


def new_turns(store: RoomStore | None = None, clock: Clock | None = None) -> GateTurns:
    clock = clock or Clock(now=lambda: NOW, monotonic=lambda: 0.0, wall=lambda: 0.0)
    room = cast("RoomWatch", KnownRoom(store or RoomStore()))
    return GateTurns(room, cast("PolicySource", FixedPolicy()), clock)


async def test_each_gang_has_its_turn_where_the_time_suffices_for_one(decisions: Decisions) -> None:
    turns, gangs = new_turns(), [a_waiting_gang(name) for name in "abc"]
    for _ in range(6):
        await turns.next_turn(gangs)
    assert decisions.counted == ["a", "b", "c"], (
        "and then nothing is decided until something changes"
    )


async def test_no_number_of_gangs_keeps_those_of_another_namespace_from_their_turns(
    decisions: Decisions,
) -> None:
    turns = new_turns()
    for decision in range(30):
        # Older ones wait, and more important ones come all the time.
        old = [a_waiting_gang(f"a{number}", "attacker", priority=5) for number in range(20)]
        new = a_waiting_gang(f"new-{decision}", "attacker", priority=9)
        await turns.next_turn([*old, new, a_waiting_gang("victim", "other")])
    counted = enumerate(decisions.counted)
    turn_numbers = [number for number, name in counted if name == "victim"]
    assert turn_numbers[0] <= 6, "as often as the number of gangs can be halved"
    gaps = [after - before for before, after in itertools.pairwise(turn_numbers)]
    assert len(gaps) > 5
    assert max(gaps) <= 4


async def test_a_gang_that_failed_is_behind_those_that_waited_then_for_as_long_as_it_waits() -> (
    None
):
    now = [NOW]
    turns = new_turns(clock=Clock(now=lambda: now[0], monotonic=lambda: 0.0, wall=lambda: 0.0))
    failed, other = a_waiting_gang("a"), a_waiting_gang("b", "other")
    now[0] += timedelta(minutes=10)
    turns.failed(failed.key)
    for _ in range(5):
        now[0] += timedelta(hours=1)
        await turns.next_turn([failed, other])
    assert turns.order([failed, other]) == [other.key, failed.key]
    await turns.next_turn([other])
    assert turns.order([failed, other]) == [failed.key, other.key], "it was gone for long"


async def test_one_decision_looks_at_a_bounded_number_of_gangs_that_no_gate_holds(
    decisions: Decisions,
) -> None:
    store = RoomStore()
    for number in range(1000):
        store.put_pod(("attacker", str(number)), a_bare_pod("attacker", str(number)))
    store.put_pod(("other", "mine"), a_bare_pod("other", "mine"))
    await new_turns(store).next_turn([a_waiting_gang("x")])
    (ungated,) = decisions.ungated
    assert len(ungated) == 200
    assert "mine" in ungated


@pytest.mark.parametrize(
    ("namespaces", "gangs", "turns_needed"), [("abc", 150, 3), (list(map(str, range(201))), 2, 4)]
)
async def test_all_gangs_that_no_gate_holds_have_their_turn_in_one_decision_or_another(
    decisions: Decisions, namespaces: Sequence[str], gangs: int, turns_needed: int
) -> None:
    store = RoomStore()
    names = [(name, f"{name}-{gang}") for name in namespaces for gang in range(gangs)]
    for namespace, name in names:
        store.put_pod((namespace, name), a_bare_pod(namespace, name))
    turns = new_turns(store)
    for _ in range(turns_needed):
        await turns.next_turn([a_waiting_gang("x")])
        turns.decide_soon()
    assert {uid for uids in decisions.ungated for uid in uids} == {name for _, name in names}


async def test_nothing_is_decided_anew_while_no_gang_changes_however_many_no_gate_holds(
    decisions: Decisions,
) -> None:
    store = RoomStore()
    for number in range(1000):
        namespace = "abc"[number % 3]
        store.put_pod((namespace, str(number)), a_bare_pod(namespace, str(number)))
    turns = new_turns(store)
    for _ in range(4):
        await turns.next_turn([a_waiting_gang("x")])
    assert len(decisions.ungated) == 1


@pytest.fixture
def counted_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let half a second pass for each look at whether a pod may run on a node, and no other time.

    One kind of pods on the four nodes takes two of the three seconds of a decision.
    """
    passed = itertools.count(1, 0.5)
    now = [0.0]
    look = node_fit.satisfies_constraints

    def slow_look(constraints: SchedulingConstraints, node_info: NodeInfo) -> bool:
        now[0] = next(passed)
        return look(constraints, node_info)

    monkeypatch.setattr(node_fit, "satisfies_constraints", slow_look)
    clock = SimpleNamespace(monotonic=lambda: 1 + now[0], thread_time=lambda: 0.0)
    monkeypatch.setattr(gate_turns, "time", clock)


def four_nodes() -> RoomStore:
    store = RoomStore()
    for number in range(4):
        store.put_node(a_node_info(f"n{number}", cpu=4))
    return store


NOWHERE = [SchedulingConstraints(node_selector={"x": str(number)}) for number in range(60)]


@pytest.mark.usefixtures("counted_time")
async def test_gangs_that_take_all_the_time_in_vain_keep_no_other_from_starting() -> None:
    attackers = [
        a_waiting_gang(f"a{number}", "attacker", priority=9, constraints=NOWHERE[number])
        for number in range(30)
    ]
    turns, released = new_turns(four_nodes()), list[str]()
    for _ in range(7):
        turn = await turns.next_turn([*attackers, a_waiting_gang("victim", "other")])
        released += [one.key[0] for one in turn.released]
    assert "other" in released


@pytest.mark.usefixtures("counted_time")
async def test_pods_that_no_gate_holds_take_no_time_of_the_gangs_that_wait() -> None:
    store = four_nodes()
    for number, constraints in enumerate(NOWHERE):
        store.put_pod(("attacker", str(number)), a_bare_pod("attacker", str(number), constraints))
    turn = await new_turns(store).next_turn([a_waiting_gang("victim", "other")])
    assert [one.key[0] for one in turn.released] == ["other"]


async def test_each_namespace_has_its_share_of_the_time_for_pods_that_no_gate_holds(
    decisions: Decisions,
) -> None:
    store = RoomStore()
    for namespace, name in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")]:
        store.put_pod((namespace, name), a_bare_pod(namespace, name))
    turns = new_turns(store)
    gangs = [a_waiting_gang("x")]
    decisions.most_ungated = 2
    for _ in range(4):
        await turns.next_turn(gangs)
        turns.decide_soon()
    assert decisions.seen_ungated == [{"a1", "b1"}, {"a2", "b1"}, {"a3", "b1"}, {"a1", "b1"}]
    assert [uids[0][0] for uids in decisions.ungated] == ["b", "a", "b", "a"]


@pytest.mark.parametrize("most", [0, 1, 7, 50])
async def test_all_that_no_gate_holds_have_their_turn_however_few_there_is_time_for(
    decisions: Decisions, most: int
) -> None:
    store = RoomStore()
    names = {f"{name}-{gang}" for name in "ab" for gang in range(20)}
    for name in names:
        store.put_pod((name[0], name), a_bare_pod(name[0], name))
    turns = new_turns(store)
    decisions.most_ungated = most
    first = set()
    for _ in range(40):
        await turns.next_turn([a_waiting_gang("x")])
        turns.decide_soon()
        first.add(decisions.ungated[-1][0])
    seen = first.union(*decisions.seen_ungated)
    assert seen == names


@pytest.mark.usefixtures("counted_time")
async def test_nothing_is_released_beside_gangs_that_cannot_be_counted_in_time() -> None:
    """Each takes two of the three seconds."""
    placing = [a_released_gang(f"r{number}", NOWHERE[number]) for number in range(4)]
    turns = [
        await new_turns(four_nodes()).next_turn([*placing[:number], a_waiting_gang("waits")])
        for number in (1, 4)
    ]
    assert [len(turn.released) for turn in turns] == [1, 0]


def with_kinds(one: WatchedGang, number: int, *, is_released: bool) -> WatchedGang:
    """Return the gang with a pod of each of so many kinds."""
    pods = []
    for kind in range(number):
        uid = f"{one.key[1][1]}-{kind}"
        tolerations = (TaintToleration(uid, "Exists", "", ""),)
        member = replace(one.pods[0].member, uid=uid)
        if is_released:
            member = replace(member, is_gated=False, released_at=NOW)
        demand = replace(
            one.pods[0].preemptor.demand,
            uid=uid,
            constraints=SchedulingConstraints(tolerations=tolerations),
        )
        preemptor = replace(one.pods[0].preemptor, demand=demand)
        pods.append(replace(one.pods[0], member=member, preemptor=preemptor))
    members = [pod.member for pod in pods]
    step = GateStep.WAIT if is_released else GateStep.QUEUE
    decision = GateDecision(step, () if is_released else tuple(members))
    return replace(one, pods=pods, gang=replace(one.gang, members=members), decision=decision)


@pytest.mark.parametrize("is_new_term", [False, True])
async def test_a_gang_whose_kinds_grew_after_its_release_does_not_count_as_a_large_one(
    monkeypatch: pytest.MonkeyPatch, *, is_new_term: bool
) -> None:
    """Only in the first decision of a term: how another operator released it is not known then."""
    monkeypatch.setattr(gate_turns, "_PAUSE_FACTOR", 0.0)
    turns, large = new_turns(four_nodes()), a_waiting_gang("large", "other")
    small = a_waiting_gang("small")
    turn = await turns.next_turn([small])
    assert [one.key for one in turn.released] == [small.key]
    grown = with_kinds(small, 20, is_released=True)
    waiting = with_kinds(large, 17, is_released=False)
    turns = new_turns(four_nodes()) if is_new_term else turns
    turn = await turns.next_turn([grown, waiting])
    assert [one.key for one in turn.released] == ([] if is_new_term else [large.key])
    placing = with_kinds(large, 17, is_released=True)
    next_one = with_kinds(a_waiting_gang("next", "third"), 17, is_released=False)
    turn = await turns.next_turn([grown, placing, next_one])
    assert not turn.released, "one large gang at a time"


def a_released_gang(name: str, constraints: SchedulingConstraints) -> WatchedGang:
    waiting = a_waiting_gang(name, constraints=constraints)
    (member,) = waiting.gang.members
    released = replace(member, is_gated=False, released_at=NOW)
    return replace(
        waiting,
        pods=[replace(waiting.pods[0], member=released)],
        gang=replace(waiting.gang, members=[released]),
        decision=GateDecision(GateStep.WAIT),
    )


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_turns, "_PAUSE_FACTOR", 0.0)


def placed(gang: WatchedGang) -> WatchedGang:
    members = [replace(member, is_bound=True) for member in gang.gang.members]
    return replace(gang, gang=replace(gang.gang, members=members))


@pytest.mark.usefixtures("no_pause")
async def test_gangs_of_many_kinds_that_are_not_placed_hold_up_their_own_namespace_only() -> None:
    stuck = [a_released_gang(f"r{number}", NOWHERE[number]) for number in range(16)]
    own, other = a_waiting_gang("own"), a_waiting_gang("gang", "other")
    turns = new_turns(four_nodes())
    turn = await turns.next_turn([*stuck, own, other])
    assert [one.key[0] for one in turn.released] == ["other"]
    again = await turns.next_turn([*stuck, own])
    assert not again.released
    turn = await turns.next_turn([*stuck[1:], placed(stuck[0]), own])
    assert turn.released == [own]


@pytest.mark.usefixtures("no_pause")
async def test_any_number_of_equal_gangs_hold_up_no_gang_of_their_namespace() -> None:
    placing = [a_released_gang(f"r{number}", NOWHERE[0]) for number in range(40)]
    own = a_waiting_gang("own")
    turn = await new_turns(four_nodes()).next_turn([*placing, own])
    assert turn.released == [own]


def a_gang_being_placed(number: int, ceiling_seconds: int) -> tuple[WatchedGang, bool]:
    """Return a gang of two of which one is placed, after its other pod was replaced so often."""
    waiting = a_waiting_gang("placing")
    counted, (member,) = waiting.counted, waiting.gang.members
    placed = replace(member, uid="placed", is_gated=False, released_at=NOW, is_bound=True)
    gang = waiting.gang
    for time in range(number):
        new = replace(member, uid=f"new-{time}", is_gated=False, released_at=after(590 * time))
        gang = replace(gang, members=[placed, new])
        counted.note_step(gang, GateStep.WAIT, 590.0 * time)
    keeps_room = counted.keeps_room(gang, ceiling_seconds, 590.0 * (number - 1))
    return replace(waiting, gang=gang), keeps_room


@pytest.mark.parametrize(("number", "keeps_room"), [(1, True), (2, True), (3, False)])
def test_who_replaces_a_pod_before_each_timeout_keeps_no_room_from_others(
    number: int, *, keeps_room: bool
) -> None:
    gang, found = a_gang_being_placed(number, ceiling_seconds=1800)
    assert found is keeps_room
    gang.counted.note_step(gang.gang, GateStep.STARTED, 0.0)
    assert gang.counted.keeps_room(gang.gang, 1800, 10.0**6)


def test_a_gang_that_cannot_be_held_back_keeps_no_room_from_others() -> None:
    """Another project's policy may refuse the write for ever."""
    gang, _ = a_gang_being_placed(1, ceiling_seconds=1800)
    gang.counted.note_step(gang.gang, GateStep.HOLD_BACK, 601.0)
    assert not gang.counted.keeps_room(gang.gang, 1800, 10.0**6)


async def test_a_gang_whose_time_is_over_is_not_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[bool] = []

    class NoRoom:
        without_turn: frozenset[Any] = frozenset()
        large: frozenset[Any] = frozenset()
        ungated_turns = 0

        def __class_getitem__(cls, _: object) -> type:
            return cls

        def __init__(self, *given: Any, ungated: Any) -> None:
            released.append("placing" in {pod.uid for gang in given[3] for pod in gang.pods})
            assert ungated == []

        def has_room(self, _: Any) -> bool:
            return False

    monkeypatch.setattr(gate_turns, "GangRoom", NoRoom)
    monkeypatch.setattr(gate_turns, "_PAUSE_FACTOR", 0.0)
    turns = new_turns()
    waiting = a_waiting_gang("waiting")
    for number in (1, 3):
        placing, _ = a_gang_being_placed(number, ceiling_seconds=1800)
        pods = [replace(placing.pods[0], member=placing.gang.members[1])]
        decision = GateDecision(GateStep.WAIT)
        placing.counted.placing_since = -590.0 * (number - 1)
        await turns.next_turn([replace(placing, pods=pods, decision=decision), waiting])
        turns.decide_soon()
    assert released == [True, False]
