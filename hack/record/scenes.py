"""Every operation whose review is kept, in order: its sentence, what is done, and which of the reviews it is.

Pods that are bad from the start can be made because nothing but the recorder reviews them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .lab import NAMESPACE, POD_PATH, Lab, a_pod, a_pod_spec, a_workload
from .recorder import Asked

Json = Any
CLASS, CHECKPOINT = "reprieve.dev/preemption-class", "reprieve.dev/checkpoint"
KUBE_SYSTEM = "system:serviceaccount:kube-system:"
BAD = {CLASS: "11"}
HELD = ["example.com/hold"]


@dataclass(frozen=True)
class Scene:
    """One operation; `wants` is `OPERATION resource[/subresource]`, asked of the validating recorder unless said."""

    name: str
    wants: str
    do: Callable[[Lab], None]
    by: str = ""
    """The end of the user's name."""
    of: str = ""
    """The beginning of the object's name, where others of its kind change meanwhile."""
    asked_as: str = "validate"
    keep_managed_fields: bool = False

    @property
    def is_a_consequence(self) -> bool:
        """True where a controller, or an earlier step of the scene before, makes it."""
        return self.do is _nothing

    def __call__(self, asked: Asked) -> bool:
        """Return whether this review is the one."""
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
) -> Callable[[Lab], None]:
    def do(lab: Lab) -> None:
        lab.make(a_pod(name, **made))
        lab.patch(f"pod/{name}", document, *words, kind=kind)

    return do


def _making(*documents: Json) -> Callable[[Lab], None]:
    return lambda lab: lab.make(*documents)


def _terminating(lab: Lab, name: str, change: Json) -> None:
    lab.make(a_pod(name, labels=BAD, finalizers=HELD))
    lab.run(f"delete pod {name} --wait=false")
    lab.patch(f"pod/{name}", change)
    lab.patch(f"pod/{name}", {"metadata": {"finalizers": None}})


def _on_a_node(name: str, **fields: Any) -> Json:
    return a_pod(name, **fields) | {"spec": a_pod_spec(nodeName="kwok-0")}


def _wait(lab: Lab, name: str) -> None:
    lab.run(f"wait --for=jsonpath={{.status.phase}}=Running --timeout=30s pod/{name}")


def _with_running(name: str, act: Callable[[Lab], None]) -> Callable[[Lab], None]:
    def do(lab: Lab) -> None:
        lab.make(_on_a_node(name))
        _wait(lab, name)
        act(lab)

    return do


def _applied(lab: Lab, name: str, text: str) -> None:
    lab.run(
        "apply --server-side --field-manager=team -f -", stdin=a_pod(name, labels={CLASS: text})
    )


def _ephemeral(lab: Lab) -> None:
    debugger = {"name": "debugger", "image": "none"}
    lab.raw(
        "PATCH",
        f"{POD_PATH}/debugged/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debugger]}},
    )


def _evict(lab: Lab) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": NAMESPACE},
    }
    lab.raw("POST", f"{POD_PATH}/evicted/eviction", eviction)


def _collect(lab: Lab) -> None:
    lab.make(
        a_pod("many-1", labels={"many": "y", **BAD}), a_pod("many-2", labels={"many": "y", **BAD})
    )
    lab.raw("DELETE", f"{POD_PATH}?labelSelector=many%3Dy", {"gracePeriodSeconds": 0})


def _scaling(kind: str) -> Callable[[Lab], None]:
    def do(lab: Lab) -> None:
        lab.make(a_workload(kind, "scaled", labels=BAD, replicas=0))
        lab.run(
            f"scale {kind.lower()} scaled --replicas=1 --as={KUBE_SYSTEM}horizontal-pod-autoscaler --as-group=system:masters"
        )

    return do


def _settle(lab: Lab, name: str) -> None:
    """Let its controller have its say first: without this, each recording shows another moment."""
    lab.run(f"rollout status deployment/{name} --timeout=30s")


def _replicas_by_patch(lab: Lab) -> None:
    lab.make(a_workload("Deployment", "patched", labels=BAD, replicas=0))
    _settle(lab, "patched")
    lab.patch("deployment/patched", {"spec": {"replicas": 1}})


def _rolled(lab: Lab) -> None:
    lab.make(a_workload("Deployment", "rolled", labels={CLASS: "3"}, replicas=1))
    _settle(lab, "rolled")
    lab.patch("deployment/rolled", {"spec": {"template": {"metadata": {"labels": {CLASS: "11"}}}}})


def _cron(lab: Lab) -> None:
    job = {
        "template": {
            "metadata": {"labels": {CLASS: "3"}},
            "spec": a_pod_spec(restartPolicy="Never"),
        }
    }
    lab.make(a_cron_job("fires", "* * * * *", job))
    lab.run("create job by-hand --from=cronjob/fires")


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


def _resumed(lab: Lab) -> None:
    lab.make(a_job("waits", labels=BAD, suspend=True))
    lab.patch("job/waits", {"spec": {"suspend": False}})


def _deleted(lab: Lab) -> None:
    lab.make(a_pod("deleted", labels=BAD))
    lab.run("delete pod deleted --wait=false")


def _orphaned(lab: Lab) -> None:
    lab.make(a_workload("ReplicaSet", "parent", labels=BAD, replicas=1))
    lab.run("wait --for=jsonpath={.status.readyReplicas}=1 --timeout=30s replicaset/parent")
    lab.run("delete replicaset parent --cascade=orphan")


def _namespaced(lab: Lab) -> None:
    metadata = {"name": "short-lived", "annotations": {"reprieve.dev/workload-type": "unknown"}}
    lab.make({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    lab.run("label namespace short-lived team=research")
    lab.run("delete namespace short-lived --wait=false")


def _classes(lab: Lab) -> None:
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
    lab.make(document)
    lab.run("label priorityclass tolerant team=research")
    lab.run("delete priorityclass tolerant")


def _nothing(_: Lab) -> None:
    """What is wanted follows from the scene before, by a controller."""


SCENES: tuple[Scene, ...] = (
    Scene("pod-with-a-generated-name", "CREATE pods", _making(a_pod("", generateName="train-", labels={CLASS: "3"}) ), of="train-"),
    Scene("pod-with-a-generated-name-before-it-has-one", "CREATE pods",
          _making(a_pod("", generateName="unnamed-")), of="unnamed-", asked_as="mutate"),
    Scene("pod-on-a-dry-run", "CREATE pods",
          lambda lab: lab.run("create --dry-run=server -f -", stdin=a_pod("tried", labels=BAD)), of="tried"),
    Scene("pod-applied-server-side", "CREATE pods", lambda lab: _applied(lab, "applied", "3"), of="applied",
          keep_managed_fields=True),
    Scene("pod-applied-server-side-again", "UPDATE pods", lambda lab: _applied(lab, "applied", "5"), of="applied",
          keep_managed_fields=True),
    Scene("pod-patched-by-json-patch", "UPDATE pods",
          _patching("json", [{"op": "add", "path": "/metadata/labels/team", "value": "a"}], kind="json", labels={CLASS: "3"}),
          of="json"),
    Scene("pod-patched-by-merge-patch", "UPDATE pods",
          _patching("merge", {"metadata": {"labels": {CLASS: "2"}}}, labels={CLASS: "3"}), of="merge"),
    Scene("pod-patched-strategically", "UPDATE pods",
          _patching("strategic", {"metadata": {"labels": {CLASS: None}}}, kind="strategic", labels={CLASS: "3"}),
          of="strategic"),
    Scene("bad-pod-is-labelled", "UPDATE pods",
          _patching("bad", {"metadata": {"labels": {"team": "research"}}}, labels=BAD), of="bad"),
    Scene("bad-pod-is-made-worse", "UPDATE pods",
          _patching("worse", {"metadata": {"annotations": {CHECKPOINT: "sometimes"}}}, labels=BAD), of="worse"),
    Scene("bad-pod-is-made-bad-in-another-way", "UPDATE pods",
          _patching("other", {"metadata": {"labels": {CLASS: "12"}}}, labels=BAD), of="other"),
    Scene("bad-pod-loses-a-finalizer", "UPDATE pods",
          _patching("held", {"metadata": {"finalizers": None}}, labels=BAD, finalizers=HELD), of="held"),
    Scene("terminating-bad-pod-is-made-worse", "UPDATE pods",
          lambda lab: _terminating(lab, "ending", {"metadata": {"annotations": {CHECKPOINT: "sometimes"}}}), of="ending"),
    Scene("terminating-bad-pod-loses-its-last-finalizer", "UPDATE pods",
          lambda lab: _terminating(lab, "ended", {"metadata": {"finalizers": None}}), of="ended"),
    Scene("pod-status-by-its-node", "UPDATE pods/status", _making(_on_a_node("runs", labels=BAD)), by="kwok", of="runs"),
    Scene("pod-status-with-a-class", "UPDATE pods/status",
          _patching("claims", {"metadata": {"labels": {CLASS: "5"}}}, "--subresource=status", labels={CLASS: "3"}), of="claims"),
    Scene("pod-bound-by-the-scheduler", "CREATE pods/binding", _making(a_pod("bound") | {"spec": a_pod_spec()}),
          by="kube-scheduler", of="bound"),
    Scene("pod-evicted", "CREATE pods/eviction", _with_running("evicted", _evict), of="evicted"),
    Scene("pod-exec", "CONNECT pods/exec", _with_running("entered", lambda lab: lab.run("exec entered -- true")), of="entered"),
    Scene("pod-gets-an-ephemeral-container", "UPDATE pods/ephemeralcontainers", _with_running("debugged", _ephemeral),
          of="debugged"),
    Scene("pod-resized", "UPDATE pods/resize", _with_running("resized", lambda lab: lab.patch(
        "pod/resized", {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}},
        "--subresource=resize", kind="strategic")), asked_as="mutate", of="resized"),
    Scene("pod-deleted", "DELETE pods",
          _deleted, of="deleted"),
    Scene("pod-deleted-with-its-collection", "DELETE pods", _collect, of="many-"),
    Scene("deployment-scaled-by-the-autoscaler", "UPDATE deployments/scale", _scaling("Deployment"), of="scaled"),
    Scene("statefulset-scaled-by-the-autoscaler", "UPDATE statefulsets/scale", _scaling("StatefulSet"), of="scaled"),
    Scene("replicaset-scaled-by-the-autoscaler", "UPDATE replicasets/scale", _scaling("ReplicaSet"), of="scaled"),
    Scene("bad-deployment-scaled-by-a-patch", "UPDATE deployments", _replicas_by_patch, by="admin", of="patched"),
    Scene("deployment-rolled-to-a-bad-class", "UPDATE deployments", _rolled, by="admin", of="rolled"),
    Scene("deployment-status-by-its-controller", "UPDATE deployments/status", _nothing, by="deployment-controller", of="rolled"),
    Scene("replicaset-of-a-deployment", "CREATE replicasets", _nothing, by="deployment-controller", of="rolled"),
    Scene("pod-of-a-replicaset", "CREATE pods", _nothing, by="replicaset-controller", of="rolled-"),
    Scene("cronjob", "CREATE cronjobs", _cron, of="fires"),
    Scene("job-made-from-a-cronjob", "CREATE jobs", _nothing, of="by-hand"),
    Scene("job-of-a-cronjob-by-its-controller", "CREATE jobs", _nothing, by="cronjob-controller", of="fires-"),
    Scene("job", "CREATE jobs", _making(a_job("ends", labels={CLASS: "3"})), of="ends"),
    Scene("pod-of-a-job", "CREATE pods", _nothing, by="job-controller", of="ends-"),
    Scene("finished-pod-of-a-job-loses-its-tracking-finalizer", "UPDATE pods", _nothing, by="job-controller", of="ends-"),
    Scene("job-status-by-its-controller", "UPDATE jobs/status", _nothing, by="job-controller", of="ends"),
    Scene("bad-job-is-resumed", "UPDATE jobs", _resumed, by="admin", of="waits"),
    Scene("pod-orphaned-by-the-garbage-collector", "UPDATE pods", _orphaned, by="generic-garbage-collector", of="parent-"),
    Scene("daemonset", "CREATE daemonsets", _making(a_workload("DaemonSet", "everywhere", labels=BAD)), of="everywhere"),
    Scene("pod-of-a-daemonset", "CREATE pods", _nothing, by="daemon-set-controller", of="everywhere-"),
    Scene("statefulset", "CREATE statefulsets", _making(a_workload("StatefulSet", "ordered", labels={CLASS: "3"})), of="ordered"),
    Scene("pod-of-a-statefulset", "CREATE pods", _nothing, by="statefulset-controller", of="ordered-"),
    Scene("controller-revision-of-a-statefulset", "CREATE controllerrevisions", _nothing, by="statefulset-controller"),
    Scene("priorityclass", "CREATE priorityclasses", _classes, of="tolerant"),
    Scene("bad-priorityclass-is-labelled", "UPDATE priorityclasses", _nothing, of="tolerant"),
    Scene("priorityclass-deleted", "DELETE priorityclasses", _nothing, of="tolerant"),
    Scene("namespace", "CREATE namespaces", _namespaced, of="short-lived"),
    Scene("bad-namespace-is-labelled", "UPDATE namespaces", _nothing, of="short-lived"),
    Scene("namespace-deleted", "DELETE namespaces", _nothing, of="short-lived"),
    Scene("namespace-status-by-its-controller", "UPDATE namespaces/status", _nothing, by="namespace-controller", of="short-lived"),
    Scene("namespace-finalized-by-its-controller", "UPDATE namespaces/finalize", _nothing, by="namespace-controller",
          of="short-lived"),
)  # fmt: skip
