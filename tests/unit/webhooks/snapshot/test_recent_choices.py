"""A set of the extender is remembered as long as a scheduler may retry, and within limits."""

from reprieve_webhooks.snapshot.recent_choices import (
    TTL_SECONDS,
    PodIdentity,
    RecentVictimSets,
    VictimSet,
)


class Memory:
    """Remembered choices, and the hand that moves their clock."""

    def __init__(self, most: int = 100) -> None:
        self.now = 1000.0
        self.choices = RecentVictimSets(max_entries=most, monotonic=lambda: self.now)

    def remember(self, preemptor: str, node: str, victims: str) -> None:
        """Take in an answer; the victims are the letters of a word."""
        self.choices.record(VictimSet(named(preemptor), node, tuple(map(named, victims))))

    def found(self, node: str, victim: str, by: str = "p") -> str | None:
        """Return the uids in the set."""
        choice = self.choices.find(node, victim, by=by)
        return choice and "".join(victim.uid for victim in choice.victims)


def named(uid: str) -> PodIdentity:
    return PodIdentity(uid, "default", f"pod-{uid}")


def test_a_victim_is_found_with_its_whole_set() -> None:
    memory = Memory()
    memory.remember("p", "one", "ab")
    memory.remember("q", "two", "cd")
    assert memory.found("one", "b") == "ab"
    assert memory.found("two", "c", by="q") == "cd"


def test_a_pod_that_no_result_named_has_no_set() -> None:
    memory = Memory()
    assert memory.found("one", "a") is None
    memory.remember("p", "one", "ab")
    assert memory.found("one", "x") is None
    assert memory.found("two", "a") is None


def test_a_preemptor_does_not_get_the_set_of_another() -> None:
    memory = Memory()
    memory.remember("p", "one", "ab")
    memory.remember("q", "one", "bc")
    assert memory.found("one", "b") == "ab"
    assert memory.found("one", "b", by="q") == "bc"
    assert memory.found("one", "a", by="q") is None
    assert memory.found("one", "a", by="r") is None


def test_the_preemptors_of_a_victim_are_known() -> None:
    memory = Memory()
    memory.remember("p", "one", "ab")
    memory.remember("q", "one", "bc")
    assert set(memory.choices.preemptor_uids("one", "b")) == {"p", "q"}
    assert set(memory.choices.preemptor_uids("one", "a")) == {"p"}
    assert not memory.choices.preemptor_uids("two", "a")
    memory.now += TTL_SECONDS
    assert not memory.choices.preemptor_uids("one", "a")


def test_a_new_set_replaces_the_preemptors_earlier_one() -> None:
    memory = Memory()
    memory.remember("p", "one", "ab")
    memory.remember("p", "two", "c")
    assert memory.found("one", "a") is None
    assert memory.found("two", "c") == "c"


def test_a_set_is_forgotten_once_no_scheduler_retries_with_it() -> None:
    memory = Memory()
    memory.remember("p", "one", "a")
    memory.now += TTL_SECONDS - 1
    assert memory.found("one", "a") == "a"
    memory.now += 1
    assert memory.found("one", "a") is None


def test_beyond_the_limit_the_oldest_sets_are_dropped() -> None:
    memory = Memory(most=2)
    for preemptor, victim in ("pa", "qb", "rc"):
        memory.remember(preemptor, "one", victim)
    assert memory.found("one", "a") is None
    assert memory.found("one", "b", by="q") == "b"
    assert memory.found("one", "c", by="r") == "c"
