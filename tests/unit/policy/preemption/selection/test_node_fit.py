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
from reprieve_testing.objects.snapshots import (
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
    "a pod without constraints may run on any node": Case(node_info=PLAIN, want=True),
    "a node without the selected label does not fit": Case(
        constraints=SchedulingConstraints(node_selector=GPU), node_info=PLAIN, want=False
    ),
    "a node with the selected label fits": Case(
        constraints=SchedulingConstraints(node_selector=GPU), node_info=LABELLED, want=True
    ),
    "the second of two terms matches": Case(
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
    "an affinity without terms fits no node": Case(
        constraints=SchedulingConstraints(node_affinity_terms=()), node_info=PLAIN, want=False
    ),
    "an empty affinity term fits no node": Case(constraints=needing(), node_info=PLAIN, want=False),
    "a node that a field selector names fits": Case(
        constraints=needing(names=(Requirement("metadata.name", "In", ("n",)),)),
        node_info=PLAIN,
        want=True,
    ),
    "a node that a field selector does not name does not fit": Case(
        constraints=needing(names=(Requirement("metadata.name", "In", ("m",)),)),
        node_info=PLAIN,
        want=False,
    ),
    "NotIn excludes a node with the value": Case(
        constraints=needing(Requirement("gpu", "NotIn", ("8",))), node_info=LABELLED, want=False
    ),
    "NotIn includes a node without the label": Case(
        constraints=needing(Requirement("gpu", "NotIn", ("8",))), node_info=PLAIN, want=True
    ),
    "Gt includes a node with a higher value": Case(
        constraints=needing(Requirement("gpu", "Gt", ("7",))), node_info=LABELLED, want=True
    ),
    "Gt excludes a node with the same value": Case(
        constraints=needing(Requirement("gpu", "Gt", ("8",))), node_info=LABELLED, want=False
    ),
    "Lt includes a node with a lower value": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9",))), node_info=LABELLED, want=True
    ),
    "Lt excludes a node without the label": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9",))), node_info=PLAIN, want=False
    ),
    "Lt with two numbers fits no node": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9", "10"))), node_info=LABELLED, want=False
    ),
    "Lt with a text that is no number fits no node": Case(
        constraints=needing(Requirement("gpu", "Lt", ("many",))), node_info=LABELLED, want=False
    ),
    "Lt excludes a node whose label is no number": Case(
        constraints=needing(Requirement("gpu", "Lt", ("9",))),
        node_info=a_node_info("n", labels={"gpu": "1_0"}),
        want=False,
    ),
    "an unknown operator matches no node": Case(
        constraints=needing(Requirement("gpu", "About", ("8",))), node_info=LABELLED, want=False
    ),
    "a cordoned node is unsuitable": Case(node_info=CORDONED, want=False),
    "a pod that tolerates everything fits a cordoned node": Case(
        constraints=tolerating(operator="Exists"), node_info=CORDONED, want=True
    ),
    "a taint excludes a pod that does not tolerate it": Case(node_info=LENT, want=False),
    "a toleration of the key and value fits": Case(
        constraints=tolerating("lent", "Equal", "yes"), node_info=LENT, want=True
    ),
    "a toleration without an operator means Equal": Case(
        constraints=tolerating("lent", "", "yes"), node_info=LENT, want=True
    ),
    "a toleration of another value does not fit": Case(
        constraints=tolerating("lent", "Equal", "no"), node_info=LENT, want=False
    ),
    "a toleration of another key does not fit": Case(
        constraints=tolerating("borrowed", "Exists"), node_info=LENT, want=False
    ),
    "a toleration of another effect does not fit": Case(
        constraints=tolerating("lent", "Exists", effect="NoExecute"), node_info=LENT, want=False
    ),
    "a toleration with an unknown operator does not fit": Case(
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
    "two pods with the same port conflict": (port(80), port(80), True),
    "two ports do not conflict": (port(80), port(81), False),
    "the same port with two protocols does not conflict": (
        port(80),
        port(80, protocol="UDP"),
        False,
    ),
    "the same port at two addresses does not conflict": (
        port(80, "10.0.0.1"),
        port(80, "10.0.0.2"),
        False,
    ),
    "two ports at the same address do not conflict": (
        port(80, "10.0.0.1"),
        port(81, "10.0.0.1"),
        False,
    ),
    "the same port at the same address conflicts, whatever others there are": (
        port(80, "10.0.0.1") | port(81),
        port(80, "10.0.0.1") | port(82),
        True,
    ),
    "no port conflicts with none": (frozenset(), port(80), False),
    "a port at all addresses conflicts with one at any address": (
        port(80, "10.0.0.1"),
        port(80),
        True,
    ),
}


@pytest.mark.parametrize(("mine", "its", "want"), PORTS.values(), ids=PORTS.keys())
def test_whether_host_ports_are_free(
    mine: frozenset[HostPortInfo], its: frozenset[HostPortInfo], *, want: bool
):
    assert node_fit.WantedPorts(mine).conflict_with(a_pod_demand(ports=its)) == want
    assert node_fit.WantedPorts(its).conflict_with(a_pod_demand(ports=mine)) == want


ONE = a_pod_demand(ports=port(80))
ON_80 = a_scheduled_pod("web", priority=9, cpu=0, ports=port(80))
PREEMPTED = {
    "the pod with the port is preempted, whichever others could be": (
        ONE,
        a_node_info("n", ON_80, a_scheduled_pod("low"), cpu=9),
        ["web"],
    ),
    "a pod is preempted if the node is at its limit of pods": (
        a_pod_demand(cpu=0),
        a_node_info("n", a_scheduled_pod("low"), cpu=9, pods=1),
        ["low"],
    ),
    "resources that the preemptor does not request do not count": (
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
    "a nominated pod of lower priority does not count": (
        a_pod_demand(),
        a_node_info(
            "n", a_scheduled_pod("low"), cpu=1, nominated_pods=(a_pod_demand("other", priority=1),)
        ),
        ["low"],
    ),
    "the nominated preemptor itself does not count": (
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
    "a node that is cordoned": (a_node_info("n", is_unschedulable=True), DryRunStatus.UNSUITABLE),
    "a node that is too small when empty": (
        a_node_info("n", a_scheduled_pod("low"), cpu=0.5),
        DryRunStatus.TOO_SMALL,
    ),
    "a node without a number of allocatable pods": (
        a_node_info("n", a_scheduled_pod("low"), allocatable={"cpu": 10**10}),
        DryRunStatus.TOO_SMALL,
    ),
    "a node with room": (a_node_info("n", a_scheduled_pod("low"), cpu=2), DryRunStatus.HAS_ROOM),
    "a node with room that is being released": (
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
