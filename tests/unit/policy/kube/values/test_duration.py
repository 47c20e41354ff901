"""Durations in annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.kube.values import duration

READ = {
    "minutes": ("10m", 600),
    "seconds": ("90s", 90),
    "hours, minutes and seconds": ("1h30m5s", 5405),
    "the longest text": ("0" * 5 + "1h" + "0" * 5 + "1m" + "0" * 5 + "1s", 3661),
    "more seconds than a minute has": ("3600s", 3600),
}

REFUSED = {
    "a number without a unit": "600",
    "a fraction": "1.5h",
    "units out of order": "5s1m",
    "a negative duration": "-5m",
    "space": "5 m",
    "digits of other scripts": "٣m",
    "nothing": "",
}


@pytest.mark.parametrize(("text", "seconds"), READ.values(), ids=READ)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration.parse(text) == seconds


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_an_invalid_duration_is_refused(text: str) -> None:
    assert duration.parse(text) is None


@given(st.integers(min_value=1, max_value=10**9))
def test_a_rendered_duration_is_read_back(seconds: int) -> None:
    assert duration.parse(duration.render(seconds)) == seconds


def test_no_longer_text_than_the_longest_is_a_duration() -> None:
    texts = [text for text, _ in READ.values()]
    assert max(map(len, texts)) == duration.LONGEST
    longest = READ["the longest text"][0]
    assert all(duration.parse(f"{longest[:at]}0{longest[at:]}") is None for at in range(22))


def test_no_time_is_rendered_as_zero_seconds() -> None:
    assert duration.render(0) == "0s"
