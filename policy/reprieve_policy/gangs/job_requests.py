"""What the other pods of a job request: bare pods that name one job are one job (document 000)."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from reprieve_policy import facts as known
from reprieve_policy.facts import Facts, JobRequests
from reprieve_policy.keys import PREEMPTIBLE, QUOTA_NAME
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.limits.quota import Amounts, Quota, QuotaKey
from reprieve_policy.kube.objects import PodView, Resource, pod_views

from . import membership
from .membership import Gang


class JobPod(NamedTuple):
    """A pod of a job, as the quota of the job counts it."""

    quota: QuotaKey | None
    counts_against_min: bool
    amounts: Amounts
    """Of the resources that the quota limits. Without this, a user could fill the memory of the
    programs that keep them, with a thousand made-up resources in each pod."""
    is_placed: bool
    """It is on a node, so that its request is in the used figures."""


def names_quota(view: PodView) -> bool:
    """True for a pod with a label of Koordinator's quotas: its job must fit into its quota."""
    return QUOTA_NAME in view.labels or PREEMPTIBLE in view.labels


def job_to_count(resource: Resource, old: Resource | None, facts: Facts) -> Gang | None:
    """Return the job whose other pods a quota counts with this pod, `None` if there are none.

    That is so for a pod that is created, joins a job, or moves to another quota.
    """
    view = next(pod_views(resource), None)
    if resource.kind != "Pod" or view is None or not names_quota(view):
        return None
    gang, namespace = membership.read(view), resource.metadata.namespace or ""
    if gang is None or not gang.is_declared or facts.quotas.find(view.labels, namespace) is None:
        return None
    before = None if old is None else next(pod_views(old))
    is_same = before is not None and _identity(before, namespace, facts) == _identity(
        view, namespace, facts
    )
    return None if is_same else gang


def job_pod_of(view: PodView, namespace: str, facts: Facts) -> JobPod:
    """Return a pod as its quota counts it."""
    found = facts.quotas.find(view.labels, namespace)
    return JobPod(
        None if found is None else found.key,
        known.counts_against_min(view, facts),
        {} if found is None else _limited(pod_requests.of_pod(view.spec), found),
        bool(view.spec.nodeName),
    )


def requests_of(own: JobPod, others: Iterable[JobPod]) -> JobRequests:
    """Return what the other pods of the job request from the quota of this one."""
    same = [one for one in others if one[:2] == own[:2]]
    return JobRequests(requested=_sum(same), placed=_sum([pod for pod in same if pod.is_placed]))


def _identity(view: PodView, namespace: str, facts: Facts) -> tuple[object, ...]:
    gang = membership.read(view)
    return (None if gang is None else gang.key), job_pod_of(view, namespace, facts)[:2]


def _limited(amounts: Amounts, quota: Quota) -> Amounts:
    return {
        name: amount
        for name, amount in amounts.items()
        if name in quota.min_amounts or name in quota.max_amounts
    }


def _sum(pods: Iterable[JobPod]) -> Amounts:
    total: Counter[str] = Counter()
    for pod in pods:
        total.update(pod.amounts)
    return total
