"""Which clock counts: this machine's, or a bound on the API server's if the two disagree."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from reprieve_runtime.client.server_time import ServerTime

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = 3600.0


@dataclass
class Machine:
    """A machine's clocks, and an API server whose clock is right."""

    steady: float = 500.0
    step: float = 0.0
    server_step: float = 0.0
    time: ServerTime = field(init=False)

    def __post_init__(self) -> None:
        self.time = ServerTime(lambda: self.steady, lambda: self.truth.timestamp() + self.step)

    @property
    def truth(self) -> datetime:
        return START + timedelta(seconds=self.steady - 500.0)

    def call(self, takes: float = 0.01) -> None:
        """Call the API server, which answers halfway through the call."""
        asked_at = self.time.request_started()
        self.steady += takes / 2
        date = format_datetime(self.truth + timedelta(seconds=self.server_step), usegmt=True)
        self.steady += takes / 2
        self.time.response_received(date, asked_at)

    def error(self) -> float:
        return (self.time.now() - self.truth).total_seconds()


def test_before_the_first_answer_this_machines_clock_counts():
    assert Machine(step=HOUR).error() == HOUR


def test_a_clock_that_agrees_with_the_api_server_counts_with_full_precision():
    machine = Machine(step=1.25)
    machine.call()
    assert machine.error() == pytest.approx(1.25)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_clock_that_is_stepped_changes_nothing_by_more_than_a_second_and_never_runs_ahead(
    step: float,
):
    machine = Machine()
    machine.call()
    machine.step = step
    assert -1.1 <= machine.error() <= 0
    machine.step = 0.0
    assert machine.error() == pytest.approx(0)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_wrong_clock_is_corrected_after_the_first_call(step: float):
    machine = Machine(steady=700.4, step=step)
    machine.call()
    assert -1.1 <= machine.error() <= 0


def test_more_answers_narrow_the_bounds():
    machine = Machine(step=HOUR)
    for _ in range(100):
        machine.call()
        machine.steady += 0.33
    assert -0.05 <= machine.error() <= 0


def test_a_slow_answer_widens_the_bounds_but_is_not_wrong():
    machine = Machine(step=HOUR)
    machine.call(takes=8)
    assert -5.1 <= machine.error() <= 0


def test_after_the_servers_clock_was_set_its_next_answer_counts():
    machine = Machine(step=HOUR)
    machine.call()
    machine.server_step = 60.0
    machine.call()
    assert 58.9 <= machine.error() <= 60.0


@pytest.mark.parametrize("date", [None, "", "soon", "Sat, 32 Nov 2026 12:00:00 GMT"])
def test_an_unreadable_date_is_ignored(date: str | None):
    machine = Machine(step=HOUR)
    machine.time.response_received(date, machine.time.request_started())
    assert machine.error() == HOUR
