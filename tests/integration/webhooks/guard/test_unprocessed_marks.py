"""A pod with a mark that no operator handles goes after a minute, and with a new mark it does not.

It may have been a victim before: the operator handled that mark, and the pod went on working.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.preemption import guard
from reprieve_testing.guard.fixture import (
    HINT,
    HINTED,
    GuardFixture,
    a_victim,
    code_of,
    guard_fixture,
)
from reprieve_testing.objects.builders import after, an_eviction

CANCELLED = an_eviction().in_phase(Phase.HINTED, deadline=after(60)).build()


def guards_mark(seconds: float, *, after_eviction: str = "") -> Any:
    """Return a victim that the guard marked at this second."""
    changes = guard.mark_changes(guard.RequestKind.PREEMPTION, "uid-of-high", after(seconds))
    return marked({change.key: change.value for change in changes}, after_eviction)


def drains_mark(*, after_eviction: str = "") -> Any:
    return marked({keys.SOFT_EVICTION: "evict"}, after_eviction)


def marked(written: dict[str, str], after_eviction: str) -> Any:
    """Return a victim with a mark; the eviction before it, if any, was cancelled."""
    label = {keys.SOFT_EVICTION: written.pop(keys.SOFT_EVICTION)}
    over = replace(CANCELLED, eviction_id=after_eviction, phase=Phase.CANCELLED, deadline=None)
    earlier = {keys.EVICTION: eviction.render(over)} if after_eviction else {}
    return a_victim(labels=label, annotations=HINT | written | earlier)


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        yield found


class Clock:
    """The clock by which the guard counts the time of a mark."""

    def __init__(self, here: GuardFixture) -> None:
        self.seconds = 1000.0
        here.guard._unprocessed_marks._monotonic = lambda: self.seconds


async def test_a_pod_whose_mark_is_not_handled_for_a_minute_goes(here: GuardFixture) -> None:
    clock = Clock(here)
    for _ in range(3):
        assert "already marked" in (await here.delete(guards_mark(0)))["status"]["message"]
        clock.seconds += 20
    assert (await here.delete(guards_mark(0)))["allowed"]


def in_progress(eviction_id: str) -> Any:
    """Return a victim that is asked to save, with a label that a user has set again."""
    text = HINTED.replace('"e"', f'"{eviction_id}"')
    return a_victim(labels={keys.SOFT_EVICTION: "evict"}, annotations=HINT | {keys.EVICTION: text})


MARKS = {
    "the guard's": (guards_mark(0), guards_mark(3600, after_eviction="e-1")),
    "one after an eviction whose label was set again": (
        in_progress("e-1"),
        guards_mark(3600, after_eviction="e-1"),
    ),
    "a drain's": (drains_mark(), drains_mark(after_eviction="e-1")),
    "the third": (drains_mark(after_eviction="e-1"), drains_mark(after_eviction="e-2")),
}


@pytest.mark.parametrize(("before", "marked_again"), MARKS.values(), ids=MARKS)
async def test_the_time_of_a_mark_after_an_eviction_begins_anew(
    here: GuardFixture, before: Any, marked_again: Any
) -> None:
    clock = Clock(here)
    for _ in range(3):
        assert not (await here.delete(before))["allowed"]
        clock.seconds += 20
    assert not (await here.delete(marked_again))["allowed"]


async def test_who_writes_a_mark_anew_all_the_time_holds_no_preemptor(here: GuardFixture) -> None:
    clock = Clock(here)
    for number in range(3):
        assert not (await here.delete(guards_mark(number)))["allowed"]
        clock.seconds += 20
    assert (await here.delete(drains_mark()))["allowed"]


async def test_the_time_in_which_the_api_server_was_away_does_not_count(here: GuardFixture) -> None:
    clock = Clock(here)
    assert code_of(await here.delete(guards_mark(0))) == 429
    clock.seconds += 600
    assert code_of(await here.delete(guards_mark(0))) == 429
    clock.seconds += 30
    assert (await here.delete(guards_mark(0)))["allowed"]
