"""A cluster with Reprieve installed as a user installs it, seen from a scheduler that needs room.

Tests create victims and preemptors, and read the calls for deletion from the audit log.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from itertools import count
from typing import Any

from mainjob.installation import Installation, Nodes
from realcluster import install, lifecycle
from realcluster.client import api
from realcluster.client.kubectl import Kubectl
from realcluster.programs import OPERATOR, WEBHOOKS
from realcluster.progress import Progress
from realcluster.state import Cluster
from reprieve_testing.cluster.audit_log import READ_VERBS
from reprieve_testing.cluster.handle import (
    LEASE_SECONDS,
    OPERATOR_NAMESPACE,
    make_namespace,
    new_cluster,
    wait_for,
)

Json = Any
SCHEDULER = "system:kube-scheduler"
CPU = "example.com/slot"
"""The resource of victims and preemptors; `GuardedCluster.set_capacity` gives a node its amount."""
HINT = {"reprieve.dev/checkpoint-hint": "annotation:"}
SECONDS = 60.0
_names = count(1)


@dataclass(frozen=True)
class RemovalCall:
    """One request to delete or evict a pod, from the API server's audit log."""

    at: datetime
    user: str
    verb: str
    name: str
    code: int


@dataclass(frozen=True)
class GuardedCluster:
    """The cluster, and the actions of tests in it."""

    cluster: Cluster
    installation: Installation

    @cached_property
    def kubectl(self) -> Kubectl:
        return self.installation.kubectl

    def set_capacity(self, node: str, slots: int) -> None:
        """Give a node this amount of the resource that the pods of these tests request."""
        patch = {"status": {"capacity": {CPU: str(slots)}, "allocatable": {CPU: str(slots)}}}
        self.kubectl.client.patch("node", node, patch, subresource="status")

    def label_node(self, node: str, label: str) -> None:
        self.kubectl.read("label", "node", node, label)

    def restart_scheduler(self) -> None:
        """Restart the scheduler, so that it loses all its state."""
        lifecycle.stop_component(self.cluster, "kube-scheduler", kill=True)
        lifecycle.start_component(self.cluster, "kube-scheduler", Progress())

    def set_policy(self, **data: str) -> None:
        """Change some of the policy's settings."""
        policy = ("configmap", "reprieve-policy", {"data": data})
        self.kubectl.client.patch(*policy, namespace="reprieve-system")

    def create(self, namespace: str, *objects: Json) -> None:
        """Create objects."""
        self.kubectl.client.create(*objects, namespace=namespace)

    def pod(self, namespace: str, name: str) -> Json | None:
        return self.kubectl.find("pod", name, "-n", namespace)

    def wait_until(
        self, what: str, namespace: str, name: str, holds: Any, seconds: float = SECONDS
    ) -> Json:
        """Wait until `holds` is true for a pod; return the pod."""

        def find() -> Json | None:
            pod = self.pod(namespace, name)
            return pod if pod and holds(pod) else None

        return wait_for(f"{name} {what}", find, seconds)

    def running(self, namespace: str, *names: str) -> None:
        for name in names:
            self.wait_until(
                "runs", namespace, name, lambda pod: pod["status"].get("phase") == "Running"
            )

    def wait_phase(self, namespace: str, name: str, *phases: str) -> Json:
        """Wait until a pod's soft eviction is in one of these phases."""
        return self.wait_until(f"is {phases}", namespace, name, lambda pod: phase_of(pod) in phases)

    def wait_gone(self, namespace: str, name: str, seconds: float = SECONDS) -> None:
        wait_for(f"{name} is gone", lambda: self.pod(namespace, name) is None, seconds)

    def acknowledge_checkpoint(self, namespace: str, name: str) -> None:
        """Answer the request in the pod's annotation, as its workload would."""
        request_key = "reprieve.dev/checkpoint-request"
        pod = self.wait_until(
            "is asked",
            namespace,
            name,
            lambda pod: request_key in pod["metadata"].get("annotations", {}),
        )
        request = json.loads(pod["metadata"]["annotations"][request_key])
        answer = json.dumps({"id": request["id"], "state": "saved", "step": 7, "path": "/ckpt/7"})
        patch = {"metadata": {"annotations": {"reprieve.dev/checkpoint-answer": answer}}}
        self.kubectl.client.patch("pod", name, patch, namespace=namespace)

    def calls(
        self, namespace: str, user: str = SCHEDULER, verb: str = "delete"
    ) -> list[RemovalCall]:
        """Return the deletions (with `create`: the evictions) of one user in a namespace, oldest
        first.
        """
        found = calls_in(self.cluster, namespace)
        return [call for call in found if call.user == user and call.verb == verb]

    def delete_as_scheduler(self, namespace: str, name: str) -> str:
        """Delete a pod as the scheduler does; return the refusal, or an empty text if it is
        accepted.
        """
        try:
            api.call(
                self.cluster,
                "DELETE",
                f"/api/v1/namespaces/{namespace}/pods/{name}",
                user=SCHEDULER,
            )
        except api.Refused as refused:
            return str(refused)
        return ""

    def evict(self, namespace: str, name: str) -> int:
        """Try once to evict a pod, as an admin; return the status."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        metadata = {"name": name, "namespace": namespace}
        try:
            api.call(
                self.cluster,
                "POST",
                path,
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata},
            )
        except api.Refused as refused:
            return int(refused.status)
        return int(HTTPStatus.CREATED)

    @contextmanager
    def namespace(self, prefix: str) -> Iterator[str]:
        """Make a namespace for the block."""
        name = f"{prefix}-{next(_names)}"
        make_namespace(self.kubectl.client, name)
        try:
            yield name
        finally:
            self.kubectl.client.delete("namespace", name)
            self.kubectl.run("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force")
            wait_for("no pods", lambda: not self.kubectl.get("pods", "-n", name)["items"], SECONDS)


def calls_in(cluster: Cluster, namespace: str) -> Iterator[RemovalCall]:
    """Return all requests to delete or evict pods of a namespace, oldest first."""
    # Skip the last line: the API server may be writing it.
    for line in cluster.audit_log.read_text().split("\n")[:-1]:
        entry = json.loads(line)
        target = entry.get("objectRef", {})
        is_done = entry["stage"] == "ResponseComplete" and target.get("namespace") == namespace
        if (
            is_done
            and target["resource"] == "pods"
            and target.get("subresource", "eviction") == "eviction"
            and entry["verb"] not in READ_VERBS
        ):
            at = datetime.fromisoformat(entry["requestReceivedTimestamp"])
            code = entry["responseStatus"]["code"]
            yield RemovalCall(
                at, entry["user"]["username"], entry["verb"], target.get("name", ""), code
            )


def phase_of(pod: Json) -> str:
    """Return the phase in a pod's state."""
    text = pod["metadata"].get("annotations", {}).get("reprieve.dev/eviction", "{}")
    return str(json.loads(text).get("phase", ""))


def a_pod(
    name: str, *, slots: int = 0, priority_class: str = "", node: str = "", **metadata: Json
) -> Json:
    """Return a pod that requests room on a simulated node."""
    requests = {CPU: str(slots)} if slots else {}
    spec: Json = {
        "containers": [
            {
                "name": "main",
                "image": "none",
                "resources": {"requests": requests, "limits": requests},
            }
        ],
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def a_priority_class(name: str, value: int, **annotations: str) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": annotations},
        "value": value,
    }


@contextmanager
def guarded_cluster(name: str, *, nodes: int = 2, **settings: Json) -> Iterator[GuardedCluster]:
    """Make a cluster with Reprieve in it, for the block."""
    with new_cluster(name, kwok_nodes=nodes, **settings) as cluster:
        installation = Installation.for_cluster(cluster, Nodes.LOCAL, lease_seconds=LEASE_SECONDS)
        install.install(installation.kubectl, install.DEMO, cluster.port("webhooks"))
        for program in (WEBHOOKS, OPERATOR):
            installation.start(program)
        _wait_until_renewed(installation.kubectl)
        yield GuardedCluster(cluster, installation)


def _wait_until_renewed(kubectl: Kubectl) -> None:
    """Wait until the operator has renewed its Lease once.

    The guard counts an operator as live from the first renewal that it sees. Without this, the
    first test of a cluster would find a guard that allows every deletion.
    """

    def renewed_at() -> str:
        lease = kubectl.get("lease", "reprieve-operator", "-n", OPERATOR_NAMESPACE)
        return str(lease["spec"]["renewTime"])

    first = renewed_at()
    wait_for("the operator renews its Lease", lambda: renewed_at() != first)
