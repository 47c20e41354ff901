"""Whether the ElasticQuota of a preemptor would admit it (document 000).

Koordinator keeps a pod waiting that its quota does not admit: victims for it would leave in vain.
Pods that are leaving count as gone, and pods that victims were selected for as placed. Victims of
the preemptor's own quota free what they use; no victim is selected only to free quota (001).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from reprieve_policy.kube.limits import quota_admission
from reprieve_policy.kube.limits.quota import Amounts
from reprieve_policy.kube.limits.quota_admission import QuotaUsage
from reprieve_policy.preemption.selection.snapshot import (
    NO_QUOTA_INFO,
    Preemptor,
    QuotaInfo,
    ScheduledPod,
    Snapshot,
)


class QuotaLimit:
    """The quota of one preemptor, and what is used of it."""

    def __init__(
        self, preemptor: Preemptor, snapshot: Snapshot, is_leaving: Callable[[ScheduledPod], bool]
    ) -> None:
        self._preemptor = preemptor
        key = preemptor.quota
        self._quota = None if key is None else snapshot.quotas.get(key)
        if key is None or self._quota is None:
            return
        demands = (preemptor.demand, *preemptor.pending_members)
        self._request = _sum(demand.amounts for demand in demands)
        info = snapshot.quota_infos.get(key, NO_QUOTA_INFO)
        published = quota_admission.published_usage(self._quota)
        self._usage = _with_nominated(
            _without(
                _higher_of(published, info.usage), [one for one in info.leaving if is_leaving(one)]
            ),
            info,
            preemptor,
        )

    @property
    def may_admit(self) -> bool:
        """False if the quota admits the preemptor and its gang after no victims at all.

        At best, all preemptible pods of the quota are victims. Those that are not preemptible stay.
        """
        if self._quota is None:
            return True
        return self._admits(replace(self._usage, used=self._usage.non_preemptible_used))

    def admits_after(self, victims: Iterable[ScheduledPod]) -> bool:
        """True if the quota admits the preemptor and its gang once these pods are gone."""
        if self._quota is None:
            return True
        own = [pod for pod in victims if pod.quota == self._preemptor.quota]
        return self._admits(_without(self._usage, own))

    def _admits(self, usage: QuotaUsage) -> bool:
        assert self._quota is not None
        is_preemptible = not self._preemptor.counts_against_min
        found = quota_admission.excesses(
            self._quota, self._request, usage, is_preemptible=is_preemptible
        )
        return next(found, None) is None


def _with_nominated(usage: QuotaUsage, info: QuotaInfo, preemptor: Preemptor) -> QuotaUsage:
    """Return the usage with the pods that get room before the preemptor, or together with it."""
    others = [
        one
        for one in info.nominated
        if one.demand.uid != preemptor.demand.uid
        and one.demand.priority >= preemptor.demand.priority
    ]
    non_preemptible = [one.demand.amounts for one in others if one.counts_against_min]
    return QuotaUsage(
        used=_sum([usage.used, *(one.demand.amounts for one in others)]),
        non_preemptible_used=_sum([usage.non_preemptible_used, *non_preemptible]),
        non_preemptible_request=usage.non_preemptible_request,
    )


def _without(usage: QuotaUsage, pods: Iterable[ScheduledPod]) -> QuotaUsage:
    pods = list(pods)
    all_amounts = _sum(pod.amounts for pod in pods)
    non_preemptible = _sum(pod.amounts for pod in pods if pod.counts_against_min)
    return QuotaUsage(
        used=_minus(usage.used, all_amounts),
        non_preemptible_used=_minus(usage.non_preemptible_used, non_preemptible),
        non_preemptible_request=_minus(usage.non_preemptible_request, non_preemptible),
    )


def _higher_of(one: QuotaUsage, other: QuotaUsage) -> QuotaUsage:
    return QuotaUsage(
        used=_union(one.used, other.used),
        non_preemptible_used=_union(one.non_preemptible_used, other.non_preemptible_used),
        non_preemptible_request=_union(one.non_preemptible_request, other.non_preemptible_request),
    )


def _union(one: Amounts, other: Amounts) -> Amounts:
    return Counter(one) | Counter(other)


def _sum(each: Iterable[Amounts]) -> Amounts:
    total: Counter[str] = Counter()
    for amounts in each:
        total.update(amounts)
    return total


def _minus(amounts: Amounts, gone: Amounts) -> Amounts:
    return Counter(amounts) - Counter(gone)
