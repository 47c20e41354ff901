"""In which order gangs are released, and which of them."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from reprieve_policy.gangs import gate_queue
from reprieve_policy.gangs.gate_queue import GangFailure, QueuedGang
from reprieve_testing.objects.builders import NOW, after

LONG_AGO = GangFailure(1, after(-1000))


@dataclass
class CountedRoom:
    """Room for gangs by their names."""

    left: int = 100
    sizes: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def has_room(self, key: str) -> bool:
        self.asked.append(key)
        return self.sizes.get(key, 1) <= self.left

    def reserve(self, key: str) -> None:
        self.left -= self.sizes.get(key, 1)


def a_gang(key: str, *, priority: int = 0, created: float = 0, uid: str = "") -> QueuedGang[str]:
    return QueuedGang(key=key, priority=priority, created_at=after(created), uid=uid or key)


ORDERS = {
    "priority": ([a_gang("low"), a_gang("high", priority=1, created=5)], {}, "high low"),
    "then the creation of the first pod": (
        [a_gang("a", created=1), a_gang("b", created=0)],
        {},
        "b a",
    ),
    "then the uid": ([a_gang("a", uid="2"), a_gang("b", uid="1")], {}, "b a"),
    "one that failed is behind those that waited by then": (
        [a_gang("failed", created=-2000), a_gang("waits", created=-1001)],
        {"failed": LONG_AGO},
        "waits failed",
    ),
    "and before those that came later": (
        [a_gang("failed", created=-2000), a_gang("new", created=-999)],
        {"failed": LONG_AGO},
        "failed new",
    ),
    "a failure of before counts for nothing in a gang that is created anew": (
        [a_gang("failed", created=-1), a_gang("waits", created=-2)],
        {"failed": LONG_AGO},
        "waits failed",
    ),
    "of those that failed, the one that failed first": (
        [a_gang("late", created=-3000), a_gang("early", created=-2000)],
        {"late": GangFailure(9, after(-1)), "early": LONG_AGO},
        "early late",
    ),
    "one that failed is before those of less priority": (
        [a_gang("failed", priority=1), a_gang("low")],
        {"failed": LONG_AGO},
        "failed low",
    ),
}


@pytest.mark.parametrize(("queue", "failures", "want"), ORDERS.values(), ids=ORDERS)
def test_the_order(
    queue: list[QueuedGang[str]], failures: dict[str, GangFailure], want: str
) -> None:
    assert [gang.key for gang in gate_queue.in_order(queue, failures)] == want.split()


def test_gangs_are_released_while_there_is_room() -> None:
    room = CountedRoom(left=5, sizes={"a": 3, "b": 3, "c": 2})
    queue = [a_gang("a"), a_gang("b"), a_gang("c")]
    assert list(gate_queue.releases(queue, {}, room, NOW)) == ["a", "c"]


def test_a_gang_that_never_fits_keeps_no_other_from_starting() -> None:
    room = CountedRoom(left=5, sizes={"huge": 1000})
    queue = [a_gang("huge", priority=9), a_gang("small")]
    assert list(gate_queue.releases(queue, {}, room, NOW)) == ["small"]


def test_a_gang_is_not_tried_before_its_back_off_ends() -> None:
    failures = {"failed": GangFailure(1, after(-9))}
    room = CountedRoom()
    queue = [a_gang("failed", priority=9), a_gang("small")]
    assert list(gate_queue.releases(queue, failures, room, NOW)) == ["small"]
    assert room.asked == ["small"]
    assert list(gate_queue.releases(queue, failures, room, after(1))) == ["failed", "small"]


BACKOFFS = {1: 10, 2: 20, 3: 40, 6: 320, 7: 640, 8: 1280, 9: 1800, 100: 1800}


@pytest.mark.parametrize(("count", "seconds"), BACKOFFS.items())
def test_each_failure_doubles_the_back_off(count: int, seconds: int) -> None:
    assert GangFailure(count, NOW).retry_at - NOW == timedelta(seconds=seconds)


def test_failures_are_counted() -> None:
    first = GangFailure.after(None, NOW)
    assert (first, GangFailure.after(first, after(5))) == (
        GangFailure(1, NOW),
        GangFailure(2, after(5)),
    )
