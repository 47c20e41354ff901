"""Victims on nodes that the scheduler has not offered: it offers a sample."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus, PreemptionDecision
from reprieve_policy.preemption.selection.snapshot import (
    NodeInfo,
    Preemptor,
    Requirement,
    ScheduledPod,
)
from reprieve_testing.objects.snapshots import (
    ALL_PODS,
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

ONE = a_preemptor()
LEAVING: Mapping[str, Any] = {"is_leaving": True, "is_guarded": True, "preemptor_uid": "first"}
EVERY_POD = ALL_PODS[0]
EVERY_POD_OF_THE_RACK = EVERY_POD._replace(topology_key="rack")


def repelling(rack: str) -> NodeInfo:
    """Return a node of which a pod keeps all others away from its rack."""
    first = a_scheduled_pod("first", priority=9000, anti_affinity=(EVERY_POD_OF_THE_RACK,))
    return a_node_info("repelling", first, cpu=1, labels={"rack": rack})


def losing(name: str, seconds: float, **fields: Any) -> ScheduledPod:
    return a_scheduled_pod(name, started=-seconds, **fields)


OFFERED = a_node_info("offered", losing("old", 900), cpu=1)
OTHER = a_node_info("other", losing("young", 100), cpu=1)
WITH_ROOM = a_node_info("other", cpu=1)


@dataclass(frozen=True, kw_only=True)
class Case:
    other: NodeInfo = OTHER
    preemptor: Preemptor = ONE
    reported_room: Collection[str] = ()
    offered: NodeInfo = OFFERED
    want: str | None
    """The node on which victims are chosen."""
    further: Sequence[NodeInfo] = field(default=())


CASES = {
    "the victims that lose least, on a node that was not offered": Case(want="other"),
    "those on the offered node where they lose least": Case(
        other=a_node_info("other", losing("older", 9000), cpu=1), want="offered"
    ),
    "where no pod of the offered node may be taken": Case(
        offered=a_node_info("offered", losing("kept", 1, is_non_preemptible=True), cpu=1),
        want="other",
    ),
    "no node whose taints or labels keep the preemptor out": Case(
        other=replace(OTHER, is_unschedulable=True), want="offered"
    ),
    "only offered nodes where the fit depends on other pods": Case(
        preemptor=a_preemptor(depends_on_other_pods=True), want="offered"
    ),
    "only offered nodes where volumes limit the nodes": Case(
        preemptor=a_preemptor(volumes_limit_nodes=True), want="offered"
    ),
    "no node whose pods keep the preemptor away": Case(
        other=a_node_info("other", losing("young", 100, anti_affinity=(EVERY_POD,)), cpu=1),
        want="offered",
    ),
    "no node of a rack from which a pod on another node keeps the preemptor away": Case(
        other=replace(OTHER, labels={"rack": "r1"}), further=[repelling("r1")], want="offered"
    ),
    "a node of another rack than that from which a pod keeps the preemptor away": Case(
        other=replace(OTHER, labels={"rack": "r2"}), further=[repelling("r1")], want="other"
    ),
    "a node whose pods keep others away": Case(
        other=a_node_info(
            "other",
            losing(
                "young",
                100,
                anti_affinity=(
                    EVERY_POD._replace(requirements=(Requirement("app", "In", ("db",)),)),
                ),
            ),
            cpu=1,
        ),
        want="other",
    ),
    "room that the scheduler has not used is no reason to wait": Case(
        other=WITH_ROOM, want="offered"
    ),
    "only offered nodes once there was room where the preemptor is nominated, in vain": Case(
        preemptor=a_preemptor(nominated_node="nominated"),
        further=[a_node_info("nominated", cpu=1)],
        reported_room={"nominated"},
        want="offered",
    ),
    "other nodes too while there is no room where it is nominated": Case(
        preemptor=a_preemptor(nominated_node="nominated"),
        further=[a_node_info("nominated", a_scheduled_pod("high", priority=9000), cpu=1)],
        want="other",
    ),
    "other nodes too where the node that it was nominated to is gone": Case(
        preemptor=a_preemptor(nominated_node="gone"), want="other"
    ),
    "only offered nodes once the scheduler has insisted on its own victims": Case(
        offered=a_node_info("offered", losing("old", 900), cpu=2),
        reported_room={"offered"},
        want="offered",
    ),
}


def decided(case: Case) -> PreemptionDecision:
    snapshot = a_snapshot(case.offered, case.other, *case.further).build()
    return selection.decide(
        case.preemptor,
        snapshot,
        ["offered"],
        {"offered": [pod.uid for pod in case.offered.pods]},
        other_nodes=[node for node in snapshot.nodes if node != "offered"],
        reported_room=case.reported_room,
        is_only_best_wanted=True,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_node_whose_victims_are_chosen(case: Case) -> None:
    best = decided(case).best

    assert best is not None
    assert best.node == case.want


@pytest.mark.parametrize("priority", [9000, 1000])
def test_room_of_pods_that_no_scheduler_may_preempt_is_not_waited_for_on_another_node(
    priority: int,
) -> None:
    """The preemptor would not be nominated there, and any other pod could take the room."""
    leaving = a_scheduled_pod("leaving", priority=priority, **LEAVING)
    found = decided(Case(other=a_node_info("other", leaving, cpu=1), want=None))

    assert found.best is not None
    assert found.best.node == "offered"


def test_room_that_comes_on_another_node_is_waited_for_and_claimed() -> None:
    coming = a_node_info("other", a_scheduled_pod("leaving", **LEAVING), cpu=1)
    found = decided(Case(other=coming, want=None))

    assert found.best is None
    assert found.node_statuses["other"] is DryRunStatus.ROOM_BEING_RELEASED
    assert found.claim is not None
    assert (found.claim.node, found.claim.leaving_pod.name) == ("other", "leaving")


@pytest.mark.parametrize("field", ["", "depends_on_other_pods", "volumes_limit_nodes"])
def test_room_where_the_preemptor_is_nominated_is_waited_for_although_it_is_not_offered(
    field: str,
) -> None:
    """The last victim has just ended. Without this, a second set of victims would go."""
    preemptor = a_preemptor(
        nominated_node="nominated", **dict.fromkeys(filter(None, [field]), True)
    )
    found = decided(Case(preemptor=preemptor, further=[a_node_info("nominated", cpu=1)], want=None))

    assert found.best is None
    assert found.claim is None
    assert found.node_statuses["nominated"] is DryRunStatus.HAS_ROOM


def test_other_nodes_without_victims_are_not_reported() -> None:
    """A rejected node is one that the scheduler has offered."""
    full = a_node_info("other", a_scheduled_pod("high", priority=9000), cpu=1)
    protected = a_node_info("offered", losing("kept", 1, is_non_preemptible=True), cpu=1)
    found = decided(Case(offered=protected, other=full, want=None))

    assert found.node_statuses == {"offered": DryRunStatus.NO_VICTIMS}
