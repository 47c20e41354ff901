"""What the API server and Reprieve's webhooks count themselves: whether a contender did what its name says. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

FAILED_OPEN = "reviews that failed open"
GUARD, EXTENDER = "guard", "extender"
FALLBACKS = ("malformed", "busy", "behind", "exempt", "late", "error")
"""Outcomes of a call to the extender with which the scheduler keeps to its own choice."""

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def read(api_server: str, webhooks: str) -> dict[str, int]:
    """Return what two answers of `/metrics` say, by `FAILED_OPEN`, `guard OUTCOME` and `extender OUTCOME`."""
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
    """Return what was counted between two looks: while a contender is set up, its webhooks are not there yet."""
    return dict(Counter(after) - Counter(before))


def fallbacks(counted: dict[str, int]) -> int:
    """Return how many calls of the scheduler the extender left to the scheduler itself."""
    return sum(counted.get(f"{EXTENDER} {outcome}", 0) for outcome in FALLBACKS)


def shown(counted: Iterable[dict[str, int]], prefix: str) -> str:
    """Return what was counted of the guard, or of the extender, in all turns, as words; empty where nothing was."""
    total = sum(map(Counter, counted), Counter[str]())
    return ", ".join(
        f"{n:,} {what.removeprefix(prefix + ' ')}"
        for what, n in total.items()
        if what.startswith(prefix)
    )
