"""The nodes that were reported as free to a scheduler: for a while, and a limited number."""

from reprieve_webhooks.extender.free_nodes import TTL_SECONDS, ReportedFreeNodes

NODES = ("a", "b", "c")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_report_to_one_preemptor_does_not_count_for_another() -> None:
    rooms = ReportedFreeNodes()
    rooms.record("p", ["a", "b"])

    assert rooms.filter("p", NODES) == {"a", "b"}
    assert rooms.filter("p", ["c"]) == frozenset()
    assert rooms.filter("q", NODES) == frozenset()


def test_a_report_holds_until_it_expires() -> None:
    clock = Clock()
    rooms = ReportedFreeNodes(monotonic=clock)
    rooms.record("p", ["a"])
    clock.seconds = TTL_SECONDS / 2
    rooms.record("p", ["b"])
    assert rooms.filter("p", NODES) == {"a", "b"}

    clock.seconds = TTL_SECONDS
    assert rooms.filter("p", NODES) == {"b"}


def test_a_repeated_report_is_new() -> None:
    clock = Clock()
    rooms = ReportedFreeNodes(monotonic=clock)
    rooms.record("p", NODES)
    clock.seconds = TTL_SECONDS / 2
    rooms.record("p", ["a"])

    clock.seconds = TTL_SECONDS
    assert rooms.filter("p", NODES) == {"a"}


def test_beyond_the_limit_the_oldest_reports_are_dropped() -> None:
    rooms = ReportedFreeNodes(max_entries=2)
    rooms.record("p", ["a", "b"])
    rooms.record("q", ["c"])

    assert (rooms.filter("p", NODES), rooms.filter("q", NODES)) == ({"b"}, {"c"})


def test_of_many_nodes_the_same_are_remembered_each_time() -> None:
    """Without this, of a large cluster other nodes would be remembered each time."""
    rooms = ReportedFreeNodes()
    many = [f"n{index:04}" for index in range(5000)]
    rooms.record("p", many)
    first = rooms.filter("p", many)
    rooms.record("p", reversed(many))

    assert len(first) == 50
    assert rooms.filter("p", many) == first
