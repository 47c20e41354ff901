"""What is free on the nodes, kept up to date change by change."""

from dataclasses import replace

from reprieve_operator.gangs.room_store import PendingPod, RoomStore
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.preemption.selection.snapshot import GangKey, Preemptor, ScheduledPod
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import a_node_info, a_preemptor, a_scheduled_pod

TRAIN = GangKey("team", "train")
SETTINGS = PolicySettings()


def a_placed_pod(name: str, **fields: object) -> ScheduledPod:
    return a_scheduled_pod(name, node="n", **fields)


def a_pending_pod(name: str, *, age: float = 0, **fields: object) -> PendingPod:
    pod: Preemptor = a_preemptor(name=name, **fields)
    return PendingPod(replace(pod, demand=replace(pod.demand, uid=name)), after(-age))


def free_cpus(store: RoomStore, *unseen: ScheduledPod) -> dict[str, float]:
    snapshot = store.snapshot(SETTINGS, NOW, unseen)
    return {node.info.name: node.free["cpu"] / NANOS for node in snapshot.free_nodes}


def a_store(*pods: ScheduledPod | PendingPod) -> RoomStore:
    store = RoomStore()
    store.put_node(a_node_info("n", cpu=4))
    for number, pod in enumerate(pods):
        store.put_pod(("team", str(number)), pod)
    return store


def test_pods_take_room_until_they_are_gone() -> None:
    store = a_store(a_placed_pod("a", cpu=3))
    assert free_cpus(store) == {"n": 1}
    before = store.changes
    store.remove_pod(("team", "0"))
    assert free_cpus(store) == {"n": 4}
    assert store.changes == before + 1


def test_a_pod_that_is_placed_is_counted_once() -> None:
    store = a_store(a_pending_pod("a"))
    assert free_cpus(store) == {"n": 4}
    store.put_pod(("team", "0"), a_placed_pod("a"))
    assert (free_cpus(store), store.is_on_node("a")) == ({"n": 3}, True)
    store.put_pod(("team", "0"), a_placed_pod("a"))
    assert free_cpus(store) == {"n": 3}


def test_a_pod_that_has_ended_takes_no_room() -> None:
    store = a_store(a_placed_pod("a"))
    store.put_pod(("team", "0"), None)
    assert (free_cpus(store), store.is_on_node("a")) == ({"n": 4}, False)


def test_the_room_of_nominated_pods_is_taken() -> None:
    store = a_store(a_pending_pod("a", nominated_node="n"))
    assert free_cpus(store) == {"n": 3}
    before = store.changes
    store.remove_pod(("team", "0"))
    assert (free_cpus(store), store.changes) == ({"n": 4}, before + 1)


def test_nodes_come_change_and_go() -> None:
    store = a_store()
    before = store.changes
    store.put_node(a_node_info("n", cpu=4))
    assert store.changes == before, "a report of a kubelet changes nothing"
    store.put_node(a_node_info("n", cpu=8))
    assert (free_cpus(store), store.changes) == ({"n": 8}, before + 1)
    store.remove_node(("", "n"))
    assert free_cpus(store) == {}


def test_a_pod_that_the_watch_has_not_seen_takes_room_in_a_snapshot() -> None:
    store = a_store()
    unseen = a_placed_pod("a", cpu=3)
    assert free_cpus(store, unseen, a_scheduled_pod("b", node="other")) == {"n": 1}
    assert free_cpus(store) == {"n": 4}
    store.put_pod(("team", "a"), unseen)
    assert free_cpus(store, unseen) == {"n": 1}, "and once it is seen, no more"


def test_a_snapshot_does_not_change_afterwards() -> None:
    store = a_store(a_placed_pod("a", gang=TRAIN))
    before = store.snapshot(SETTINGS, NOW)
    store.put_pod(("team", "1"), a_placed_pod("b", gang=TRAIN))
    assert [pod.uid for pod in before.snapshot.nodes["n"].pods] == ["a"]
    assert [pod.uid for pod in before.snapshot.gangs[TRAIN].members] == ["a"]
    after_it = store.snapshot(SETTINGS, NOW).snapshot
    assert [pod.uid for pod in after_it.gangs[TRAIN].members] == ["a", "b"]
    for name in "01":
        store.remove_pod(("team", name))
    assert store.snapshot(SETTINGS, NOW).snapshot.gangs == {}


def unplaced(store: RoomStore, *labelled: str) -> list[list[str]]:
    gangs = store.unplaced_gangs(set(labelled), after(-60))
    return [[demand.uid for demand in demands] for _, demands in gangs]


def test_gangs_that_no_gate_held_are_known_until_they_are_placed() -> None:
    waiting = [a_pending_pod(name, gang=TRAIN, gang_minimum=2) for name in "ab"]
    store = a_store(*waiting, a_pending_pod("single"))
    assert unplaced(store) == [["a", "b"]]
    assert unplaced(store, "a", "b") == [], "the gate knows of them"
    store.put_pod(("team", "0"), a_placed_pod("a", gang=TRAIN))
    assert unplaced(store) == [["b"]]
    store.put_pod(("team", "9"), a_placed_pod("c", gang=TRAIN))
    assert unplaced(store) == [], "the gang has started"


def test_gangs_that_are_not_placed_for_long_are_waited_for_no_longer() -> None:
    store = a_store(a_pending_pod("a", gang=TRAIN, gang_minimum=2, age=61))
    assert unplaced(store) == []


def test_pods_that_a_gate_holds_ask_for_no_room() -> None:
    store = a_store(a_pending_pod("a", gang=TRAIN, gang_minimum=2, is_gated=True))
    assert unplaced(store) == []
    store.remove_pod(("team", "0"))
    store.remove_pod(("team", "0"))
