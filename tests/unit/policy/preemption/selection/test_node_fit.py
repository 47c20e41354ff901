"""Which nodes a pod may run on at all, and whom else it has room beside."""

from dataclasses import dataclass

import pytest

from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus, node_fit
from reprieve_policy.preemption.selection.snapshot import (
    HostPortInfo,
    NodeAffinityTerm,
    NodeInfo,
    PodDemand,
    Requirement,
    SchedulingConstraints,
    Taint,
    TaintToleration,
)
from reprieve_testing.snapshots import (
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

ANY = SchedulingConstraints()
GPU = {"gpu": "8"}
TAINTED = (Taint("lent", "yes", "NoSchedule"),)


def needing(*labels: Requirement, names: tuple[Requirement, ...] = ()) -> SchedulingConstraints:
    return SchedulingConstraints(node_affinity_terms=(NodeAffinityTerm(labels, names),))


def tolerating(
    key: str = "", operator: str = "", value: str = "", effect: str = ""
) -> SchedulingConstraints:
    return SchedulingConstraints(tolerations=(TaintToleration(key, operator, value, effect),))


@dataclass(frozen=True, kw_only=True)
class Case:
    wish: SchedulingConstraints = ANY
    room: NodeInfo
    want: bool


PLAIN = a_node_info("n")
LABELLED = a_node_info("n", labels=GPU)
CORDONED = a_node_info("n", is_unschedulable=True)
LENT = a_node_info("n", taints=TAINTED)

NODES = {
    "a pod that asks for nothing may run anywhere": Case(room=PLAIN, want=True),
    "its selector must be met": Case(
        wish=SchedulingConstraints(node_selector=GPU), room=PLAIN, want=False
    ),
    "and is by the label": Case(
        wish=SchedulingConstraints(node_selector=GPU), room=LABELLED, want=True
    ),
    "one term of several is enough": Case(
        wish=SchedulingConstraints(
            node_affinity_terms=(
                NodeAffinityTerm((Requirement("gpu", "DoesNotExist"),)),
                NodeAffinityTerm((Requirement("gpu", "Exists"),)),
            )
        ),
        room=LABELLED,
        want=True,
    ),
    "all of one term must hold": Case(
        wish=needing(Requirement("gpu", "Exists"), Requirement("gpu", "In", ("4",))),
        room=LABELLED,
        want=False,
    ),
    "no term holds for no node": Case(
        wish=SchedulingConstraints(node_affinity_terms=()), room=PLAIN, want=False
    ),
    "nor does an empty one": Case(wish=needing(), room=PLAIN, want=False),
    "a node may be named": Case(
        wish=needing(names=(Requirement("metadata.name", "In", ("n",)),)), room=PLAIN, want=True
    ),
    "and another may be": Case(
        wish=needing(names=(Requirement("metadata.name", "In", ("m",)),)), room=PLAIN, want=False
    ),
    "what a label must not say": Case(
        wish=needing(Requirement("gpu", "NotIn", ("8",))), room=LABELLED, want=False
    ),
    "it does not where there is none": Case(
        wish=needing(Requirement("gpu", "NotIn", ("8",))), room=PLAIN, want=True
    ),
    "more than": Case(wish=needing(Requirement("gpu", "Gt", ("7",))), room=LABELLED, want=True),
    "no more than": Case(wish=needing(Requirement("gpu", "Gt", ("8",))), room=LABELLED, want=False),
    "less than": Case(wish=needing(Requirement("gpu", "Lt", ("9",))), room=LABELLED, want=True),
    "what is not there is not less": Case(
        wish=needing(Requirement("gpu", "Lt", ("9",))), room=PLAIN, want=False
    ),
    "than one number": Case(
        wish=needing(Requirement("gpu", "Lt", ("9", "10"))), room=LABELLED, want=False
    ),
    "that is one": Case(
        wish=needing(Requirement("gpu", "Lt", ("many",))), room=LABELLED, want=False
    ),
    "compared with a label that is one": Case(
        wish=needing(Requirement("gpu", "Lt", ("9",))),
        room=a_node_info("n", labels={"gpu": "1_0"}),
        want=False,
    ),
    "what nobody knows how to compare is met by none": Case(
        wish=needing(Requirement("gpu", "About", ("8",))), room=LABELLED, want=False
    ),
    "a cordoned node takes nobody": Case(room=CORDONED, want=False),
    "but who tolerates everything": Case(
        wish=tolerating(operator="Exists"), room=CORDONED, want=True
    ),
    "a taint keeps out who does not tolerate it": Case(room=LENT, want=False),
    "by key and value": Case(wish=tolerating("lent", "Equal", "yes"), room=LENT, want=True),
    "with no operator that is meant": Case(
        wish=tolerating("lent", "", "yes"), room=LENT, want=True
    ),
    "another value does not do": Case(
        wish=tolerating("lent", "Equal", "no"), room=LENT, want=False
    ),
    "nor another key": Case(wish=tolerating("borrowed", "Exists"), room=LENT, want=False),
    "nor another effect": Case(
        wish=tolerating("lent", "Exists", effect="NoExecute"), room=LENT, want=False
    ),
    "nor an operator that nobody knows": Case(
        wish=tolerating("lent", "Like", "yes"), room=LENT, want=False
    ),
    "a taint that only prefers keeps nobody out": Case(
        room=a_node_info("n", taints=(Taint("slow", "", "PreferNoSchedule"),)), want=True
    ),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES.keys())
def test_whether_a_node_suits(case: Case):
    assert node_fit.satisfies_constraints(case.wish, case.room) == case.want


def port(number: int, address: str = "0.0.0.0", protocol: str = "TCP") -> frozenset[HostPortInfo]:
    return frozenset({HostPortInfo(address, protocol, number)})


PORTS = {
    "one port is one pod's": (port(80), port(80), True),
    "two are not": (port(80), port(81), False),
    "nor one of two protocols": (port(80), port(80, protocol="UDP"), False),
    "nor one at two addresses": (port(80, "10.0.0.1"), port(80, "10.0.0.2"), False),
    "every address is each of them": (port(80, "10.0.0.1"), port(80), True),
}


@pytest.mark.parametrize(("mine", "its", "want"), PORTS.values(), ids=PORTS.keys())
def test_ports_of_the_node(
    mine: frozenset[HostPortInfo], its: frozenset[HostPortInfo], *, want: bool
):
    assert node_fit.ports_conflict(mine, its) == want


ONE = a_pod_demand(ports=port(80))
ON_80 = a_scheduled_pod("web", priority=9, cpu=0, ports=port(80))
GOES = {
    ("who has the port goes, whoever else might"): (
        ONE,
        a_node_info("n", ON_80, a_scheduled_pod("low"), cpu=9),
        ["web"],
    ),
    "who makes a place among the pods": (
        a_pod_demand(cpu=0),
        a_node_info("n", a_scheduled_pod("low"), cpu=9, pods=1),
        ["low"],
    ),
    "what the preemptor does not ask for is not looked at": (
        a_pod_demand(amounts={"cpu": 0, "memory": 10**9}),
        a_node_info(
            "n",
            a_scheduled_pod("low", amounts={"memory": 10**9}),
            a_scheduled_pod("big", cpu=99),
            allocatable={
                "cpu": 10**9,
                "memory": 10**9,
                "pods": 110 * 10**9,
            },
        ),
        ["low"],
    ),
    "a nominated pod of lower priority is no bar": (
        a_pod_demand(),
        a_node_info(
            "n", a_scheduled_pod("low"), cpu=1, nominated_pods=(a_pod_demand("other", priority=1),)
        ),
        ["low"],
    ),
    "nor is the preemptor itself": (
        a_pod_demand(),
        a_node_info("n", a_scheduled_pod("low"), cpu=1, nominated_pods=(a_pod_demand(),)),
        ["low"],
    ),
}


@pytest.mark.parametrize(("demand", "room", "want"), GOES.values(), ids=GOES.keys())
def test_who_goes(demand: PodDemand, room: NodeInfo, want: list[str]):
    best = selection.decide(a_preemptor(demand=demand), a_snapshot(room).build(), ["n"]).best

    assert best is not None
    assert [victim.name for victim in best.victims] == want


HELPLESS = {
    "a node that nobody sees": (a_node_info("other"), DryRunStatus.UNKNOWN_NODE),
    "a node that keeps it out": (a_node_info("n", is_unschedulable=True), DryRunStatus.UNSUITABLE),
    "a node that is too small however empty": (
        a_node_info("n", a_scheduled_pod("low"), cpu=0.5),
        DryRunStatus.TOO_SMALL,
    ),
    "a node that says nothing of how many pods it takes": (
        a_node_info("n", a_scheduled_pod("low"), allocatable={"cpu": 10**10}),
        DryRunStatus.TOO_SMALL,
    ),
    "a node with room": (a_node_info("n", a_scheduled_pod("low"), cpu=2), DryRunStatus.HAS_ROOM),
    "a node that will have": (
        a_node_info("n", a_scheduled_pod("low"), a_scheduled_pod("gone", is_leaving=True), cpu=2),
        DryRunStatus.ROOM_BEING_RELEASED,
    ),
    "a node with a pod of which nobody knows what it tolerates": (
        a_node_info(
            "n",
            a_scheduled_pod("low"),
            a_scheduled_pod("odd", cpu=0, lacks_priority_class=True),
            cpu=1,
        ),
        DryRunStatus.NO_PRIORITY_CLASS,
    ),
}


@pytest.mark.parametrize(("room", "want"), HELPLESS.values(), ids=HELPLESS.keys())
def test_no_victims_help_on(room: NodeInfo, want: DryRunStatus):
    assert selection.decide(a_preemptor(), a_snapshot(room).build(), ["n"]).node_statuses == {
        "n": want
    }
