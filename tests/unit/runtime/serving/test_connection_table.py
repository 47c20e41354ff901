"""Where a port has too many connections: which one makes room.

A connection is named after its peer: `a-1` is one of `a`.
"""

from reprieve_runtime.serving.connection_table import ConnectionTable


class Port:
    """A table, and the clock that it reads."""

    def __init__(self, *, most: int = 4, most_of_peer: int = 4) -> None:
        self.seconds = 0.0
        self.table = ConnectionTable[str](
            most=most, most_of_peer=most_of_peer, now=lambda: self.seconds
        )

    def add(self, *names: str) -> list[str | None]:
        """Open connections; return which one each of them closes."""
        return [self.table.add(name, name.partition("-")[0]) for name in names]

    def receive(self, *names: str) -> None:
        """Let a whole request come on each."""
        for name in names:
            self.table.begin_request(name, is_whole=False)
            self.table.has_whole_request(name)


def test_the_connection_that_was_unused_for_longest_makes_room_whosever_it_is() -> None:
    port = Port()
    port.add("a-1", "b-1", "c-1", "d-1")
    port.receive("a-1")
    port.table.end_request("a-1")
    assert port.add("e-1", "f-1", "g-1", "h-1") == ["b-1", "c-1", "d-1", "a-1"]


def test_many_addresses_close_no_request_under_way_of_the_one_that_has_most() -> None:
    """As those of an API server without a certificate, among pods that hold connections open."""
    port = Port(most=6, most_of_peer=6)
    port.add("api-1", "api-2", "api-3", "api-4")
    port.receive("api-1", "api-2", "api-3", "api-4")
    port.add("a-1", "b-1")
    port.seconds = 2.0
    assert port.add("api-5") == ["a-1"]
    port.receive("api-5")
    port.seconds = 4.0
    assert port.add("c-1", "d-1", "e-1") == ["b-1", "c-1", "d-1"]


def test_one_address_that_opens_many_at_once_closes_its_own() -> None:
    port = Port()
    port.add("api-1", "a-1", "a-2", "a-3")
    assert port.add("a-4", "a-5") == ["a-1", "a-2"]


def test_what_was_unused_for_more_than_a_second_makes_room_before_the_address_with_most() -> None:
    """As pods do before API servers that all call through one tunnel."""
    port = Port()
    port.add("a-1")
    port.seconds = 1.5
    port.add("api-1", "api-2", "api-3")
    assert port.add("api-4") == ["a-1"]


def test_where_all_requests_are_under_way_the_new_connection_is_closed() -> None:
    port = Port()
    port.add("api-1", "api-2", "api-3", "b-1")
    port.receive("api-1", "api-2", "api-3", "b-1")
    assert port.add("c-1") == ["c-1"]


def test_a_request_whose_body_has_not_come_counts_as_waiting() -> None:
    port = Port()
    port.add("a-1", "b-1", "c-1", "d-1")
    port.table.begin_request("a-1", is_whole=False)
    port.receive("b-1", "c-1", "d-1")
    assert port.add("e-1") == ["a-1"]


def test_a_body_that_ends_after_the_response_keeps_no_connection_open() -> None:
    port = Port()
    port.add("a-1", "b-1", "c-1", "d-1")
    port.table.begin_request("a-1", is_whole=False)
    port.table.end_request("a-1")
    port.table.has_whole_request("a-1")
    port.receive("b-1", "c-1", "d-1")
    assert port.add("e-1") == ["a-1"]


def test_a_peer_with_too_many_loses_one_of_its_own() -> None:
    port = Port(most_of_peer=2)
    port.add("b-1", "a-1", "a-2")
    port.receive("a-1")
    assert port.add("a-3") == ["a-2"]


def test_what_is_closed_or_trusted_counts_no_longer() -> None:
    port = Port()
    port.add("a-1", "a-2", "a-3", "a-4")
    port.table.discard("a-1")
    port.table.discard("a-1")
    port.receive("a-1")
    assert port.add("a-5", "a-6") == [None, "a-2"]
