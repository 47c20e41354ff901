"""Whether the ElasticQuota of a preemptor would admit it: for no other are pods preempted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from reprieve_policy.kube.limits.quota import Quota
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import REASON_MESSAGES, DryRunStatus, RefusalReason
from reprieve_policy.preemption.selection.explain import explain_preemptor
from reprieve_policy.preemption.selection.quota.limit import QuotaLimit
from reprieve_policy.preemption.selection.quota.tally import QuotaTally, quota_infos_of
from reprieve_policy.preemption.selection.snapshot import (
    GangKey,
    NodeInfo,
    Preemptor,
    QuotaInfo,
    ScheduledPod,
    Snapshot,
)
from reprieve_testing.objects.builders import a_quota
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    amounts,
)

KEY = ("team", "gpu")
FULL = 4
"""The CPUs of the node on which victims are searched."""


def bounded(least: float, most: float, **published: float) -> Quota:
    """Return a quota of so many CPUs; `published` are Koordinator's figures."""
    return replace(
        a_quota("gpu", "team"),
        min_amounts=amounts(cpu=least),
        max_amounts=amounts(cpu=most),
        **{name: amounts(cpu=cpus) for name, cpus in published.items()},  # type: ignore[arg-type]  # named by this module only
    )


def in_quota(name: str, cpu: float, **fields: object) -> ScheduledPod:
    return a_scheduled_pod(name, cpu=cpu, **{"quota": KEY, **fields})  # type: ignore[arg-type]  # named by this module only


def kept(name: str, cpu: float, **fields: object) -> ScheduledPod:
    """Return a pod that Koordinator's label makes non-preemptible."""
    return in_quota(name, cpu, counts_against_min=True, is_non_preemptible=True, **fields)


def asking(cpu: float, **fields: object) -> Preemptor:
    return a_preemptor(cpu=cpu, **{"quota": KEY, **fields})  # type: ignore[arg-type]  # named by this module only


def waiting(uid: str, cpu: float, *, priority: int = 1000, **fields: object) -> Preemptor:
    demand = a_pod_demand(uid, priority=priority, cpu=cpu)
    return replace(asking(cpu, nominated_node="elsewhere", **fields), demand=demand)


VICTIMS = (in_quota("low-0", 2), in_quota("low-1", 2))
NON_PREEMPTIBLE = asking(2, counts_against_min=True)
PREEMPTIBLE = asking(2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A preemptor, its quota, the pods on a full node and elsewhere, and what follows."""

    quota: Quota | None
    preemptor: Preemptor = PREEMPTIBLE
    here: Sequence[ScheduledPod] = VICTIMS
    elsewhere: Sequence[ScheduledPod] = ()
    nominated: Sequence[Preemptor] = ()
    want: RefusalReason | DryRunStatus | None = None
    guard: RefusalReason | None = field(default=None)
    """Why the guard refuses a deletion, with what the extender's watches know."""

    def snapshot(self) -> Snapshot:
        nodes: list[NodeInfo] = [
            a_node_info("n", *self.here, cpu=FULL),
            a_node_info("elsewhere", *self.elsewhere, cpu=100, is_unschedulable=True),
        ]
        pods = [pod for node in nodes for pod in node.pods]
        quotas = {} if self.quota is None else {KEY: self.quota}
        quota_infos = quota_infos_of(quotas, pods, [self.preemptor, *self.nominated])
        return replace(a_snapshot(*nodes).build(), quotas=quotas, quota_infos=quota_infos)


EXCEEDED = RefusalReason.QUOTA_EXCEEDED

CASES = {
    "with min 4, used 4, a non-preemptible pod of 2 evicts no pod": Case(
        preemptor=NON_PREEMPTIBLE,
        quota=bounded(4, 20),
        elsewhere=[kept("kept", 4)],
        want=EXCEEDED,
        guard=EXCEEDED,
    ),
    "the same by the figures that Koordinator publishes": Case(
        preemptor=NON_PREEMPTIBLE,
        quota=bounded(4, 20, used=4, non_preemptible_used=4),
        want=EXCEEDED,
        guard=EXCEEDED,
    ),
    "with used 2, it evicts": Case(
        preemptor=NON_PREEMPTIBLE, quota=bounded(4, 20), elsewhere=[kept("kept", 2)]
    ),
    "preemptible pods do not use the min": Case(
        preemptor=NON_PREEMPTIBLE, quota=bounded(4, 20), elsewhere=[in_quota("other", 10)]
    ),
    "the min does not bound a preemptible preemptor": Case(
        quota=bounded(4, 20), elsewhere=[kept("kept", 4)]
    ),
    "victims of the same quota free what they use": Case(quota=bounded(0, 4)),
    "a quota that is full elsewhere frees what victims use": Case(
        quota=bounded(0, 14), elsewhere=[in_quota("other", 10)]
    ),
    "victims that free too little are not taken": Case(
        quota=bounded(0, 5),
        here=[in_quota("low-0", 1), in_quota("own", 2, priority=2000), in_quota("low-1", 1)],
        preemptor=asking(3),
        elsewhere=[in_quota("other", 1)],
        want=DryRunStatus.TOO_SMALL,
    ),
    "one victim that makes room but not quota is not taken": Case(
        quota=bounded(0, 3),
        here=[in_quota("low-0", 1)],
        preemptor=asking(4),
        want=EXCEEDED,
        guard=EXCEEDED,
    ),
    "a victim makes room, and too little quota": Case(
        quota=bounded(0, 5),
        here=[in_quota("low-0", 1)],
        preemptor=asking(4),
        elsewhere=[in_quota("other", 2)],
        want=DryRunStatus.QUOTA_EXCEEDED,
    ),
    "what non-preemptible pods use and request is kept for them": Case(
        quota=bounded(4, 5), elsewhere=[kept("kept", 4)], want=EXCEEDED, guard=EXCEEDED
    ),
    "also for one that waits": Case(
        quota=bounded(4, 5),
        nominated=[replace(waiting("w", 4, counts_against_min=True), nominated_node=None)],
        want=EXCEEDED,
        guard=EXCEEDED,
    ),
    "a pod that is leaving counts as gone": Case(
        preemptor=NON_PREEMPTIBLE,
        quota=bounded(4, 20),
        elsewhere=[kept("leaving", 4, is_leaving=True)],
    ),
    "a pod that victims were selected for counts as placed": Case(
        preemptor=NON_PREEMPTIBLE,
        quota=bounded(4, 20),
        nominated=[waiting("before", 3, counts_against_min=True)],
        want=EXCEEDED,
        guard=EXCEEDED,
    ),
    "one of lower priority does not": Case(
        preemptor=NON_PREEMPTIBLE,
        quota=bounded(4, 20),
        nominated=[waiting("before", 3, priority=999, counts_against_min=True)],
    ),
    "a preemptible one does not use the min": Case(
        preemptor=NON_PREEMPTIBLE, quota=bounded(4, 20), nominated=[waiting("before", 3)]
    ),
    "the preemptor itself counts once": Case(
        preemptor=replace(NON_PREEMPTIBLE, nominated_node="elsewhere"), quota=bounded(2, 20)
    ),
    "the rest of its gang counts": Case(
        preemptor=asking(
            2,
            counts_against_min=True,
            gang=GangKey("team", "mine"),
            pending_members=(a_pod_demand("mate", cpu=2),),
        ),
        quota=bounded(3, 20),
        want=EXCEEDED,
        guard=EXCEEDED,
    ),
    "a resource that the quota does not name is not limited": Case(
        preemptor=NON_PREEMPTIBLE, quota=a_quota("gpu", "team")
    ),
    "a quota that does not exist any more limits nothing": Case(
        preemptor=NON_PREEMPTIBLE, quota=None
    ),
    "pods of other quotas do not count": Case(
        preemptor=NON_PREEMPTIBLE,
        quota=bounded(4, 20),
        elsewhere=[kept("other", 4, quota=("team", "other"))],
    ),
    "a pod that may not be a victim in general is not refused for its quota": Case(
        preemptor=replace(NON_PREEMPTIBLE, is_exempt=True),
        quota=bounded(1, 1),
        want=RefusalReason.EXEMPT,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("is_only_best_wanted", [False, True])
def test_no_pod_is_preempted_for_one_that_its_quota_would_not_admit(
    case: Case,
    is_only_best_wanted: bool,  # noqa: FBT001 - a parameter
) -> None:
    found = selection.decide(
        case.preemptor, case.snapshot(), ["n"], is_only_best_wanted=is_only_best_wanted
    )
    assert (found.reason or found.node_statuses.get("n")) == case.want
    assert (found.best is not None) is (case.want is None)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_guard_refuses_where_no_victims_would_help(case: Case) -> None:
    snapshot = case.snapshot()
    refusal = selection.refusal_for(case.preemptor, snapshot.nodes["n"].pods[0], snapshot)
    assert (refusal and refusal.reason) == case.guard


def test_without_watches_the_guard_knows_the_published_figures() -> None:
    quota = bounded(4, 20, used=4, non_preemptible_used=4)
    snapshot = replace(a_snapshot().build(), quotas={KEY: quota})
    refusal = selection.refusal_for(NON_PREEMPTIBLE, VICTIMS[0], snapshot)
    assert refusal == selection.Refusal(
        EXCEEDED, "the preemptor's ElasticQuota would not admit it, whatever its victims"
    )
    assert selection.refusal_for(PREEMPTIBLE, VICTIMS[0], snapshot) is None


def test_one_that_requests_nothing_is_admitted_by_a_quota_that_is_overdrawn() -> None:
    snapshot = replace(a_snapshot().build(), quotas={KEY: bounded(4, 8, used=9)})
    assert selection.refusal_for(asking(0), VICTIMS[0], snapshot) is None
    assert explain_preemptor(asking(0), snapshot) is None


def test_a_preemptor_that_takes_no_victims_is_told_why() -> None:
    snapshot = CASES["with min 4, used 4, a non-preemptible pod of 2 evicts no pod"].snapshot()
    assert explain_preemptor(NON_PREEMPTIBLE, snapshot) == selection.Refusal(
        EXCEEDED, REASON_MESSAGES[EXCEEDED]
    )


def test_nothing_is_kept_of_resources_that_only_pods_of_the_past_requested() -> None:
    """A tenant may create and delete any number of pods, each with names of its own."""
    tally = QuotaTally()
    tally.add_pod(in_quota("stays", 1))
    names = [f"example.com/{number}" for number in range(10)]
    quota = replace(bounded(4, 20), max_amounts=amounts(cpu=20) | dict.fromkeys(names, 1))
    expected = tally.info(quota)
    for number, name in enumerate(names):
        made_up = {name: 1}
        past = replace(kept(f"past-{number}", 1), amounts=made_up)
        demand = replace(a_pod_demand(f"pending-{number}"), amounts=made_up)
        pending = replace(asking(1, counts_against_min=True), demand=demand)
        tally.add_pod(past)
        tally.add_pending_pod(pending)
        assert made_up.keys() <= tally.info(quota).usage.non_preemptible_request.keys()
        tally.remove_pod(past)
        tally.remove_pending_pod(pending)
    assert tally.info(quota) == expected
    assert not tally.is_empty
    assert [set(sums) for sums in (tally._used, tally._non_preemptible_request)] == [{"cpu"}, set()]


def test_only_what_a_quota_bounds_is_in_a_snapshot() -> None:
    """Without this, many names that pods make up would make each snapshot take seconds."""
    tally = QuotaTally()
    for number in range(10):
        made_up = amounts(cpu=1, memory=1) | {f"example.com/{number}": 1}
        tally.add_pod(replace(kept(f"pod-{number}", 1), amounts=made_up))
    quota = replace(bounded(4, 20), max_amounts=amounts(memory=20, gpu=1))
    usage = tally.info(quota).usage
    assert usage.used == amounts(cpu=10, memory=10)
    assert usage.used == usage.non_preemptible_used == usage.non_preemptible_request


def test_pods_in_no_quota_count_in_none() -> None:
    pod, preemptor = in_quota("a", 1, quota=None), asking(1, quota=None)
    assert quota_infos_of({KEY: bounded(4, 20)}, [pod], [preemptor]) == {}


def test_what_a_quota_does_not_bound_changes_no_decision() -> None:
    """Amounts of one resource never depend on those of another: one resource is enough."""
    bounds: list[dict[str, int]] = [{}, {"cpu": 1}, {"cpu": 2}]
    requests, either = [{"cpu": 1}, {"cpu": 2}], [False, True]
    for least, most, used in product(bounds, repeat=3):
        quota = replace(a_quota("gpu", "team"), min_amounts=least, max_amounts=most, used=used)
        for pod_amounts, asked, *flags in product(requests, requests, either, either, either):
            pod = in_quota("a", 0, counts_against_min=flags[0], is_leaving=flags[1])
            preemptor = asking(0, counts_against_min=flags[2])
            preemptor = replace(preemptor, demand=replace(preemptor.demand, amounts=asked))
            tally = QuotaTally()
            tally.add_pod(replace(pod, amounts=pod_amounts))
            tally.add_pending_pod(preemptor)
            all_sums = tally.info(replace(quota, min_amounts=requests[0], max_amounts=requests[0]))
            found = decisions(preemptor, quota, tally.info(quota))
            assert found == decisions(preemptor, quota, all_sums)


def decisions(preemptor: Preemptor, quota: Quota, info: QuotaInfo) -> tuple[bool, bool]:
    snapshot = replace(a_snapshot().build(), quotas={KEY: quota}, quota_infos={KEY: info})
    limit = QuotaLimit(preemptor, snapshot, lambda pod: pod.is_leaving)
    return limit.may_admit, limit.admits_after(())
