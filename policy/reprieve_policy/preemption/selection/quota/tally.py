"""What the pods of each ElasticQuota use, summed as pods come and go.

Koordinator publishes the same figures in the quota, as of its last write, and not at all where it
does not run. A decision reads the higher one of both (`limit`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from reprieve_policy.kube.limits.quota import Amounts, Quota, QuotaKey
from reprieve_policy.kube.limits.quota_admission import QuotaUsage
from reprieve_policy.preemption.selection.snapshot import Preemptor, QuotaInfo, ScheduledPod


class QuotaTally:
    """The sums of one quota: each pod is added and removed once, and no pod is read again."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self._non_preemptible_used: Counter[str] = Counter()
        self._non_preemptible_request: Counter[str] = Counter()
        self._leaving: dict[str, ScheduledPod] = {}
        self._nominated: dict[str, Preemptor] = {}
        self._size = 0

    @property
    def is_empty(self) -> bool:
        """True once all of its pods are removed."""
        return self._size == 0

    def add_pod(self, pod: ScheduledPod) -> None:
        """Add a pod on a node."""
        self._size += 1
        self._count(pod, 1)
        if pod.is_leaving:
            self._leaving[pod.uid] = pod

    def remove_pod(self, pod: ScheduledPod) -> None:
        """Remove a pod that was added with `add_pod`."""
        self._size -= 1
        self._count(pod, -1)
        self._leaving.pop(pod.uid, None)

    def add_pending_pod(self, preemptor: Preemptor) -> None:
        """Add a pod that waits for a node."""
        self._size += 1
        self._count_pending(preemptor, 1)
        if preemptor.nominated_node is not None:
            self._nominated[preemptor.demand.uid] = preemptor

    def remove_pending_pod(self, preemptor: Preemptor) -> None:
        """Remove a pod that was added with `add_pending_pod`."""
        self._size -= 1
        self._count_pending(preemptor, -1)
        self._nominated.pop(preemptor.demand.uid, None)

    def info(self, quota: Quota) -> QuotaInfo:
        """Return the sums of what the quota bounds, which no later event changes.

        No decision reads others. Without this, pods with many resource names of their own would
        make each snapshot take seconds.
        """
        bounded = quota.min_amounts.keys() | quota.max_amounts.keys()
        return QuotaInfo(
            usage=QuotaUsage(
                used=_only(self._used, bounded),
                non_preemptible_used=_only(self._non_preemptible_used, bounded),
                non_preemptible_request=_only(self._non_preemptible_request, bounded),
            ),
            leaving=tuple(self._leaving.values()),
            nominated=tuple(self._nominated.values()),
        )

    def _count(self, pod: ScheduledPod, sign: int) -> None:
        _add(self._used, pod.amounts, sign)
        if pod.counts_against_min:
            _add(self._non_preemptible_used, pod.amounts, sign)
            _add(self._non_preemptible_request, pod.amounts, sign)

    def _count_pending(self, preemptor: Preemptor, sign: int) -> None:
        if preemptor.counts_against_min:
            _add(self._non_preemptible_request, preemptor.demand.amounts, sign)


def quota_infos_of(
    quotas: Mapping[QuotaKey, Quota], pods: Iterable[ScheduledPod], waiting: Iterable[Preemptor]
) -> Mapping[QuotaKey, QuotaInfo]:
    """Return what these pods use of each of the quotas."""
    tallies: dict[QuotaKey, QuotaTally] = {}
    for pod in pods:
        if pod.quota is not None:
            tallies.setdefault(pod.quota, QuotaTally()).add_pod(pod)
    for pending in waiting:
        if pending.quota is not None:
            tallies.setdefault(pending.quota, QuotaTally()).add_pending_pod(pending)
    return {key: tally.info(quotas[key]) for key, tally in tallies.items() if key in quotas}


def _only(amounts: Amounts, names: Iterable[str]) -> Amounts:
    return {name: amounts[name] for name in names if name in amounts}


def _add(total: Counter[str], amounts: Amounts, sign: int) -> None:
    """Add the amounts; a resource of which nothing is left is forgotten: pods may make up names."""
    for name, amount in amounts.items():
        total[name] += sign * amount
        if not total[name]:
            del total[name]
