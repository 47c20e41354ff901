"""Counters of the API server and of Reprieve's webhooks. No I/O.

They show whether a contender did what its name says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

FAILED_OPEN = "reviews that failed open"
GUARD, EXTENDER = "guard", "extender"
FALLBACKS = ("malformed", "busy", "behind", "exempt", "late", "error")
"""Outcomes of an extender call after which the scheduler's own choice stands."""

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def read(api_server: str, webhooks: str) -> dict[str, int]:
    """Return the counters of two `/metrics`.

    The keys are `FAILED_OPEN`, `guard OUTCOME` and `extender OUTCOME`.
    """
    found = Counter[str]()
    for text in (api_server, webhooks):
        for name, labels, value in _SAMPLE.findall(text):
            said = dict(_LABEL.findall(labels))
            if name == "apiserver_admission_webhook_fail_open_count":
                found[FAILED_OPEN] += round(float(value))
            elif name == "reprieve_extender_calls_total":
                found[f"{EXTENDER} {said['outcome']}"] += round(float(value))
            elif name == "reprieve_admission_reviews_total" and said["webhook"] == GUARD:
                found[f"{GUARD} {said['outcome']}"] += round(float(value))
    return {what: number for what, number in found.items() if number}


def since(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return the difference of two readings: before a contender is set up, it has no webhooks."""
    return dict(Counter(after) - Counter(before))


def fallbacks(counted: dict[str, int]) -> int:
    """Return how many of the scheduler's calls the extender left to the scheduler."""
    return sum(counted.get(f"{EXTENDER} {outcome}", 0) for outcome in FALLBACKS)


def shown(counted: Iterable[dict[str, int]], prefix: str) -> str:
    """Return the counters of the guard, or of the extender, in all turns as text; "" for none."""
    total = sum(map(Counter, counted), Counter[str]())
    return ", ".join(
        f"{n:,} {what.removeprefix(prefix + ' ')}"
        for what, n in total.items()
        if what.startswith(prefix)
    )
