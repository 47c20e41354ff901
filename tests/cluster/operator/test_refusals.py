"""A scheduler's mark may be refused, for good or for now; a user's mark is always honoured."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, Json, Program, wait_for

pytestmark = pytest.mark.cluster

KOORDINATOR = "scheduling.koordinator.sh/soft-eviction"
MARK = (
    '{"timestamp":"2026-11-21T10:00:00Z",'
    '"initiator":"koord-scheduler","reason":"reclaim borrowed quota"}'
)
PROTECTED = {"quota.scheduling.koordinator.sh/preemptible": "false"}
LIMIT = 262_144
ON_TWO_CPUS = {
    "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}]
}


@pytest.fixture(scope="module")
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    cluster.set_policy(nearCompletion="30m")
    program = cluster.start_operator()
    program.wait_leading()
    yield program
    assert program.stop() == 0
    cluster.set_policy()


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("refusals") as name:
        yield name


def state(pod: Json) -> Any:
    return json.loads(pod["metadata"].get("annotations", {}).get("reprieve.dev/eviction", "{}"))


def in_phase(cluster: ClusterHandle, namespace: str, name: str, phase: str) -> Json:
    def find() -> Json | None:
        pod = cluster.pod(namespace, name)
        return pod if pod and state(pod).get("phase") == phase else None

    return wait_for(f"pod {name} is {phase}", find)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def notes(cluster: ClusterHandle, namespace: str, reason: str) -> list[str]:
    items = cluster.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    return [item["note"] for item in items if item["reason"] == reason]


def is_unmarked(pod: Json) -> bool:
    metadata = pod["metadata"]
    return (
        KOORDINATOR not in metadata["annotations"]
        and "reprieve.dev/soft-eviction" not in metadata["labels"]
    )


def test_a_pod_that_is_not_preemptible_stays_and_loses_the_mark(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    before = operator.metric('reprieve_preemption_refusals_total{reason="non-preemptible"}') or 0
    cluster.create_pod(namespace, "protected", labels=PROTECTED)
    cluster.annotate(namespace, "protected", f"{KOORDINATOR}={MARK}")
    spared = in_phase(cluster, namespace, "protected", "spared")
    assert is_unmarked(spared)
    assert (state(spared)["refusedOn"], state(spared)["outcome"]) == ("non-preemptible", "spared")
    assert state(spared)["cause"] == "reclaim"
    # The sweep's label, and the answer.
    assert [entry.what for entry in cluster.audit(namespace, "protected")] == ["patch", "patch"]
    wait_for(
        "Event", lambda: cluster.event_reasons(namespace, "protected") == ["PreemptionRefused"]
    )
    assert (
        operator.metric('reprieve_preemption_refusals_total{reason="non-preemptible"}')
        == before + 1
    )
    shown = cluster.reprieve("watch", "--once", "-n", namespace)
    assert "no victims" in shown.stderr


@pytest.mark.usefixtures("operator")
def test_a_user_may_evict_a_pod_that_is_not_preemptible(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "asked", labels=PROTECTED)
    cluster.annotate(namespace, "asked", f"{KOORDINATOR}={MARK}")
    in_phase(cluster, namespace, "asked", "spared")
    cluster.mark(namespace, "asked")
    cluster.wait_gone(namespace, "asked")


@pytest.mark.usefixtures("operator")
def test_a_protected_pod_without_space_for_a_state_stays(
    cluster: ClusterHandle, namespace: str
) -> None:
    free_bytes = LIMIT - len("pad") - len(KOORDINATOR) - len(MARK)
    cluster.create_pod(namespace, "full", labels=PROTECTED, annotations={"pad": "x" * free_bytes})
    cluster.annotate(namespace, "full", f"{KOORDINATOR}={MARK}")

    def answered() -> bool:
        pod = cluster.pod(namespace, "full")
        assert pod is not None
        return KOORDINATOR not in pod["metadata"]["annotations"]

    wait_for("the mark is taken back", answered)
    pod = cluster.pod(namespace, "full")
    assert pod is not None
    assert is_unmarked(pod)
    assert "deletionTimestamp" not in pod["metadata"]


@pytest.mark.usefixtures("operator")
def test_a_pod_near_completion_is_reprieved_until_its_end_and_then_notified(
    cluster: ClusterHandle, namespace: str
) -> None:
    hint = {"reprieve.dev/checkpoint-hint": "annotation:", KOORDINATOR: MARK}
    pod = cluster.create_pod(
        namespace, "almost", annotations=hint, spec={"activeDeadlineSeconds": 20}
    )
    reprieved = cluster.wait_phase(namespace, "almost", "reprieved")
    assert state(reprieved)["refusedOn"] == "near-completion"
    assert moment(state(reprieved)["deadline"]) == moment(pod["status"]["startTime"]) + timedelta(
        seconds=20
    )
    assert "reprieve.dev/checkpoint-request" not in reprieved["metadata"]["annotations"]
    shown = cluster.reprieve("watch", "--once", "-n", namespace)
    assert "reprieved" in shown.stdout
    assert "near-completion" in shown.stdout
    hinted = cluster.wait_phase(namespace, "almost", "hinted")
    assert "reprieve.dev/checkpoint-request" in hinted["metadata"]["annotations"]
    reasons = ["PreemptionRefused", "CheckpointRequested"]
    wait_for("Events", lambda: cluster.event_reasons(namespace, "almost") == reasons)
    until = moment(state(reprieved)["deadline"])
    assert notes(cluster, namespace, "PreemptionRefused") == [
        f"the pod stays until {until:%H:%M:%SZ}: it is almost complete and may finish"
    ]


@pytest.mark.usefixtures("operator")
def test_the_deadline_of_one_pod_does_not_protect_its_gang(
    cluster: ClusterHandle, namespace: str
) -> None:
    gang = {"pod-group.scheduling.sigs.k8s.io": "train"}
    bounds = {"small": {"activeDeadlineSeconds": 1200}, "large": {}}
    for name, spec in bounds.items():
        cluster.create_pod(namespace, name, labels=gang, spec=spec)
    cluster.annotate(namespace, "small", f"{KOORDINATOR}={MARK}")
    for name in bounds:
        cluster.wait_gone(namespace, name)


@pytest.mark.usefixtures("operator")
def test_a_gang_near_completion_is_reprieved_until_its_last_pod_has_finished(
    cluster: ClusterHandle, namespace: str
) -> None:
    gang = {"pod-group.scheduling.sigs.k8s.io": "train"}
    pods = [
        cluster.create_pod(namespace, name, labels=gang, spec={"activeDeadlineSeconds": seconds})
        for name, seconds in (("first", 600), ("last", 1200))
    ]
    cluster.annotate(namespace, "first", f"{KOORDINATOR}={MARK}")
    reprieved = cluster.wait_phase(namespace, "first", "reprieved")
    assert moment(state(reprieved)["deadline"]) == moment(
        pods[1]["status"]["startTime"]
    ) + timedelta(seconds=1200)


@pytest.mark.usefixtures("operator")
def test_the_walltime_of_its_job_reprieves_a_pod_until_a_user_evicts_it(
    cluster: ClusterHandle, namespace: str
) -> None:
    template = {
        "spec": {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}], **ON_TWO_CPUS}
    }
    cluster.kubectl.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job", "namespace": namespace},
            "spec": {"activeDeadlineSeconds": 1200, "template": template},
        }
    )
    (pod,) = wait_for(
        "the Job's pod", lambda: cluster.kubectl.get("pods", "-n", namespace)["items"]
    )
    name = pod["metadata"]["name"]
    wait_for(
        "it runs", lambda: (cluster.pod(namespace, name) or {})["status"].get("phase") == "Running"
    )
    cluster.annotate(namespace, name, f"{KOORDINATOR}={MARK}")
    reprieved = cluster.wait_phase(namespace, name, "reprieved")
    job = cluster.kubectl.get("job", "job", "-n", namespace)
    assert moment(state(reprieved)["deadline"]) == moment(job["status"]["startTime"]) + timedelta(
        seconds=1200
    )
    assert set(state(reprieved)["cost"]) == {"cpuHours"}
    done = cluster.reprieve("evict", name, "-n", namespace)
    assert done.stdout == f"pod/{name} soft eviction requested\n", done.stderr
    cluster.wait_gone(namespace, name)


@pytest.mark.usefixtures("operator")
def test_a_scheduler_that_removes_its_mark_ends_a_reprieve(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(
        namespace,
        "withdrawn",
        annotations={KOORDINATOR: MARK},
        spec={"activeDeadlineSeconds": 1200},
    )
    cluster.wait_phase(namespace, "withdrawn", "reprieved")
    cluster.annotate(namespace, "withdrawn", f"{KOORDINATOR}-")
    cancelled = in_phase(cluster, namespace, "withdrawn", "cancelled")
    assert "reprieve.dev/soft-eviction" not in cancelled["metadata"].get("labels", {})
