"""When a scheduler may ask for a refused pod again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reprieve_policy.preemption import retry_times
from reprieve_policy.preemption.guard import GuardDecision, RequestKind
from reprieve_policy.verdict import Violation, ViolationKind

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
REFUSAL = Violation("spec", ViolationKind.FORBIDDEN, None, "no")


def put_off(left: float | None) -> GuardDecision:
    until = None if left is None else NOW + timedelta(seconds=left)
    return GuardDecision(violation=REFUSAL, until=until, is_postponed=True)


def refused(left: float | None) -> GuardDecision:
    return replace(put_off(left), is_postponed=False)


def told(
    ruling: GuardDecision,
    waiting_victim_count: int,
    *,
    asked_victim_count: int = 1,
    is_short: bool = False,
) -> int | None:
    """Return the seconds that an asynchronous scheduler is told."""
    return retry_times.retry_after(
        ruling,
        RequestKind.PREEMPTION,
        is_asynchronous=True,
        is_short=is_short,
        waiting_victim_count=waiting_victim_count,
        asked_victim_count=asked_victim_count,
        now=NOW,
    )


RETRIES: dict[str, tuple[GuardDecision, int, int]] = {
    "the remaining time": (put_off(12), 1, 12),
    "a part of a second is rounded up": (put_off(11.2), 1, 12),
    "half a minute at most": (put_off(600), 1, 30),
    "four seconds at least": (put_off(0.1), 1, 4),
    "four seconds after the time has ended": (put_off(-5), 1, 4),
    "four seconds without a known time": (put_off(None), 1, 4),
    "several victims of a node are deleted in parallel": (put_off(600), 3, 12),
    "very many victims of a node": (put_off(1), 40, 30),
    "a refused preemption is retried soon": (refused(600), 1, 5),
    "a refusal that ends sooner": (refused(3.5), 1, 4),
    "four seconds at least for a protected pod": (refused(1), 1, 4),
    "a permanent refusal": (refused(None), 1, 5),
    "four permanently protected pods": (refused(None), 4, 16),
    "no refused victim": (put_off(2), 0, 4),
}


@pytest.mark.parametrize(("ruling", "waiting_victim_count", "want"), RETRIES.values(), ids=RETRIES)
def test_an_asynchronous_scheduler_gets_a_retry_time(
    ruling: GuardDecision, waiting_victim_count: int, want: int
) -> None:
    assert told(ruling, waiting_victim_count) == want


@pytest.mark.parametrize(
    ("waiting", "asked", "want"), [(1, 1, 5), (1, 3, 5), (1, 8, 10), (2, 8, 11), (1, 40, 30)]
)
def test_a_refused_attempt_lasts_a_second_for_each_request(
    waiting: int, asked: int, want: int
) -> None:
    """And each further victim waits longer than the first: its request ends with the attempt."""
    for ruling, seconds in ((refused(None), want), (put_off(None), 4 * waiting)):
        assert told(ruling, waiting, asked_victim_count=asked) == seconds


def test_if_the_retry_time_must_be_short_every_decision_gets_the_shortest() -> None:
    for ruling in (put_off(600), refused(600), refused(None)):
        for waiting_victim_count, want in ((1, 4), (3, 12), (40, 30)):
            assert told(ruling, waiting_victim_count, is_short=True) == want


def test_a_synchronous_scheduler_and_a_drain_get_no_retry_time() -> None:
    for kind, is_asynchronous in (
        (RequestKind.PREEMPTION, False),
        (RequestKind.EVICTION, False),
        (RequestKind.EVICTION, True),
    ):
        ruling = put_off(12)
        assert (
            retry_times.retry_after(
                ruling, kind, is_asynchronous=is_asynchronous, waiting_victim_count=1, now=NOW
            )
            is None
        )


NOT_FOUND = {
    "a victim that gets notice, also the last": (put_off(9), RequestKind.PREEMPTION, True, True),
    "a victim that has saved already": (put_off(None), RequestKind.PREEMPTION, True, True),
    "a synchronous scheduler nominates no pod": (put_off(9), RequestKind.PREEMPTION, False, False),
    "a protected pod does not count as deleted": (refused(9), RequestKind.PREEMPTION, True, False),
    "a pod whose preemptor waits for victims elsewhere": (
        replace(refused(None), has_victims_elsewhere=True),
        RequestKind.PREEMPTION,
        True,
        True,
    ),
    "a drain waits for each": (put_off(9), RequestKind.EVICTION, True, False),
}


@pytest.mark.parametrize(
    ("ruling", "kind", "is_asynchronous", "want"), NOT_FOUND.values(), ids=NOT_FOUND
)
def test_which_refused_pods_are_answered_with_404(
    ruling: GuardDecision, kind: RequestKind, *, is_asynchronous: bool, want: bool
) -> None:
    found = retry_times.should_answer_not_found(ruling, kind, is_asynchronous=is_asynchronous)
    assert found is want


AT_ONCE = 16
"""Victims that kube-scheduler deletes at a time, however many a preemptor has (`parallelism`)."""
ANSWERS = [
    put_off(None),
    put_off(0),
    put_off(3),
    put_off(600),
    refused(None),
    refused(1),
    refused(600),
]


def calls_a_second(ruling: GuardDecision, *seen: int) -> float:
    """Return how often one preemptor's victims are asked for, of which each replica sees so many.

    A client asks eleven times. The first that is through ends the others' pauses, and all are asked
    for anew at once.
    """
    pauses = [
        retry_times.retry_after(
            ruling,
            RequestKind.PREEMPTION,
            is_asynchronous=True,
            waiting_victim_count=waiting_victim_count,
            now=NOW,
        )
        or 0
        for waiting_victim_count in seen
    ]
    lasts = 10 * min(pauses)
    return (
        sum(count * (1 + lasts // pause) for count, pause in zip(seen, pauses, strict=True)) / lasts
    )


@pytest.mark.parametrize("ruling", ANSWERS)
def test_the_victims_of_a_preemptor_cause_at_most_one_call_a_second(
    ruling: GuardDecision,
) -> None:
    """For every answer that there is."""
    for waiting_victim_count in range(1, AT_ONCE + 1):
        assert calls_a_second(ruling, waiting_victim_count) <= 0.6
    for waiting_victim_count in range(AT_ONCE, 28):
        assert calls_a_second(ruling, waiting_victim_count) <= 1


@pytest.mark.parametrize("ruling", ANSWERS)
def test_two_replicas_that_see_half_of_the_victims_get_at_most_one_call_a_second(
    ruling: GuardDecision,
) -> None:
    for waiting_victim_count in range(2, AT_ONCE + 1):
        assert (
            calls_a_second(
                ruling, waiting_victim_count // 2, waiting_victim_count - waiting_victim_count // 2
            )
            <= 0.6
        )


@pytest.mark.parametrize("ruling", ANSWERS)
def test_two_replicas_that_see_unequal_parts_get_at_most_one_call_a_second(
    ruling: GuardDecision,
) -> None:
    for waiting_victim_count in range(2, AT_ONCE):
        for others in range(1, waiting_victim_count):
            assert calls_a_second(ruling, others, waiting_victim_count - others) <= 1
