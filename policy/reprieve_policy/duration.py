"""Durations as annotations say them: `10m`, `5m`, `90s`, `1h30m`. Whole seconds; nothing else is a duration."""

import re

from .verdict import Kind, Violation

EXPECTED = 'must be a duration in whole hours, minutes and seconds, like "10m", "90s" or "1h30m"'
_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")


def parse(text: str, path: str) -> int | Violation:
    """Return the duration in seconds, at least 1."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return Violation(path, Kind.INVALID, text, EXPECTED)
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total == 0:
        return Violation(path, Kind.INVALID, text, "must be longer than 0s")
    return total


def render(seconds: int) -> str:
    """Return the shortest text that `parse` reads as `seconds`."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"
