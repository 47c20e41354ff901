"""Bare pods on a real control plane: recreated once, as written, if their Namespace asks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, ClusterHandle, Program, wait_for
from reprieve_testing.cluster.impersonated_users import RBAC

pytestmark = pytest.mark.cluster

HELD = ["example.com/other"]
ANSWERED = {"reprieve.dev/checkpoint": "auto", "reprieve.dev/checkpoint-timeout": "60s"}
OPERATOR = {"kind": "ServiceAccount", "name": "reprieve-operator", "namespace": OPERATOR_NAMESPACE}


@dataclass(frozen=True)
class Here:
    """A Namespace whose policy has its bare pods recreated."""

    cluster: ClusterHandle
    namespace: str

    def replaced(self, victim: Any) -> Any:
        """Return the pod in the victim's place, once there is one."""

        def look() -> Any:
            pod = self.cluster.pod(self.namespace, victim["metadata"]["name"])
            return pod if pod and pod["metadata"]["uid"] != victim["metadata"]["uid"] else None

        return wait_for("the replacement", look)

    def create(self, document: Any) -> Any:
        words = ("create", "-n", self.namespace, "-f", "-", "-o", "json")
        return json.loads(self.cluster.kubectl.read(*words, stdin=json.dumps(document)))

    def records(self) -> list[Any]:
        selector = f"{keys.BARE_POD}={self.namespace}"
        found = self.cluster.kubectl.get(
            "controllerrevisions", "-n", OPERATOR_NAMESPACE, "-l", selector
        )
        return list(found["items"])

    def wait_done(self) -> None:
        wait_for("no record is left", lambda: not self.records())

    def free(self, name: str) -> None:
        freed = '{"metadata":{"finalizers":null}}'
        self.cluster.kubectl.read(
            "patch", "pod", name, "-n", self.namespace, "--type=merge", "-p", freed
        )

    def made(self, name: str) -> int:
        """Return how often the operator has made a pod of this name."""
        lines = self.cluster.cluster.audit_log.read_text().splitlines()
        entries = (
            json.loads(line) for line in lines if self.namespace in line and '"create"' in line
        )
        return sum(
            entry["objectRef"]["resource"] == "pods"
            and "subresource" not in entry["objectRef"]
            and entry["objectRef"]["namespace"] == self.namespace
            and entry["objectRef"].get("name") == name
            and entry["user"]["username"].endswith("reprieve-operator")
            and entry["responseStatus"]["code"] == 201
            for entry in entries
        )


@pytest.fixture
def unwilling(cluster: ClusterHandle) -> Iterator[Here]:
    cluster.set_policy(recreateBarePods="true")
    with cluster.namespace("bare") as namespace:
        yield Here(cluster, namespace)
        cluster.stop_programs()


@pytest.fixture
def here(unwilling: Here) -> Here:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reprieve-bare-pods"}
    metadata = {"name": "reprieve-bare-pods", "namespace": unwilling.namespace}
    kind = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding"}
    unwilling.cluster.kubectl.apply(
        {**kind, "metadata": metadata, "roleRef": reference, "subjects": [OPERATOR]}
    )
    return unwilling


def start(cluster: ClusterHandle) -> Program:
    program = cluster.start_operator()
    program.wait_leading()
    return program


def test_a_bare_pod_is_recreated_as_written_with_the_annotations_of_a_replacement(
    here: Here,
) -> None:
    operator = start(here.cluster)
    annotations = {**ANSWERED, keys.REQUEUE_ENV: "true", "mine": "kept"}
    victim = here.cluster.create_pod(
        here.namespace, "train", annotations=annotations, labels={"app": "train"}
    )
    here.cluster.mark(here.namespace, "train")
    hinted = here.cluster.wait_phase(here.namespace, "train", "hinted")
    request = json.loads(hinted["metadata"]["annotations"]["reprieve.dev/checkpoint-request"])
    answer = json.dumps({"state": "saved", "id": request["id"], "path": "/data/$(HOME)/7"})
    here.cluster.annotate(here.namespace, "train", f"reprieve.dev/checkpoint-answer={answer}")

    made = here.replaced(victim)

    inherited = made["metadata"]["annotations"]
    assert inherited[keys.PREEMPTED_COUNT] == "1"
    assert inherited[keys.FIRST_SUBMITTED_AT] == victim["metadata"]["creationTimestamp"]
    assert inherited[keys.RESUME_FROM_CHECKPOINT] == "/data/$(HOME)/7"
    assert inherited[keys.REQUEUED_FROM] == victim["metadata"]["uid"]
    assert inherited["mine"] == "kept"
    assert keys.EVICTION not in inherited
    assert made["metadata"]["labels"] == {"app": "train"}
    environment = made["spec"]["containers"][0]["env"]
    assert {found["name"] for found in environment} >= {
        "REPRIEVE_PREEMPTED_COUNT",
        "REPRIEVE_RESUME_FROM_CHECKPOINT",
    }
    tokens = [volume["name"] for volume in made["spec"]["volumes"]]
    assert len(tokens) == 1
    assert tokens != [volume["name"] for volume in victim["spec"]["volumes"]]
    here.wait_done()
    assert here.made("train") == 1
    wait_for(
        "the Event",
        lambda: "SoftEvictionRequeued" in here.cluster.event_reasons(here.namespace, "train"),
    )
    counted = (
        f'reprieve_preemption_victim_requeue_total{{by="reprieve",namespace="{here.namespace}"}}'
    )
    assert operator.metric(counted) == 1
    assert operator.stop() == 0


def test_a_replacement_passes_its_checkpoint_to_the_next_one(here: Here) -> None:
    operator = start(here.cluster)
    victim = here.cluster.create_pod(here.namespace, "twice")
    here.cluster.mark(here.namespace, "twice")
    first = here.replaced(victim)
    here.cluster.mark(here.namespace, "twice")

    inherited = here.replaced(first)["metadata"]["annotations"]

    assert inherited[keys.PREEMPTED_COUNT] == "2"
    assert inherited[keys.FIRST_SUBMITTED_AT] == victim["metadata"]["creationTimestamp"]
    assert inherited[keys.REQUEUED_FROM] == first["metadata"]["uid"]
    assert operator.stop() == 0


def ending(here: Here, name: str, **metadata: Any) -> Any:
    """Return a marked pod that a foreign finalizer holds, once it is being deleted."""
    victim = here.cluster.create_pod(here.namespace, name, finalizers=HELD, **metadata)
    here.cluster.mark(here.namespace, name)
    wait_for(
        "DELETE",
        lambda: (here.cluster.pod(here.namespace, name) or {})["metadata"].get("deletionTimestamp"),
    )
    return victim


def test_an_operator_killed_between_deletion_and_recreation_recreates_the_pod_once(
    here: Here,
) -> None:
    first = start(here.cluster)
    victim = ending(here, "orphan")
    assert len(here.records()) == 1
    first.kill()
    here.free("orphan")
    here.cluster.wait_gone(here.namespace, "orphan")

    second = start(here.cluster)

    assert here.replaced(victim)["metadata"]["annotations"][keys.PREEMPTED_COUNT] == "1"
    here.wait_done()
    assert here.made("orphan") == 1
    assert second.stop() == 0


@pytest.mark.slow
def test_a_pod_recreated_before_the_operator_was_killed_is_not_recreated_again(here: Here) -> None:
    first = start(here.cluster)
    victim = ending(here, "done")
    first.kill()
    here.free("done")
    here.cluster.wait_gone(here.namespace, "done")
    (record,) = here.records()
    here.create(record["data"]["pod"])

    second = start(here.cluster)

    here.wait_done()
    assert here.made("done") == 0
    assert (
        here.replaced(victim)["metadata"]["annotations"][keys.REQUEUED_FROM]
        == victim["metadata"]["uid"]
    )
    assert second.stop() == 0


def test_a_pod_of_another_user_with_the_same_name_is_left_alone(here: Here) -> None:
    first = start(here.cluster)
    ending(here, "taken")
    first.kill()
    here.free("taken")
    here.cluster.wait_gone(here.namespace, "taken")
    other = here.cluster.create_pod(here.namespace, "taken")

    second = start(here.cluster)

    here.wait_done()
    wait_for(
        "the Event",
        lambda: "SoftEvictionNotRequeued" in here.cluster.event_reasons(here.namespace, "taken"),
    )
    assert (
        here.replaced({"metadata": {"name": "taken", "uid": ""}})["metadata"]["uid"]
        == other["metadata"]["uid"]
    )
    assert second.stop() == 0


@pytest.mark.slow
def test_a_pod_that_finished_is_not_recreated_even_if_the_operator_is_killed(here: Here) -> None:
    operator = start(here.cluster)
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "done", "finalizers": HELD},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
    }
    here.create(document)
    wait_for(
        "it runs",
        lambda: (
            (here.cluster.pod(here.namespace, "done") or {})["status"].get("phase") == "Running"
        ),
    )
    here.cluster.mark(here.namespace, "done")
    wait_for(
        "its containers have ended",
        lambda: "terminated" in str(here.cluster.pod(here.namespace, "done")),
    )
    assert len(here.records()) == 1
    ended = [{"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}]
    ended[0]["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    status = json.dumps({"status": {"containerStatuses": ended}})
    words = (
        "patch",
        "pod",
        "done",
        "-n",
        here.namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    )
    here.cluster.kubectl.read(*words)
    # While the pod still exists: whatever happens to the operator as it disappears, nothing is left
    # to create.
    here.wait_done()
    operator.kill()
    here.free("done")
    here.cluster.wait_gone(here.namespace, "done")

    second = start(here.cluster)
    here.cluster.create_pod(here.namespace, "witness")
    here.cluster.mark(here.namespace, "witness")
    wait_for("the next one is made anew", lambda: here.made("witness") == 1)

    assert here.cluster.pod(here.namespace, "done") is None
    assert here.made("done") == 0
    assert second.stop() == 0


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["the operator keeps running", "the operator is killed"],
)
def test_a_notified_pod_that_fails_is_recreated_even_if_the_operator_is_killed(
    here: Here, *, is_killed: bool
) -> None:
    operator = start(here.cluster)
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "fails", "annotations": ANSWERED},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
    }
    victim = here.create(document)
    wait_for(
        "it runs",
        lambda: (
            (here.cluster.pod(here.namespace, "fails") or {})["status"].get("phase") == "Running"
        ),
    )
    here.cluster.mark(here.namespace, "fails")
    here.cluster.wait_phase(here.namespace, "fails", "hinted")
    if is_killed:
        operator.kill()
    words = (
        "patch",
        "pod",
        "fails",
        "-n",
        here.namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
    )
    here.cluster.kubectl.read(*words, '{"status":{"phase":"Failed"}}')
    if is_killed:
        operator = start(here.cluster)

    inherited = here.replaced(victim)["metadata"]["annotations"]

    assert inherited[keys.PREEMPTED_COUNT] == "1"
    assert inherited[keys.REQUEUED_FROM] == victim["metadata"]["uid"]
    here.wait_done()
    assert here.made("fails") == 1
    assert operator.stop() == 0


def test_a_spared_pod_that_a_user_deletes_is_not_recreated(
    here: Here,
) -> None:
    here.cluster.set_policy(recreateBarePods="true", endWith="evict")
    operator = start(here.cluster)
    here.cluster.create_pod(here.namespace, "spared", labels={"app": "db"})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
    metadata = {"name": "db", "namespace": here.namespace}
    here.cluster.kubectl.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata,
            "spec": spec,
        }
    )
    here.cluster.mark(here.namespace, "spared")
    wait_for("the record", here.records)
    here.cluster.kubectl.read(
        "label", "pod", "spared", "-n", here.namespace, "reprieve.dev/soft-eviction-"
    )

    here.wait_done()

    here.cluster.kubectl.read("delete", "pod", "spared", "-n", here.namespace)
    assert here.made("spared") == 0
    assert operator.stop() == 0


def test_recreation_is_retried_while_a_quota_refuses_it(here: Here) -> None:
    operator = start(here.cluster)
    victim = ending(here, "large")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": here.namespace},
    }
    here.cluster.kubectl.apply({**quota, "spec": {"hard": {"pods": "0"}}})
    words = ("resourcequota", "none", "-n", here.namespace)
    wait_for("the quota", lambda: here.cluster.kubectl.get(*words).get("status", {}).get("hard"))
    here.free("large")
    refused = "SoftEvictionRequeueRefused"
    wait_for("the refusal", lambda: refused in here.cluster.event_reasons(here.namespace, "large"))
    here.cluster.kubectl.read("delete", *words)

    here.replaced(victim)

    here.wait_done()
    assert operator.stop() == 0


def test_no_record_is_kept_of_a_deleted_namespace(here: Here) -> None:
    operator = start(here.cluster)
    ending(here, "last")
    assert len(here.records()) == 1
    here.cluster.kubectl.read("delete", "namespace", here.namespace, "--wait=false")
    here.free("last")

    here.wait_done()

    assert here.made("last") == 0
    assert operator.stop() == 0
    here.cluster.kubectl.run("create", "namespace", here.namespace)


NOT_MADE_ANEW: dict[str, dict[str, Any]] = {
    "says-never": {"annotations": {"reprieve.dev/requeue": "never"}},
    "is-a-debugger": {"labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}},
}


def test_a_pod_that_declines_a_replacement_gets_none(here: Here) -> None:
    operator = start(here.cluster)
    for name, metadata in NOT_MADE_ANEW.items():
        ending(here, name, **metadata)
    by_hand = {"reprieve.dev/checkpoint": "auto"}
    here.cluster.create_pod(here.namespace, "by-hand", annotations=by_hand, finalizers=HELD)
    here.cluster.mark(here.namespace, "by-hand")
    here.cluster.wait_phase(here.namespace, "by-hand", "hinted")
    here.cluster.kubectl.read("delete", "pod", "by-hand", "-n", here.namespace, "--wait=false")
    here.cluster.wait_phase(here.namespace, "by-hand", "terminating")

    assert here.records() == []
    for name in (*NOT_MADE_ANEW, "by-hand"):
        here.free(name)
        here.cluster.wait_gone(here.namespace, name)
    witness(here)
    assert here.records() == []
    assert {name: here.made(name) for name in (*NOT_MADE_ANEW, "by-hand")} == {
        "says-never": 0,
        "is-a-debugger": 0,
        "by-hand": 0,
    }
    assert operator.stop() == 0


def witness(here: Here) -> None:
    """Wait until the operator has recreated another pod: all earlier ones exist by then."""
    victim = here.cluster.create_pod(here.namespace, "witness")
    here.cluster.mark(here.namespace, "witness")
    here.replaced(victim)
    here.wait_done()


def test_without_the_permission_in_the_namespace_no_pod_is_recreated(unwilling: Here) -> None:
    operator = start(unwilling.cluster)
    ending(unwilling, "plain")

    assert unwilling.records() == []

    unwilling.free("plain")
    unwilling.cluster.wait_gone(unwilling.namespace, "plain")
    wait_for(
        "its end",
        lambda: (
            "SoftEvictionCompleted" in unwilling.cluster.event_reasons(unwilling.namespace, "plain")
        ),
    )
    assert "SoftEvictionNotRequeued" not in unwilling.cluster.event_reasons(
        unwilling.namespace, "plain"
    )
    assert operator.stop() == 0


def test_without_the_setting_no_record_is_kept(here: Here) -> None:
    here.cluster.set_policy()
    operator = start(here.cluster)
    ending(here, "plain")
    assert here.records() == []
    assert operator.stop() == 0
