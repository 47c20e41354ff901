"""Which clock counts: this machine's while the API server agrees, else one that the API server's has reached."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from reprieve_runtime.client.server_time import ServerTime

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = 3600.0


@dataclass
class Machine:
    """Its clocks, and an API server whose own is right."""

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
        """Ask the API server, which answers in the middle."""
        asked_at = self.time.request_started()
        self.steady += takes / 2
        date = format_datetime(self.truth + timedelta(seconds=self.server_step), usegmt=True)
        self.steady += takes / 2
        self.time.response_received(date, asked_at)

    def error(self) -> float:
        return (self.time.now() - self.truth).total_seconds()


def test_before_the_first_answer_this_machines_clock_counts():
    assert Machine(step=HOUR).error() == HOUR


def test_a_clock_that_the_api_server_agrees_with_counts_with_all_its_digits():
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
def test_a_machine_that_starts_with_a_wrong_clock_learns_the_time_from_its_first_call(step: float):
    machine = Machine(steady=700.4, step=step)
    machine.call()
    assert -1.1 <= machine.error() <= 0


def test_the_more_answers_the_better_it_is_known():
    machine = Machine(step=HOUR)
    for _ in range(100):
        machine.call()
        machine.steady += 0.33
    assert -0.05 <= machine.error() <= 0


def test_a_slow_answer_says_less_but_nothing_wrong():
    machine = Machine(step=HOUR)
    machine.call(takes=8)
    assert -5.1 <= machine.error() <= 0


def test_an_api_server_whose_clock_is_set_is_believed_again_from_its_next_answer():
    machine = Machine(step=HOUR)
    machine.call()
    machine.server_step = 60.0
    machine.call()
    assert 58.9 <= machine.error() <= 60.0


@pytest.mark.parametrize("date", [None, "", "soon", "Sat, 32 Nov 2026 12:00:00 GMT"])
def test_a_date_that_cannot_be_read_says_nothing(date: str | None):
    machine = Machine(step=HOUR)
    machine.time.response_received(date, machine.time.request_started())
    assert machine.error() == HOUR
