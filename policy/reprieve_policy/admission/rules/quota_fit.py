"""A job fits into its ElasticQuota: its request, with what is already used there.

Checked when a pod, or a workload whose template makes pods, is created with a label of
Koordinator's quotas. For a non-preemptible job, `nonPreemptibleTotalUsed + request <= min` and
`totalUsed + request <= max`; for a preemptible one, `min(min, nonPreemptibleTotalRequest) +
preemptibleTotalUsed + request <= max`. The request is that of all its pods at once: Job
`parallelism`, `replicas`. A resource that the quota does not name is not limited.

Why: a job that cannot fit waits, and its owner is not informed.

Source: document 000, "Quota Assignment". Used figures are those that Koordinator publishes; the
quota of a pod is found as Koordinator does.

Setting: `quotaFit`: `warn`, or `refuse`. The used figures change, and a refused job is not tried
again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from reprieve_policy.config import koordinator
from reprieve_policy.config.settings import REFUSE
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTIBLE, QUOTA_NAME
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.kube.quota import Quota
from reprieve_policy.kube.values import quantity
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, quote


class _Excess(NamedTuple):
    """A resource of which a job requests too much."""

    path: str
    resource: str
    bound: str
    """`min` or `max`."""
    asked: int
    taken: int
    """The amount of others, counted against the bound."""
    limit: int
    quota: str


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the request of a new job against its quota."""
    # The use of an existing job is in the used figures already.
    views = pod_views(resource) if old is None else ()
    found = [excess for view in views for excess in _check(resource, view, facts)]
    if not found:
        return NO_FINDINGS
    if facts.settings.quota_fit == REFUSE:
        return Verdict(violations=tuple(map(_refuse, found)))
    return Verdict(warnings=tuple(map(_warn, found)))


def _check(resource: Resource, view: PodView, facts: Facts) -> Iterator[_Excess]:
    if QUOTA_NAME not in view.labels and PREEMPTIBLE not in view.labels:
        return
    quota = facts.quotas.find(view.labels, resource.metadata.namespace or "")
    if quota is None:
        return
    own = pod_requests.pods_of(resource)
    pods = 1 if own is None else own
    disabled = facts.settings.default_preemptible is False
    is_preemptible = koordinator.is_preemptible(view.labels, disable_default_preemptiable=disabled)
    for name, amount in pod_requests.of_pod(view.spec).items():
        for bound, taken, limit in _bounds(quota, name, is_preemptible=is_preemptible):
            if taken + pods * amount > limit and pods * amount > 0:
                yield _Excess(
                    f"{view.prefix}spec", name, bound, pods * amount, taken, limit, quota.name
                )


def _bounds(quota: Quota, name: str, *, is_preemptible: bool) -> Iterator[tuple[str, int, int]]:
    """Yield each bound on a resource: its name, the amount of others, and the limit."""
    used, non_preemptible_used = quota.used.get(name, 0), quota.non_preemptible_used.get(name, 0)
    if not is_preemptible and name in quota.min_amounts:
        yield "min", non_preemptible_used, quota.min_amounts[name]
    if name not in quota.max_amounts:
        return
    if is_preemptible:
        reserved = min(quota.min_amounts.get(name, 0), quota.non_preemptible_request.get(name, 0))
        used = reserved + max(0, used - non_preemptible_used)
    yield "max", used, quota.max_amounts[name]


def _refuse(excess: _Excess) -> Violation:
    asked, taken, limit = map(quantity.render, (excess.asked, excess.taken, excess.limit))
    detail = (
        f"{quote(excess.resource)}: asks for {asked}, {taken} is taken, "
        f"the {excess.bound} of ElasticQuota {quote(excess.quota)} is {limit}"
    )
    return Violation(excess.path, ViolationKind.FORBIDDEN, None, detail)


def _warn(excess: _Excess) -> str:
    wanted, limit = quantity.render(excess.asked + excess.taken), quantity.render(excess.limit)
    resource, quota = _short(excess.resource), _short(excess.quota)
    return f"{excess.path}: {resource} {wanted} over {excess.bound} {limit} of quota {quota}"


def _short(name: str) -> str:
    return quote(name if len(name) <= 20 else f"{name[:17]}...")[1:-1]
