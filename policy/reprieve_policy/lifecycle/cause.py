"""The cause of a preemption in `reprieve_preemptions_total` (document 001, "Preemption Triggers").

A mark states who asked (`initiator`) and why (`reason`) in free text; upstream promises no form for
either. So a table lists what is recognised. Everything else counts as the usual cause, the demand
of a pod with a higher priority.
"""

import re

from .eviction import Eviction, PreemptionCause

_RECOGNISED = (
    (re.compile(r"\bsensitive"), PreemptionCause.SENSITIVE),
    (re.compile(r"\b(reclaim|borrow|revok|lent\b)"), PreemptionCause.RECLAIM),
)
"""Word beginnings in a scheduler's text; the first match counts. Koordinator calls taking quota
back "revoke"."""
_POD = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)/[^/]+")


def decide_cause(state: Eviction, *, is_for_sensitive: bool) -> PreemptionCause:
    """Return the cause; `is_for_sensitive`: the preemptor's Namespace is a `sensitive` one."""
    if not state.source.is_preemption:
        return PreemptionCause.REQUEST
    if is_for_sensitive:
        return PreemptionCause.SENSITIVE
    text = f"{state.reason}\n{state.initiator}".lower()
    return next(
        (cause for words, cause in _RECOGNISED if words.search(text)), PreemptionCause.PRIORITY
    )


def preemptor_namespace(state: Eviction) -> str | None:
    """Return the Namespace of the initiator if it is `NAMESPACE/NAME`, else `None`."""
    match = _POD.fullmatch(state.initiator)
    return match[1] if match else None
