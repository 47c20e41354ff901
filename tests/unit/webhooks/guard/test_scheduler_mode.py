"""When a scheduler is taken to go on while it waits, and for how long."""

from reprieve_policy.config.settings import ASYNCHRONOUS, AUTO, SYNCHRONOUS
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_webhooks.guard.refusal_history import RefusalHistory
from reprieve_webhooks.guard.scheduler_mode import SchedulerMode, SchedulerModes


def a_nominee(uid: str) -> NominatedPod:
    return NominatedPod(pod=Pod(metadata=ObjectMeta(uid=uid)))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


ONE, OTHER = a_nominee("one"), a_nominee("other")


def test_the_mode_shown_by_one_preemptor_holds_for_the_scheduler() -> None:
    paces = SchedulerModes()
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.UNKNOWN
    paces.observe([ONE], SchedulerMode.ASYNCHRONOUS)
    assert paces.mode_for([OTHER, ONE], AUTO) is SchedulerMode.ASYNCHRONOUS
    assert paces.mode_for([OTHER], AUTO) is SchedulerMode.UNKNOWN
    assert paces.mode_for([], AUTO) is SchedulerMode.UNKNOWN


def test_the_configured_mode_takes_precedence() -> None:
    paces = SchedulerModes()
    paces.observe([ONE], SchedulerMode.ASYNCHRONOUS)
    assert paces.mode_for([ONE], SYNCHRONOUS) is SchedulerMode.UNKNOWN
    assert paces.mode_for([], ASYNCHRONOUS) is SchedulerMode.ASYNCHRONOUS


def test_an_inferred_mode_expires() -> None:
    clock = Clock()
    paces = SchedulerModes(clock)
    paces.observe([ONE], SchedulerMode.PROBABLY_ASYNCHRONOUS)
    clock.now += 59
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.PROBABLY_ASYNCHRONOUS
    clock.now += 1
    assert paces.mode_for([ONE], AUTO) is SchedulerMode.UNKNOWN


def test_an_inferred_mode_does_not_weaken_an_observed_one() -> None:
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


def test_a_preemptor_retries_at_once_after_enough_retries_without_a_pause() -> None:
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


def test_several_in_turn_or_one_with_pauses_or_one_with_a_retry_time_does_not_retry_at_once() -> (
    None
):
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
    # If the preemptor of a victim is unknown, only the node counts.
    memory.record_refusal("unknown", "elsewhere", by="", was_timed=True)
    assert memory.count_recent_victims("nowhere", "victim", "") == 1
    clock.now += 60
    assert memory.count_recent_victims("node", "victim", "one") == 1


def test_beyond_the_limit_the_oldest_refusal_is_forgotten() -> None:
    memory = RefusalHistory(Clock())
    refused(memory, "one", times=5)
    for number in range(5000):
        memory.record_refusal(f"pod-{number}", "node", by="one", was_timed=True)
    assert not memory.retries_at_once("victim", "one")
