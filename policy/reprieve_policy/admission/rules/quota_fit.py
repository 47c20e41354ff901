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

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reprieve_policy import facts as known
from reprieve_policy.config.settings import REFUSE
from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, JobRequests
from reprieve_policy.gangs import job_requests
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.limits import quota_admission
from reprieve_policy.kube.limits.quota import Amounts, Quota, QuotaKey
from reprieve_policy.kube.limits.quota_admission import MAX, MIN, Excess
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_policy.kube.values import quantity
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, quote

_NONE: Amounts = {}


class _Job(NamedTuple):
    """What an object requests from one quota, by all its templates."""

    path: str
    quota: Quota
    is_preemptible: bool
    request: Counter[str]


class _Finding(NamedTuple):
    job: _Job
    excess: Excess
    counts_others: bool
    """The excess counts other pods of the job."""


_JobKey = tuple[QuotaKey, bool]
"""A quota, and whether it is used preemptibly."""


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the request of a job against its quota, where it is new or has grown."""
    jobs = _jobs_of(resource, facts)
    if not jobs:
        return NO_FINDINGS
    before = {} if old is None else _jobs_of(old, facts)
    # A pod that was in no job before an update counts alone when it is compared with that state.
    counts_others = job_requests.job_to_count(resource, old, facts) is not None
    others = facts.job_requests if counts_others else NO_JOB_REQUESTS
    found = [one for key, job in jobs.items() for one in _check(key, job, before, others)]
    if not found:
        return NO_FINDINGS
    if facts.settings.quota_fit == REFUSE:
        return Verdict(violations=tuple(map(_refuse, found)))
    return Verdict(warnings=tuple(map(_warn, found)))


def _jobs_of(resource: Resource, facts: Facts) -> dict[_JobKey, _Job]:
    jobs: dict[_JobKey, _Job] = {}
    for view in pod_views(resource):
        if not job_requests.names_quota(view):
            continue
        quota = facts.quotas.find(view.labels, resource.metadata.namespace or "")
        if quota is None:
            continue
        is_preemptible = not known.counts_against_min(view, facts)
        new = _Job(f"{view.prefix}spec", quota, is_preemptible, Counter())
        job = jobs.setdefault((quota.key, is_preemptible), new)
        own = pod_requests.pods_of(resource)
        pods = 1 if own is None else own
        for name, amount in pod_requests.of_pod(view.spec).items():
            job.request[name] += pods * amount
    return jobs


def _check(
    key: _JobKey, job: _Job, before: Mapping[_JobKey, _Job], others: JobRequests
) -> Iterator[_Finding]:
    same = before.get(key)
    # Its own pods of before are taken for placed: without this, each of them would count twice.
    earlier = _NONE if same is None else same.request
    if same is None and not job.is_preemptible and (key[0], True) in before:
        # It was preemptible before: then its pods count against the max only.
        placed = {MIN: _NONE, MAX: before[key[0], True].request}
    else:
        placed = {MIN: earlier, MAX: earlier}
    placed = {bound: Counter(others.placed) + Counter(amounts) for bound, amounts in placed.items()}
    request = Counter(others.requested) + job.request
    grown = {name: amount for name, amount in request.items() if amount > earlier.get(name, 0)}
    for excess in quota_admission.excesses(
        job.quota,
        grown,
        quota_admission.published_usage(job.quota),
        is_preemptible=job.is_preemptible,
        placed=placed,
    ):
        yield _Finding(job, excess, bool(others.requested.get(excess.resource)))


def _refuse(found: _Finding) -> Violation:
    excess = found.excess
    asked, taken, limit = map(quantity.render, (excess.asked, excess.taken, excess.limit))
    subject = "its job asks" if found.counts_others else "asks"
    detail = (
        f"{quote(excess.resource)}: {subject} for {asked}, {taken} is taken, "
        f"the {excess.bound} of ElasticQuota {quote(found.job.quota.name)} is {limit}"
    )
    return Violation(found.job.path, ViolationKind.FORBIDDEN, None, detail)


def _warn(found: _Finding) -> str:
    excess = found.excess
    wanted, limit = quantity.render(excess.asked + excess.taken), quantity.render(excess.limit)
    resource, quota = _short(excess.resource), _short(found.job.quota.name)
    subject = "its job: " if found.counts_others else ""
    return (
        f"{found.job.path}: {subject}{resource} {wanted} over {excess.bound} {limit} "
        f"of quota {quota}"
    )


def _short(name: str) -> str:
    return quote(name if len(name) <= 20 else f"{name[:17]}...")[1:-1]
