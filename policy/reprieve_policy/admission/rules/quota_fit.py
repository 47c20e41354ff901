"""A job fits into its ElasticQuota: its request, with what is already used there.

Checked for a pod, or a workload whose template makes pods, with a label of Koordinator's quotas:
when it is created, and when an update has it request more, join a job, or use another quota. For a
non-preemptible job, `nonPreemptibleTotalUsed + request <= min` and `totalUsed + request <= max`;
for a preemptible one, `min(min, nonPreemptibleTotalRequest) + preemptibleTotalUsed + request <=
max`. The request is that of all its pods at once: Job `parallelism`, `replicas`, and with a pod the
other pods that name its job by a label, such as `pod-group.scheduling.sigs.k8s.io`. A resource that
the quota does not name is not limited. `kubectl scale` and autoscalers write the subresource
`scale`, which has no template and is not checked; neither are pods that a controller of Kubernetes
makes from a checked template.

Why: a job that cannot fit waits, and its owner is not informed.

Source: document 000, "Quota Assignment". Used figures are those that Koordinator publishes; the
quota of a pod is found as Koordinator does.

Setting: `quotaFit`: `warn`, or `refuse`. The used figures change, and a refused job is not tried
again.
"""

from typing import NamedTuple

from reprieve_policy.admission import quota_requests
from reprieve_policy.admission.quota_requests import QuotaRequest
from reprieve_policy.config.settings import REFUSE
from reprieve_policy.facts import NO_JOB_REQUESTS, Facts
from reprieve_policy.gangs import job_requests
from reprieve_policy.kube.limits.quota_admission import Excess
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.values import quantity
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, quote


class _Finding(NamedTuple):
    request: QuotaRequest
    excess: Excess
    counts_others: bool
    """The excess counts other pods of the job."""


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the request of a job against its quota, where it is new or has grown."""
    requests = quota_requests.requests_of(resource, facts)
    if not requests:
        return NO_FINDINGS
    before = {} if old is None else quota_requests.requests_of(old, facts)
    # A pod that was in no job before an update counts alone when it is compared with that state.
    counts_others = job_requests.job_to_count(resource, old, facts) is not None
    others = facts.job_requests if counts_others else NO_JOB_REQUESTS
    found = [
        _Finding(request, excess, bool(others.requested.get(excess.resource)))
        for request, excess in quota_requests.excesses(requests, before, others)
    ]
    if not found:
        return NO_FINDINGS
    if facts.settings.quota_fit == REFUSE:
        return Verdict(violations=tuple(map(_refuse, found)))
    return Verdict(warnings=tuple(map(_warn, found)))


def _refuse(found: _Finding) -> Violation:
    excess = found.excess
    asked, taken, limit = map(quantity.render, (excess.asked, excess.taken, excess.limit))
    subject = "its job asks" if found.counts_others else "asks"
    detail = (
        f"{quote(excess.resource)}: {subject} for {asked}, {taken} is taken, "
        f"the {excess.bound} of ElasticQuota {quote(found.request.quota.name)} is {limit}"
    )
    return Violation(found.request.path, ViolationKind.FORBIDDEN, None, detail)


def _warn(found: _Finding) -> str:
    excess = found.excess
    wanted, limit = quantity.render(excess.asked + excess.taken), quantity.render(excess.limit)
    resource, quota = _short(excess.resource), _short(found.request.quota.name)
    subject = "its job: " if found.counts_others else ""
    return (
        f"{found.request.path}: {subject}{resource} {wanted} over {excess.bound} {limit} "
        f"of quota {quota}"
    )


def _short(name: str) -> str:
    return quote(name if len(name) <= 20 else f"{name[:17]}...")[1:-1]
