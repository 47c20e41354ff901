"""What preempts a pod, as `reprieve_preemptions_total` counts it (document 001, "Preemption Triggers").

A mark says who asked (`initiator`) and why (`reason`) in words of its own, and neither has a form that upstream promises.
So what is recognised is a table, and all else is what preemption mostly is: a higher priority's demand.
"""

import re

from .eviction import Eviction, PreemptionCause

_TOLD = (
    (re.compile(r"\bsensitive"), PreemptionCause.SENSITIVE),
    (re.compile(r"\b(reclaim|borrow|revok|lent\b)"), PreemptionCause.RECLAIM),
)
"""Beginnings of words in what a scheduler says, first that is found; Koordinator calls taking quota back "revoke"."""
_POD = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)/[^/]+")


def decide_cause(state: Eviction, *, is_for_sensitive: bool) -> PreemptionCause:
    """Return the cause; `is_for_sensitive`: whoever asked is of a Namespace whose workloads are sensitive."""
    if not state.source.is_preemption:
        return PreemptionCause.REQUEST
    if is_for_sensitive:
        return PreemptionCause.SENSITIVE
    told = f"{state.reason}\n{state.initiator}".lower()
    return next((cause for words, cause in _TOLD if words.search(told)), PreemptionCause.PRIORITY)


def preemptor_namespace(state: Eviction) -> str | None:
    """Return the Namespace of the pod or job that is named as initiator (`NAMESPACE/NAME`), `None` where none is."""
    match = _POD.fullmatch(state.initiator)
    return match[1] if match else None
