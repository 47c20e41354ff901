"""Every operation whose review is kept, in order: its sentence, its action, and its review.

Pods that are invalid for Reprieve can be created, because only the recorder reviews them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .recorder import Asked
from .testbed import NAMESPACE, POD_PATH, Testbed, a_pod, a_pod_spec, a_workload

Json = Any
CLASS, CHECKPOINT = "reprieve.dev/preemption-class", "reprieve.dev/checkpoint"
KUBE_SYSTEM = "system:serviceaccount:kube-system:"
BAD = {CLASS: "11"}
HELD = ["example.com/hold"]


@dataclass(frozen=True)
class Operation:
    """One operation.

    `wants` is `OPERATION resource[/subresource]`, sent to the validating webhook unless stated.
    """

    name: str
    wants: str
    do: Callable[[Testbed], None] | None = None
    """None: a controller, or the action of the operation before, causes the review."""
    by: str = ""
    """The end of the user's name."""
    of: str = ""
    """The beginning of the object's name, if other objects of its kind change at the same time."""
    asked_as: str = "validate"
    keep_managed_fields: bool = False

    def __call__(self, asked: Asked) -> bool:
        """Return whether this is the operation's review."""
        request = asked.review["request"]
        subresource = request.get("subResource", "")
        resource = request["resource"]["resource"] + (f"/{subresource}" if subresource else "")
        metadata = (request.get("object") or request.get("oldObject") or {}).get("metadata") or {}
        name = request.get("name") or metadata.get("name") or metadata.get("generateName") or ""
        return (
            (asked.webhook, f"{request['operation']} {resource}") == (self.asked_as, self.wants)
            and request["userInfo"]["username"].endswith(self.by)
            and name.startswith(self.of)
        )


def _patching(
    name: str, document: Json, *words: str, kind: str = "merge", **made: Any
) -> Callable[[Testbed], None]:
    def do(testbed: Testbed) -> None:
        testbed.make(a_pod(name, **made))
        testbed.patch(f"pod/{name}", document, *words, kind=kind)

    return do


def _making(*documents: Json) -> Callable[[Testbed], None]:
    return lambda testbed: testbed.make(*documents)


def _terminating(testbed: Testbed, name: str, change: Json) -> None:
    testbed.make(a_pod(name, labels=BAD, finalizers=HELD))
    testbed.run(f"delete pod {name} --wait=false")
    testbed.patch(f"pod/{name}", change)
    testbed.patch(f"pod/{name}", {"metadata": {"finalizers": None}})


def _on_a_node(name: str, **fields: Any) -> Json:
    return a_pod(name, **fields) | {"spec": a_pod_spec(nodeName="kwok-0")}


def _wait(testbed: Testbed, name: str) -> None:
    testbed.run(f"wait --for=jsonpath={{.status.phase}}=Running --timeout=30s pod/{name}")


def _with_running(name: str, act: Callable[[Testbed], None]) -> Callable[[Testbed], None]:
    def do(testbed: Testbed) -> None:
        testbed.make(_on_a_node(name))
        _wait(testbed, name)
        act(testbed)

    return do


def _applied(testbed: Testbed, name: str, text: str) -> None:
    testbed.run(
        "apply --server-side --field-manager=team -f -", stdin=a_pod(name, labels={CLASS: text})
    )


def _ephemeral(testbed: Testbed) -> None:
    debugger = {"name": "debugger", "image": "none"}
    testbed.raw(
        "PATCH",
        f"{POD_PATH}/debugged/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debugger]}},
    )


def _evict(testbed: Testbed) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": NAMESPACE},
    }
    testbed.raw("POST", f"{POD_PATH}/evicted/eviction", eviction)


def _collect(testbed: Testbed) -> None:
    testbed.make(
        a_pod("many-1", labels={"many": "y", **BAD}), a_pod("many-2", labels={"many": "y", **BAD})
    )
    testbed.raw("DELETE", f"{POD_PATH}?labelSelector=many%3Dy", {"gracePeriodSeconds": 0})


def _scaling(kind: str) -> Callable[[Testbed], None]:
    def do(testbed: Testbed) -> None:
        testbed.make(a_workload(kind, "scaled", labels=BAD, replicas=0))
        testbed.run(
            f"scale {kind.lower()} scaled --replicas=1 --as={KUBE_SYSTEM}horizontal-pod-autoscaler "
            "--as-group=system:masters"
        )

    return do


def _settle(testbed: Testbed, name: str) -> None:
    """Wait for the controller first: without this, each recording shows another moment."""
    testbed.run(f"rollout status deployment/{name} --timeout=30s")


def _replicas_by_patch(testbed: Testbed) -> None:
    testbed.make(a_workload("Deployment", "patched", labels=BAD, replicas=0))
    _settle(testbed, "patched")
    testbed.patch("deployment/patched", {"spec": {"replicas": 1}})


def _rolled(testbed: Testbed) -> None:
    testbed.make(a_workload("Deployment", "rolled", labels={CLASS: "3"}, replicas=1))
    _settle(testbed, "rolled")
    testbed.patch(
        "deployment/rolled", {"spec": {"template": {"metadata": {"labels": {CLASS: "11"}}}}}
    )


def _cron(testbed: Testbed) -> None:
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


def _resumed(testbed: Testbed) -> None:
    testbed.make(a_job("waits", labels=BAD, suspend=True))
    testbed.patch("job/waits", {"spec": {"suspend": False}})


def _deleted(testbed: Testbed) -> None:
    testbed.make(a_pod("deleted", labels=BAD))
    testbed.run("delete pod deleted --wait=false")


def _orphaned(testbed: Testbed) -> None:
    testbed.make(a_workload("ReplicaSet", "parent", labels=BAD, replicas=1))
    testbed.run("wait --for=jsonpath={.status.readyReplicas}=1 --timeout=30s replicaset/parent")
    testbed.run("delete replicaset parent --cascade=orphan")


def _namespaced(testbed: Testbed) -> None:
    metadata = {"name": "short-lived", "annotations": {"reprieve.dev/workload-type": "unknown"}}
    testbed.make({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    testbed.run("label namespace short-lived team=research")
    testbed.run("delete namespace short-lived --wait=false")


def _classes(testbed: Testbed) -> None:
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


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "pod-with-a-generated-name",
        "CREATE pods",
        _making(a_pod("", generateName="train-", labels={CLASS: "3"})),
        of="train-",
    ),
    Operation(
        "pod-with-a-generated-name-before-it-has-one",
        "CREATE pods",
        _making(a_pod("", generateName="unnamed-")),
        of="unnamed-",
        asked_as="mutate",
    ),
    Operation(
        "pod-on-a-dry-run",
        "CREATE pods",
        lambda testbed: testbed.run(
            "create --dry-run=server -f -", stdin=a_pod("tried", labels=BAD)
        ),
        of="tried",
    ),
    Operation(
        "pod-applied-server-side",
        "CREATE pods",
        lambda testbed: _applied(testbed, "applied", "3"),
        of="applied",
        keep_managed_fields=True,
    ),
    Operation(
        "pod-applied-server-side-again",
        "UPDATE pods",
        lambda testbed: _applied(testbed, "applied", "5"),
        of="applied",
        keep_managed_fields=True,
    ),
    Operation(
        "pod-patched-by-json-patch",
        "UPDATE pods",
        _patching(
            "json",
            [{"op": "add", "path": "/metadata/labels/team", "value": "a"}],
            kind="json",
            labels={CLASS: "3"},
        ),
        of="json",
    ),
    Operation(
        "pod-patched-by-merge-patch",
        "UPDATE pods",
        _patching("merge", {"metadata": {"labels": {CLASS: "2"}}}, labels={CLASS: "3"}),
        of="merge",
    ),
    Operation(
        "pod-patched-strategically",
        "UPDATE pods",
        _patching(
            "strategic",
            {"metadata": {"labels": {CLASS: None}}},
            kind="strategic",
            labels={CLASS: "3"},
        ),
        of="strategic",
    ),
    Operation(
        "bad-pod-is-labelled",
        "UPDATE pods",
        _patching("bad", {"metadata": {"labels": {"team": "research"}}}, labels=BAD),
        of="bad",
    ),
    Operation(
        "bad-pod-is-made-worse",
        "UPDATE pods",
        _patching("worse", {"metadata": {"annotations": {CHECKPOINT: "sometimes"}}}, labels=BAD),
        of="worse",
    ),
    Operation(
        "bad-pod-is-made-bad-in-another-way",
        "UPDATE pods",
        _patching("other", {"metadata": {"labels": {CLASS: "12"}}}, labels=BAD),
        of="other",
    ),
    Operation(
        "bad-pod-loses-a-finalizer",
        "UPDATE pods",
        _patching("held", {"metadata": {"finalizers": None}}, labels=BAD, finalizers=HELD),
        of="held",
    ),
    Operation(
        "terminating-bad-pod-is-made-worse",
        "UPDATE pods",
        lambda testbed: _terminating(
            testbed, "ending", {"metadata": {"annotations": {CHECKPOINT: "sometimes"}}}
        ),
        of="ending",
    ),
    Operation(
        "terminating-bad-pod-loses-its-last-finalizer",
        "UPDATE pods",
        lambda testbed: _terminating(testbed, "ended", {"metadata": {"finalizers": None}}),
        of="ended",
    ),
    Operation(
        "pod-status-by-its-node",
        "UPDATE pods/status",
        _making(_on_a_node("runs", labels=BAD)),
        by="kwok",
        of="runs",
    ),
    Operation(
        "pod-status-with-a-class",
        "UPDATE pods/status",
        _patching(
            "claims",
            {"metadata": {"labels": {CLASS: "5"}}},
            "--subresource=status",
            labels={CLASS: "3"},
        ),
        of="claims",
    ),
    Operation(
        "pod-bound-by-the-scheduler",
        "CREATE pods/binding",
        _making(a_pod("bound") | {"spec": a_pod_spec()}),
        by="kube-scheduler",
        of="bound",
    ),
    Operation(
        "pod-evicted", "CREATE pods/eviction", _with_running("evicted", _evict), of="evicted"
    ),
    Operation(
        "pod-exec",
        "CONNECT pods/exec",
        _with_running("entered", lambda testbed: testbed.run("exec entered -- true")),
        of="entered",
    ),
    Operation(
        "pod-gets-an-ephemeral-container",
        "UPDATE pods/ephemeralcontainers",
        _with_running("debugged", _ephemeral),
        of="debugged",
    ),
    Operation(
        "pod-resized",
        "UPDATE pods/resize",
        _with_running(
            "resized",
            lambda testbed: testbed.patch(
                "pod/resized",
                {
                    "spec": {
                        "containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]
                    }
                },
                "--subresource=resize",
                kind="strategic",
            ),
        ),
        asked_as="mutate",
        of="resized",
    ),
    Operation("pod-deleted", "DELETE pods", _deleted, of="deleted"),
    Operation("pod-deleted-with-its-collection", "DELETE pods", _collect, of="many-"),
    Operation(
        "deployment-scaled-by-the-autoscaler",
        "UPDATE deployments/scale",
        _scaling("Deployment"),
        of="scaled",
    ),
    Operation(
        "statefulset-scaled-by-the-autoscaler",
        "UPDATE statefulsets/scale",
        _scaling("StatefulSet"),
        of="scaled",
    ),
    Operation(
        "replicaset-scaled-by-the-autoscaler",
        "UPDATE replicasets/scale",
        _scaling("ReplicaSet"),
        of="scaled",
    ),
    Operation(
        "bad-deployment-scaled-by-a-patch",
        "UPDATE deployments",
        _replicas_by_patch,
        by="admin",
        of="patched",
    ),
    Operation(
        "deployment-rolled-to-a-bad-class", "UPDATE deployments", _rolled, by="admin", of="rolled"
    ),
    Operation(
        "deployment-status-by-its-controller",
        "UPDATE deployments/status",
        by="deployment-controller",
        of="rolled",
    ),
    Operation(
        "replicaset-of-a-deployment", "CREATE replicasets", by="deployment-controller", of="rolled"
    ),
    Operation("pod-of-a-replicaset", "CREATE pods", by="replicaset-controller", of="rolled-"),
    Operation("cronjob", "CREATE cronjobs", _cron, of="fires"),
    Operation("job-made-from-a-cronjob", "CREATE jobs", of="by-hand"),
    Operation(
        "job-of-a-cronjob-by-its-controller", "CREATE jobs", by="cronjob-controller", of="fires-"
    ),
    Operation("job", "CREATE jobs", _making(a_job("ends", labels={CLASS: "3"})), of="ends"),
    Operation("pod-of-a-job", "CREATE pods", by="job-controller", of="ends-"),
    Operation(
        "finished-pod-of-a-job-loses-its-tracking-finalizer",
        "UPDATE pods",
        by="job-controller",
        of="ends-",
    ),
    Operation("job-status-by-its-controller", "UPDATE jobs/status", by="job-controller", of="ends"),
    Operation("bad-job-is-resumed", "UPDATE jobs", _resumed, by="admin", of="waits"),
    Operation(
        "pod-orphaned-by-the-garbage-collector",
        "UPDATE pods",
        _orphaned,
        by="generic-garbage-collector",
        of="parent-",
    ),
    Operation(
        "daemonset",
        "CREATE daemonsets",
        _making(a_workload("DaemonSet", "everywhere", labels=BAD)),
        of="everywhere",
    ),
    Operation("pod-of-a-daemonset", "CREATE pods", by="daemon-set-controller", of="everywhere-"),
    Operation(
        "statefulset",
        "CREATE statefulsets",
        _making(a_workload("StatefulSet", "ordered", labels={CLASS: "3"})),
        of="ordered",
    ),
    Operation("pod-of-a-statefulset", "CREATE pods", by="statefulset-controller", of="ordered-"),
    Operation(
        "controller-revision-of-a-statefulset",
        "CREATE controllerrevisions",
        by="statefulset-controller",
    ),
    Operation("priorityclass", "CREATE priorityclasses", _classes, of="tolerant"),
    Operation("bad-priorityclass-is-labelled", "UPDATE priorityclasses", of="tolerant"),
    Operation("priorityclass-deleted", "DELETE priorityclasses", of="tolerant"),
    Operation("namespace", "CREATE namespaces", _namespaced, of="short-lived"),
    Operation("bad-namespace-is-labelled", "UPDATE namespaces", of="short-lived"),
    Operation("namespace-deleted", "DELETE namespaces", of="short-lived"),
    Operation(
        "namespace-status-by-its-controller",
        "UPDATE namespaces/status",
        by="namespace-controller",
        of="short-lived",
    ),
    Operation(
        "namespace-finalized-by-its-controller",
        "UPDATE namespaces/finalize",
        by="namespace-controller",
        of="short-lived",
    ),
)
