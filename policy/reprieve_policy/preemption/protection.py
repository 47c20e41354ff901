"""What protects a pod against preemption, and until when (document 001).

See its section "Non-Preemptible Allocations". Only against preemption, that is a scheduler's mark
(`Source.is_preemption`): a person's or a drain's mark gets notice and is honoured, whatever the pod
is. Tolerations (document 002) need the preemptor's priority, which no mark contains; victim
selection checks them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from reprieve_policy import facts as known
from reprieve_policy.config.namespace import EXEMPT
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTIBLE
from reprieve_policy.kube.objects import ObjectMeta, PodView, labels_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import Protection, ProtectionReason

from . import first_refusal


def decide_protection(
    view: PodView,
    facts: Facts,
    walltime: Walltime | None,
    now: datetime,
    *,
    refused_since: datetime | None = None,
) -> Protection | None:
    """Return what protects this pod now, the first reason that holds.

    `walltime` is the tightest that bounds the pod; `refused_since`: see `first_refusal`.
    """
    if known.is_non_preemptible(view, facts):
        return Protection(ProtectionReason.NON_PREEMPTIBLE, None)
    left = 0.0 if walltime is None else walltime.left(now)
    if 0 < left <= near_completion_seconds(facts):
        until = first_refusal.bound(
            now + timedelta(seconds=left), refused_since, facts.settings.ceiling_seconds, now
        )
        if now < until:
            return Protection(ProtectionReason.NEAR_COMPLETION, until)
    return None


def is_unchecked_claim(metadata: ObjectMeta, checked_since: datetime | None) -> bool:
    """True if a pod claims to be non-preemptible, and no admission of Reprieve has checked that.

    `checked_since`: since when all claims are; `None`: unknown. The webhooks never check those of
    the system's own namespaces.
    """
    created_at = timestamp.parse(metadata.creationTimestamp)
    return (
        labels_of(metadata).get(PREEMPTIBLE) == "false"
        and metadata.deletionTimestamp is None
        and metadata.namespace not in EXEMPT
        and checked_since is not None
        and created_at is not None
        and created_at < checked_since
    )


def protection_of_gang(protections: Iterable[Protection | None]) -> Protection | None:
    """Return what protects a gang evicted as a unit, from what protects each of its pods.

    One non-preemptible pod protects all. A gang is nearly complete if all of its pods are, until
    the last one is complete. Without this, the deadline of one small pod would protect a thousand
    others.
    """
    known_protections = list(protections)
    permanent = next(
        (
            protection
            for protection in known_protections
            if protection is not None and protection.until is None
        ),
        None,
    )
    if permanent is not None:
        return permanent
    ends = {
        protection.until: protection
        for protection in known_protections
        if protection is not None and protection.until is not None
    }
    return ends[max(ends)] if ends and None not in known_protections else None


def near_completion_seconds(facts: Facts) -> int:
    """Return the last seconds of a walltime in which a pod may finish; 0: no pod may."""
    return min(facts.settings.near_completion_seconds, facts.settings.ceiling_seconds)
