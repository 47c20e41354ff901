"""How many victims a preemptor waits for: those that were refused lately, of its node or for it."""

import pytest

from reprieve_webhooks.guard.memory import Memory


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0
        self.memory = Memory(lambda: self.seconds)

    def refuse(self, uids: str, node: str = "one", by: str = "p", *, after: float = 0.0) -> None:
        self.seconds += after
        for uid in uids:
            self.memory.refused(uid, node, by=by, was_timed=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_they_are_the_nodes_and_the_preemptors_wherever_they_run(clock: Clock) -> None:
    clock.refuse("ab")
    clock.refuse("c", "two")
    clock.refuse("d", by="q")
    clock.refuse("e", "two", by="q")
    assert clock.memory.fellows("one", "a", "p") == 4
    assert clock.memory.fellows("three", "new", "q") == 3
    assert clock.memory.fellows("three", "new", "") == 1


def test_who_was_refused_long_ago_is_none_and_who_is_refused_again_is_one(clock: Clock) -> None:
    clock.refuse("a")
    clock.refuse("b", after=10)
    clock.refuse("a", after=55)
    clock.refuse("c", after=6)
    # The one between them is too old by now.
    assert clock.memory.fellows("one", "c", "p") == 2


def test_who_was_let_go_is_none(clock: Clock) -> None:
    clock.refuse("ab")
    clock.memory.forget("a")
    assert clock.memory.fellows("one", "b", "p") == 1
