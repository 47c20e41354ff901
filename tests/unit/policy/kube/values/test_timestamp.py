"""Points in time in the forms that marks have."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.kube.values import timestamp

MOMENT = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)

READ = {
    "RFC 3339 in UTC": ("2026-11-21T12:00:00Z", MOMENT),
    "RFC 3339 east of Greenwich": ("2026-11-21T13:30:00+01:30", MOMENT),
    "RFC 3339 west of Greenwich": ("2026-11-21T04:00:00-08:00", MOMENT),
    "RFC 3339 in lower case": ("2026-11-21t12:00:00z", MOMENT),
    "a tenth of a second": ("2026-11-21T12:00:00.5Z", MOMENT + timedelta(milliseconds=500)),
    "six digits of a second": (
        "2026-11-21T12:00:00.123456Z",
        MOMENT + timedelta(microseconds=123_456),
    ),
    "nine digits of a second, cut to six": (
        "2026-11-21T12:00:00.123456789Z",
        MOMENT + timedelta(microseconds=123_456),
    ),
    "an epoch": (1795262400, MOMENT),
    "an epoch as a text": ("1795262400", MOMENT),
    "the epoch itself": (0, datetime(1970, 1, 1, tzinfo=UTC)),
}

REFUSED = {
    "ten digits of a second": "2026-11-21T12:00:00.1234567890Z",
    "no zone": "2026-11-21T12:00:00",
    "a date alone": "2026-11-21",
    "space instead of T": "2026-11-21 12:00:00Z",
    "a thirteenth month": "2026-13-21T12:00:00Z",
    "a leap second": "2026-11-21T12:00:60Z",
    "the year zero": "0000-01-01T00:00:00Z",
    "before the first year once in UTC": "0001-01-01T00:00:00+01:00",
    "after the last year once in UTC": "9999-12-31T23:59:59-01:00",
    "so late that no deadline can follow": "9999-12-31T23:59:59Z",
    "a zone of a hundred hours": "2026-11-21T12:00:00+99:99",
    "an epoch in nanoseconds": "1795262400000000000",
    "an epoch that no calendar holds": 10**30,
    "an epoch after the year 9999": 253_402_300_800,
    "an epoch in the year 9000": 221_845_392_000,
    "digits of other scripts": "٢٠٢٦-11-21T12:00:00Z",
    "a boolean": True,
    "a fraction": 1795262400.5,
    "nothing": None,
    "an empty text": "",
    "a list": [],
}


@pytest.mark.parametrize(("value", "want"), READ.values(), ids=READ)
def test_moments_are_read(value: object, want: datetime) -> None:
    found = timestamp.parse(value)
    assert found == want
    assert found.tzinfo is UTC


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_a_value_that_is_not_a_time_is_none(value: object) -> None:
    assert timestamp.parse(value) is None


@given(st.datetimes(max_value=datetime(8999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 - the zone is given beside
def test_a_rendered_time_is_read_back(moment: datetime) -> None:
    assert timestamp.parse(timestamp.render(moment)) == moment


@pytest.mark.parametrize("microsecond", [0, 7, 999_999])
def test_a_micro_time_always_has_six_digits_of_a_second(microsecond: int) -> None:
    text = timestamp.render_micro(
        datetime(2026, 11, 21, 12, 0, tzinfo=UTC).replace(microsecond=microsecond)
    )
    assert text == f"2026-11-21T12:00:00.{microsecond:06}Z"
