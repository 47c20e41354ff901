"""When the agent reports a save, by a clock that the test sets."""

import pytest

from reprieve_agent.report_schedule import MIN_INTERVAL_SECONDS, ReportSchedule


def a_schedule(share: float = 0.0) -> ReportSchedule:
    return ReportSchedule(lambda: share)


def test_without_a_save_nothing_is_reported() -> None:
    assert not a_schedule().is_due(None, 0.0)


def test_the_first_save_is_reported_at_once_and_only_once() -> None:
    schedule = a_schedule()
    assert schedule.is_due(1, 100.0)
    schedule.succeeded(1, 101.0)
    assert not schedule.is_due(1, 10_000.0)


def test_the_next_save_is_reported_when_the_interval_is_over() -> None:
    schedule = a_schedule()
    schedule.succeeded(1, 100.0)
    assert not schedule.is_due(2, 99.9 + MIN_INTERVAL_SECONDS)
    assert schedule.is_due(2, 100.0 + MIN_INTERVAL_SECONDS)


def test_after_a_failure_the_same_save_is_reported_again() -> None:
    schedule = a_schedule()
    schedule.failed(100.0)
    assert not schedule.is_due(1, 119.9)
    assert schedule.is_due(1, 120.0)


def test_delays_double_up_to_ten_minutes_and_start_again_after_a_success() -> None:
    schedule, delays = a_schedule(), []
    for _ in range(7):
        schedule.failed(0.0)
        delays.append(next(second for second in range(5000) if schedule.is_due(1, second)))
    assert delays == [20, 40, 80, 160, 320, 600, 600]
    schedule.succeeded(1, 0.0)
    schedule.failed(0.0)
    assert schedule.is_due(2, 20.0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_no_delay_is_shorter_than_the_interval(share: float) -> None:
    schedule = a_schedule(share)
    schedule.failed(0.0)
    assert not schedule.is_due(1, MIN_INTERVAL_SECONDS - 0.1)
    assert schedule.is_due(1, 20.0)


@pytest.mark.parametrize(("asked", "waits"), [(5, 20), (3000, 3000), (10**9, 3600)])
def test_the_service_may_ask_for_a_longer_delay_of_at_most_an_hour(asked: int, waits: int) -> None:
    schedule = a_schedule()
    schedule.failed(0.0, asked)
    assert not schedule.is_due(1, waits - 0.1)
    assert schedule.is_due(1, float(waits))
