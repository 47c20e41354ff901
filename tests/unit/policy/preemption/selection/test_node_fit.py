"""Which nodes a pod may run on, and beside which pods."""

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
    constraints: SchedulingConstraints = ANY
    node_info: NodeInfo
    want: bool


PLAIN = a_node_info("n")
LABELLED = a_node_info("n", labels=GPU)
CORDONED = a_node_info("n", is_unschedulable=True)
LENT = a_node_info("n", taints=TAINTED)

NODES = {
    "a pod that asks for nothing may run anywhere": Case(node_info=PLAIN, want=True),
    "its selector must be met": Case(
        constraints=SchedulingConstraints(node_selector=GPU), node_info=PLAIN, want=False
    ),
    "and is by the label": Case(
        constraints=SchedulingConstraints(node_selector=GPU), node_info=LABELLED, want=True
    ),
    "one term of several is enough": Case(
        constraints=SchedulingConstraints(
            node_affinity_terms=(
                NodeAffinityTerm((Requirement("gpu", "DoesNotExist"),)),
                NodeAffinityTerm((Requirement("gpu", "Exists"),)),
            )
        ),
        node_info=LABELLED,
        want=True,
    ),
    "all of one term must hold": Case(
        constraints=needing(Requirement("gpu", "Exists"), Requirement("gpu", "In", ("4",))),
        node_info=LABELLED,
        want=False,
    ),
    "no term holds for no node": Case(
        constraints=SchedulingConstraints(node_affinity_terms=()), node_info=PLAIN, want=False
    ),
    "nor does an empty one": Case(constraints=needing(), node_info=PLAIN, want=False),
    "a node may be named": Case(
        constraints=needing(names=(Requirement("metadata.name", "In", ("n",)),)),
        node_info=PLAIN,
        want=True,
    ),
    "and another may be": Case(
        constraints=needing(names=(Requirement("metadata.name", "In", ("m",)),)),
        node_info=PLAIN,
        want=False,
    ),
    "what a label must not say": Case(
        constraints=needing(Requirement("gpu", "NotIn", ("8",))), node_info=LABELLED, want=False
    ),
    "it does not where there is none": Case(
        constraints=needing(Requirement("gpu", "NotIn", ("8",))), node_info=PLAIN, want=True
    ),
    "more than": Case(
        constraints=needing(Requirement("gpu", "Gt", ("7",))), node_info=LABELLED, want=True
    ),
    "no more than": Case(
        constraints=needing(Requirement("gpu", "Gt", ("8",))), node_info=LABELLED, want=False
    ),
    "less than": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9",))), node_info=LABELLED, want=True
    ),
    "what is not there is not less": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9",))), node_info=PLAIN, want=False
    ),
    "than one number": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9", "10"))), node_info=LABELLED, want=False
    ),
    "that is one": Case(
        constraints=needing(Requirement("gpu", "Lt", ("many",))), node_info=LABELLED, want=False
    ),
    "compared with a label that is one": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9",))),
        node_info=a_node_info("n", labels={"gpu": "1_0"}),
        want=False,
    ),
    "an unknown operator matches no node": Case(
        constraints=needing(Requirement("gpu", "About", ("8",))), node_info=LABELLED, want=False
    ),
    "a cordoned node is unsuitable": Case(node_info=CORDONED, want=False),
    "but who tolerates everything": Case(
        constraints=tolerating(operator="Exists"), node_info=CORDONED, want=True
    ),
    "a taint keeps out who does not tolerate it": Case(node_info=LENT, want=False),
    "by key and value": Case(
        constraints=tolerating("lent", "Equal", "yes"), node_info=LENT, want=True
    ),
    "with no operator that is meant": Case(
        constraints=tolerating("lent", "", "yes"), node_info=LENT, want=True
    ),
    "another value does not do": Case(
        constraints=tolerating("lent", "Equal", "no"), node_info=LENT, want=False
    ),
    "nor another key": Case(
        constraints=tolerating("borrowed", "Exists"), node_info=LENT, want=False
    ),
    "nor another effect": Case(
        constraints=tolerating("lent", "Exists", effect="NoExecute"), node_info=LENT, want=False
    ),
    "nor an unknown operator": Case(
        constraints=tolerating("lent", "Like", "yes"), node_info=LENT, want=False
    ),
    "a taint with PreferNoSchedule excludes no pod": Case(
        node_info=a_node_info("n", taints=(Taint("slow", "", "PreferNoSchedule"),)), want=True
    ),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES.keys())
def test_whether_a_node_is_suitable(case: Case):
    assert node_fit.satisfies_constraints(case.constraints, case.node_info) == case.want


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
def test_whether_host_ports_are_free(
    mine: frozenset[HostPortInfo], its: frozenset[HostPortInfo], *, want: bool
):
    assert node_fit.ports_conflict(mine, its) == want


ONE = a_pod_demand(ports=port(80))
ON_80 = a_scheduled_pod("web", priority=9, cpu=0, ports=port(80))
PREEMPTED = {
    ("the pod with the port is preempted, whichever others could be"): (
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


@pytest.mark.parametrize(("demand", "node_info", "want"), PREEMPTED.values(), ids=PREEMPTED.keys())
def test_which_pods_are_preempted_for_host_ports(
    demand: PodDemand, node_info: NodeInfo, want: list[str]
):
    best = selection.decide(a_preemptor(demand=demand), a_snapshot(node_info).build(), ["n"]).best

    assert best is not None
    assert [victim.name for victim in best.victims] == want


HELPLESS = {
    "an unknown node": (a_node_info("other"), DryRunStatus.UNKNOWN_NODE),
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
    "a node with a pod of unknown toleration": (
        a_node_info(
            "n",
            a_scheduled_pod("low"),
            a_scheduled_pod("odd", cpu=0, lacks_priority_class=True),
            cpu=1,
        ),
        DryRunStatus.NO_PRIORITY_CLASS,
    ),
}


@pytest.mark.parametrize(("node_info", "want"), HELPLESS.values(), ids=HELPLESS.keys())
def test_no_victims_make_a_node_suitable(node_info: NodeInfo, want: DryRunStatus):
    assert selection.decide(a_preemptor(), a_snapshot(node_info).build(), ["n"]).node_statuses == {
        "n": want
    }
