"""Of which nodes a scheduler was told that they have room: for a while, and no more than so many."""

from reprieve_webhooks.extender.free_nodes import TTL_SECONDS, ReportedFreeNodes

NODES = ("a", "b", "c")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_what_one_preemptor_was_told_is_of_no_other() -> None:
    rooms = ReportedFreeNodes()
    rooms.record("p", ["a", "b"])

    assert rooms.filter("p", NODES) == {"a", "b"}
    assert rooms.filter("p", ["c"]) == frozenset()
    assert rooms.filter("q", NODES) == frozenset()


def test_what_it_was_told_before_holds_until_it_is_old() -> None:
    clock = Clock()
    rooms = ReportedFreeNodes(monotonic=clock)
    rooms.record("p", ["a"])
    clock.seconds = TTL_SECONDS / 2
    rooms.record("p", ["b"])
    assert rooms.filter("p", NODES) == {"a", "b"}

    clock.seconds = TTL_SECONDS
    assert rooms.filter("p", NODES) == {"b"}


def test_what_it_is_told_again_is_new() -> None:
    clock = Clock()
    rooms = ReportedFreeNodes(monotonic=clock)
    rooms.record("p", NODES)
    clock.seconds = TTL_SECONDS / 2
    rooms.record("p", ["a"])

    clock.seconds = TTL_SECONDS
    assert rooms.filter("p", NODES) == {"a"}


def test_of_too_much_the_oldest_is_forgotten() -> None:
    rooms = ReportedFreeNodes(max_entries=2)
    rooms.record("p", ["a", "b"])
    rooms.record("q", ["c"])

    assert (rooms.filter("p", NODES), rooms.filter("q", NODES)) == ({"b"}, {"c"})


def test_of_many_nodes_the_same_are_remembered_each_time() -> None:
    """Without this, a scheduler that is told of all nodes of a large cluster would never have asked again."""
    rooms = ReportedFreeNodes()
    many = [f"n{index:04}" for index in range(5000)]
    rooms.record("p", many)
    first = rooms.filter("p", many)
    rooms.record("p", reversed(many))

    assert len(first) == 50
    assert rooms.filter("p", many) == first
