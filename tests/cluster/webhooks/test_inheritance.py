"""What replacements inherit on a real control plane: from Jobs by index, from StatefulSets by name.

They also inherit from the owners of these, and new pods from the objects of their gang. JobSet,
LeaderWorkerSet and PodGroup are stand-ins here: CustomResourceDefinitions of these names that take
any spec. The tests do what their controllers do: they label pods, and delete a Job or a StatefulSet
and create it again under the same name.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mainjob.installation import Installation, Nodes
from realcluster import install
from realcluster.programs import OPERATOR, WEBHOOKS, Programs
from reprieve_policy import keys
from reprieve_testing.cluster.handle import (
    LEASE_SECONDS,
    ClusterHandle,
    cluster_for_tests,
    wait_for,
)

pytestmark = pytest.mark.cluster

SECONDS = 60.0
OWN = {"OWN", "JOB_COMPLETION_INDEX"}
"""The template's labels, and those that the Job controller adds."""
COUNT = "REPRIEVE_PREEMPTED_COUNT"
GROUP = "jobset.x-k8s.io"
MODE = keys.DISRUPTION_MODE


@dataclass(frozen=True)
class Here:
    """A namespace of a cluster in which both programs run."""

    cluster: ClusterHandle
    namespace: str

    def create(self, document: Any) -> Any:
        output = self.cluster.kubectl.read(
            "create", "-n", self.namespace, "-f", "-", "-o", "json", stdin=json.dumps(document)
        )
        return json.loads(output)

    def pods(self, selector: str) -> list[Any]:
        return list(self.cluster.kubectl.get("pods", "-n", self.namespace, "-l", selector)["items"])

    def wait_running(self, selector: str, but: str = "") -> Any:
        """Return the pod of this selector once it runs; `but`: not the pod with this uid."""

        def look() -> Any:
            found = (pod for pod in self.pods(selector) if pod["metadata"]["uid"] != but)
            return next((pod for pod in found if pod["status"].get("phase") == "Running"), None)

        return wait_for(f"a pod of {selector} runs", look, SECONDS)

    def preempt(self, selector: str) -> Any:
        """Have the pod of this selector go, and return the one in its place."""
        pod = self.wait_running(selector)
        self.cluster.mark(self.namespace, pod["metadata"]["name"])
        return self.wait_running(selector, but=pod["metadata"]["uid"])

    def slots(self, kind: str, name: str) -> Any:
        owner = self.cluster.kubectl.get(kind, name, "-n", self.namespace)
        return json.loads(
            owner["metadata"].get("annotations", {}).get(keys.LEDGER, '{"slots":{}}')
        )["slots"]


@pytest.fixture(scope="module")
def installed() -> Iterator[ClusterHandle]:
    with cluster_for_tests("reprieve-inheritance") as handle:
        yield from installed_in(handle)


def installed_in(handle: ClusterHandle) -> Iterator[ClusterHandle]:
    there = Installation.for_cluster(handle.cluster, Nodes.LOCAL, lease_seconds=LEASE_SECONDS)
    try:
        stop(there.programs)
        for definition in (JOB_SETS, LEADER_WORKER_SETS, POD_GROUPS):
            there.kubectl.apply(definition)
            name = definition["metadata"]["name"]
            there.kubectl.read("wait", "--for=condition=Established", "crd", name)
        install.install(there.kubectl, install.LOCAL, handle.cluster.port("webhooks"))
        handle.set_policy()
        for name in (WEBHOOKS, OPERATOR):
            there.start(name)
        yield handle
    finally:
        stop(there.programs)


def stop(programs: Programs) -> None:
    for name in (WEBHOOKS, OPERATOR):
        programs.stop(name)


@pytest.fixture
def here(installed: ClusterHandle) -> Iterator[Here]:
    with installed.namespace("heirs") as namespace:
        yield Here(installed, namespace)


def a_definition(group: str, version: str, kind: str) -> Any:
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


JOB_SETS = a_definition(GROUP, "v1alpha2", "JobSet")
LEADER_WORKER_SETS = a_definition("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
POD_GROUPS = a_definition("scheduling.x-k8s.io", "v1alpha1", "PodGroup")


def a_template(labels: Any = None, **spec: Any) -> Any:
    containers = [{"name": "main", "image": "none", "env": [{"name": "OWN", "value": "1"}]}]
    metadata = {"labels": labels or {}, "annotations": {keys.REQUEUE_ENV: "true"}}
    return {
        "metadata": metadata,
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1, **spec},
    }


NOT_A_FAILURE = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
}
"""Without this, the Job controller waits longer before each next pod."""


def an_indexed_job(name: str, owner: Any = None, **labels: str) -> Any:
    spec = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "podFailurePolicy": NOT_A_FAILURE,
    }
    spec["template"] = a_template(labels, restartPolicy="Never")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": owned(name, owner), "spec": spec}


def owned(name: str, owner: Any) -> Any:
    if owner is None:
        return {"name": name}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"name": name, "ownerReferences": [reference]}


def a_stateful_set(name: str, owner: Any = None, **more_labels: str) -> Any:
    labels = {"app": name, **more_labels}
    spec = {
        "replicas": 2,
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": a_template(labels),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": owned(name, owner),
        "spec": spec,
    }


def a_deployment(name: str, **metadata: Any) -> Any:
    labels = {"app": name}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": a_template(labels),
    }
    naming = {"name": name, **metadata}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": naming, "spec": spec}


def of_job(name: str, index: int) -> str:
    return f"batch.kubernetes.io/job-name={name},{keys.COMPLETION_INDEX}={index}"


def count(pod: Any) -> str | None:
    return pod["metadata"].get("annotations", {}).get(keys.PREEMPTED_COUNT)


def variables(pod: Any) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return {found["name"]: found for found in container["env"]}


def test_a_pod_of_an_indexed_job_inherits_from_the_pod_of_its_index(here: Here) -> None:
    here.create(an_indexed_job("train"))
    first = here.wait_running(of_job("train", 1))
    assert count(first) is None
    assert set(variables(first)) == OWN

    second = here.preempt(of_job("train", 1))

    assert count(second) == "1"
    assert (
        second["metadata"]["annotations"][keys.FIRST_SUBMITTED_AT]
        == first["metadata"]["creationTimestamp"]
    )
    assert set(variables(second)) == {*OWN, COUNT, "REPRIEVE_FIRST_SUBMITTED_AT"}
    reference = variables(second)[COUNT]["valueFrom"]["fieldRef"]
    assert reference["fieldPath"] == f"metadata.annotations['{keys.PREEMPTED_COUNT}']"
    assert count(here.preempt(of_job("train", 0))) == "1"
    assert set(here.slots("job", "train")) == {"0", "1"}


def test_a_pod_of_a_stateful_set_inherits_from_the_pod_of_its_name(here: Here) -> None:
    here.create(a_stateful_set("db"))
    for number in (0, 1):
        assert count(here.wait_running(f"statefulset.kubernetes.io/pod-name=db-{number}")) is None

    assert count(here.preempt("statefulset.kubernetes.io/pod-name=db-1")) == "1"
    assert count(here.preempt("statefulset.kubernetes.io/pod-name=db-1")) == "2"
    assert count(here.preempt("statefulset.kubernetes.io/pod-name=db-0")) == "1"
    assert {slot: entry["count"] for slot, entry in here.slots("statefulset", "db").items()} == {
        "db-0": 1,
        "db-1": 2,
    }


def test_a_rollback_leaves_the_replicaset_the_ledger_that_the_operator_writes(here: Here) -> None:
    """`kubectl rollout undo` copies the annotations of the earlier ReplicaSet to the Deployment,
    whose controller writes them to that ReplicaSet whenever it looks at it.
    """
    here.create(a_deployment("web"))
    first = preempt_the_only_pod(here, "web")
    assert counts(here, first) == [1]
    roll(here, "set", "image", "deployment/web", "main=newer")
    roll(here, "rollout", "undo", "deployment/web")

    assert preempt_the_only_pod(here, "web") == first
    roll(here, "scale", "deployment/web", "--replicas=2")

    assert counts(here, first) == [2]


def preempt_the_only_pod(here: Here, deployment: str) -> str:
    """Have it go, and return the ReplicaSet that creates the one in its place."""
    selector = f"app={deployment}"
    wait_for("the pods before it are gone", lambda: len(here.pods(selector)) == 1, SECONDS)
    (owner,) = here.preempt(selector)["metadata"]["ownerReferences"]
    return str(owner["name"])


def roll(here: Here, *change: str) -> None:
    """Change the Deployment `web`, and wait until its controller has done all of it."""
    here.cluster.kubectl.read(*change, "-n", here.namespace)
    here.cluster.kubectl.read("rollout", "status", "deployment/web", "-n", here.namespace)


def counts(here: Here, replica_set: str) -> list[int]:
    return [entry["count"] for entry in here.slots("replicaset", replica_set).values()]


def test_the_author_of_a_deployment_gives_its_pods_no_ledger(here: Here) -> None:
    forged = {keys.LEDGER: '{"v":1,"slots":{}}', keys.LAST_CHECKPOINT_AT: "2026-11-21T12:00:00Z"}
    created = here.create(a_deployment("forged", annotations={"example.com/kept": "", **forged}))
    assert set(created["metadata"]["annotations"]) == {"example.com/kept"}


def test_the_ledger_of_a_job_set_outlives_its_jobs(here: Here) -> None:
    whole = here.create(a_job_set())
    here.create(an_indexed_job("set-workers-0", whole))
    assert count(here.preempt(of_job("set-workers-0", 1))) == "1"
    assert here.slots("job", "set-workers-0") == {}
    assert here.slots("jobset", "set")["set-workers-0/1"]["count"] == 1

    restart(here, "set-workers-0", whole)

    assert count(here.wait_running(of_job("set-workers-0", 1))) == "1"
    assert count(here.wait_running(of_job("set-workers-0", 0))) is None


def test_a_recreated_job_set_of_the_same_name_inherits_nothing(here: Here) -> None:
    here.create(an_indexed_job("set-workers-0", here.create(a_job_set())))
    here.preempt(of_job("set-workers-0", 0))
    here.cluster.kubectl.read(
        "delete", "jobset", "set", "-n", here.namespace, "--cascade=foreground"
    )

    here.create(an_indexed_job("set-workers-0", here.create(a_job_set())))

    assert count(here.wait_running(of_job("set-workers-0", 0))) is None


def test_the_ledger_of_a_leader_worker_set_outlives_its_stateful_set(here: Here) -> None:
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    whole = here.create(
        {**kind, "metadata": {"name": "serve", "annotations": {MODE: "pod"}}, "spec": {}}
    )
    labels = {keys.LEADER_WORKER_SET: "serve", keys.LEADER_WORKER_GROUP: "0"}
    leaders = a_stateful_set("serve", whole, **labels)
    here.create(leaders)
    second = "statefulset.kubernetes.io/pod-name=serve-1"
    preempted = here.preempt(second)
    assert (count(preempted), said(preempted)) == ("1", {MODE: "pod"})
    assert here.slots("statefulset", "serve") == {}
    assert [entry["count"] for entry in here.slots("leaderworkerset", "serve").values()] == [1]

    here.cluster.kubectl.read(
        "delete", "statefulset", "serve", "-n", here.namespace, "--cascade=foreground"
    )
    here.create(leaders)

    assert count(here.wait_running(second)) == "1"


def a_job_set(**metadata: Any) -> Any:
    """Return a JobSet; Reprieve reads only its metadata."""
    kind = {"apiVersion": f"{GROUP}/v1alpha2", "kind": "JobSet"}
    return {**kind, "metadata": {"name": "set", **metadata}, "spec": {}}


def said(pod: Any) -> Any:
    """Return what a pod has from the object of its gang."""
    annotations = pod["metadata"].get("annotations", {})
    return {key: annotations[key] for key in (MODE, keys.MIN_MEMBER) if key in annotations}


def is_marked(pod: Any) -> bool:
    return keys.SOFT_EVICTION in pod["metadata"].get("labels", {})


def test_the_pods_of_a_job_set_go_one_by_one_where_it_says_so(here: Here) -> None:
    whole = here.create(a_job_set(annotations={MODE: "pod"}))
    here.create(an_indexed_job("set-workers-0", whole, **{keys.JOBSET: "set"}))
    pods = [here.wait_running(of_job("set-workers-0", index)) for index in (0, 1)]
    assert [said(pod) for pod in pods] == [{MODE: "pod"}] * 2

    assert said(here.preempt(of_job("set-workers-0", 1))) == {MODE: "pod"}

    # Without the annotation, the mark on one would have been a mark on both.
    (other,) = here.pods(of_job("set-workers-0", 0))
    assert other["metadata"]["uid"] == pods[0]["metadata"]["uid"]
    assert not is_marked(other)


def test_the_disruption_mode_of_a_job_set_is_checked(here: Here) -> None:
    bad = a_job_set(annotations={MODE: "each"})
    done = here.cluster.kubectl.run(
        "create", "-n", here.namespace, "-f", "-", stdin=json.dumps(bad)
    )
    assert done.status != 0
    assert 'Unsupported value: "each": supported values: "pod", "gang"' in done.output
    here.create(a_job_set(annotations={MODE: "pod"}))
    words = ("annotate", "jobset", "set", "-n", here.namespace, "--overwrite", f"{MODE}=gang")
    assert "a change counts for new pods only" in here.cluster.kubectl.run(*words).output


def test_a_gang_keeps_as_many_pods_as_its_pod_group_needs(here: Here) -> None:
    here.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "train", "annotations": {MODE: "pod"}},
            "spec": {"minMember": 2},
        }
    )
    metadata = {"labels": {keys.POD_GROUP: "train"}, "annotations": {keys.REQUEUE: "never"}}
    for name in "abc":
        pod = here.cluster.create_pod(here.namespace, name, grace_seconds=1, **metadata)
        assert said(pod) == {MODE: "pod", keys.MIN_MEMBER: "2"}

    here.cluster.mark(here.namespace, "a")
    here.cluster.wait_gone(here.namespace, "a")
    assert not any(map(is_marked, here.pods(f"{keys.POD_GROUP}=train")))

    # Two are left, and the gang needs two: both go.
    here.cluster.mark(here.namespace, "b")
    for name in "bc":
        here.cluster.wait_gone(here.namespace, name)


def restart(here: Here, job: str, whole: Any) -> None:
    """Do what JobSet's controller does when it restarts."""
    here.cluster.kubectl.read("delete", "job", job, "-n", here.namespace, "--cascade=foreground")
    here.create(an_indexed_job(job, whole))
