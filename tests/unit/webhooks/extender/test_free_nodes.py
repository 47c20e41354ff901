"""The nodes that were reported as free to a scheduler: for a while, and a limited number."""

from reprieve_webhooks.extender.free_nodes import TTL_SECONDS, ReportedFreeNodes

NODES = ("a", "b", "c")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_report_to_one_preemptor_does_not_count_for_another() -> None:
    reported_nodes = ReportedFreeNodes()
    reported_nodes.record("p", ["a", "b"])

    assert reported_nodes.filter("p", NODES) == {"a", "b"}
    assert reported_nodes.filter("p", ["c"]) == frozenset()
    assert reported_nodes.filter("q", NODES) == frozenset()


def test_a_report_holds_until_it_expires() -> None:
    clock = Clock()
    reported_nodes = ReportedFreeNodes(monotonic=clock)
    reported_nodes.record("p", ["a"])
    clock.seconds = TTL_SECONDS / 2
    reported_nodes.record("p", ["b"])
    assert reported_nodes.filter("p", NODES) == {"a", "b"}

    clock.seconds = TTL_SECONDS
    assert reported_nodes.filter("p", NODES) == {"b"}


def test_a_repeated_report_is_new() -> None:
    clock = Clock()
    reported_nodes = ReportedFreeNodes(monotonic=clock)
    reported_nodes.record("p", NODES)
    clock.seconds = TTL_SECONDS / 2
    reported_nodes.record("p", ["a"])

    clock.seconds = TTL_SECONDS
    assert reported_nodes.filter("p", NODES) == {"a"}


def test_beyond_the_limit_the_oldest_reports_are_dropped() -> None:
    reported_nodes = ReportedFreeNodes(max_entries=2)
    reported_nodes.record("p", ["a", "b"])
    reported_nodes.record("q", ["c"])

    assert (reported_nodes.filter("p", NODES), reported_nodes.filter("q", NODES)) == ({"b"}, {"c"})


def test_of_many_nodes_the_same_are_remembered_each_time() -> None:
    """Without this, of a large cluster other nodes would be remembered each time."""
    reported_nodes = ReportedFreeNodes()
    many = [f"n{index:04}" for index in range(5000)]
    reported_nodes.record("p", many)
    first = reported_nodes.filter("p", many)
    reported_nodes.record("p", reversed(many))

    assert len(first) == 50
    assert reported_nodes.filter("p", many) == first
