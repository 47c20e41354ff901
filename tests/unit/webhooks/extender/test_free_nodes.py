"""Of which nodes a scheduler was told that they have room: for a while, and no more than so many."""

from reprieve_webhooks.extender.free_nodes import REMEMBERED_SECONDS, RoomsTold

NODES = ("a", "b", "c")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_what_one_preemptor_was_told_is_of_no_other() -> None:
    rooms = RoomsTold()
    rooms.remember("p", ["a", "b"])

    assert rooms.of("p", NODES) == {"a", "b"}
    assert rooms.of("p", ["c"]) == frozenset()
    assert rooms.of("q", NODES) == frozenset()


def test_what_it_was_told_before_holds_until_it_is_old() -> None:
    clock = Clock()
    rooms = RoomsTold(monotonic=clock)
    rooms.remember("p", ["a"])
    clock.seconds = REMEMBERED_SECONDS / 2
    rooms.remember("p", ["b"])
    assert rooms.of("p", NODES) == {"a", "b"}

    clock.seconds = REMEMBERED_SECONDS
    assert rooms.of("p", NODES) == {"b"}


def test_what_it_is_told_again_is_new() -> None:
    clock = Clock()
    rooms = RoomsTold(monotonic=clock)
    rooms.remember("p", NODES)
    clock.seconds = REMEMBERED_SECONDS / 2
    rooms.remember("p", ["a"])

    clock.seconds = REMEMBERED_SECONDS
    assert rooms.of("p", NODES) == {"a"}


def test_of_too_much_the_oldest_is_forgotten() -> None:
    rooms = RoomsTold(most=2)
    rooms.remember("p", ["a", "b"])
    rooms.remember("q", ["c"])

    assert (rooms.of("p", NODES), rooms.of("q", NODES)) == ({"b"}, {"c"})


def test_of_many_nodes_the_same_are_remembered_each_time() -> None:
    """Without this, a scheduler that is told of all nodes of a large cluster would never have asked again."""
    rooms = RoomsTold()
    many = [f"n{index:04}" for index in range(5000)]
    rooms.remember("p", many)
    first = rooms.of("p", many)
    rooms.remember("p", reversed(many))

    assert len(first) == 50
    assert rooms.of("p", many) == first
