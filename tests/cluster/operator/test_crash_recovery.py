"""However the operator or the API server fails: no hint is sent twice, no pod deleted early or
twice.
"""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, ClusterHandle, Program, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

HELD = ["example.com/other"]


def hinted_for(seconds: int) -> dict[str, str]:
    return {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": f"{seconds}s"}


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy()
    with cluster.namespace("resume") as name:
        yield name
        # Without this, an operator that a failed test left behind would lead in the tests after it.
        cluster.stop_programs()


@pytest.fixture
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    program = cluster.start_operator()
    program.wait_leading()
    yield program
    assert program.stop() == 0


def reasons(cluster: ClusterHandle, namespace: str) -> list[str]:
    return [event["reason"] for event in cluster.kubectl.get("events", "-n", namespace)["items"]]


def start_leader(cluster: ClusterHandle) -> Program:
    program = cluster.start_operator()
    program.wait_leading()
    return program


def test_an_operator_killed_between_hint_and_acknowledgement_sends_no_second_hint(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = start_leader(cluster)
    pod = cluster.create_pod(namespace, "told", annotations=hinted_for(25), finalizers=HELD)
    with Workload(pod["status"]["podIP"], on_post=None) as workload:
        cluster.mark(namespace, "told")
        wait_for("the hint", lambda: workload.posts)
        first.kill()
        cluster.wait_phase(namespace, "told", "hinted")
        second = start_leader(cluster)
        acknowledged = cluster.wait_phase(namespace, "told", "checkpointing")
        assert "deletionTimestamp" not in acknowledged["metadata"]
        assert state(acknowledged)["attempt"] == 1
        workload.state = {"state": "saved", "path": "/data/1"}
        ended = wait_for("DELETE", lambda: deleted(cluster, namespace, "told"))
    assert len(workload.posts) == 1
    assert state(ended)["outcome"] == "saved"
    assert [entry.what for entry in cluster.audit(namespace, "told")].count("delete") == 1
    assert second.stop() == 0


def test_a_hint_that_was_recorded_but_not_sent_is_sent_as_another_attempt(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = start_leader(cluster)
    pod = cluster.create_pod(namespace, "untold", annotations=hinted_for(25), finalizers=HELD)
    cluster.mark(namespace, "untold")  # No server listens on its address yet.
    before = state(cluster.wait_phase(namespace, "untold", "hinted"))
    first.kill()
    with Workload(pod["status"]["podIP"], on_post={"state": "saved"}) as workload:
        second = start_leader(cluster)
        ended = wait_for("DELETE", lambda: deleted(cluster, namespace, "untold"))
    assert [request.document["attempt"] for request in workload.posts] == [2]
    assert state(ended)["id"] == before["id"]
    assert second.stop() == 0


@pytest.mark.slow
def test_a_workload_without_polling_gets_the_second_hint_with_attempt_2(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = start_leader(cluster)
    pod = cluster.create_pod(namespace, "deaf", annotations=hinted_for(25), finalizers=HELD)
    with Workload(pod["status"]["podIP"], on_post=None, answers_get=False) as workload:
        cluster.mark(namespace, "deaf")
        wait_for("the hint", lambda: workload.posts)
        first.kill()
        workload.on_post = {"state": "saved"}
        second = start_leader(cluster)
        wait_for("DELETE", lambda: deleted(cluster, namespace, "deaf"))
    assert [request.document["attempt"] for request in workload.posts] == [1, 2]
    assert second.stop() == 0


@pytest.mark.usefixtures("operator")
def test_an_outage_of_the_api_server_delays_evictions_and_loses_none(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "patient", annotations=hinted_for(60), finalizers=HELD)
    with Workload(pod["status"]["podIP"]) as workload:
        cluster.mark(namespace, "patient")
        cluster.wait_phase(namespace, "patient", "checkpointing")
        cluster.kill_component("kube-apiserver")
        try:
            requests_before = len(workload.requests)
            workload.state = {"state": "saved", "path": "/data/1"}
            wait_for("a question meanwhile", lambda: len(workload.requests) > requests_before)
        finally:
            cluster.start_component("kube-apiserver")
        ended = wait_for("DELETE", lambda: deleted(cluster, namespace, "patient"))
    assert len(workload.posts) == 1
    assert state(ended)["outcome"] == "saved"
    assert [entry.what for entry in cluster.audit(namespace, "patient")].count("delete") == 1


def test_of_two_operators_one_leads_and_the_other_takes_over_at_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = cluster.start_operator(lease_duration_seconds=600)
    first.wait_leading()
    second = cluster.start_operator(lease_duration_seconds=600)
    second.wait_ready()
    cluster.create_pod(namespace, "one")
    cluster.mark(namespace, "one")
    cluster.wait_gone(namespace, "one")
    assert second.metric("reprieve_leader") == 0
    assert second.metric('reprieve_api_calls_total{outcome="ok",verb="delete"}') is None
    assert first.stop() == 0
    second.wait_leading()  # Well below the Lease's ten minutes: it was given back.
    cluster.create_pod(namespace, "two")
    cluster.mark(namespace, "two")
    cluster.wait_gone(namespace, "two")
    assert second.stop() == 0


def test_a_leader_that_was_paused_past_its_lease_writes_nothing_when_it_continues(
    cluster: ClusterHandle, namespace: str
) -> None:
    first = start_leader(cluster)
    pod = cluster.create_pod(namespace, "frozen", annotations=hinted_for(60), finalizers=HELD)
    with Workload(pod["status"]["podIP"]) as workload:
        cluster.mark(namespace, "frozen")
        cluster.wait_phase(namespace, "frozen", "checkpointing")
        first.signal(signal.SIGSTOP)
        second = start_leader(cluster)
        workload.state = {"state": "saved"}
        wait_for("DELETE", lambda: deleted(cluster, namespace, "frozen"))
        first.signal(signal.SIGCONT)
        wait_for("the first no longer leads", lambda: first.metric("reprieve_leader") == 0)
    assert len(workload.posts) == 1
    writes = cluster.writes_until_end(namespace, "frozen")
    assert writes == ["patch", "patch", "patch status", "delete"]
    assert first.stop() == 0
    assert second.stop() == 0


def test_our_finalizer_holds_the_pod_exactly_until_its_containers_have_ended(
    cluster: ClusterHandle, namespace: str
) -> None:
    program = start_leader(cluster)
    pod = cluster.create_pod(namespace, "clean", annotations=hinted_for(20))
    with Workload(pod["status"]["podIP"]) as workload:
        cluster.mark(namespace, "clean")
        waiting = cluster.wait_phase(namespace, "clean", "checkpointing")
        assert waiting["metadata"]["finalizers"] == ["reprieve.dev/cleanup"]
        workload.state = {"state": "saved"}
        cluster.wait_gone(namespace, "clean")
    assert len(cluster.audit(namespace, "clean")) == 5
    assert program.stop() == 0


@pytest.mark.slow
def test_a_held_victim_that_lost_its_label_while_no_operator_ran_is_released(
    cluster: ClusterHandle, namespace: str
) -> None:
    program = start_leader(cluster)
    cluster.create_pod(namespace, "left", annotations=hinted_for(60))
    cluster.mark(namespace, "left")
    cluster.wait_phase(namespace, "left", "hinted")
    program.kill()
    cluster.kubectl.read("label", "pod", "left", "-n", namespace, "reprieve.dev/soft-eviction-")
    cluster.kubectl.read("delete", "pod", "left", "-n", namespace, "--wait=false")
    second = start_leader(cluster)
    cluster.wait_gone(namespace, "left")
    assert second.stop() == 0


@pytest.mark.usefixtures("operator")
def test_a_pod_that_another_user_deleted_meanwhile_is_not_deleted_again(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "taken", annotations=hinted_for(30), finalizers=HELD)
    with Workload(pod["status"]["podIP"]):
        cluster.mark(namespace, "taken")
        cluster.wait_phase(namespace, "taken", "checkpointing")
        cluster.kubectl.read("delete", "pod", "taken", "-n", namespace, "--wait=false")
        ended = cluster.wait_phase(namespace, "taken", "terminating")
    assert state(ended)["outcome"] == "overtaken"
    assert "delete" not in [entry.what for entry in cluster.audit(namespace, "taken")]


def test_another_pod_of_the_same_name_is_not_taken_for_the_victim(
    cluster: ClusterHandle, namespace: str
) -> None:
    # Our finalizer would keep the victim, and so its name, until the operator is back.
    cluster.set_policy(cleanupFinalizer="false")
    # The operator is down for longer than a test's lease, and would not know of a victim that is
    # gone.
    operator = cluster.start_operator(renew_deadline_seconds=50, lease_duration_seconds=60)
    operator.wait_leading()
    victim = cluster.create_pod(namespace, "twin", annotations=hinted_for(6))
    with Workload(victim["status"]["podIP"], on_post=None):
        cluster.mark(namespace, "twin")
        hinted = cluster.wait_phase(namespace, "twin", "hinted")
        over = datetime.fromisoformat(state(hinted)["deadline"])
        operator.signal(signal.SIGSTOP)
        cluster.kubectl.read("delete", "pod", "twin", "-n", namespace, "--grace-period=1")
        twin = cluster.create_pod(namespace, "twin")
        wait_for("its deadline is over", lambda: datetime.now(UTC) > over)
        operator.signal(signal.SIGCONT)
        wait_for(
            "an Event about the victim's end",
            lambda: "SoftEvictionCompleted" in reasons(cluster, namespace),
        )
    now = cluster.pod(namespace, "twin")
    assert now is not None
    assert now["metadata"]["uid"] == twin["metadata"]["uid"] != victim["metadata"]["uid"]
    assert "deletionTimestamp" not in now["metadata"]
    assert "reprieve.dev/soft-eviction" not in now["metadata"].get("labels", {})
    assert operator.stop() == 0
    cluster.set_policy()


def test_an_invalid_policy_leaves_the_last_valid_one_in_force(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    cluster.set_policy(gracePeriodCap="4s")
    wait_for("the good policy", lambda: "grace_cap_seconds=4" in operator.log.read_text())
    cluster.set_policy(gracePeriodCap="soon")
    cluster.create_pod(namespace, "short", finalizers=HELD)
    cluster.mark(namespace, "short")
    ended = wait_for("DELETE", lambda: deleted(cluster, namespace, "short"))
    assert ended["metadata"]["deletionGracePeriodSeconds"] == 4
    assert operator.metric("reprieve_policy_is_good") == 0
    cluster.kubectl.read("delete", "configmap", "reprieve-policy", "-n", OPERATOR_NAMESPACE)
    wait_for("the defaults", lambda: operator.metric("reprieve_policy_is_good") == 1)


@pytest.mark.usefixtures("namespace")
def test_an_invalid_policy_gets_one_event_from_any_number_of_operators(
    cluster: ClusterHandle, operator: Program
) -> None:
    cluster.set_policy(gracePeriodCap="soonish")
    event = wait_for("the Event", lambda: complaints(cluster))
    cluster.set_policy(gracePeriodCap="soonish", ceiling="30m")
    wait_for(
        "the second reading", lambda: operator.log.read_text().count("policy cannot be read") >= 2
    )
    assert operator.stop() == 0
    successor = cluster.start_operator()
    successor.wait_leading()
    wait_for("the successor's complaint", lambda: "PolicyUnreadable" in successor.log.read_text())
    assert successor.stop() == 0  # It writes what is queued before it ends.

    assert complaints(cluster) == event
    cluster.set_policy()
    (note,) = event
    assert note.startswith(
        "the last valid policy stays in force: data[gracePeriodCap]: must be a duration"
    )


def complaints(cluster: ClusterHandle) -> list[str]:
    """Return the notes of our Events on the current ConfigMap."""
    uid = cluster.kubectl.get("configmap", "reprieve-policy", "-n", OPERATOR_NAMESPACE)["metadata"][
        "uid"
    ]
    events = cluster.kubectl.get("events.v1.events.k8s.io", "-n", OPERATOR_NAMESPACE)["items"]
    return [event["note"] for event in events if event["regarding"].get("uid") == uid]


def state(pod: Any) -> Any:
    return json.loads(pod["metadata"]["annotations"]["reprieve.dev/eviction"])


def deleted(cluster: ClusterHandle, namespace: str, name: str) -> Any:
    pod = cluster.pod(namespace, name)
    return pod if pod and pod["metadata"].get("deletionTimestamp") else None
