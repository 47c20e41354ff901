"""Which gangs a decision looks at, where its time does not suffice for all."""

from collections.abc import Collection

from reprieve_policy.gangs.gate_rotation import GateRotation, in_rounds


def a_rotation() -> GateRotation[str]:
    """Return a rotation of gangs whose first letter is their Namespace."""
    return GateRotation(lambda name: name[0])


def decide(
    rotation: GateRotation[str], queue: str, time: int, tried: Collection[str] = ()
) -> tuple[str, str]:
    """Return the gangs that one decision looks at, and those that had a turn, of `time` gangs."""
    looked_at = rotation.next_gangs(queue.split(), tried)
    had_turn = rotation.record(looked_at, looked_at[time:])
    return " ".join(looked_at), " ".join(had_turn)


def test_one_of_each_namespace_then_a_second() -> None:
    assert in_rounds(["a1", "a2", "b1", "a3", "b2"], lambda name: name[0]) == [
        "a1",
        "b1",
        "a2",
        "b2",
        "a3",
    ]


def test_as_long_as_the_time_suffices_all_are_looked_at_in_their_order() -> None:
    rotation = a_rotation()
    for _ in range(3):
        assert decide(rotation, "a1 a2 b1", 3) == ("a1 a2 b1", "a1 a2 b1")


def test_where_it_does_not_the_namespace_that_had_no_turn_comes_first() -> None:
    rotation = a_rotation()
    assert decide(rotation, "a1 a2 a3 b1", 1) == ("a1 a2 a3 b1", "a1")
    assert decide(rotation, "a1 a2 a3 b1", 1) == ("a2 b1", "a2")
    assert decide(rotation, "a1 a2 a3 b1", 1) == ("b1", "b1")
    assert decide(rotation, "a1 a2 a3 b1", 1) == ("a3 b1", "a3")


def test_a_gang_has_a_turn_before_another_of_its_namespace_has_a_second() -> None:
    rotation = a_rotation()
    turns = [decide(rotation, "a1 a2 a3 b1", 1)[1] for _ in range(9)]
    assert [turn for turn in turns if turn[0] == "a"][:3] == ["a1", "a2", "a3"]


def test_a_gang_for_which_the_time_never_suffices_had_its_turn() -> None:
    rotation = a_rotation()
    assert decide(rotation, "a1 b1", 0) == ("a1 b1", "a1")
    assert decide(rotation, "a1 b1", 0) == ("b1", "b1")
    assert decide(rotation, "a1 b1", 0) == ("a1", "a1")


def test_gangs_that_were_tried_are_not_looked_at_again() -> None:
    rotation = a_rotation()
    assert decide(rotation, "a1 b1 c1", 1) == ("a1 b1 c1", "a1")
    assert decide(rotation, "a1 b1 c1", 1, {"a1"}) == ("b1", "b1")
    assert decide(rotation, "a1 b1 c1", 2, {"a1", "b1"}) == ("c1", "c1")


def test_once_the_time_suffices_more_are_looked_at() -> None:
    rotation = a_rotation()
    queue = "a1 a2 a3 b1 b2"
    looked_at = [decide(rotation, queue, 1 if number < 2 else 9)[0] for number in range(5)]
    assert [len(names.split()) for names in looked_at] == [5, 2, 1, 2, 4]
    assert decide(rotation, queue, 9) == (queue, queue)
