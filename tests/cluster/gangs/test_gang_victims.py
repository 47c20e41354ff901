"""A gang is evicted as a unit on a real API server: one mark reaches all its pods.

No pod is deleted before the last one has answered.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction, Phase, Source
from reprieve_testing.cluster.handle import ClusterHandle, Program, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

GANG = {keys.POD_GROUP: "train"}
NAMES = ("a", "b", "c", "d")
TOGETHER_SECONDS = 20.0
"""At most between the first hint and the last, on a busy machine. Hints sent one after another
would be a deadline apart.
"""


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy()
    with cluster.namespace("gang") as name:
        yield name
        # Without this, an operator that a failed test left behind would lead in the tests after it.
        cluster.stop_programs()


@pytest.fixture
def operator(cluster: ClusterHandle, namespace: str) -> Program:  # noqa: ARG001 - the policy comes first
    return start_leader(cluster)


def start_leader(cluster: ClusterHandle) -> Program:
    program = cluster.start_operator()
    program.wait_leading()
    return program


@contextmanager
def a_gang(
    cluster: ClusterHandle, namespace: str, *, seconds: int = 60
) -> Iterator[dict[str, Workload]]:
    """Create four pods of one gang, each with a workload that answers."""
    annotations = {keys.CHECKPOINT_HINT: HINT, keys.CHECKPOINT_TIMEOUT: f"{seconds}s"}
    with ExitStack() as stack:
        workloads = {}
        for name in NAMES:
            pod = cluster.create_pod(namespace, name, labels=GANG, annotations=annotations)
            workloads[name] = stack.enter_context(Workload(str(pod["status"]["podIP"])))
        yield workloads


def save(workloads: dict[str, Workload], *names: str) -> None:
    for name in names:
        workloads[name].state = {"state": "saved", "path": f"/data/{name}"}


def wait_phases(
    cluster: ClusterHandle, namespace: str, phase: str, names: Sequence[str] = NAMES
) -> list[Any]:
    return [cluster.wait_phase(namespace, name, phase) for name in names]


def wait_gone(
    cluster: ClusterHandle, namespace: str, names: Sequence[str] = NAMES, seconds: float = 20.0
) -> None:
    for name in names:
        cluster.wait_gone(namespace, name, seconds)


def state(pod: Any) -> Any:
    return json.loads(pod["metadata"]["annotations"][keys.EVICTION])


def deletes(cluster: ClusterHandle, namespace: str, name: str) -> list[str]:
    return [entry.at for entry in cluster.audit(namespace, name) if entry.verb == "delete"]


def last_words(cluster: ClusterHandle, namespace: str, name: str) -> str:
    """Return when the last state of a pod was written, with its condition."""
    return next(
        entry.at for entry in cluster.audit(namespace, name) if entry.what == "patch status"
    )


@pytest.mark.usefixtures("operator")
def test_a_mark_on_one_pod_notifies_all_and_none_is_deleted_before_the_last_answer(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_gang(cluster, namespace) as workloads:
        cluster.mark(namespace, "a")
        reached = wait_phases(cluster, namespace, "checkpointing")
        hints = [request.at for workload in workloads.values() for request in workload.posts]
        assert len(hints) == len(NAMES)
        assert max(hints) - min(hints) < TOGETHER_SECONDS
        assert [state(pod).get("source", "label") for pod in reached] == [
            "label",
            "gang",
            "gang",
            "gang",
        ]
        assert {(state(pod)["gang"], state(pod)["decision"]) for pod in reached} == {
            ("train", state(reached[0])["id"])
        }
        save(workloads, "a", "b", "c")
        wait_phases(cluster, namespace, "saved", "abc")
        assert not any(deletes(cluster, namespace, name) for name in NAMES)
        save(workloads, "d")
        wait_gone(cluster, namespace)
    answered = last_words(cluster, namespace, "d")
    for name in NAMES:
        (deleted,) = deletes(cluster, namespace, name)
        assert deleted >= answered
        assert len(cluster.writes_until_end(namespace, name)) <= 5
    wait_for(
        "Events",
        lambda: all("GangGoesAsAWhole" in cluster.event_reasons(namespace, name) for name in NAMES),
    )


@pytest.mark.usefixtures("operator")
def test_a_member_that_never_answers_delays_the_gang_until_its_deadline(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_gang(cluster, namespace, seconds=15) as workloads:
        workloads["d"].on_post = workloads["d"].state = None
        save(workloads, "a", "b", "c")
        cluster.mark(namespace, "b")
        wait_phases(cluster, namespace, "saved", "abc")
        assert not any(deletes(cluster, namespace, name) for name in NAMES)
        deadline = state(cluster.pod(namespace, "d"))["deadline"]
        wait_gone(cluster, namespace, seconds=60)
    for name in NAMES:
        (deleted,) = deletes(cluster, namespace, name)
        assert deleted >= deadline
    wait_for("Event", lambda: "CheckpointUnanswered" in cluster.event_reasons(namespace, "d"))


@pytest.mark.usefixtures("operator")
def test_a_cancellation_of_one_pod_cancels_all_and_the_gang_can_be_marked_again(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_gang(cluster, namespace) as workloads:
        cluster.mark(namespace, "a")
        wait_phases(cluster, namespace, "checkpointing")
        save(workloads, "b")
        cluster.wait_phase(namespace, "b", "saved")
        cluster.kubectl.read("label", "pod", "c", "-n", namespace, f"{keys.SOFT_EVICTION}-")
        for name in NAMES:
            spared = wait_for(
                "cancelled", lambda name=name: in_state(cluster, namespace, name, "cancelled")
            )
            assert keys.SOFT_EVICTION not in spared["metadata"]["labels"]
        assert not any(deletes(cluster, namespace, name) for name in NAMES)
        save(workloads, *NAMES)
        cluster.mark(namespace, "c")
        wait_gone(cluster, namespace)


@pytest.mark.usefixtures("operator")
def test_marks_on_several_pods_of_a_gang_are_one_decision(
    cluster: ClusterHandle, namespace: str
) -> None:
    with a_gang(cluster, namespace) as workloads:
        done = cluster.reprieve("evict", "a", "b", "-n", namespace)
        told = 'soft eviction requested, with all pods of its gang "train"'
        first, second = done.stdout.splitlines()
        assert first == f"pod/a {told}"
        # The operator may have notified the whole gang before the second mark.
        assert second == f"pod/b {told}" or second.startswith("pod/b is already being evicted (")
        reached = wait_phases(cluster, namespace, "checkpointing")
        assert len({state(pod)["decision"] for pod in reached}) == 1
        assert [len(workload.posts) for workload in workloads.values()] == [1, 1, 1, 1]
        save(workloads, *NAMES)
        wait_gone(cluster, namespace)


@pytest.mark.usefixtures("operator")
def test_gang_pods_without_a_checkpoint_are_deleted_together_and_a_jobs_pods_alone(
    cluster: ClusterHandle, namespace: str
) -> None:
    for name in ("a", "b"):
        cluster.create_pod(namespace, name, labels=GANG)
    for name in ("c", "d"):
        cluster.create_pod(namespace, name, labels={keys.JOB: "job"})
    cluster.mark(namespace, "c")
    cluster.wait_gone(namespace, "c")
    cluster.mark(namespace, "a")
    wait_gone(cluster, namespace, "ab")
    assert cluster.audit(namespace, "d") == []


@pytest.mark.usefixtures("operator")
def test_the_protection_of_one_pod_protects_its_gang_from_schedulers_but_not_from_users(
    cluster: ClusterHandle, namespace: str
) -> None:
    for name in "ab":
        cluster.create_pod(namespace, name, labels=GANG)
    cluster.create_pod(namespace, "c", labels=GANG | {keys.PREEMPTIBLE: "false"})
    cluster.annotate(namespace, "a", f"{keys.KOORDINATOR_SOFT_EVICTION}=true")
    spared = wait_for("spared", lambda: in_state(cluster, namespace, "a", "spared"))
    assert state(spared)["refusedOn"] == "non-preemptible"
    assert cluster.audit(namespace, "b") == cluster.audit(namespace, "c") == []
    cluster.mark(namespace, "b")
    wait_gone(cluster, namespace, "abc")


@pytest.mark.slow
def test_the_next_operator_continues_to_mark_a_gang(cluster: ClusterHandle, namespace: str) -> None:
    with a_gang(cluster, namespace, seconds=30) as workloads:
        first = cluster.pod(namespace, "a")
        assert first is not None
        put_state(cluster, namespace, first)
        latecomer = later_than(
            cluster, namespace, "late", state(cluster.pod(namespace, "a"))["requestedAt"]
        )
        operator = start_leader(cluster)
        reached = wait_phases(cluster, namespace, "checkpointing")
        assert {state(pod)["initiator"] for pod in reached} == {"ops"}
        save(workloads, *NAMES)
        wait_gone(cluster, namespace)
    assert cluster.audit(namespace, latecomer) == []
    assert operator.stop() == 0


def test_the_next_operator_waits_for_the_last_pod_that_saves(
    cluster: ClusterHandle, namespace: str
) -> None:
    operator = start_leader(cluster)
    with a_gang(cluster, namespace) as workloads:
        save(workloads, "a", "b", "c")
        cluster.mark(namespace, "a")
        wait_phases(cluster, namespace, "saved", "abc")
        operator.kill()
        requests_before = len(workloads["d"].requests)
        second = start_leader(cluster)
        wait_for("it is asked again", lambda: len(workloads["d"].requests) > requests_before)
        assert not any(deletes(cluster, namespace, name) for name in NAMES)
        save(workloads, "d")
        wait_gone(cluster, namespace)
    assert {len(workload.posts) for workload in workloads.values()} == {1}
    assert second.stop() == 0


@pytest.mark.slow
def test_the_next_operator_completes_the_cancellation_of_a_gang(
    cluster: ClusterHandle, namespace: str
) -> None:
    operator = start_leader(cluster)
    with a_gang(cluster, namespace):
        cluster.mark(namespace, "a")
        wait_phases(cluster, namespace, "checkpointing")
        operator.kill()
        member = cluster.pod(namespace, "b")
        assert member is not None
        text = member["metadata"]["annotations"][keys.EVICTION].replace(
            '"checkpointing"', '"cancelled"'
        )
        cluster.annotate(namespace, "b", f"{keys.EVICTION}={text}")
        cluster.kubectl.read("label", "pod", "b", "-n", namespace, f"{keys.SOFT_EVICTION}-")
        second = start_leader(cluster)
        for name in NAMES:
            wait_for("cancelled", lambda name=name: in_state(cluster, namespace, name, "cancelled"))
    assert second.stop() == 0


def put_state(cluster: ClusterHandle, namespace: str, pod: Any) -> None:
    """Leave a pod as an operator does that is killed once it has written the first state."""
    now = datetime.now(UTC)
    uid = pod["metadata"]["uid"]
    begun = Eviction(
        eviction_id=f"{uid}-{int(now.timestamp())}",
        phase=Phase.HINTED,
        requested_at=now,
        source=Source.LABEL,
        initiator="ops",
        attempt=1,
        hinted_at=now,
        deadline=now.replace(year=now.year + 1),
        gang="train",
        decision_id=f"{uid}-{int(now.timestamp())}",
    )
    cluster.annotate(
        namespace, pod["metadata"]["name"], f"{keys.EVICTION}={eviction.render(begun)}"
    )
    cluster.kubectl.read(
        "label", "pod", pod["metadata"]["name"], "-n", namespace, f"{keys.SOFT_EVICTION}=hinted"
    )


def later_than(cluster: ClusterHandle, namespace: str, name: str, moment: str) -> str:
    """Create a pod of the gang in a later second than `moment`."""
    wait_for(
        "the next second",
        lambda: datetime.now(UTC) > datetime.fromisoformat(moment).replace(microsecond=999_999),
    )
    cluster.create_pod(namespace, name, labels=GANG)
    return name


def in_state(cluster: ClusterHandle, namespace: str, name: str, phase: str) -> Any:
    pod = cluster.pod(namespace, name)
    annotations = pod["metadata"].get("annotations", {}) if pod else {}
    return pod if json.loads(annotations.get(keys.EVICTION, "{}")).get("phase") == phase else None
