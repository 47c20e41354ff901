"""The workloads of the day: small, on simulated nodes, valid or invalid."""

from typing import Any

Json = Any
CLASS, CHECKPOINT = "reprieve.dev/preemption-class", "reprieve.dev/checkpoint"
GOOD = {CLASS: "3"}
BAD = {CLASS: "11"}
HINT = {"reprieve.dev/checkpoint-hint": "annotation:"}
"""The hint of a pod that must not be preempted or evicted without notice."""
ENDS = {"pod-complete.stage.kwok.x-k8s.io/delay": "1s"}
"""A simulated pod that exits 0 after a second."""


def a_template(
    name: str,
    *,
    labels: Json = None,
    annotations: Json = None,
    node: str = "",
    cpu: str = "10m",
    **spec: Any,
) -> Json:
    """Return a pod template; with `node`, for that node only."""
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"labels": {"app": name, **(labels or {})}, "annotations": annotations or {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **selector, **spec},
    }


def a_pod(name: str, *, finalizers: Json = None, **template: Any) -> Json:
    """Return a bare pod."""
    made = a_template(name, **template)
    metadata = {"name": name, **made["metadata"], "finalizers": finalizers or []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


def a_workload(kind: str, name: str, *, more: Json = None, **template: Any) -> Json:
    """Return a Deployment, StatefulSet, DaemonSet or ReplicaSet; `more` is merged into its spec."""
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "template": a_template(name, **template),
        **(more or {}),
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def a_controller(name: str, **template: Any) -> Json:
    """Return a ReplicationController of one pod."""
    spec = {"replicas": 1, "selector": {"app": name}, "template": a_template(name, **template)}
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_job(name: str, *, more: Json = None, **template: Any) -> Json:
    """Return a Job whose pods never restart in place."""
    spec = {"template": a_template(name, restartPolicy="Never", **template), **(more or {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def a_cron_job(name: str, **template: Any) -> Json:
    """Return a CronJob that fires at each full minute."""
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": a_job(name, **template)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def an_autoscaler(name: str, kind: str, lowest: int, highest: int) -> Json:
    """Return a HorizontalPodAutoscaler.

    Outside these bounds it scales without any metric.
    """
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": lowest,
        "maxReplicas": highest,
        "metrics": [metric],
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_priority_class(name: str, value: int, annotations: Json = None) -> Json:
    """Return a PriorityClass."""
    metadata = {"name": name, "annotations": annotations or {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": value,
    }
