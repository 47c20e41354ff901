"""Which nodes a pod may run on at all, and whom else it has room beside."""

from dataclasses import dataclass

import pytest

from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import Obstacle, node_fit
from reprieve_policy.preemption.selection.snapshot import Guest, Port, Requirement, Room, Taint, Term, Toleration, Wish
from reprieve_testing.scenes import a_guest, a_preemptor, a_room, a_scene, a_tenant

ANY = Wish()
GPU = {"gpu": "8"}
TAINTED = (Taint("lent", "yes", "NoSchedule"),)


def needing(*labels: Requirement, names: tuple[Requirement, ...] = ()) -> Wish:
    return Wish(terms=(Term(labels, names),))


def tolerating(key: str = "", operator: str = "", value: str = "", effect: str = "") -> Wish:
    return Wish(tolerations=(Toleration(key, operator, value, effect),))


@dataclass(frozen=True, kw_only=True)
class Case:
    wish: Wish = ANY
    room: Room
    want: bool


PLAIN = a_room("n")
LABELLED = a_room("n", labels=GPU)
CORDONED = a_room("n", is_unschedulable=True)
LENT = a_room("n", taints=TAINTED)

NODES = {
    "a pod that asks for nothing may run anywhere": Case(room=PLAIN, want=True),
    "its selector must be met": Case(wish=Wish(selector=GPU), room=PLAIN, want=False),
    "and is by the label": Case(wish=Wish(selector=GPU), room=LABELLED, want=True),
    "one term of several is enough": Case(
        wish=Wish(terms=(Term((Requirement("gpu", "DoesNotExist"),)), Term((Requirement("gpu", "Exists"),)))),
        room=LABELLED,
        want=True,
    ),
    "all of one term must hold": Case(
        wish=needing(Requirement("gpu", "Exists"), Requirement("gpu", "In", ("4",))), room=LABELLED, want=False
    ),
    "no term holds for no node": Case(wish=Wish(terms=()), room=PLAIN, want=False),
    "nor does an empty one": Case(wish=needing(), room=PLAIN, want=False),
    "a node may be named": Case(
        wish=needing(names=(Requirement("metadata.name", "In", ("n",)),)), room=PLAIN, want=True
    ),
    "and another may be": Case(
        wish=needing(names=(Requirement("metadata.name", "In", ("m",)),)), room=PLAIN, want=False
    ),
    "what a label must not say": Case(wish=needing(Requirement("gpu", "NotIn", ("8",))), room=LABELLED, want=False),
    "it does not where there is none": Case(wish=needing(Requirement("gpu", "NotIn", ("8",))), room=PLAIN, want=True),
    "more than": Case(wish=needing(Requirement("gpu", "Gt", ("7",))), room=LABELLED, want=True),
    "no more than": Case(wish=needing(Requirement("gpu", "Gt", ("8",))), room=LABELLED, want=False),
    "less than": Case(wish=needing(Requirement("gpu", "Lt", ("9",))), room=LABELLED, want=True),
    "what is not there is not less": Case(wish=needing(Requirement("gpu", "Lt", ("9",))), room=PLAIN, want=False),
    "than one number": Case(wish=needing(Requirement("gpu", "Lt", ("9", "10"))), room=LABELLED, want=False),
    "that is one": Case(wish=needing(Requirement("gpu", "Lt", ("many",))), room=LABELLED, want=False),
    "compared with a label that is one": Case(
        wish=needing(Requirement("gpu", "Lt", ("9",))), room=a_room("n", labels={"gpu": "1_0"}), want=False
    ),
    "what nobody knows how to compare is met by none": Case(
        wish=needing(Requirement("gpu", "About", ("8",))), room=LABELLED, want=False
    ),
    "a cordoned node takes nobody": Case(room=CORDONED, want=False),
    "but who tolerates everything": Case(wish=tolerating(operator="Exists"), room=CORDONED, want=True),
    "a taint keeps out who does not tolerate it": Case(room=LENT, want=False),
    "by key and value": Case(wish=tolerating("lent", "Equal", "yes"), room=LENT, want=True),
    "with no operator that is meant": Case(wish=tolerating("lent", "", "yes"), room=LENT, want=True),
    "another value does not do": Case(wish=tolerating("lent", "Equal", "no"), room=LENT, want=False),
    "nor another key": Case(wish=tolerating("borrowed", "Exists"), room=LENT, want=False),
    "nor another effect": Case(wish=tolerating("lent", "Exists", effect="NoExecute"), room=LENT, want=False),
    "nor an operator that nobody knows": Case(wish=tolerating("lent", "Like", "yes"), room=LENT, want=False),
    "a taint that only prefers keeps nobody out": Case(
        room=a_room("n", taints=(Taint("slow", "", "PreferNoSchedule"),)), want=True
    ),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES.keys())
def test_whether_a_node_suits(case: Case):
    assert node_fit.suits(case.wish, case.room) == case.want


def port(number: int, address: str = "0.0.0.0", protocol: str = "TCP") -> frozenset[Port]:
    return frozenset({Port(address, protocol, number)})


PORTS = {
    "one port is one pod's": (port(80), port(80), True),
    "two are not": (port(80), port(81), False),
    "nor one of two protocols": (port(80), port(80, protocol="UDP"), False),
    "nor one at two addresses": (port(80, "10.0.0.1"), port(80, "10.0.0.2"), False),
    "every address is each of them": (port(80, "10.0.0.1"), port(80), True),
}


@pytest.mark.parametrize(("mine", "its", "want"), PORTS.values(), ids=PORTS.keys())
def test_ports_of_the_node(mine: frozenset[Port], its: frozenset[Port], *, want: bool):
    assert node_fit.collide(mine, its) == want


ONE = a_guest(ports=port(80))
ON_80 = a_tenant("web", priority=9, cpu=0, ports=port(80))
GOES = {
    "who has the port goes, whoever else might": (ONE, a_room("n", ON_80, a_tenant("low"), cpu=9), ["web"]),
    "who makes a place among the pods": (a_guest(cpu=0), a_room("n", a_tenant("low"), cpu=9, pods=1), ["low"]),
    "what the preemptor does not ask for is not looked at": (
        a_guest(amounts={"cpu": 0, "memory": 10**9}),
        a_room("n", a_tenant("low", amounts={"memory": 10**9}), a_tenant("big", cpu=99), allocatable={
            "cpu": 10**9, "memory": 10**9, "pods": 110 * 10**9,
        }),
        ["low"],
    ),
    "a nominated pod of lower priority is no bar": (
        a_guest(),
        a_room("n", a_tenant("low"), cpu=1, nominees=(a_guest("other", priority=1),)),
        ["low"],
    ),
    "nor is the preemptor itself": (a_guest(), a_room("n", a_tenant("low"), cpu=1, nominees=(a_guest(),)), ["low"]),
}  # fmt: skip


@pytest.mark.parametrize(("guest", "room", "want"), GOES.values(), ids=GOES.keys())
def test_who_goes(guest: Guest, room: Room, want: list[str]):
    best = selection.decide(a_preemptor(guest=guest), a_scene(room).build(), ["n"]).best

    assert best is not None
    assert [victim.name for victim in best.victims] == want


HELPLESS = {
    "a node that nobody sees": (a_room("other"), Obstacle.UNKNOWN_NODE),
    "a node that keeps it out": (a_room("n", is_unschedulable=True), Obstacle.UNSUITABLE),
    "a node that is too small however empty": (a_room("n", a_tenant("low"), cpu=0.5), Obstacle.TOO_SMALL),
    "a node that says nothing of how many pods it takes": (
        a_room("n", a_tenant("low"), allocatable={"cpu": 10**10}),
        Obstacle.TOO_SMALL,
    ),
    "a node with room": (a_room("n", a_tenant("low"), cpu=2), Obstacle.HAS_ROOM),
    "a node that will have": (
        a_room("n", a_tenant("low"), a_tenant("gone", is_going=True), cpu=2),
        Obstacle.WILL_HAVE_ROOM,
    ),
    "a node with a pod of which nobody knows what it tolerates": (
        a_room("n", a_tenant("low"), a_tenant("odd", cpu=0, lacks_priority_class=True), cpu=1),
        Obstacle.NO_PRIORITY_CLASS,
    ),
}


@pytest.mark.parametrize(("room", "want"), HELPLESS.values(), ids=HELPLESS.keys())
def test_no_victims_help_on(room: Room, want: Obstacle):
    assert selection.decide(a_preemptor(), a_scene(room).build(), ["n"]).obstacles == {"n": want}
