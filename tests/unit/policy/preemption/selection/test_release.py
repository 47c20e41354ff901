"""Who is waited for: not for ever, and on all nodes only for those whom the operator told to go."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import Ground, Obstacle
from reprieve_policy.preemption.selection.snapshot import GroupKey
from reprieve_testing.builders import NOW, after
from reprieve_testing.scenes import EVERYBODY, a_guest, a_preemptor, a_room, a_scene, a_tenant

ONE = a_preemptor()
DELETED: Mapping[str, Any] = {"is_going": True, "is_told": False, "is_deleted": True}
TOLD: Mapping[str, Any] = {"is_going": True, "is_told": True, "goes_at": NOW}
MARKED: Mapping[str, Any] = {"is_going": True, "is_told": False, "goes_at": None}
CEILING = 1800
HELD = {"is_going": True, "is_told": False, "is_held": True}
TEAM = GroupKey("team", "old")
MINE = GroupKey("team", "mine")

SEEN: dict[str, tuple[Mapping[str, Any], Obstacle]] = {
    "the operator told it": ({"is_going": True}, Obstacle.WILL_HAVE_ROOM),
    "somebody deletes it": (DELETED, Obstacle.CLEARING),
    "its grace is as long as anybody waits": ({**DELETED, "goes_at": after(CEILING)}, Obstacle.CLEARING),
    "its grace is longer": ({**DELETED, "goes_at": after(CEILING + 1)}, Obstacle.NO_VICTIMS),
    "its grace is of years, though it was told": ({"is_going": True, "goes_at": after(10**9)}, Obstacle.NO_VICTIMS),
    "it is overdue": ({"is_going": True, "goes_at": after(-CEILING)}, Obstacle.WILL_HAVE_ROOM),
    "it is overdue by more than anybody waits": (
        {"is_going": True, "goes_at": after(-CEILING - 1)},
        Obstacle.NO_VICTIMS,
    ),
    "it is marked, and nobody has told it": (MARKED, Obstacle.NO_VICTIMS),
    "a budget holds it": (HELD, Obstacle.CLEARING),
    "a budget has held it for as long as anybody waits": ({**HELD, "goes_at": after(-CEILING)}, Obstacle.CLEARING),
}


@pytest.mark.parametrize(("fields", "want"), SEEN.values(), ids=SEEN)
def test_a_pod_that_goes_is_waited_for(fields: Mapping[str, Any], want: Obstacle):
    """On its node; on others somebody else goes, but where the operator told it."""
    built = a_scene(a_room("a", a_tenant("going", **fields), cpu=1), a_room("b", a_tenant("low"), cpu=1)).build()

    found = selection.decide(ONE, built, ["a", "b"])

    assert found.obstacles == {"a": want}
    assert (found.best is None) == (want is Obstacle.WILL_HAVE_ROOM)


AGES = [CEILING + 1, 3600, 360_000]


@pytest.mark.parametrize("age", AGES)
def test_one_that_a_budget_holds_for_longer_than_anybody_waits_is_a_victim_as_any_other(age: int):
    held = a_tenant("held", **HELD, goes_at=after(-age))

    best = selection.decide(ONE, a_scene(a_room("a", held, cpu=1)).build(), ["a"]).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["held"]


def test_it_is_protected_as_any_other():
    held = a_tenant("held", **HELD, goes_at=after(-CEILING - 1), is_non_preemptible=True)
    scene = a_scene(a_room("a", held, cpu=1)).build()

    assert selection.decide(ONE, scene, ["a"]).obstacles == {"a": Obstacle.NO_VICTIMS}
    assert selection.decide(ONE, scene, ["a"], {"a": {"held"}}).obstacles == {"a": Obstacle.NO_VICTIMS}


HELD_GANGS: dict[str, tuple[tuple[int, int], Obstacle | None]] = {
    "at first": ((0, 0), Obstacle.CLEARING),
    "for as long as one of it is waited for": ((CEILING + 1, 60), Obstacle.CLEARING),
    "for longer": ((CEILING + 1, 3600), None),
}


@pytest.mark.parametrize(("ages", "want"), HELD_GANGS.values(), ids=HELD_GANGS)
def test_a_gang_that_budgets_hold(ages: tuple[int, int], want: Obstacle | None):
    one, other = (a_tenant(f"of-{age}", group=TEAM, **HELD, goes_at=after(-age)) for age in ages)
    scene = a_scene(a_room("a", one, cpu=1), a_room("b", replace(other, uid="other"), cpu=1)).with_gang("old").build()

    found = selection.decide(ONE, scene, ["a"])

    assert found.obstacles.get("a") is want
    assert (found.best is None) == (want is not None)
    if found.best is not None:
        assert len(found.best.everyone) == len(ages)


def test_nobody_on_other_nodes_waits_for_a_gang_that_budgets_hold_because_one_of_it_is_deleted():
    """The others stay. Without this, whoever deletes his own, one after another, would end preemption for each one's grace."""
    deleted = a_tenant("deleted", group=TEAM, **DELETED, goes_at=after(CEILING))
    stays = a_tenant("stays", group=TEAM, **HELD, goes_at=after(-CEILING - 1))
    rooms = a_room("a", deleted, cpu=1), a_room("b", stays, cpu=1), a_room("c", a_tenant("low"), cpu=1)

    found = selection.decide(ONE, a_scene(*rooms).with_gang("old").build(), ["b", "c"])

    assert found.obstacles == {}
    assert found.best is not None


@pytest.mark.parametrize(("age", "is_needed"), [(60, True), (CEILING + 1, False)])
def test_who_is_held_for_longer_than_anybody_waits_still_counts_in_its_gang(age: int, *, is_needed: bool):
    held = a_tenant("held", group=TEAM, **HELD, goes_at=after(-age))
    room = a_room("a", a_tenant("low", group=TEAM), held, a_tenant("high", group=TEAM, priority=5), cpu=3)
    scene = a_scene(room).with_gang("old", Mode.SINGLE, min_available=2).build()

    refused = selection.why_not(ONE, scene.rooms["a"].tenants[0], scene)

    assert (refused is not None and refused.ground is Ground.MIN_AVAILABLE) is is_needed


def test_what_a_budget_holds_is_of_no_preemption_and_holds_up_none():
    built = a_scene(a_room("a", a_tenant("held", **HELD), cpu=1), a_room("b", a_tenant("low"), cpu=1)).build()

    assert selection.decide(a_preemptor(mates_nominated_to=("a",)), built, ["a", "b"]).best is not None


def test_what_goes_for_the_preemptors_gang_is_waited_for_on_all_nodes():
    built = a_scene(a_room("a", a_tenant("going", **DELETED), cpu=1), a_room("b", a_tenant("low"), cpu=1)).build()

    found = selection.decide(a_preemptor(mates_nominated_to=("a",)), built, ["a", "b"])

    assert found.best is None
    assert found.obstacles == {"a": Obstacle.WILL_HAVE_ROOM}


def test_who_is_marked_for_the_preemptors_gang_is_waited_for_before_the_operator_has_told_it():
    """And so is the rest of its own gang. Without this, a mate that comes before the operator would be given a second set."""
    marked = a_tenant("marked", group=TEAM, is_going=True, is_told=False, goes_at=None)
    first = a_room("a", marked, cpu=1, nominees=(a_guest("mate"),))
    scene = a_scene(first, a_room("b", a_tenant("member", group=TEAM), cpu=1), a_room("c", a_tenant("low"), cpu=1))
    preemptor = a_preemptor(group=MINE, mates_nominated_to=("a",))

    found = selection.decide(preemptor, scene.with_gang("old").build(), ["a", "b", "c"])

    assert found.best is None
    assert found.obstacles == {"a": Obstacle.NO_VICTIMS, "b": Obstacle.WILL_HAVE_ROOM}


def test_room_that_needs_both_is_not_promised():
    both = a_room("a", a_tenant("told", is_going=True), a_tenant("deleted", **DELETED), cpu=2)

    assert selection.decide(a_preemptor(cpu=2), a_scene(both).build(), ["a"]).obstacles == {"a": Obstacle.CLEARING}


def test_where_those_who_were_told_suffice_it_is():
    both = a_room("a", a_tenant("told", is_going=True), a_tenant("deleted", **DELETED), cpu=2)

    assert selection.decide(ONE, a_scene(both).build(), ["a"]).obstacles == {"a": Obstacle.WILL_HAVE_ROOM}


def test_nobody_waits_for_the_mates_of_one_that_goes_in_years():
    mate = a_tenant("mate", group=TEAM)
    going = a_tenant("one", group=TEAM, is_going=True, is_deleted=True, goes_at=after(10**9))
    scene = a_scene(a_room("a", mate, cpu=1), a_room("b", going, cpu=1), a_room("c", a_tenant("low"), cpu=1))

    found = selection.decide(ONE, scene.with_gang("old").build(), ["a", "b", "c"])

    assert found.obstacles == {"b": Obstacle.NO_VICTIMS}
    assert {choice.node for choice in found.choices} == {"a", "c"}


FAR_OFF = {**DELETED, "goes_at": after(10**9)}
SHIELDS = {
    "it is deleted, and goes in years": (FAR_OFF, True),
    "it is overdue by more than anybody waits": ({**DELETED, "goes_at": after(-CEILING - 1)}, True),
    "it is deleted, and goes soon": ({**DELETED, "goes_at": after(30)}, True),
    "it is marked, and nobody has told it": (MARKED, False),
    "the operator told it": ({**DELETED, "goes_at": after(30), "is_told": True}, False),
    "the operator told it, and its owner has it go in years": ({**FAR_OFF, "is_told": True}, True),
}


@pytest.mark.parametrize(("fields", "are_victims"), SHIELDS.values(), ids=SHIELDS)
def test_one_that_its_owner_deletes_goes_alone_and_protects_nobody_of_its_gang(
    fields: Mapping[str, Any], *, are_victims: bool
):
    mates = [a_tenant(name, group=TEAM) for name in ("x", "y")]
    going = a_tenant("one", group=TEAM, **fields)
    scene = a_scene(a_room("a", *mates, cpu=2), a_room("b", going, cpu=1)).with_gang("old").build()

    best = selection.decide(a_preemptor(guest=a_guest("p", cpu=2)), scene, ["a"]).best

    assert (best is not None) is are_victims
    if best is not None:
        assert {victim.name for victim in best.everyone} == {"x", "y"}
        assert best.units == 1


def test_nor_of_one_that_goes_pod_by_pod_and_can_spare_none():
    big = [a_tenant(name, group=TEAM, cpu=2) for name in ("x", "y")]
    small = a_tenant("one", group=TEAM, cpu=0.001, **FAR_OFF)
    scene = a_scene(a_room("a", big[0], small, cpu=2.001), a_room("b", big[1], cpu=2))

    best = selection.decide(ONE, scene.with_gang("old", Mode.SINGLE, min_available=2).build(), ["a"]).best

    assert best is not None
    assert ({one.name for one in best.everyone}, best.units) == ({"x", "y"}, 1)


def test_whoever_is_asked_to_go_from_a_gang_that_can_spare_none_takes_nobody_with_him():
    """Whoever marks one of his pods after the other would have all others wait for the rest, which nobody takes."""
    asked, *rest = (a_tenant(name, group=TEAM) for name in ("m0", "m1", "m2"))
    rooms = [a_room(f"n{number}", one, cpu=1) for number, one in enumerate((replace(asked, **TOLD), *rest))]
    built = a_scene(*rooms, a_room("n9", a_tenant("low"), cpu=1)).with_gang("old", Mode.SINGLE, min_available=3).build()

    found = selection.decide(a_preemptor(cpu=1), built, ["n1", "n2", "n9"])

    assert found.best is not None
    assert found.best.node == "n9"
    assert found.obstacles == {"n1": Obstacle.NO_VICTIMS, "n2": Obstacle.NO_VICTIMS}


WITHOUT_OPERATOR = {
    "was marked": (MARKED, True),
    "was told": (TOLD, True),
    "is being deleted": ({**TOLD, "is_deleted": True}, False),
}


@pytest.mark.parametrize(("fields", "is_free"), WITHOUT_OPERATOR.values(), ids=WITHOUT_OPERATOR)
def test_where_no_operator_is_there_only_a_deletion_counts(fields: Mapping[str, Any], *, is_free: bool):
    """Whoever waits for one would wait for ever."""
    built = a_scene(a_room("a", a_tenant("one", **fields), cpu=1)).build()
    nominated = a_preemptor(nominated_node="a")

    gone = selection.decide(nominated, replace(built, operator_is_there=False), ["a"])

    assert (gone.best is not None) == is_free
    assert selection.decide(nominated, built, ["a"]).ground is Ground.UNFINISHED


ROUNDS: dict[str, tuple[Mapping[str, Any], Ground | None]] = {
    "its victims go": ({"is_going": True}, Ground.UNFINISHED),
    "they are deleted": (DELETED, Ground.UNFINISHED),
    "they were marked a moment ago": (MARKED, Ground.UNFINISHED),
    "one of them goes in years": ({**DELETED, "goes_at": after(10**9)}, None),
    "a budget holds an eviction there": (HELD, None),
}


@pytest.mark.parametrize(("fields", "want"), ROUNDS.values(), ids=ROUNDS)
def test_a_round_is_unfinished_while(fields: Mapping[str, Any], want: Ground | None):
    built = a_scene(a_room("a", a_tenant("going", **fields), cpu=1), a_room("b", a_tenant("low"), cpu=1)).build()

    assert selection.decide(a_preemptor(nominated_node="a"), built, ["a", "b"]).ground is want


PROPOSED: dict[str, tuple[set[str], Obstacle]] = {
    "all were told to go": ({"told"}, Obstacle.WILL_HAVE_ROOM),
    "one of them is deleted": ({"told", "deleted"}, Obstacle.CLEARING),
    "one of them goes in years": ({"low", "years"}, Obstacle.BESIDE_OTHERS),
    "a budget holds one of them": ({"told", "held"}, Obstacle.CLEARING),
    "none of them is there": ({"gone"}, Obstacle.OUTDATED),
    "one of them has left": ({"low", "gone"}, Obstacle.OUTDATED),
}


@pytest.mark.parametrize(("proposed", "want"), PROPOSED.values(), ids=PROPOSED)
def test_where_only_the_scheduler_knows_and(proposed: set[str], want: Obstacle):
    pods = (
        a_tenant("low"),
        a_tenant("told", is_going=True),
        a_tenant("deleted", **DELETED),
        a_tenant("years", is_going=True, goes_at=after(10**9)),
        a_tenant("held", **HELD),
    )
    built = a_scene(a_room("a", *pods, cpu=6)).build()

    found = selection.decide(ONE, built, ["a"], {"a": proposed}, told_of_room={"a"})

    assert found.obstacles == {"a": want}


def test_where_it_was_told_of_room_and_wants_victims_again_a_scheduler_takes_its_own():
    """It knows of limits that nobody judges here. Without this, its preemptor would wait for ever."""
    built = a_scene(a_room("a", a_tenant("cheap"), a_tenant("mounts", priority=5), cpu=4)).build()

    best = selection.decide(ONE, built, ["a"], {"a": {"mounts"}}, told_of_room={"a"}).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["mounts"]


FIRST: dict[str, tuple[set[str], set[str]]] = {
    "it was told nothing": ({"mounts"}, set()),
    "it was told of another node": ({"mounts"}, {"b", "gone"}),
    "it wants nobody": (set(), {"a"}),
}


@pytest.mark.parametrize(("proposed", "told"), FIRST.values(), ids=FIRST)
def test_where_there_is_room_nobody_goes_anywhere_if(proposed: set[str], told: set[str]):
    """A pod may have ended since the scheduler looked. Without this, somebody would go for nothing."""
    built = a_scene(a_room("a", a_tenant("mounts"), cpu=4), a_room("b", a_tenant("low"), cpu=1)).build()

    found = selection.decide(ONE, built, ["a", "b"], {"a": proposed, "b": {"low"}}, told_of_room=told)

    assert found.best is None
    assert found.obstacles == {"a": Obstacle.HAS_ROOM}


def test_but_not_while_a_mate_is_nominated_elsewhere():
    """It may be the one that the scheduler has placed here a moment ago: then what goes elsewhere is this one's."""
    built = a_scene(a_room("a", a_tenant("low"), cpu=4)).build()
    preemptor = a_preemptor(group=MINE, mates_nominated_to=("b",))

    assert selection.decide(preemptor, built, ["a"], {"a": {"low"}}, told_of_room={"a"}).obstacles == {
        "a": Obstacle.HAS_ROOM
    }


def test_where_some_have_left_those_who_are_there_decide():
    built = a_scene(a_room("a", a_tenant("low"), cpu=1)).build()

    best = selection.decide(ONE, built, ["a"], {"a": {"low", "gone"}}).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["low"]


def test_of_a_gang_the_last_waits_for_the_scheduler_to_see_who_has_left():
    """Without this, its scheduler, which sees the last of the victims a moment longer, would be given a second set elsewhere."""
    built = a_scene(a_room("a", cpu=1), a_room("b", a_tenant("low"), cpu=1)).build()

    found = selection.decide(a_preemptor(group=MINE), built, ["a", "b"], {"a": {"gone"}, "b": {"low"}})

    assert found.best is None
    assert found.obstacles == {"a": Obstacle.OUTDATED}


def test_so_it_does_where_it_insists_on_another_node():
    """There somebody may have been placed a moment ago, which nobody has seen here."""
    built = a_scene(a_room("a", cpu=1), a_room("b", a_tenant("low"), cpu=4)).build()
    proposed = {"a": {"gone"}, "b": {"low"}}

    found = selection.decide(a_preemptor(group=MINE), built, ["a", "b"], proposed, told_of_room={"a", "b"})

    assert found.best is None
    assert found.obstacles == {"a": Obstacle.OUTDATED}


def test_a_node_that_was_told_of_and_is_full_again_is_chosen_on_as_any_other():
    built = a_scene(a_room("a", a_tenant("low"), cpu=1), a_room("b", a_tenant("ended"), cpu=4)).build()

    found = selection.decide(ONE, built, ["a", "b"], {"a": {"low"}, "b": {"ended"}}, told_of_room={"a"})

    assert found.obstacles == {"b": Obstacle.HAS_ROOM}


def test_where_one_nodes_room_is_none_anothers_holds_nobody_up():
    """Without this, a scheduler would have to be told of every node of a large cluster first."""
    rooms = (a_room(node, a_tenant(f"on-{node}"), cpu=4) for node in "ab")

    found = selection.decide(
        ONE, a_scene(*rooms).build(), ["a", "b"], {"a": {"on-a"}, "b": {"on-b"}}, told_of_room={"a"}
    )

    assert found.best is not None
    assert (found.best.node, found.obstacles) == ("a", {"b": Obstacle.HAS_ROOM})


def test_who_was_told_to_go_is_waited_for_all_the_same():
    going = a_room("b", a_tenant("going", is_going=True), cpu=1)
    built = a_scene(a_room("a", a_tenant("mounts"), cpu=4), going).build()

    assert selection.decide(ONE, built, ["a", "b"], {"a": {"mounts"}}, told_of_room={"a"}).best is None


CLEARING = a_scene(a_room("a", a_tenant("going", is_going=True), cpu=1), a_room("b", a_tenant("low"), cpu=1)).build()


def test_a_gangs_pod_waits_for_room_on_nodes_that_its_scheduler_does_not_name():
    found = selection.decide(a_preemptor(group=MINE), CLEARING, ["b"])

    assert found.best is None
    assert found.obstacles == {"a": Obstacle.WILL_HAVE_ROOM}


ELSEWHERE: dict[str, dict[str, Any]] = {
    "has no gang": {},
    "has room there by more than is judged here": {"group": MINE, "depends_on_pods": True},
    "has no room there": {"group": MINE, "guest": a_guest(cpu=2)},
}


@pytest.mark.parametrize("fields", ELSEWHERE.values(), ids=ELSEWHERE)
def test_nobody_waits_there_who(fields: Mapping[str, Any]):
    both = replace(CLEARING, rooms={**CLEARING.rooms, "b": a_room("b", a_tenant("low", cpu=2), cpu=2)})

    assert selection.decide(a_preemptor(**fields), both, ["b"]).best is not None


def test_where_one_has_left_and_another_took_its_place_others_go_elsewhere():
    """A scheduler names many, of whom always some leave. Without this, nobody would go in a large cluster."""
    full = a_room("a", a_tenant("new", repels=EVERYBODY), cpu=1)
    built = a_scene(full, a_room("b", a_tenant("low"), cpu=1)).build()

    found = selection.decide(ONE, built, ["a", "b"], {"a": {"gone"}, "b": {"low"}})

    assert found.best is not None
    assert (found.best.node, found.obstacles) == ("b", {"a": Obstacle.BESIDE_OTHERS})


def test_such_victims_must_be_possible_ones():
    built = a_scene(a_room("a", a_tenant("mounts", is_non_preemptible=True), cpu=4)).build()

    found = selection.decide(ONE, built, ["a"], {"a": {"mounts"}}, told_of_room={"a"})

    assert found.obstacles == {"a": Obstacle.BESIDE_OTHERS}


def test_once_those_have_gone_that_go_and_there_is_room_they_are_waited_for_first():
    built = a_scene(a_room("a", a_tenant("low"), a_tenant("told", is_going=True), cpu=2)).build()

    assert selection.decide(ONE, built, ["a"], {"a": {"low"}}).obstacles == {"a": Obstacle.WILL_HAVE_ROOM}


def test_who_goes_in_years_is_none_of_a_rounds_victims():
    stuck = (a_tenant(f"stuck-{index}", is_going=True, goes_at=after(10**9)) for index in range(3))
    built = a_scene(a_room("a", a_tenant("low"), cpu=1), a_room("b", *stuck, cpu=3)).build()

    assert selection.decide(a_preemptor(mates_nominated_to=("b",)), built, ["a"]).best is not None
