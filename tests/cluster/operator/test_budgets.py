"""Victims that are evicted, not deleted: a disruption budget holds them until their ceiling.

If an eviction marked the pod and a budget still holds it at the ceiling, the pod stays.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_testing.cluster.handle import ClusterHandle, Program, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

HELD = ["example.com/other"]
PACE = {"endWith": "evict", "ceiling": "15s", "checkpointTimeout": "5s", "maxDeferral": "5s"}
POLLS = {keys.CHECKPOINT_HINT: "annotation:", keys.CHECKPOINT_TIMEOUT: "5s"}
MOST_WRITES = 5


@pytest.fixture
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    cluster.set_policy(**PACE)
    program = cluster.start_operator()
    program.wait_leading()
    yield program
    program.stop()
    cluster.set_policy()


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("budgets") as name:
        yield name


@pytest.fixture
def patience(cluster: ClusterHandle, operator: Program) -> None:  # noqa: ARG001 - it sets a policy, too
    """Let the operator wait for a budget for long.

    A busy machine takes that long to count it, or to start a successor.
    """
    cluster.set_policy(**PACE | {"ceiling": "5m"})


def budget(
    cluster: ClusterHandle, namespace: str, name: str, at_least: int, app: str = "db"
) -> None:
    """Forbid any disruption of an app's pods; wait until the disruption controller counted them."""
    spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": app}}}
    metadata = {"name": name, "namespace": namespace}
    cluster.kubectl.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": spec,
        }
    )

    def is_counted() -> bool:
        found = cluster.kubectl.get("pdb", name, "-n", namespace)
        status = found.get("status", {})
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_seen and status.get("currentHealthy", 0) > 0

    wait_for("the budget is counted", is_counted)


def condition(pod: Any) -> Any:
    return next(
        (found for found in pod["status"]["conditions"] if found["type"] == "DisruptionTarget"),
        None,
    )


def state(pod: Any) -> Any:
    return json.loads(pod["metadata"]["annotations"]["reprieve.dev/eviction"])


def deleted(cluster: ClusterHandle, namespace: str, name: str) -> Any:
    pod = cluster.pod(namespace, name)
    return pod if pod and pod["metadata"].get("deletionTimestamp") else None


def test_without_a_budget_one_eviction_sets_the_disruption_condition_and_keeps_the_grace_period(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "free", grace_seconds=7, finalizers=HELD)
    cluster.mark(namespace, "free")
    ended = wait_for("the eviction", lambda: deleted(cluster, namespace, "free"))
    assert condition(ended)["status"] == "True"
    assert ended["metadata"]["deletionGracePeriodSeconds"] == 7
    assert cluster.writes_until_end(namespace, "free") == ["patch", "create eviction"]


@pytest.mark.usefixtures("patience")
def test_an_eviction_that_a_budget_holds_is_reported_once_and_performed_later(
    cluster: ClusterHandle, namespace: str
) -> None:
    for name in ("one", "two"):
        cluster.create_pod(namespace, name, labels={"app": "db"}, finalizers=HELD)
    budget(cluster, namespace, "db", at_least=2)
    cluster.mark(namespace, "one")
    wait_for("Event", lambda: "WaitingForBudget" in cluster.event_reasons(namespace, "one"))
    waiting = cluster.wait_phase(namespace, "one", "terminating")
    assert "deletionTimestamp" not in waiting["metadata"]
    budget(cluster, namespace, "db", at_least=1)
    ended = wait_for("the eviction", lambda: deleted(cluster, namespace, "one"))
    assert condition(ended)["reason"] == "EvictionByEvictionAPI"
    assert cluster.event_reasons(namespace, "one").count("WaitingForBudget") == 1
    assert cluster.writes_until_end(namespace, "one") == ["patch", "create eviction"]
    events = cluster.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    (note,) = [event["note"] for event in events if event["reason"] == "WaitingForBudget"]
    assert "disruption budget db needs 2 healthy pods and has 2 currently" in note


def test_past_the_ceiling_the_pod_is_deleted_despite_its_budget(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "stubborn", labels={"app": "db"}, finalizers=HELD)
    budget(cluster, namespace, "db", at_least=1)
    cluster.mark(namespace, "stubborn")
    ended = wait_for("the DELETE", lambda: deleted(cluster, namespace, "stubborn"))
    assert condition(ended)["reason"] == "PreemptionByReprieve"
    writes = cluster.writes_until_end(namespace, "stubborn")
    assert writes == ["patch", "patch status", "delete"]


def test_a_pod_with_two_budgets_cannot_be_evicted_and_is_deleted_at_the_ceiling(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "twice", labels={"app": "db"}, finalizers=HELD)
    for name in ("db", "also"):
        budget(cluster, namespace, name, at_least=0)
    cluster.mark(namespace, "twice")
    wait_for("Event", lambda: "WaitingForBudget" in cluster.event_reasons(namespace, "twice"))
    wait_for("the DELETE", lambda: deleted(cluster, namespace, "twice"))


@pytest.mark.usefixtures("patience")
def test_a_mark_that_is_removed_while_a_budget_holds_the_pod_spares_it(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "spared", labels={"app": "db"})
    budget(cluster, namespace, "db", at_least=1)
    cluster.mark(namespace, "spared")
    wait_for("Event", lambda: "WaitingForBudget" in cluster.event_reasons(namespace, "spared"))
    cluster.kubectl.read("label", "pod", "spared", "-n", namespace, "reprieve.dev/soft-eviction-")
    wait_for("Event", lambda: "SoftEvictionCancelled" in cluster.event_reasons(namespace, "spared"))
    pod = cluster.pod(namespace, "spared")
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]
    assert state(pod)["outcome"] == "cancelled"


@pytest.mark.usefixtures("patience")
def test_a_cancelled_eviction_is_not_counted_on_the_owner(
    cluster: ClusterHandle, namespace: str
) -> None:
    metadata = {"name": "train", "namespace": namespace}
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
    }
    cluster.kubectl.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"template": template},
        }
    )
    budget(cluster, namespace, "db", at_least=1)
    (pod,) = cluster.kubectl.get("pods", "-n", namespace)["items"]
    name = pod["metadata"]["name"]

    def ledger() -> Any:
        job = cluster.kubectl.get("job", "train", "-n", namespace)["metadata"]
        return (job.get("annotations", {}).get(keys.LEDGER), job.get("labels", {}).get(keys.LEDGER))

    cluster.mark(namespace, name)
    wait_for("Event", lambda: "WaitingForBudget" in cluster.event_reasons(namespace, name))
    counted, label = ledger()
    assert (json.loads(counted)["slots"][""]["count"], label) == (1, "true")
    cluster.kubectl.read("label", "pod", name, "-n", namespace, "reprieve.dev/soft-eviction-")
    wait_for("Event", lambda: "SoftEvictionCancelled" in cluster.event_reasons(namespace, name))
    assert ledger() == (None, None)


@pytest.mark.usefixtures("patience")
def test_the_next_operator_continues_to_wait_for_a_budget(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    for name in ("one", "two"):
        cluster.create_pod(namespace, name, labels={"app": "db"}, finalizers=HELD)
    budget(cluster, namespace, "db", at_least=2)
    cluster.mark(namespace, "one")
    before = state(cluster.wait_phase(namespace, "one", "terminating"))
    second = cluster.start_operator()
    operator.kill()
    second.wait_leading()
    budget(cluster, namespace, "db", at_least=1)
    ended = wait_for("the eviction", lambda: deleted(cluster, namespace, "one"))
    assert state(ended) == before
    assert second.metric('reprieve_api_calls_total{outcome="ok",verb="evict"}') == 1
    assert second.stop() == 0


def evict_mark(cluster: ClusterHandle, namespace: str, name: str) -> None:
    """Ask that a pod go, as the guard does for a drain."""
    cluster.kubectl.read("label", "pod", name, "-n", namespace, f"{keys.SOFT_EVICTION}=evict")


def stood_down(cluster: ClusterHandle, namespace: str, name: str) -> Any:
    """Return a pod whose eviction was given up because its budget held it."""

    def find() -> Any:
        pod = cluster.pod(namespace, name)
        is_over = (
            pod
            and keys.SOFT_EVICTION not in pod["metadata"]["labels"]
            and state(pod)["phase"] == "cancelled"
        )
        return pod if is_over else None

    found = wait_for("it is stood down", find)
    assert state(found)["outcome"] == "held-by-budget"
    assert "deletionTimestamp" not in found["metadata"]
    return found


def ceiling_of(pod: Any) -> datetime:
    asked_at = timestamp.parse(state(pod)["requestedAt"])
    assert asked_at is not None
    return asked_at + timedelta(seconds=15)


def test_an_eviction_that_a_budget_holds_at_the_ceiling_is_cancelled_and_the_workload_continues(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    hints = POLLS | {keys.CHECKPOINT_TIMEOUT: "12s"}
    cluster.create_pod(
        namespace, "drained", labels={"app": "db"}, annotations=hints, finalizers=HELD
    )
    budget(cluster, namespace, "db", at_least=1)
    evict_mark(cluster, namespace, "drained")
    hinted = cluster.wait_phase(namespace, "drained", "hinted")
    request = json.loads(hinted["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])
    answer = json.dumps({"state": "saved", "id": request["id"], "step": 7})
    cluster.annotate(namespace, "drained", f"{keys.CHECKPOINT_ANSWER}={answer}")
    wait_for("Event", lambda: "WaitingForBudget" in cluster.event_reasons(namespace, "drained"))
    kept = stood_down(cluster, namespace, "drained")
    assert datetime.now(UTC) >= ceiling_of(kept)
    told = json.loads(kept["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])
    assert (told["id"], told["cancelled"]) == (request["id"], True)
    assert kept["metadata"]["annotations"][keys.LAST_CHECKPOINT_AT]
    wait_for(
        "Event", lambda: "SoftEvictionCancelled" in cluster.event_reasons(namespace, "drained")
    )
    events = cluster.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    (note,) = [event["note"] for event in events if event["reason"] == "SoftEvictionCancelled"]
    assert "the pod could not be evicted in time (WaitingForBudget says why)" in note
    assert operator.metric("reprieve_preemption_cancellations_total") == 1
    writes = cluster.audit(namespace, "drained")
    assert {entry.status for entry in writes if entry.what == "create eviction"} == {429}
    accepted = [entry.what for entry in writes if entry.status < 400]
    assert (set(accepted), len(accepted) <= MOST_WRITES) == ({"patch"}, True)


def test_a_repeated_eviction_gives_new_notice_and_succeeds_once_the_budget_allows_it(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "again", labels={"app": "db"}, annotations=POLLS, finalizers=HELD)
    budget(cluster, namespace, "db", at_least=1)
    evict_mark(cluster, namespace, "again")
    kept = stood_down(cluster, namespace, "again")
    first, ceiling = state(kept), ceiling_of(kept)
    budget(cluster, namespace, "db", at_least=0)
    evict_mark(cluster, namespace, "again")
    second = state(cluster.wait_phase(namespace, "again", "hinted"))
    assert second["id"] != first["id"]
    assert timestamp.parse(second["heldSince"]) == ceiling
    ended = wait_for("the eviction", lambda: deleted(cluster, namespace, "again"))
    assert condition(ended)["reason"] == "EvictionByEvictionAPI"


def test_an_eviction_held_while_no_operator_ran_is_retried_once_and_cancelled(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    cluster.create_pod(namespace, "late", labels={"app": "db"}, finalizers=HELD)
    budget(cluster, namespace, "db", at_least=1)
    evict_mark(cluster, namespace, "late")
    waiting = cluster.wait_phase(namespace, "late", "terminating")
    operator.kill()
    wait_for("the ceiling is over", lambda: datetime.now(UTC) > ceiling_of(waiting))
    second = cluster.start_operator()
    second.wait_leading()
    stood_down(cluster, namespace, "late")
    assert second.metric('reprieve_api_calls_total{outcome="429",verb="evict"}') == 1
    assert second.stop() == 0
