"""What protects a pod against preemption, and until when (document 001, "Non-Preemptible Allocations").

Against preemption only, that is a scheduler's mark (`Source.is_preemption`): a person's or a drain's is given notice and
honoured, whatever the pod is. Tolerations (document 002) need the preemptor's priority, which no mark tells; they belong
beside these two, where victims are chosen.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from reprieve_policy import facts as known
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodView
from reprieve_policy.lifecycle.eviction import ProtectionReason


class Protection(NamedTuple):
    """A preemption is refused until then; `None`: for as long as the pod lives."""

    reason: ProtectionReason
    until: datetime | None


def decide_protection(
    view: PodView, facts: Facts, walltime: Walltime | None, now: datetime
) -> Protection | None:
    """Return what protects this pod now; `walltime` is the tightest that bounds it. First that holds of the two grounds."""
    if known.is_non_preemptible(view, facts):
        return Protection(ProtectionReason.NON_PREEMPTIBLE, None)
    left = 0.0 if walltime is None else walltime.left(now)
    if 0 < left <= near_completion_seconds(facts):
        return Protection(ProtectionReason.NEAR_COMPLETION, now + timedelta(seconds=left))
    return None


def protection_of_gang(found: Iterable[Protection | None]) -> Protection | None:
    """Return what protects a gang, which goes whole or not at all; `found`: what protects each of its pods.

    One that nobody may preempt protects all. What is nearly complete is a gang all of whose pods are, until the last one is
    complete. Without this, a small pod beside a thousand others would, by its own deadline, protect them.
    """
    reprieves = list(found)
    lasting = next(
        (reprieve for reprieve in reprieves if reprieve is not None and reprieve.until is None),
        None,
    )
    if lasting is not None:
        return lasting
    ends = {
        reprieve.until: reprieve
        for reprieve in reprieves
        if reprieve is not None and reprieve.until is not None
    }
    return ends[max(ends)] if ends and None not in reprieves else None


def near_completion_seconds(facts: Facts) -> int:
    """Return the last seconds of a walltime in which a pod is let finish; 0: nobody is."""
    return min(facts.settings.near_completion_seconds, facts.settings.ceiling_seconds)
