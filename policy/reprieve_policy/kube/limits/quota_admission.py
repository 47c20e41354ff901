"""Whether an ElasticQuota admits a request, by the formulas of document 000, "Quota Assignment".

For a non-preemptible job, `nonPreemptibleTotalUsed + request <= min` and `totalUsed + request <=
max`; for a preemptible one, `min(min, nonPreemptibleTotalRequest) + preemptibleTotalUsed + request
<= max`. A resource that the quota does not name is not limited, and neither is one that the job
does not request. The runtime quota of Koordinator does not count: by the document, idle amounts up
to the `max` go to the first who asks.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .quota import Amounts, Quota

MIN, MAX = "min", "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """What the pods of a quota use, in nanos by resource."""

    used: Amounts = field(default_factory=dict)
    non_preemptible_used: Amounts = field(default_factory=dict)
    non_preemptible_request: Amounts = field(default_factory=dict)
    """Also of pods that wait for a node."""


class Excess(NamedTuple):
    """A resource of which a job requests too much."""

    resource: str
    bound: str
    """`min` or `max`."""
    asked: int
    taken: int
    """The amount of others, counted against the bound."""
    limit: int


def published_usage(quota: Quota) -> QuotaUsage:
    """Return the figures of Koordinator, which are as old as its last write."""
    return QuotaUsage(
        used=quota.used,
        non_preemptible_used=quota.non_preemptible_used,
        non_preemptible_request=quota.non_preemptible_request,
    )


def claimed_usage(quota: Quota) -> QuotaUsage:
    """Return the most that its non-preemptible pods may use, as far as it is published.

    Those that wait for a node count as well: they claim the same.
    """
    claimed = (
        Counter(quota.non_preemptible_used) | Counter(quota.non_preemptible_request)
        if quota.tells_non_preemptible
        else quota.used
    )
    return QuotaUsage(non_preemptible_used=claimed)


def excesses(
    quota: Quota,
    request: Amounts,
    usage: QuotaUsage,
    *,
    is_preemptible: bool,
    placed: Mapping[str, Amounts] | None = None,
) -> Iterator[Excess]:
    """Yield what a request is too much for.

    `placed`: by bound, the part of the request that belongs to pods on nodes. It is in the usage
    already, and does not count twice.
    """
    for name, asked in request.items():
        if asked <= 0:
            continue
        for bound, taken, limit in _bounds(quota, name, usage, is_preemptible=is_preemptible):
            others = max(0, taken - (placed or {}).get(bound, {}).get(name, 0))
            if others + asked > limit:
                yield Excess(name, bound, asked, others, limit)


def _bounds(
    quota: Quota, name: str, usage: QuotaUsage, *, is_preemptible: bool
) -> Iterator[tuple[str, int, int]]:
    """Yield each bound on a resource: its name, the amount of others, and the limit."""
    used, non_preemptible_used = usage.used.get(name, 0), usage.non_preemptible_used.get(name, 0)
    if not is_preemptible and name in quota.min_amounts:
        yield MIN, non_preemptible_used, quota.min_amounts[name]
    if name not in quota.max_amounts:
        return
    if is_preemptible:
        reserved = min(quota.min_amounts.get(name, 0), usage.non_preemptible_request.get(name, 0))
        used = reserved + max(0, used - non_preemptible_used)
    yield MAX, used, quota.max_amounts[name]
