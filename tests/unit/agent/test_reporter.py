"""The agent's reports of saves: one call at a time, and nothing that fails goes further."""

from dataclasses import dataclass, field
from typing import Any, cast

from reprieve_agent.report_call import ReportResult, ReportTarget
from reprieve_agent.reporter import SaveReporter
from reprieve_agent.request_files import RequestFiles

TARGET = ReportTarget("https://webhooks/checkpoints", "Q0E=", "/token")
TAKEN = ReportResult(200, "")


@dataclass
class World:
    """The file, the clock and the calls of one agent."""

    saved_at: int | None = None
    seconds: float = 0.0
    results: list[ReportResult | None] = field(default_factory=list)
    """What the next polls return."""
    started: list[int] = field(default_factory=list)
    logged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    failure: Exception | None = None

    def last_saved_at(self) -> int | None:
        return self.saved_at

    def start(self, target: ReportTarget, saved_at: int) -> "World":
        assert target is TARGET
        if self.failure is not None:
            raise self.failure
        self.started.append(saved_at)
        return self

    def poll(self) -> ReportResult | None:
        return self.results.pop(0)

    def log(self, message: str, **fields: Any) -> None:
        self.logged.append((message, fields))

    def reporter(self) -> SaveReporter:
        return SaveReporter(
            cast("RequestFiles", self),
            TARGET,
            self.log,
            monotonic=lambda: self.seconds,
            random_share=lambda: 0.0,
            start=self.start,
        )


def test_a_save_is_reported_and_later_ones_too() -> None:
    world = World(saved_at=1, results=[TAKEN, TAKEN])
    reporter = world.reporter()
    reporter.tick()
    world.saved_at = 2
    reporter.tick()  # ends the first call
    for world.seconds in (9.9, 10.0):
        reporter.tick()
    assert world.started == [1, 2]
    assert world.logged == []


def test_no_second_call_is_made_while_one_runs() -> None:
    world = World(saved_at=1, results=[None, None, TAKEN])
    reporter = world.reporter()
    for _ in range(4):
        reporter.tick()
        world.seconds += 100
    assert world.started == [1]


def test_failures_are_logged_once_until_reports_succeed_again() -> None:
    refused = ReportResult(503, "no", 100)
    world = World(saved_at=1, results=[refused, ReportResult(0, "away"), TAKEN, refused])
    reporter = world.reporter()
    for _ in range(3):
        reporter.tick()
        reporter.tick()
        world.seconds += 1000
    assert world.logged == [
        ("could not report a save", {"status": 503, "error": "no"}),
        ("saves are reported again", {}),
    ]
    assert world.started == [1, 1, 1]


def test_the_wait_that_the_service_asks_for_is_kept() -> None:
    world = World(saved_at=1, results=[ReportResult(503, "no rights", 3600)])
    reporter = world.reporter()
    for world.seconds in (0.0, 1.0, 3600.0):
        reporter.tick()
    assert world.started == [1]
    world.seconds = 3601.0
    reporter.tick()
    assert world.started == [1, 1]


def test_a_process_that_cannot_be_started_is_no_error_of_the_agent() -> None:
    world = World(saved_at=1, failure=BlockingIOError(11, "Resource temporarily unavailable"))
    reporter = world.reporter()
    reporter.tick()
    reporter.tick()
    ((message, fields),) = world.logged
    assert (message, fields["status"]) == ("could not report a save", None)
    world.failure, world.seconds = None, 20.0
    reporter.tick()
    assert world.started == [1]
