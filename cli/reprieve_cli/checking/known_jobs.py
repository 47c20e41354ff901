"""What the bare pods that name one job request: a quota counts them together."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, JobRequests
from reprieve_policy.gangs import job_requests, membership
from reprieve_policy.gangs.job_requests import JobPod
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.limits.quota import QuotaKey
from reprieve_policy.kube.objects import PodView

_JobKey = tuple[str, str, str]
"""The namespace, and the job's identity in it."""
_Use = tuple[QuotaKey | None, bool]
"""What pods must share to be counted together: the quota, and whether its `min` bounds them."""


class _Job(NamedTuple):
    """The pods of one job by name, and what they request together by their use of a quota."""

    pods: dict[str, JobPod]
    totals: dict[_Use, JobRequests]


@dataclass(slots=True)
class KnownJobs:
    """The jobs that bare pods name, with these pods.

    The pods of a job are counted once, when the first of them is checked. Without this, a thousand
    pods of one job would take minutes.
    """

    _views: dict[_JobKey, dict[str, PodView]] = field(default_factory=dict)
    _jobs: dict[_JobKey, _Job] = field(default_factory=dict)

    def add(self, namespace: str, name: str, view: PodView) -> None:
        """Add a pod, unless it names no job."""
        job = membership.read(view)
        if job is not None and job.is_declared:
            self._views.setdefault((namespace, *job.key), {})[name] = view

    def requests_beside(
        self, job: Gang, namespace: str, name: str, view: PodView, facts: Facts
    ) -> JobRequests:
        """Return what the other pods of a pod's job request from the quota of this one.

        Of the facts, this reads only the settings and quotas: call it once all of them are known.
        """
        key = (namespace, *job.key)
        if key not in self._jobs:
            self._jobs[key] = _count(self._views.get(key, {}), namespace, facts)
        pods, totals = self._jobs[key]
        use = job_requests.job_pod_of(view, namespace, facts)[:2]
        total = totals.get(use, NO_JOB_REQUESTS)
        # Under its name, the job may have another definition of this pod.
        same = pods.get(name)
        return total if same is None or same[:2] != use else _without(total, same)


def _count(views: dict[str, PodView], namespace: str, facts: Facts) -> _Job:
    pods = {name: job_requests.job_pod_of(view, namespace, facts) for name, view in views.items()}
    return _Job(pods, _totals(pods.values()))


def _totals(pods: Iterable[JobPod]) -> dict[_Use, JobRequests]:
    by_use: defaultdict[_Use, list[JobPod]] = defaultdict(list)
    for pod in pods:
        by_use[pod[:2]].append(pod)
    return {use: job_requests.requests_of(same[0], same) for use, same in by_use.items()}


def _without(total: JobRequests, pod: JobPod) -> JobRequests:
    own = Counter(pod.amounts)
    placed = own if pod.is_placed else Counter[str]()
    return JobRequests(Counter(total.requested) - own, Counter(total.placed) - placed)
