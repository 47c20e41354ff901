"""The pods that upstream's plugin exempts: `ExemptedFromPreemption` and its parsing, as in Go."""

import re

from .scenario import MINIMUM, SECONDS, ScenarioPod, ScenarioPriorityClass

NANOS = 10**9
_INT32, _INT64 = 1 << 31, 1 << 63
MOST_SECONDS = (_INT64 - 1) // NANOS
"""The longest that a duration can hold."""


def tolerates(victim: ScenarioPod, preemptor: ScenarioPod, *, overflows: bool) -> bool:
    """Return whether the victim's PriorityClass tolerates the preemptor.

    `overflows`: seconds are multiplied as in Go, whatever their value.
    """
    policy = _policy(victim.priority_class, overflows=overflows) if victim.priority_class else None
    if policy is None:
        return False
    minimum, nanos = policy
    if preemptor.priority >= minimum:
        return False
    if nanos is None or victim.scheduled_ago is None or not victim.is_scheduled:
        return True
    return nanos > victim.scheduled_ago * NANOS


def _policy(named: ScenarioPriorityClass, *, overflows: bool) -> tuple[int, int | None] | None:
    """Return the least priority that may preempt, and for how many nanoseconds; `None` if
    unreadable.

    Nanoseconds of `None` mean: without end.
    """
    minimum = _parse_int(named.annotations.get(MINIMUM, str(named.value + 1)), _INT32)
    seconds = _parse_int(named.annotations.get(SECONDS, "0"), _INT64)
    if minimum is None or seconds is None or (seconds > MOST_SECONDS and not overflows):
        return None
    return minimum, None if seconds < 0 else (seconds * NANOS + _INT64) % (2 * _INT64) - _INT64


def _parse_int(text: str, limit: int) -> int | None:
    """Parse a whole number as `strconv.ParseInt(text, 10, …)` does."""
    number = int(text) if re.fullmatch("[+-]?[0-9]+", text, re.ASCII) else None
    return number if number is not None and -limit <= number < limit else None
