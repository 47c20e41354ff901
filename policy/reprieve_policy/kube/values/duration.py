"""Durations in annotations: `10m`, `5m`, `90s`, `1h30m`. Whole seconds only."""

import re

PATTERN = "(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?"
"""A subset of what Go's `time.ParseDuration`, and therefore CEL's `duration()`, reads. It matches
the empty text, which is not a duration in either of them."""

LONGEST = 21
"""Characters of the longest text that the pattern matches: three numbers with their units."""

EXPECTED = 'must be a duration in whole hours, minutes and seconds, like "10m", "90s" or "1h30m"'
TOO_SHORT = "must be longer than 0s"
_DURATION = re.compile(PATTERN)


def parse(text: str) -> int | None:
    """Return the duration in seconds, `None` if the text is not a duration."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def render(seconds: int) -> str:
    """Return the shortest text that `parse` reads as `seconds`."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"
