"""Which pods may be victims of which preemptors, and the reasons for refusals."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import PreemptionToleration, VictimToleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.keys import HOME_NAMESPACE
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.selection import (
    REASON_MESSAGES,
    STATUS_MESSAGES,
    DryRunStatus,
    Refusal,
    RefusalReason,
)
from reprieve_policy.preemption.selection.snapshot import (
    GangKey,
    NodeInfo,
    Preemptor,
    ScheduledPod,
    Taint,
)
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    with_fields,
)

ME = a_preemptor(priority=1000)
LOW = a_scheduled_pod("low")
DEFAULTS = PolicySettings()
HOME = {HOME_NAMESPACE: "team"}


@dataclass(frozen=True, kw_only=True)
class Case:
    preemptor: Preemptor = ME
    pod: ScheduledPod = LOW
    settings: PolicySettings = DEFAULTS
    labels: Mapping[str, str] | None = None
    taints: tuple[Taint, ...] = ()
    want: RefusalReason | None
    detail: str = ""

    def refusal(self) -> Refusal | None:
        node_info: NodeInfo = a_node_info(
            "n", self.pod, labels=self.labels or {}, taints=self.taints
        )
        mate = a_node_info(
            "m",
            low(
                uid="mate",
                name="mate",
                gang=GangKey("team", "gang"),
                is_leaving=True,
                notified=True,
                release_expected_at=NOW,
            ),
        )
        snapshot = (
            a_snapshot(node_info, mate)
            .with_gang("gang", DisruptionMode.SINGLE, min_available=1)
            .with_settings(self.settings)
            .build()
        )
        return selection.refusal_for(self.preemptor, node_info.pods[0], snapshot)


def of_class(preemption_class: int) -> Preemptor:
    return replace(ME, preemption_class=preemption_class)


def low(**fields: object) -> ScheduledPod:
    return with_fields(LOW, **fields)


def tolerating(seconds: int, minimum: int = 5000, *, since: float | None = -60) -> ScheduledPod:
    scheduled_at = None if since is None else after(since)
    policy = PreemptionToleration(minimum, seconds)
    return low(
        toleration=VictimToleration(
            has_priority_class=True, policy=policy, scheduled_at=scheduled_at
        )
    )


def running(seconds: int) -> ScheduledPod:
    return low(
        progress=WorkProgress(started_at=after(-600), walltime=Walltime(after(-600), seconds))
    )


BANDED = PolicySettings(class_rule="banded")
QUOTA, OTHER = ("team", "a"), ("team", "b")

CASES = {
    "a pod of lower priority may be a victim": Case(want=None),
    "a preemptor with preemptionPolicy Never has no victims": Case(
        preemptor=replace(ME, never_preempts=True),
        want=RefusalReason.NEVER_PREEMPTS,
        detail="preemptionPolicy is Never",
    ),
    "a preemptor without can-preempt has no victims": Case(
        preemptor=replace(ME, can_preempt=False),
        want=RefusalReason.MAY_NOT_PREEMPT,
        detail="can-preempt",
    ),
    "an equal priority is not lower": Case(
        pod=low(preemption_priority=1000),
        want=RefusalReason.PRIORITY,
        detail="it is defended with priority 1000; the preemptor's is 1000",
    ),
    "a pod that takes back a node takes victims of its own priority": Case(
        preemptor=replace(ME, takes_back_nodes=True), pod=low(preemption_priority=1000), want=None
    ),
    "a pod that takes back a node takes none of a higher priority": Case(
        preemptor=replace(ME, takes_back_nodes=True),
        pod=low(preemption_priority=1001),
        want=RefusalReason.PRIORITY,
        detail="it is defended with priority 1001; the preemptor's is 1000",
    ),
    "a pod that takes back a node takes victims of other quotas": Case(
        preemptor=replace(ME, takes_back_nodes=True, quota=QUOTA), pod=low(quota=OTHER), want=None
    ),
    "a pod that takes back a node keeps to the class rule": Case(
        preemptor=replace(ME, takes_back_nodes=True, preemption_class=5),
        pod=low(preemption_class=5, preemption_priority=1000),
        want=RefusalReason.CLASS,
    ),
    "a pod that takes back a node keeps to tolerations": Case(
        preemptor=replace(ME, takes_back_nodes=True),
        pod=with_fields(tolerating(-1, minimum=1001), preemption_priority=1000),
        want=RefusalReason.TOLERATION,
    ),
    "the victim's preemption priority counts": Case(
        pod=low(priority=0, preemption_priority=2000), want=RefusalReason.PRIORITY
    ),
    "a leaving pod is not a victim again": Case(
        pod=low(is_leaving=True), want=RefusalReason.ALREADY_LEAVING
    ),
    "without its PriorityClass its toleration is unknown": Case(
        pod=low(lacks_priority_class=True), want=RefusalReason.NO_PRIORITY_CLASS
    ),
    "a non-preemptible pod is not a victim": Case(
        pod=low(is_non_preemptible=True), want=RefusalReason.NON_PREEMPTIBLE
    ),
    "a pod near its walltime may finish": Case(
        pod=running(900),
        want=RefusalReason.NEAR_COMPLETION,
        detail="its walltime ends at 2026-11-21T12:05:00Z: it may finish",
    ),
    "a second earlier the pod may still be a victim": Case(pod=running(901), want=None),
    "a pod that was refused for less than the ceiling may finish": Case(
        pod=replace(running(900), refused_since=after(-1799)), want=RefusalReason.NEAR_COMPLETION
    ),
    "a pod that was refused for the ceiling may not finish": Case(
        pod=replace(running(900), refused_since=after(-1800)), want=None
    ),
    "a pod whose walltime is over is not nearly complete": Case(pod=running(600), want=None),
    "a pod without a walltime is never nearly complete": Case(
        pod=low(progress=WorkProgress(started_at=after(-600))), want=None
    ),
    "both of the default class, without preferences": Case(want=None),
    "a victim of the preemptor's own class is not taken": Case(
        preemptor=of_class(5),
        pod=low(preemption_class=5),
        want=RefusalReason.CLASS,
        detail="a preemptor of class 5 takes no victim of class 5, by the strict rule",
    ),
    "a victim of a lower class is taken": Case(
        preemptor=of_class(5), pod=low(preemption_class=4), want=None
    ),
    "a victim of a higher class is not taken, whatever its priority": Case(
        pod=low(preemption_class=5), want=RefusalReason.CLASS
    ),
    "class 10 takes no victim of class 10": Case(
        preemptor=of_class(10), pod=low(preemption_class=10), want=RefusalReason.CLASS
    ),
    "by the banded rule, a victim of the same band is not taken": Case(
        preemptor=of_class(6),
        pod=low(preemption_class=5),
        settings=BANDED,
        want=RefusalReason.CLASS,
        detail="banded",
    ),
    "by the banded rule, the lowest class of the next band takes the victim": Case(
        preemptor=of_class(7), pod=low(preemption_class=4), settings=BANDED, want=None
    ),
    "a toleration protects until its time is over": Case(
        pod=tolerating(61),
        want=RefusalReason.TOLERATION,
        detail=(
            "its PriorityClass tolerates priorities below 5000, and the preemptor's "
            "is 1000, until 2026-11-21T12:00:01Z"
        ),
    ),
    "a toleration does not protect once its time is over": Case(pod=tolerating(60), want=None),
    "a toleration of -1 protects for ever": Case(
        pod=tolerating(-1),
        want=RefusalReason.TOLERATION,
        detail="its PriorityClass tolerates priorities below 5000, and the preemptor's is 1000",
    ),
    "a pod without a known time of scheduling is protected for ever": Case(
        pod=tolerating(1, since=None), want=RefusalReason.TOLERATION
    ),
    "a preemptor of the tolerated minimum takes the victim": Case(
        pod=tolerating(-1, minimum=1000), want=None
    ),
    "a service on a node without a label is at home": Case(
        pod=low(is_service=True), want=RefusalReason.NODE_NOT_LENT
    ),
    "a service on a node of its own Namespace is not borrowing": Case(
        pod=low(is_service=True), labels=HOME, want=RefusalReason.NODE_NOT_LENT
    ),
    "a service on a node of another Namespace is not at home": Case(
        pod=low(is_service=True), labels={HOME_NAMESPACE: "other"}, want=None
    ),
    "nor on a node that a taint lends": Case(
        pod=low(is_service=True),
        taints=(Taint(HOME_NAMESPACE, "other", "NoSchedule"),),
        want=None,
    ),
    "a service on a node whose label and taint differ counts as at home": Case(
        pod=low(is_service=True),
        labels={HOME_NAMESPACE: "other"},
        taints=(Taint(HOME_NAMESPACE, "third", "NoSchedule"),),
        want=RefusalReason.NODE_NOT_LENT,
    ),
    "a preemptor with a quota takes victims of the same quota": Case(
        preemptor=replace(ME, quota=QUOTA), pod=low(quota=QUOTA), want=None
    ),
    "a preemptor with a quota takes no victims of another quota": Case(
        preemptor=replace(ME, quota=QUOTA), pod=low(quota=OTHER), want=RefusalReason.QUOTA
    ),
    "a preemptor with a quota takes no victims without a quota": Case(
        preemptor=replace(ME, quota=QUOTA), want=RefusalReason.QUOTA
    ),
    "a preemptor without a quota takes victims of all quotas": Case(
        pod=low(quota=OTHER), want=None
    ),
    "a gang at its minimum after one eviction loses no other pod": Case(
        pod=low(gang=GangKey("team", "gang")),
        want=RefusalReason.MIN_AVAILABLE,
        detail="no more pods than it needs",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_which_pods_may_be_victims(case: Case):
    found = case.refusal()

    assert (found and found.reason) == case.want
    assert found is None or case.detail in found.detail


ROUNDS = {
    "the last victims are still leaving": (
        low(is_leaving=True),
        "n",
        RefusalReason.VICTIMS_LEAVING,
    ),
    "the last victims no longer exist": (LOW, "n", None),
    "the node is no longer there": (LOW, "gone", None),
    "the pod that is leaving is not one of its victims": (
        low(is_leaving=True, preemption_priority=1000),
        "n",
        None,
    ),
}


@pytest.mark.parametrize(("pod", "node", "want"), ROUNDS.values(), ids=ROUNDS.keys())
def test_no_second_victim_set_begins_before_the_first_is_finished(
    pod: ScheduledPod, node: str, want: RefusalReason | None
):
    node_info = a_node_info("n", pod, a_scheduled_pod("other"), cpu=1)

    assert (
        selection.decide(
            replace(ME, nominated_node=node), a_snapshot(node_info).build(), ["n"]
        ).reason
        == want
    )


def test_members_of_the_current_round_may_continue_to_preempt():
    node_info = a_node_info("n", low(is_leaving=True), a_scheduled_pod("fellow"), cpu=1)

    assert (
        selection.refusal_for(
            replace(ME, nominated_node="n"), node_info.pods[1], a_snapshot(node_info).build()
        )
        is None
    )


def test_a_service_on_an_unknown_node_counts_as_at_home():
    refused = selection.refusal_for(ME, low(is_service=True, node="gone"), a_snapshot().build())

    assert refused is not None
    assert refused.reason is RefusalReason.NODE_NOT_LENT


AGAINST: dict[RefusalReason, Mapping[str, object]] = {
    RefusalReason.PRIORITY: {"preemption_priority": 1000},
    RefusalReason.OWN_GANG: {"gang": GangKey("team", "mine")},
    RefusalReason.ALREADY_LEAVING: {"is_leaving": True},
    RefusalReason.NO_PRIORITY_CLASS: {"lacks_priority_class": True},
    RefusalReason.NON_PREEMPTIBLE: {"is_non_preemptible": True},
    RefusalReason.NEAR_COMPLETION: {"progress": running(601).progress},
    RefusalReason.CLASS: {"preemption_class": 9},
    RefusalReason.TOLERATION: {"toleration": tolerating(-1).toleration},
    RefusalReason.NODE_NOT_LENT: {"is_service": True},
    RefusalReason.QUOTA: {"quota": OTHER},
}
"""What makes a pod one that is refused on that ground."""


@given(st.sets(st.sampled_from(sorted(AGAINST)), min_size=1))
def test_of_several_reasons_the_first_of_the_table_is_returned(holding: set[RefusalReason]):
    fields = {name: value for ground in holding for name, value in AGAINST[ground].items()}
    preemptor = replace(ME, quota=QUOTA, gang=GangKey("team", "mine"))

    found = selection.refusal_for(
        preemptor, low(**{"quota": QUOTA, **fields}), a_snapshot().build()
    )

    assert found is not None
    assert found.reason is next(ground for ground in RefusalReason if ground in holding)


@pytest.mark.parametrize(
    "preemptor",
    [replace(ME, never_preempts=True), replace(ME, can_preempt=False)],
    ids=["never", "may not"],
)
def test_a_preemptor_that_may_not_preempt_evaluates_no_node(preemptor: Preemptor):
    found = selection.decide(preemptor, a_snapshot().build(), iter(()))

    assert found.reason is not None
    assert found.best is None


PAGE = (Path(__file__).parents[5] / "docs" / "choosing.md").read_text(encoding="utf-8")


def test_each_reason_and_node_status_has_a_message_and_is_documented_in_order():
    assert REASON_MESSAGES.keys() == set(RefusalReason)
    assert STATUS_MESSAGES.keys() == set(DryRunStatus)
    rows = [line.split("|")[1].strip(" `") for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == [*RefusalReason, *DryRunStatus]


def test_messages_contain_nothing_of_the_preemptor_but_numbers():
    named = replace(
        ME, name="secret-name", namespace="secret-namespace", demand=a_pod_demand("secret-uid")
    )
    for fields in AGAINST.values():
        found = selection.refusal_for(
            replace(named, quota=QUOTA), low(**fields), a_snapshot().build()
        )
        assert found is None or "secret" not in found.detail


def test_times_are_compared_with_the_time_of_the_snapshot():
    later = replace(a_snapshot().build(), now=after(1))

    assert selection.refusal_for(ME, tolerating(61), replace(later, now=NOW)) is not None
    assert selection.refusal_for(ME, tolerating(61), later) is None


ENDS = {
    "a toleration for a time": (tolerating(61), after(1)),
    "a toleration for ever": (tolerating(-1), None),
    "a toleration whose time has not started": (tolerating(61, since=None), None),
    "another reason": (low(preemption_class=5), None),
}


@pytest.mark.parametrize(("pod", "until"), ENDS.values(), ids=ENDS)
def test_a_refusal_has_the_time_when_it_ends(pod: ScheduledPod, until: datetime | None):
    refused = selection.refusal_for(ME, pod, a_snapshot().build())

    assert refused is not None
    assert refused.until == until


def test_for_system_critical_preemptors_nothing_is_chosen_and_no_victim_is_refused():
    """Without this, a system-critical pod would wait because of the settings of users."""
    own, protected = replace(ME, is_exempt=True), low(is_non_preemptible=True, preemption_class=10)
    built = a_snapshot(a_node_info("n", protected, cpu=1)).build()

    assert selection.decide(own, built, ["n"]).reason is RefusalReason.EXEMPT
    assert selection.refusal_for(own, protected, built) is None
    assert selection.refusal_for(ME, protected, built) is not None
