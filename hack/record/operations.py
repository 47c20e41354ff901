"""Every operation whose review is kept, in order: its name, its action, how to find its review."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import actions
from .actions import BAD, CLASS, HELD
from .recorder import Asked
from .testbed import Testbed, a_pod, a_pod_spec, a_workload

CHECKPOINT = "reprieve.dev/checkpoint"


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


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "pod-with-a-generated-name",
        "CREATE pods",
        actions.making(a_pod("", generateName="train-", labels={CLASS: "3"})),
        of="train-",
    ),
    Operation(
        "pod-with-a-generated-name-before-it-has-one",
        "CREATE pods",
        actions.making(a_pod("", generateName="unnamed-")),
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
        lambda testbed: actions.apply(testbed, "applied", "3"),
        of="applied",
        keep_managed_fields=True,
    ),
    Operation(
        "pod-applied-server-side-again",
        "UPDATE pods",
        lambda testbed: actions.apply(testbed, "applied", "5"),
        of="applied",
        keep_managed_fields=True,
    ),
    Operation(
        "pod-patched-by-json-patch",
        "UPDATE pods",
        actions.patching(
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
        actions.patching("merge", {"metadata": {"labels": {CLASS: "2"}}}, labels={CLASS: "3"}),
        of="merge",
    ),
    Operation(
        "pod-patched-strategically",
        "UPDATE pods",
        actions.patching(
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
        actions.patching("bad", {"metadata": {"labels": {"team": "research"}}}, labels=BAD),
        of="bad",
    ),
    Operation(
        "bad-pod-is-made-worse",
        "UPDATE pods",
        actions.patching(
            "worse", {"metadata": {"annotations": {CHECKPOINT: "sometimes"}}}, labels=BAD
        ),
        of="worse",
    ),
    Operation(
        "bad-pod-is-made-bad-in-another-way",
        "UPDATE pods",
        actions.patching("other", {"metadata": {"labels": {CLASS: "12"}}}, labels=BAD),
        of="other",
    ),
    Operation(
        "bad-pod-loses-a-finalizer",
        "UPDATE pods",
        actions.patching("held", {"metadata": {"finalizers": None}}, labels=BAD, finalizers=HELD),
        of="held",
    ),
    Operation(
        "terminating-bad-pod-is-made-worse",
        "UPDATE pods",
        lambda testbed: actions.terminate(
            testbed, "ending", {"metadata": {"annotations": {CHECKPOINT: "sometimes"}}}
        ),
        of="ending",
    ),
    Operation(
        "terminating-bad-pod-loses-its-last-finalizer",
        "UPDATE pods",
        lambda testbed: actions.terminate(testbed, "ended", {"metadata": {"finalizers": None}}),
        of="ended",
    ),
    Operation(
        "pod-status-by-its-node",
        "UPDATE pods/status",
        actions.making(actions.on_a_node("runs", labels=BAD)),
        by="kwok",
        of="runs",
    ),
    Operation(
        "pod-status-with-a-class",
        "UPDATE pods/status",
        actions.patching(
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
        actions.making(a_pod("bound") | {"spec": a_pod_spec()}),
        by="kube-scheduler",
        of="bound",
    ),
    Operation(
        "pod-evicted",
        "CREATE pods/eviction",
        actions.with_running("evicted", actions.evict),
        of="evicted",
    ),
    Operation(
        "pod-exec",
        "CONNECT pods/exec",
        actions.with_running("entered", lambda testbed: testbed.run("exec entered -- true")),
        of="entered",
    ),
    Operation(
        "pod-gets-an-ephemeral-container",
        "UPDATE pods/ephemeralcontainers",
        actions.with_running("debugged", actions.add_ephemeral_container),
        of="debugged",
    ),
    Operation(
        "pod-resized",
        "UPDATE pods/resize",
        actions.with_running(
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
    Operation("pod-deleted", "DELETE pods", actions.delete, of="deleted"),
    Operation(
        "pod-deleted-with-its-collection", "DELETE pods", actions.delete_collection, of="many-"
    ),
    Operation(
        "deployment-scaled-by-the-autoscaler",
        "UPDATE deployments/scale",
        actions.scale,
        of="scaled",
    ),
    Operation(
        "bad-deployment-scaled-by-a-patch",
        "UPDATE deployments",
        actions.patch_replicas,
        by="admin",
        of="patched",
    ),
    Operation(
        "deployment-rolled-to-a-bad-class",
        "UPDATE deployments",
        actions.roll_out,
        by="admin",
        of="rolled",
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
    Operation("cronjob", "CREATE cronjobs", actions.cron_job, of="fires"),
    Operation("job-made-from-a-cronjob", "CREATE jobs", of="by-hand"),
    Operation(
        "job-of-a-cronjob-by-its-controller", "CREATE jobs", by="cronjob-controller", of="fires-"
    ),
    Operation(
        "job", "CREATE jobs", actions.making(actions.a_job("ends", labels={CLASS: "3"})), of="ends"
    ),
    Operation("pod-of-a-job", "CREATE pods", by="job-controller", of="ends-"),
    Operation(
        "finished-pod-of-a-job-loses-its-tracking-finalizer",
        "UPDATE pods",
        by="job-controller",
        of="ends-",
    ),
    Operation("job-status-by-its-controller", "UPDATE jobs/status", by="job-controller", of="ends"),
    Operation("bad-job-is-resumed", "UPDATE jobs", actions.resume, by="admin", of="waits"),
    Operation(
        "pod-orphaned-by-the-garbage-collector",
        "UPDATE pods",
        actions.orphan,
        by="generic-garbage-collector",
        of="parent-",
    ),
    Operation(
        "daemonset",
        "CREATE daemonsets",
        actions.making(a_workload("DaemonSet", "everywhere", labels=BAD)),
        of="everywhere",
    ),
    Operation("pod-of-a-daemonset", "CREATE pods", by="daemon-set-controller", of="everywhere-"),
    Operation(
        "statefulset",
        "CREATE statefulsets",
        actions.making(a_workload("StatefulSet", "ordered", labels={CLASS: "3"})),
        of="ordered",
    ),
    Operation("pod-of-a-statefulset", "CREATE pods", by="statefulset-controller", of="ordered-"),
    Operation(
        "controller-revision-of-a-statefulset",
        "CREATE controllerrevisions",
        by="statefulset-controller",
    ),
    Operation(
        "priorityclass", "CREATE priorityclasses", actions.priority_class_life, of="tolerant"
    ),
    Operation("bad-priorityclass-is-labelled", "UPDATE priorityclasses", of="tolerant"),
    Operation("priorityclass-deleted", "DELETE priorityclasses", of="tolerant"),
    Operation("namespace", "CREATE namespaces", actions.namespace_life, of="short-lived"),
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
