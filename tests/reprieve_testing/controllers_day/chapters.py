"""The chapters of the day, each in a namespace of its own, so that all can run at once."""

import json
from collections.abc import Callable, Mapping
from functools import partial

from reprieve_policy.keys import PREEMPTED_COUNT
from reprieve_testing.cluster.handle import wait_for

from .day import SECONDS, Day, Json
from .workloads import (
    BAD,
    CHECKPOINT,
    CLASS,
    ENDS,
    GOOD,
    HINT,
    a_controller,
    a_cron_job,
    a_job,
    a_pod,
    a_priority_class,
    a_workload,
    an_autoscaler,
)

OLD = "since-before"
AGAIN = ("deployment/web", "deployment/protected", "statefulset/db", "replicaset/alone", "rc/older")
"""The owners that recreate pods from a template that breaks rules."""
MOVING = {"drained": "kwok-3", "tainted": "kwok-4", "lost": "kwok-5"}
"""Deployments, and the node that each loses."""
FAILED = {
    "phase": "Failed",
    "containerStatuses": [
        {
            "name": "main",
            "image": "none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 3, "reason": "Error"}},
        }
    ],
}
COUNT_PATH = ".metadata.annotations." + PREEMPTED_COUNT.replace(".", "\\.")
CLASS_PATH = ".metadata.labels." + CLASS.replace(".", "\\.")
BAD_GANG = {
    "pod-group.scheduling.sigs.k8s.io/name": "g",
    "pod-group.scheduling.sigs.k8s.io/min-available": "many",
}
TOLERATION = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"


def before(day: Day) -> None:
    """Create the objects that exist before Reprieve and break its rules."""
    day.make_namespace(OLD, workload_type="unknown", allowed_preemption_classes="none")
    day.make_namespace("since-before-too", default_preemption_class="99")
    day.make(
        OLD,
        a_priority_class("bad", 100, {TOLERATION: "1h"}),
        a_workload(
            "Deployment",
            "web",
            labels=BAD,
            annotations={CHECKPOINT: "sometimes"},
            more={"replicas": 1},
        ),
        a_workload("StatefulSet", "db", labels={CLASS: "seven"}, more={"replicas": 1}),
        a_workload("DaemonSet", "agent", labels=BAD, node="kwok-0"),
        a_workload(
            "Deployment",
            "protected",
            labels={CLASS: "10"},
            annotations=BAD_GANG,
            more={"replicas": 1},
        ),
        a_workload("ReplicaSet", "alone", labels=BAD, more={"replicas": 1}),
        a_controller("older", labels=BAD),
        a_job("batch", labels=BAD, annotations=ENDS, more={"suspend": True}),
        a_cron_job("nightly", labels=BAD, annotations=ENDS),
        a_pod("bare", labels=BAD, annotations=HINT, finalizers=["example.com/hold"]),
    )
    day.wait_until(OLD, "deployment/web", ".status.readyReplicas", "1")


def old_workloads_go_on(day: Day) -> None:
    """Existing objects are scaled, rolled, resumed and replaced: none gets worse, so none is
    refused.
    """
    day.kubectl.read("scale", "-n", OLD, "--replicas=2", *AGAIN)
    day.kubectl.read(
        "patch", "job/batch", "-n", OLD, "--type=merge", "-p", '{"spec":{"suspend":false}}'
    )
    day.kubectl.read("delete", "pod", "bare", "-n", OLD, "--wait=false")
    for kind in AGAIN:
        day.wait_until(OLD, kind, ".status.readyReplicas", "2")
    day.wait_until(OLD, "job/batch", ".status.succeeded", "1")
    for kind in ("deployment/web", "deployment/protected", "statefulset/db", "daemonset/agent"):
        day.kubectl.read("rollout", "restart", kind, "-n", OLD)
        day.kubectl.read("rollout", "status", kind, "-n", OLD, "--timeout=90s")
    day.kubectl.read("label", "pod", "db-0", "-n", OLD, "reprieve.dev/soft-eviction=requested")
    day.wait_until(OLD, "pod/db-0", COUNT_PATH, "1")
    day.kubectl.read("label", "namespace", OLD, "team=research")
    day.kubectl.read("label", "priorityclass", "bad", "team=research")
    day.make(OLD, a_pod("of-a-bad-class", priorityClassName="bad"))
    freed = '{"metadata":{"finalizers":null}}'
    day.kubectl.read("patch", "pod", "bare", "-n", OLD, "--type=merge", "-p", freed)
    day.wait_gone(OLD, "pod/bare")


def jobs_complete(day: Day) -> None:
    """Jobs succeed with tracking finalizers, Indexed, suspended and resumed, or removed by their
    TTL.
    """
    team = day.make_namespace("jobs", workload_type="hpc-batch")
    day.make(
        team,
        a_job("done", labels=GOOD, annotations=ENDS, more={"completions": 3, "parallelism": 2}),
        a_job(
            "indexed",
            annotations=ENDS,
            more={"completions": 2, "parallelism": 2, "completionMode": "Indexed"},
        ),
        a_job("short", annotations=ENDS, more={"ttlSecondsAfterFinished": 0}),
        a_job("paused", labels=GOOD, more={"parallelism": 2}),
        a_job("early", labels=GOOD, more={"activeDeadlineSeconds": 3}),
    )
    day.wait_until(team, "job/paused", ".status.ready", "2")
    for suspend, active in (("true", ""), ("false", "2")):
        day.kubectl.read(
            "patch",
            "job/paused",
            "-n",
            team,
            "--type=merge",
            "-p",
            f'{{"spec":{{"suspend":{suspend}}}}}',
        )
        day.wait_until(team, "job/paused", ".status.active", active)
    for name, succeeded in (("done", "3"), ("indexed", "2")):
        day.wait_until(team, f"job/{name}", ".status.succeeded", succeeded)
    day.wait_until(
        team, "job/early", ".status.conditions[?(@.type=='Failed')].reason", "DeadlineExceeded"
    )
    day.wait_gone(team, "job/short")


def jobs_fail(day: Day) -> None:
    """Jobs fail at the back-off limit, and at once by a podFailurePolicy."""
    team = day.make_namespace("failing-jobs", workload_type="ml-training")
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    day.make(
        team,
        a_job("twice", labels=GOOD, more={"backoffLimit": 1}),
        a_job("policy", labels=GOOD, more={"podFailurePolicy": {"rules": [rule]}}),
    )

    def fail_all() -> bool:
        jobs = day.kubectl.get("jobs", "-n", team)["items"]
        for pod in day.pods(team, "app"):
            if pod["status"]["phase"] == "Running":
                day.report_pod_status(pod, FAILED)
        reasons = {job["metadata"]["name"]: _failure(job) for job in jobs}
        return reasons == {"twice": "BackoffLimitExceeded", "policy": "PodFailurePolicy"}

    wait_for("both jobs failed", fail_all, SECONDS)


def a_marked_pod_of_a_job_is_replaced(day: Day) -> None:
    """The operator deletes the victim as a disruption, which does not count as the Job's
    failure.
    """
    team = day.make_namespace("marks", workload_type="ml-training")
    ignore = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    policy = {"backoffLimit": 0, "podFailurePolicy": {"rules": [ignore]}}
    day.make(
        team, a_job("train", labels=GOOD, more=policy), a_workload("StatefulSet", "db", labels=GOOD)
    )
    day.wait_until(team, "job/train", ".status.ready", "1")
    day.wait_until(team, "statefulset/db", ".status.readyReplicas", "1")
    (victim,) = day.pods(team, "app=train")
    for name in (victim["metadata"]["name"], "db-0"):
        day.kubectl.read("label", "pod", name, "-n", team, "reprieve.dev/soft-eviction=requested")
    day.wait_until(team, "pod/db-0", COUNT_PATH, "1")
    day.wait_until(team, "pods", f".items[?(@.metadata.labels.app=='train')]{COUNT_PATH}", "1")
    day.wait_until(team, "job/train", ".status.conditions[?(@.type=='Failed')].reason", "")


def deployments_roll_and_scale(day: Day) -> None:
    """Rollout, rollback, scaling by hand and by the autoscaler, orphaning and foreground
    deletion.
    """
    team = day.make_namespace("web", workload_type="service", allowed_preemption_classes="0-6")
    day.make(
        team,
        a_workload("Deployment", "site", labels=GOOD, annotations=HINT, more={"replicas": 2}),
        a_workload("Deployment", "grows", labels=GOOD, more={"replicas": 1}),
        a_workload(
            "StatefulSet",
            "shrinks",
            labels=GOOD,
            more={"replicas": 3, "podManagementPolicy": "Parallel"},
        ),
        an_autoscaler("grows", "Deployment", 2, 4),
        an_autoscaler("shrinks", "StatefulSet", 1, 2),
    )
    template = {"metadata": {"labels": {CLASS: "2"}}}
    day.kubectl.read("rollout", "status", "deployment/site", "-n", team, "--timeout=90s")
    _patch(day, team, "deployment/site", {"template": template})
    day.kubectl.read("rollout", "status", "deployment/site", "-n", team, "--timeout=90s")
    day.kubectl.read("rollout", "undo", "deployment/site", "-n", team)
    day.kubectl.read("rollout", "status", "deployment/site", "-n", team, "--timeout=90s")
    day.kubectl.read("scale", "deployment/site", "-n", team, "--replicas=4")
    day.wait_until(team, "deployment/site", ".status.readyReplicas", "4")
    day.wait_until(team, "deployment/grows", ".status.readyReplicas", "2")
    day.wait_until(team, "statefulset/shrinks", ".status.replicas", "2")
    day.kubectl.read(
        "delete", "deployment", "site", "-n", team, "--cascade=foreground", "--timeout=90s"
    )
    day.kubectl.read("delete", "deployment", "grows", "-n", team, "--cascade=orphan")
    orphans = "{.items[?(@.metadata.labels.app=='grows')].metadata.ownerReferences[*].kind}"
    words = ("get", "replicasets", "-n", team, "-o", f"jsonpath={orphans}")
    wait_for("the ReplicaSets are orphans", lambda: not day.kubectl.read(*words), SECONDS)


def statefulsets_roll_in_order(day: Day) -> None:
    """OrderedReady up and down, and a rollout held by its partition."""
    team = day.make_namespace("databases", workload_type="service")
    held = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    day.make(
        team,
        a_workload("StatefulSet", "db", labels=GOOD, more={"replicas": 2, "updateStrategy": held}),
    )
    day.wait_until(team, "statefulset/db", ".status.readyReplicas", "2")
    _patch(day, team, "statefulset/db", {"template": {"metadata": {"labels": {CLASS: "2"}}}})
    day.wait_until(team, "pod/db-1", CLASS_PATH, "2")
    day.wait_until(team, "pod/db-0", CLASS_PATH, "3")
    _patch(
        day,
        team,
        "statefulset/db",
        {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 0}}},
    )
    day.wait_until(team, "statefulset/db", ".status.updatedReplicas", "3")
    day.kubectl.read("scale", "statefulset/db", "-n", team, "--replicas=1")
    day.wait_gone(team, "pod/db-1")


def daemonsets_and_cronjobs_run(day: Day) -> None:
    """A DaemonSet's rolling update; a CronJob fires, and its Job completes."""
    team = day.make_namespace("agents", workload_type="service")
    day.make(
        team, a_cron_job("tick", labels=GOOD, annotations=ENDS), a_controller("older", labels=GOOD)
    )
    day.make(team, a_workload("DaemonSet", "agent", labels=GOOD, node="kwok-0"))
    day.wait_until(team, "daemonset/agent", ".status.numberReady", "1")
    _patch(day, team, "daemonset/agent", {"template": {"metadata": {"labels": {CLASS: "2"}}}})
    day.kubectl.read("rollout", "status", "daemonset/agent", "-n", team, "--timeout=90s")
    day.wait_until(team, "rc/older", ".status.readyReplicas", "1")
    wait_for("the CronJob's Job", lambda: _succeeded(day, team, "tick-"), SECONDS)
    wait_for("the old CronJob's Job", lambda: _succeeded(day, OLD, "nightly-"), SECONDS)


def a_namespace_is_deleted_with_its_objects(day: Day) -> None:
    """A good namespace, and one whose policy cannot even be read, are deleted.

    Their pods are on a node that stays. On a lost node, no kubelet would end a pod for a minute;
    and a drain retries the pods of a terminating namespace for as long as it exists.
    """
    team = day.make_namespace("closing", workload_type="hpc-batch")
    metadata = {"labels": GOOD, "annotations": HINT, "node": "kwok-1"}
    day.make(
        team,
        a_workload("Deployment", "site", **metadata, more={"replicas": 2}),
        a_workload("StatefulSet", "db", **metadata),
        a_job("runs", **metadata),
        a_pod("held", **metadata, finalizers=["example.com/hold"]),
    )
    day.wait_until(team, "job/runs", ".status.ready", "1")
    day.kubectl.read("delete", "namespace", team, "since-before-too", "--wait=false")
    day.wait_until(team, "pod/held", ".metadata.finalizers", '["example.com/hold"]')
    day.kubectl.read(
        "patch", "pod", "held", "-n", team, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    for name in (team, "since-before-too"):
        day.wait_gone("default", f"namespace/{name}")


def nodes_are_drained_tainted_and_lost(day: Day) -> None:
    """`kubectl drain` against a budget, a NoExecute taint, and a deleted node: the pods move
    each time.
    """
    team = day.make_namespace("moving", workload_type="service")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "drained"}}}
    day.make(
        team,
        *(
            a_workload(
                "Deployment",
                name,
                labels=GOOD,
                annotations=annotations,
                more={"replicas": 2},
                affinity=_preferring(node),
            )
            for (name, node), annotations in zip(MOVING.items(), ({}, HINT, HINT), strict=True)
        ),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "drained"},
            "spec": budget,
        },
    )
    for name, node in MOVING.items():
        day.wait_until(team, f"deployment/{name}", ".status.readyReplicas", "2")
        assert node in _nodes_of(day, team, name)
    day.kubectl.read("delete", "node", "kwok-5")
    day.kubectl.read("taint", "node", "kwok-4", "example.com/out=of-order:NoExecute")
    day.kubectl.read(
        "drain",
        "kwok-3",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=90s",
        "--force",
    )
    for name, node in MOVING.items():
        wait_for(f"{name} has moved", partial(_has_moved, day, team, name, node), SECONDS)


def the_scheduler_preempts(day: Day) -> None:
    """A pod of higher priority replaces one of lower priority."""
    team = day.make_namespace("preempting", workload_type="hpc-batch")
    day.make(team, a_priority_class("day-low", 10), a_priority_class("day-high", 1000))
    day.make(
        team,
        a_workload(
            "ReplicaSet",
            "victims",
            labels=GOOD,
            priorityClassName="day-low",
            node="kwok-2",
            cpu="7",
        ),
    )
    day.wait_until(team, "replicaset/victims", ".status.readyReplicas", "1")
    day.make(
        team,
        a_job("urgent", labels={CLASS: "5"}, priorityClassName="day-high", node="kwok-2", cpu="7"),
    )
    day.wait_until(team, "job/urgent", ".status.ready", "1")


def invalid_requests_are_refused(day: Day) -> None:
    """The webhooks and the guard refuse what breaks a rule all the time."""
    team = day.make_namespace("users", allowed_preemption_classes="0-3")
    bad = [
        a_pod("bare", labels=BAD),
        a_workload("Deployment", "site", labels=BAD),
        a_workload("StatefulSet", "db", labels={CLASS: "5"}),
        a_job("batch", annotations={CHECKPOINT: "sometimes"}),
        a_priority_class("bad-too", 100, {TOLERATION: "1h"}),
        a_workload("Deployment", "marked", labels={"reprieve.dev/soft-eviction": "requested"}),
    ]
    for document in bad:
        done = day.kubectl.run("create", "-n", team, "-f", "-", stdin=json.dumps(document))
        assert done.status != 0, done.command
        assert "reprieve" in done.stderr, done.output
    old = '{"metadata":{"annotations":{"reprieve.dev/workload-type":"still-unknown"}}}'
    assert day.kubectl.run("patch", "namespace", OLD, "--type=merge", "-p", old).status != 0


def _patch(day: Day, namespace: str, what: str, spec: Json) -> None:
    day.kubectl.read(
        "patch", what, "-n", namespace, "--type=merge", "-p", json.dumps({"spec": spec})
    )


def _failure(job: Json) -> str:
    conditions = job["status"].get("conditions", [])
    return next((str(one["reason"]) for one in conditions if one["type"] == "Failed"), "")


def _succeeded(day: Day, namespace: str, prefix: str) -> bool:
    jobs = day.kubectl.get("jobs", "-n", namespace)["items"]
    return any(
        job["metadata"]["name"].startswith(prefix) and job["status"].get("succeeded")
        for job in jobs
    )


def _preferring(node: str) -> Json:
    on_it = {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    }
    return {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": on_it}
            ]
        }
    }


def _nodes_of(day: Day, namespace: str, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in day.pods(namespace, f"app={name}")]


def _has_moved(day: Day, namespace: str, name: str, node: str) -> bool:
    ready = day.kubectl.get("deployment", name, "-n", namespace)["status"].get("readyReplicas")
    return ready == 2 and node not in _nodes_of(day, namespace, name)


CHAPTERS: Mapping[str, Callable[[Day], None]] = {
    chapter.__name__: chapter
    for chapter in (
        nodes_are_drained_tainted_and_lost,
        daemonsets_and_cronjobs_run,
        deployments_roll_and_scale,
        jobs_complete,
        jobs_fail,
        a_marked_pod_of_a_job_is_replaced,
        old_workloads_go_on,
        statefulsets_roll_in_order,
        a_namespace_is_deleted_with_its_objects,
        the_scheduler_preempts,
        invalid_requests_are_refused,
    )
}
