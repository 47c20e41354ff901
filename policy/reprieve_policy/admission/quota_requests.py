"""What an object requests from ElasticQuotas, by all its templates, and where that is too much.

Of an update, only what requests more counts, or uses another quota, or uses it another way.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from reprieve_policy import facts as known
from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, JobRequests
from reprieve_policy.gangs import job_requests
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.limits import quota_admission
from reprieve_policy.kube.limits.quota import Amounts, Quota, QuotaKey
from reprieve_policy.kube.limits.quota_admission import MAX, MIN, Excess, QuotaUsage
from reprieve_policy.kube.objects import Resource, pod_views

_NONE: Amounts = {}
QuotaUse = tuple[QuotaKey, bool]
"""A quota, and whether it is used preemptibly."""


class QuotaRequest(NamedTuple):
    """What an object requests from one quota."""

    path: str
    quota: Quota
    is_preemptible: bool
    amounts: Counter[str]


def requests_of(resource: Resource, facts: Facts) -> dict[QuotaUse, QuotaRequest]:
    """Return what an object requests from each quota; a template counts for each of its pods."""
    requests: dict[QuotaUse, QuotaRequest] = {}
    for view in pod_views(resource):
        if not job_requests.names_quota(view):
            continue
        quota = facts.quotas.find(view.labels, resource.metadata.namespace or "")
        if quota is None:
            continue
        is_preemptible = not known.counts_against_min(view, facts)
        new = QuotaRequest(f"{view.prefix}spec", quota, is_preemptible, Counter())
        request = requests.setdefault((quota.key, is_preemptible), new)
        own = pod_requests.pods_of(resource)
        pods = 1 if own is None else own
        for name, amount in pod_requests.of_pod(view.spec).items():
            request.amounts[name] += pods * amount
    return requests


def excesses(
    requests: Mapping[QuotaUse, QuotaRequest],
    before: Mapping[QuotaUse, QuotaRequest],
    others: JobRequests = NO_JOB_REQUESTS,
    usage_of: Callable[[Quota], QuotaUsage] = quota_admission.published_usage,
) -> Iterator[tuple[QuotaRequest, Excess]]:
    """Yield what is too much for a quota; `before`: what the object requested until now.

    `others` are the other pods of its job.
    """
    for use, request in requests.items():
        same = before.get(use)
        # Its own pods of before are taken for placed: without this, each of them would count twice.
        earlier = _NONE if same is None else same.amounts
        placed = {MIN: earlier, MAX: earlier}
        preemptible_before = before.get((use[0], True))
        if same is None and preemptible_before is not None:
            # It was preemptible before: then its pods count against the max only.
            placed = {MIN: _NONE, MAX: preemptible_before.amounts}
        amounts = Counter(others.requested) + request.amounts
        grown = {name: amount for name, amount in amounts.items() if amount > earlier.get(name, 0)}
        for excess in quota_admission.excesses(
            request.quota,
            grown,
            usage_of(request.quota),
            is_preemptible=request.is_preemptible,
            placed={
                bound: Counter(others.placed) + Counter(amounts)
                for bound, amounts in placed.items()
            },
        ):
            yield request, excess
