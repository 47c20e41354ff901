"""Why a pod was preempted, as the metric `reprieve_preemptions_total` counts it (document 001, "Preemption Triggers").

A mark says who asked (`initiator`) and why (`reason`) in words of its own, and neither has a form that upstream promises.
So what is recognised is a table, and all else is what preemption mostly is: a higher priority's demand.
"""

import re
from enum import StrEnum

from .eviction import Eviction


class Reason(StrEnum):
    """001's three, and one for whoever is no scheduler."""

    PRIORITY = "priority"
    RECLAIM = "reclaim"
    SENSITIVE = "sensitive"
    REQUEST = "request"


_TOLD = (
    (re.compile(r"\bsensitive"), Reason.SENSITIVE),
    (re.compile(r"\b(reclaim|borrow|revok|lent\b)"), Reason.RECLAIM),
)
"""Beginnings of words in what a scheduler says, first that is found; Koordinator calls taking quota back "revoke"."""
_POD = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)/[^/]+")


def decide_reason(state: Eviction, *, is_for_sensitive: bool) -> Reason:
    """Return why; `is_for_sensitive`: whoever asked is of a Namespace whose workloads are sensitive."""
    if not state.source.is_preemption:
        return Reason.REQUEST
    if is_for_sensitive:
        return Reason.SENSITIVE
    told = f"{state.reason}\n{state.initiator}".lower()
    return next((reason for words, reason in _TOLD if words.search(told)), Reason.PRIORITY)


def preemptor_namespace(state: Eviction) -> str | None:
    """Return the Namespace of the pod or job that is named as initiator (`NAMESPACE/NAME`), `None` where none is."""
    match = _POD.fullmatch(state.initiator)
    return match[1] if match else None
