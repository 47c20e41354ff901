"""Durations in annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import duration
from reprieve_policy.verdict import Violation

READ = {
    "minutes": ("10m", 600),
    "seconds": ("90s", 90),
    "hours, minutes and seconds": ("1h30m5s", 5405),
    "more seconds than a minute has": ("3600s", 3600),
}

REFUSED = {
    "a number without a unit": ("600", "must be a duration"),
    "a fraction": ("1.5h", "must be a duration"),
    "units out of order": ("5s1m", "must be a duration"),
    "a negative duration": ("-5m", "must be a duration"),
    "space": ("5 m", "must be a duration"),
    "digits of other scripts": ("٣m", "must be a duration"),
    "nothing": ("", "must be a duration"),
    "no time at all": ("0s", "must be longer than 0s"),
}


@pytest.mark.parametrize(("text", "seconds"), READ.values(), ids=READ)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration.parse(text, "path") == seconds


@pytest.mark.parametrize(("text", "detail"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_duration_is_refused(text: str, detail: str) -> None:
    found = duration.parse(text, "path")
    assert isinstance(found, Violation)
    assert found.path == "path"
    assert found.value == text
    assert found.detail.startswith(detail)


@given(st.integers(min_value=1, max_value=10**9))
def test_what_is_rendered_is_read_back(seconds: int) -> None:
    assert duration.parse(duration.render(seconds), "path") == seconds


def test_no_time_is_rendered_as_zero_seconds() -> None:
    assert duration.render(0) == "0s"
