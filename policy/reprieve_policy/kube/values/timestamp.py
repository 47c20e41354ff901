"""Points in time as marks have them: RFC 3339, or seconds since the epoch. Always UTC."""

import re
from datetime import UTC, datetime

_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH = re.compile(r"[0-9]{1,11}")
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Later moments are not accepted: adding a deadline to the last second of the year 9999
overflows."""


def parse(value: object) -> datetime | None:
    """Return the moment that `value` (a text or a whole number) names, `None` if it names none.

    Go's `metav1.Time` is RFC 3339. Koordinator's own example (its pull request 1128) has a number.
    The result is aware, in UTC.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _from_epoch(value)
    if not isinstance(value, str):
        return None
    if _EPOCH.fullmatch(value):
        return _from_epoch(int(value))
    return _from_rfc3339(value)


def render(moment: datetime) -> str:
    """Return `moment` as RFC 3339 in UTC, exactly as `parse` reads it back."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def render_micro(moment: datetime) -> str:
    """Return `moment` as Kubernetes' MicroTime, which always has six digits after the second."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _from_epoch(seconds: int) -> datetime | None:
    try:
        return _in_range(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return None


def _from_rfc3339(text: str) -> datetime | None:
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    date, time, fraction, zone = match.groups()
    # Go writes up to nine digits of a second; Python reads six.
    normal = f"{date}T{time}{(fraction or '')[:7]}{'+00:00' if zone in 'Zz' else zone}"
    try:
        return _in_range(datetime.fromisoformat(normal).astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def _in_range(moment: datetime) -> datetime | None:
    return moment if moment < _LATEST else None
