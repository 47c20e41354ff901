"""What is done on the cluster, so that its API server sends the reviews to be recorded.

Pods that are invalid for Reprieve can be created, because only the recorder reviews them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .testbed import NAMESPACE, POD_PATH, Testbed, a_pod, a_pod_spec, a_workload

Json = Any
CLASS = "reprieve.dev/preemption-class"
KUBE_SYSTEM = "system:serviceaccount:kube-system:"
BAD = {CLASS: "11"}
HELD = ["example.com/hold"]


def patching(
    name: str, document: Json, *words: str, kind: str = "merge", **made: Any
) -> Callable[[Testbed], None]:
    """Return an action that creates a pod and patches it."""

    def do(testbed: Testbed) -> None:
        testbed.make(a_pod(name, **made))
        testbed.patch(f"pod/{name}", document, *words, kind=kind)

    return do


def making(*documents: Json) -> Callable[[Testbed], None]:
    """Return an action that creates these objects."""
    return lambda testbed: testbed.make(*documents)


def terminate(testbed: Testbed, name: str, change: Json) -> None:
    """Delete a pod with a finalizer, change it, and release it."""
    testbed.make(a_pod(name, labels=BAD, finalizers=HELD))
    testbed.run(f"delete pod {name} --wait=false")
    testbed.patch(f"pod/{name}", change)
    testbed.patch(f"pod/{name}", {"metadata": {"finalizers": None}})


def on_a_node(name: str, **fields: Any) -> Json:
    """Return a pod on a simulated node."""
    return a_pod(name, **fields) | {"spec": a_pod_spec(nodeName="kwok-0")}


def _wait(testbed: Testbed, name: str) -> None:
    testbed.run(f"wait --for=jsonpath={{.status.phase}}=Running --timeout=30s pod/{name}")


def with_running(name: str, act: Callable[[Testbed], None]) -> Callable[[Testbed], None]:
    """Return an action that runs a pod and then does `act`."""

    def do(testbed: Testbed) -> None:
        testbed.make(on_a_node(name))
        _wait(testbed, name)
        act(testbed)

    return do


def apply(testbed: Testbed, name: str, text: str) -> None:
    """Apply a pod of a class on the server side."""
    testbed.run(
        "apply --server-side --field-manager=team -f -", stdin=a_pod(name, labels={CLASS: text})
    )


def add_ephemeral_container(testbed: Testbed) -> None:
    """Add an ephemeral container to the pod `debugged`."""
    debugger = {"name": "debugger", "image": "none"}
    testbed.raw(
        "PATCH",
        f"{POD_PATH}/debugged/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debugger]}},
    )


def evict(testbed: Testbed) -> None:
    """Evict the pod `evicted`."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": NAMESPACE},
    }
    testbed.raw("POST", f"{POD_PATH}/evicted/eviction", eviction)


def delete_collection(testbed: Testbed) -> None:
    """Delete two pods with one request."""
    testbed.make(
        a_pod("many-1", labels={"many": "y", **BAD}), a_pod("many-2", labels={"many": "y", **BAD})
    )
    testbed.raw("DELETE", f"{POD_PATH}?labelSelector=many%3Dy", {"gracePeriodSeconds": 0})


def scale(testbed: Testbed) -> None:
    """Scale a Deployment as the autoscaler does."""
    testbed.make(a_workload("Deployment", "scaled", labels=BAD, replicas=0))
    testbed.run(
        f"scale deployment scaled --replicas=1 --as={KUBE_SYSTEM}horizontal-pod-autoscaler "
        "--as-group=system:masters"
    )


def _settle(testbed: Testbed, name: str) -> None:
    """Wait for the controller first: without this, each recording shows another moment."""
    testbed.run(f"rollout status deployment/{name} --timeout=30s")


def patch_replicas(testbed: Testbed) -> None:
    """Scale a Deployment by a patch."""
    testbed.make(a_workload("Deployment", "patched", labels=BAD, replicas=0))
    _settle(testbed, "patched")
    testbed.patch("deployment/patched", {"spec": {"replicas": 1}})


def roll_out(testbed: Testbed) -> None:
    """Change a Deployment's template to a class that does not exist."""
    testbed.make(a_workload("Deployment", "rolled", labels={CLASS: "3"}, replicas=1))
    _settle(testbed, "rolled")
    testbed.patch(
        "deployment/rolled", {"spec": {"template": {"metadata": {"labels": {CLASS: "11"}}}}}
    )


def cron_job(testbed: Testbed) -> None:
    """Create a CronJob, and a Job from it by hand."""
    job = {
        "template": {
            "metadata": {"labels": {CLASS: "3"}},
            "spec": a_pod_spec(restartPolicy="Never"),
        }
    }
    testbed.make(a_cron_job("fires", "* * * * *", job))
    testbed.run("create job by-hand --from=cronjob/fires")


def a_cron_job(name: str, schedule: str, job: Json) -> Json:
    """Return a CronJob."""
    spec = {"schedule": schedule, "jobTemplate": {"metadata": {}, "spec": job}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def a_job(name: str, *, labels: Json = None, **spec: Any) -> Json:
    """Return a Job whose pods end at once."""
    job = a_workload("Job", name, api_version="batch/v1", labels=labels, **spec)
    template = job["spec"]["template"]
    template["spec"] |= {"restartPolicy": "Never"}
    template["metadata"]["annotations"] = {"pod-complete.stage.kwok.x-k8s.io/delay": "0s"}
    return job


def resume(testbed: Testbed) -> None:
    """Create a suspended Job and resume it."""
    testbed.make(a_job("waits", labels=BAD, suspend=True))
    testbed.patch("job/waits", {"spec": {"suspend": False}})


def delete(testbed: Testbed) -> None:
    """Delete a pod."""
    testbed.make(a_pod("deleted", labels=BAD))
    testbed.run("delete pod deleted --wait=false")


def orphan(testbed: Testbed) -> None:
    """Delete a ReplicaSet and leave its pod."""
    testbed.make(a_workload("ReplicaSet", "parent", labels=BAD, replicas=1))
    testbed.run("wait --for=jsonpath={.status.readyReplicas}=1 --timeout=30s replicaset/parent")
    testbed.run("delete replicaset parent --cascade=orphan")


def namespace_life(testbed: Testbed) -> None:
    """Create, label and delete a Namespace."""
    metadata = {"name": "short-lived", "annotations": {"reprieve.dev/workload-type": "unknown"}}
    testbed.make({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    testbed.run("label namespace short-lived team=research")
    testbed.run("delete namespace short-lived --wait=false")


def priority_class_life(testbed: Testbed) -> None:
    """Create, label and delete a PriorityClass."""
    metadata = {
        "name": "tolerant",
        "annotations": {"preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "1h"},
    }
    document = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": 1000,
    }
    testbed.make(document)
    testbed.run("label priorityclass tolerant team=research")
    testbed.run("delete priorityclass tolerant")
