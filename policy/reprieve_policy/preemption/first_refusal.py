"""When a preemption of a pod was first refused on a ground that the pod's owner can renew.

Such a ground protects the pod for one `ceiling`, counted from that refusal, and then no longer.
Without this, an owner who makes a pod the pod of one decoy Job after another, each about to end,
would hold a preemptor for as long as the Jobs keep coming.

The grounds:

- **The pod is nearly complete**, by its own `activeDeadlineSeconds` or its Job's: a pod's owner may
  change which Job that is.
- **Its whole gang is nearly complete**: an owner may change which pods are in the gang.
- **Its gang has no pod to spare while others of it leave**, or a budget holds those that leave: an
  owner may have one small pod after another leave.
- **The pod changes faster than it can be marked**: an owner may write to it all the time.

Every other ground is the admin's (classes, PriorityClasses, quotas, nodes), can only be given up
after creation (`preemptible`), or ends by itself (a toleration).

The time stands on the pod, so that no restart begins it anew, with the pod's uid, so that a copy
of the annotation on another pod says nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.verdict import MetadataChange

_MOST_CLOCK_SKEW = timedelta(minutes=1)
"""Between the machine that wrote a time and the one that reads it."""


def read(annotations: Mapping[str, str], uid: str) -> datetime | None:
    """Return when the pod with this uid was first refused; `None` if it was not."""
    moment, _, its = annotations.get(keys.REFUSED_SINCE, "").partition(" ")
    return timestamp.parse(moment) if its == uid else None


def build_change(uid: str, now: datetime) -> MetadataChange:
    """Return the change that records the first refusal."""
    value = f"{timestamp.render(now.replace(microsecond=0))} {uid}"
    return MetadataChange("annotations", keys.REFUSED_SINCE, value)


def bound(
    until: datetime, refused_since: datetime | None, ceiling_seconds: int, now: datetime
) -> datetime:
    """Return when such a ground, which would hold until then, ends to protect the pod."""
    if refused_since is None:
        return until
    return min(until, _ends_at(refused_since, ceiling_seconds, now))


def is_over(refused_since: datetime | None, ceiling_seconds: int, now: datetime) -> bool:
    """True if no ground that its owner can renew protects the pod any longer."""
    return refused_since is not None and now >= _ends_at(refused_since, ceiling_seconds, now)


def _ends_at(refused_since: datetime, ceiling_seconds: int, now: datetime) -> datetime:
    """Return when a ceiling is over; now, if it begins in the future.

    Such a time was written by a machine with a wrong clock, or with a stolen token.
    """
    if refused_since > now + _MOST_CLOCK_SKEW:
        return now
    return refused_since + timedelta(seconds=ceiling_seconds)
