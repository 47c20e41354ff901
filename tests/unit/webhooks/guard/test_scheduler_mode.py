"""When a scheduler is taken to go on while it waits, and for how long."""

from reprieve_policy.config.settings import ASYNCHRONOUS, AUTO, SYNCHRONOUS
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_webhooks.guard.refusal_history import RefusalHistory
from reprieve_webhooks.guard.scheduler_mode import SchedulerMode, SchedulerModes


def a_nominee(uid: str) -> NominatedPod:
    return NominatedPod(pod=Pod(metadata=ObjectMeta(uid=uid)))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


ONE, OTHER = a_nominee("one"), a_nominee("other")


def test_what_one_of_them_has_shown_holds_for_their_scheduler() -> None:
    paces = SchedulerModes()
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.UNKNOWN
    paces.observe([ONE], SchedulerMode.ASYNCHRONOUS)
    assert paces.mode_for([OTHER, ONE], AUTO) is SchedulerMode.ASYNCHRONOUS
    assert paces.mode_for([OTHER], AUTO) is SchedulerMode.UNKNOWN
    assert paces.mode_for([], AUTO) is SchedulerMode.UNKNOWN


def test_what_an_admin_says_goes_before() -> None:
    paces = SchedulerModes()
    paces.observe([ONE], SchedulerMode.ASYNCHRONOUS)
    assert paces.mode_for([ONE], SYNCHRONOUS) is SchedulerMode.UNKNOWN
    assert paces.mode_for([], ASYNCHRONOUS) is SchedulerMode.ASYNCHRONOUS


def test_what_was_only_concluded_has_to_show_again() -> None:
    clock = Clock()
    paces = SchedulerModes(clock)
    paces.observe([ONE], SchedulerMode.PROBABLY_ASYNCHRONOUS)
    clock.now += 59
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.PROBABLY_ASYNCHRONOUS
    clock.now += 1
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.UNKNOWN


def test_what_was_shown_is_not_made_less_by_what_is_only_concluded() -> None:
    paces = SchedulerModes()
    paces.observe([ONE], SchedulerMode.ASYNCHRONOUS)
    paces.observe([ONE], SchedulerMode.PROBABLY_ASYNCHRONOUS)
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.ASYNCHRONOUS


def test_of_too_many_preemptors_the_oldest_are_forgotten() -> None:
    paces = SchedulerModes()
    paces.observe([ONE], SchedulerMode.ASYNCHRONOUS)
    paces.observe([a_nominee(str(number)) for number in range(5000)], SchedulerMode.ASYNCHRONOUS)
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.UNKNOWN


def refused(memory: RefusalHistory, by: str, *, times: int = 1, was_timed: bool = False) -> None:
    for _ in range(times):
        memory.record_refusal("victim", "node", by=by, was_timed=was_timed)


def test_one_preemptor_insists_once_it_has_come_again_and_again_without_a_pause() -> None:
    clock = Clock()
    memory = RefusalHistory(clock)
    assert not memory.retries_at_once("victim", "one")
    refused(memory, "one", times=4)
    assert not memory.retries_at_once("victim", "one")
    refused(memory, "one")
    assert memory.retries_at_once("victim", "one")
    assert not memory.retries_at_once("victim", "other")
    clock.now += 1
    assert not memory.retries_at_once("victim", "one")


def test_neither_several_in_turn_nor_one_that_pauses_nor_one_that_was_told_a_time_insists() -> None:
    clock = Clock()
    memory = RefusalHistory(clock)
    for _ in range(5):
        refused(memory, "other")
        refused(memory, "one")
    assert not memory.retries_at_once("victim", "one")
    for _ in range(10):
        clock.now += 1
        refused(memory, "one")
    assert not memory.retries_at_once("victim", "one")
    refused(memory, "one", times=10, was_timed=True)
    assert not memory.retries_at_once("victim", "one")


def test_the_victims_of_a_node_count_together_and_so_do_those_of_one_preemptor_for_a_minute() -> (
    None
):
    clock = Clock()
    memory = RefusalHistory(clock)
    assert memory.count_recent_victims("node", "victim", "one") == 1
    for uid, node, by in (
        ("victim", "node", "one"),
        ("beside", "node", "other"),
        ("away", "far", "one"),
    ):
        memory.record_refusal(uid, node, by=by, was_timed=True)
    assert memory.count_recent_victims("node", "victim", "one") == 3
    assert memory.count_recent_victims("far", "victim", "other") == 3
    # Of whom nobody knows the preemptor, only the node counts.
    memory.record_refusal("unknown", "elsewhere", by="", was_timed=True)
    assert memory.count_recent_victims("nowhere", "victim", "") == 1
    clock.now += 60
    assert memory.count_recent_victims("node", "victim", "one") == 1


def test_a_mark_is_unheeded_for_as_long_as_it_is_seen_and_not_taken_up() -> None:
    clock = Clock()
    memory = RefusalHistory(clock)
    memory.observe_mark("victim", has_pending_mark=True)
    clock.now += 40
    memory.observe_mark("victim", has_pending_mark=True)
    clock.now += 2
    assert (memory.unhandled_mark_seconds("victim"), memory.unhandled_mark_seconds("other")) == (
        42,
        0,
    )
    memory.observe_mark("victim", has_pending_mark=False)
    assert memory.unhandled_mark_seconds("victim") == 0


def test_whoever_waits_for_pods_without_being_a_scheduler_changes_nothing_of_what_is_known_of_one() -> (
    None
):
    memory = RefusalHistory(Clock())
    refused(memory, "one", times=5)
    for number in range(6000):
        memory.observe_mark(f"evicted-{number}", has_pending_mark=True)
    memory.observe_mark("victim", has_pending_mark=True)
    assert memory.retries_at_once("victim", "one")
    assert memory.count_recent_victims("node", "victim", "one") == 1


def test_of_too_many_that_were_refused_the_oldest_is_forgotten() -> None:
    memory = RefusalHistory(Clock())
    refused(memory, "one", times=5)
    for number in range(5000):
        memory.record_refusal(f"pod-{number}", "node", by="one", was_timed=True)
    assert not memory.retries_at_once("victim", "one")
