"""Which pods may be victims: priority, and Reprieve's classes and tolerations."""

from __future__ import annotations

from bench.preemption.trace import HINTED

from .contenders import Rules
from .model import Pod

_CLASS_WITHOUT_CHECKPOINT = 7
"""From this class on, a pod that cannot save on a hint is never preempted."""


def may_preempt(rules: Rules, preemptor: Pod, victim: Pod, now: float) -> bool:
    """True if the rules allow the victim."""
    if victim.priority >= preemptor.priority:
        return False
    if rules is Rules.PRIORITY:
        return True
    return _is_of_lower_class(preemptor, victim) and not _is_tolerating(preemptor, victim, now)


def protected_until(pod: Pod) -> float | None:
    """Return when the pod's toleration time is over, or None if it has none."""
    seconds = pod.tier.toleration_seconds
    return pod.bound_at + seconds if seconds > 0 else None


def _is_of_lower_class(preemptor: Pod, victim: Pod) -> bool:
    if victim.preemption_class >= _CLASS_WITHOUT_CHECKPOINT and victim.run.job.kind != HINTED:
        return False
    return victim.preemption_class < preemptor.preemption_class


def _is_tolerating(preemptor: Pod, victim: Pod, now: float) -> bool:
    least = victim.tier.minimum_preemptable_priority
    if least is None or preemptor.priority >= least:
        return False
    until = protected_until(victim)
    return until is None or now < until
