"""When no operator led, and when no guard answered: observed, not planned. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from reprieve_testing.chaos.invariants import Outage

TAKING_UP = timedelta(seconds=10)
"""From the first renewal of a Lease until each victim was taken up again."""
LONGEST_GAP = timedelta(seconds=4)
"""Between two renewals of one leader; eight times what is usual."""


@dataclass(frozen=True, slots=True)
class LeaseRenewal:
    """A write of the Lease that the API server accepted."""

    at: datetime
    holder: str


def without_leader(
    renewals: Sequence[LeaseRenewal], windows: Iterable[Outage], until: datetime
) -> list[Outage]:
    """Return when no operator could act: between renewals, and while its calls were disturbed.

    Each ends once the Lease was renewed and all victims had time to be taken up.
    """
    gaps = [
        Outage(one.at, other.at)
        for one, other in pairwise(renewals)
        if other.at - one.at > LONGEST_GAP or other.holder != one.holder
    ]
    if renewals and until - renewals[-1].at > LONGEST_GAP:
        gaps.append(Outage(renewals[-1].at, until))
    return merged(
        Outage(one.since, _renewed(renewals, one.until, until) + TAKING_UP)
        for one in [*gaps, *windows]
    )


def merged(outages: Iterable[Outage]) -> list[Outage]:
    """Return the same time as outages that do not overlap, oldest first."""
    found: list[Outage] = []
    for one in sorted(outages, key=lambda outage: outage.since):
        if found and one.since <= found[-1].until:
            found[-1] = Outage(found[-1].since, max(found[-1].until, one.until))
        else:
            found.append(one)
    return found


def _renewed(renewals: Sequence[LeaseRenewal], since: datetime, until: datetime) -> datetime:
    return next((one.at for one in renewals if one.at >= since), max(since, until))
