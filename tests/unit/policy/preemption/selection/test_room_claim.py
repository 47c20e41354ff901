"""Which room that is being released a waiting preemptor is nominated to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus
from reprieve_policy.preemption.selection.release import UNKNOWN_PREEMPTOR
from reprieve_policy.preemption.selection.snapshot import GangKey, NodeInfo, Preemptor, ScheduledPod
from reprieve_testing.objects.builders import after
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

ONE = a_preemptor()
NOTIFIED: Mapping[str, Any] = {"is_leaving": True, "is_guarded": True, "preemptor_uid": "first"}
DELETED: Mapping[str, Any] = {"is_leaving": True, "is_being_deleted": True}


def leaving(name: str, **fields: Any) -> ScheduledPod:
    return a_scheduled_pod(name, **{**NOTIFIED, **fields})


def on_node(*pods: ScheduledPod, cpu: float = 1, **fields: Any) -> Sequence[NodeInfo]:
    return (a_node_info("a", *pods, cpu=cpu, **fields),)


@dataclass(frozen=True, kw_only=True)
class Case:
    node_infos: Sequence[NodeInfo]
    want: tuple[str, str] | None
    """The node, and the pod that is named as the victim there."""
    preemptor: Preemptor = ONE


CASES = {
    "of a notified pod": Case(node_infos=on_node(leaving("v")), want=("a", "v")),
    "of a pod that is being deleted after its notice": Case(
        node_infos=on_node(a_scheduled_pod("v", **DELETED)), want=("a", "v")
    ),
    "a pod that is being deleted is named first, as it gets no DELETE": Case(
        node_infos=on_node(leaving("asked"), a_scheduled_pod("deleted", **DELETED), cpu=2),
        preemptor=a_preemptor(cpu=2),
        want=("a", "deleted"),
    ),
    "otherwise the pod that was notified first is named": Case(
        node_infos=on_node(
            leaving("later"), leaving("first", release_expected_at=after(-60)), cpu=2
        ),
        preemptor=a_preemptor(cpu=2),
        want=("a", "first"),
    ),
    "the node whose pods were notified first": Case(
        node_infos=(
            a_node_info("a", leaving("later"), cpu=1),
            a_node_info("b", leaving("first", release_expected_at=after(-60)), cpu=1),
        ),
        want=("b", "first"),
    ),
    "not where another pod is nominated": Case(
        node_infos=on_node(leaving("v"), nominated_pods=(a_pod_demand("other", priority=0),)),
        want=None,
    ),
    "not again for a preemptor that is nominated there": Case(
        node_infos=on_node(leaving("v")),
        preemptor=replace(ONE, nominated_node="a"),
        want=None,
    ),
    "for a preemptor that is nominated to another node": Case(
        node_infos=on_node(leaving("v")),
        preemptor=replace(ONE, nominated_node="gone"),
        want=("a", "v"),
    ),
    "not of a pod that the preemptor may not take, and that may be taken back": Case(
        node_infos=on_node(leaving("v", is_non_preemptible=True)), want=None
    ),
    "not where one of several may be taken back": Case(
        node_infos=on_node(
            a_scheduled_pod("deleted", **DELETED), leaving("v", is_non_preemptible=True), cpu=2
        ),
        preemptor=a_preemptor(cpu=2),
        want=None,
    ),
    "of a protected pod that is being deleted": Case(
        node_infos=on_node(a_scheduled_pod("v", is_non_preemptible=True, **DELETED)),
        want=("a", "v"),
    ),
    "not of pods of a higher priority only, which no scheduler preempts": Case(
        node_infos=on_node(a_scheduled_pod("v", priority=2000, **DELETED)), want=None
    ),
    "not of a pod whose DELETE no guard reviews": Case(
        node_infos=on_node(leaving("v", is_guarded=False)), want=None
    ),
    "not of a pod that leaves for no preemptor": Case(
        node_infos=on_node(leaving("v", preemptor_uid="")), want=None
    ),
    "not of a synchronous scheduler's victim, which names no preemptor": Case(
        node_infos=on_node(leaving("v", preemptor_uid=UNKNOWN_PREEMPTOR)), want=None
    ),
}


def claimed(case: Case, proposed: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    snapshot = a_snapshot(*case.node_infos).build()
    found = selection.decide(case.preemptor, snapshot, snapshot.nodes, proposed)
    assert found.claim is None or found.best is None
    return None if found.claim is None else (found.claim.node, found.claim.leaving_pod.name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_room_that_is_claimed(case: Case) -> None:
    proposed = {
        node_info.name: [pod.uid for pod in node_info.pods] for node_info in case.node_infos
    }

    assert claimed(case, proposed) == case.want


def test_no_room_is_claimed_on_a_node_that_the_scheduler_did_not_propose() -> None:
    case = Case(node_infos=on_node(leaving("v")), want=None)

    assert claimed(case, {}) is None
    assert claimed(case, {"other": ["v"]}) is None


def test_room_is_claimed_also_while_the_scheduler_has_yet_to_see_free_room() -> None:
    """Until it does, less important pods may take that."""
    node_infos = (a_node_info("free", cpu=1), *on_node(leaving("v")))
    case = Case(node_infos=node_infos, want=("a", "v"))

    assert claimed(case, {"a": ["v"]}) == case.want


def test_the_room_of_a_gang_that_leaves_as_a_unit_is_not_claimed_before_it_is_deleted() -> None:
    old = GangKey("team", "old")
    for fields, want in ((NOTIFIED, None), ({**NOTIFIED, **DELETED}, ("a", "v"))):
        pod = a_scheduled_pod("v", gang=old, **fields)
        built = a_snapshot(*on_node(pod)).with_gang("old").build()
        found = selection.decide(ONE, built, ["a"], {"a": ["v"]})

        assert found.node_statuses == {"a": DryRunStatus.ROOM_BEING_RELEASED}
        assert (found.claim and (found.claim.node, found.claim.leaving_pod.uid)) == want


def test_of_a_job_that_leaves_pod_by_pod_the_room_is_claimed() -> None:
    pod = leaving("v", gang=GangKey("team", "job/old"))
    case = Case(node_infos=on_node(pod), want=("a", "v"))

    assert claimed(case, {"a": ["v"]}) == case.want
