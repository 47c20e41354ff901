"""A cluster with the gang gate switched on, for tests of the gate."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from mainjob.installation import Installation, Nodes
from realcluster import install
from realcluster.programs import OPERATOR, WEBHOOKS
from reprieve_policy.keys import GANG_GATE, GANG_GATE_LABEL
from reprieve_policy.keys import OLD_MIN_AVAILABLE as MIN_AVAILABLE
from reprieve_policy.keys import OLD_POD_GROUP as POD_GROUP

from .handle import LEASE_SECONDS, ClusterHandle, wait_for

SECONDS = 120.0
"""Longer than the webhooks wait for the next leader, a minute after a lease ended."""
OURS = {"name": GANG_GATE}
LABELS = {POD_GROUP: "train", MIN_AVAILABLE: "4"}


@dataclass(frozen=True)
class Gated:
    """One namespace of a cluster in which both programs run and the gate is switched on."""

    cluster: ClusterHandle
    installation: Installation
    namespace: str

    def create(self, document: Any, *words: str) -> Any:
        output = self.cluster.kubectl.read(
            "create",
            "-n",
            self.namespace,
            "-f",
            "-",
            "-o",
            "json",
            *words,
            stdin=json.dumps(document),
        )
        return json.loads(output)

    def pods(self, selector: str = "") -> list[Any]:
        words = ("-l", selector) if selector else ()
        return list(self.cluster.kubectl.get("pods", "-n", self.namespace, *words)["items"])

    def wait_pods(
        self, what: str, number: int, holds: Callable[[Any], bool], selector: str = ""
    ) -> list[Any]:
        """Wait until exactly `number` pods exist and each `holds`; return them."""

        def look() -> list[Any] | None:
            found = self.pods(selector)
            return found if len(found) == number and all(holds(pod) for pod in found) else None

        try:
            return wait_for(f"{number} pods are {what}", look, SECONDS)
        except AssertionError as late:
            late.add_note(json.dumps(self.pods(selector), indent=1))
            raise

    def allow_pods(self, number: int) -> None:
        """Let the namespace have so many pods, wait until that is in force, and let controllers
        try again at once: after refusals they pause for up to ten minutes.
        """
        metadata = {"name": "pods", "namespace": self.namespace}
        self.cluster.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": metadata,
                "spec": {"hard": {"pods": str(number)}},
            }
        )
        wait_for("the quota is in force", lambda: self._quota() == str(number), SECONDS)
        changed = ("--all", "--overwrite", f"example.com/allowed-pods={number}")
        self.cluster.kubectl.read("annotate", "jobs,statefulsets", "-n", self.namespace, *changed)

    def events(self) -> list[str]:
        items = self.cluster.kubectl.get("events.v1.events.k8s.io", "-n", self.namespace)["items"]
        return [
            item["reason"]
            for item in items
            if item.get("reportingController") == "reprieve.dev/operator"
        ]

    def _quota(self) -> str:
        found = self.cluster.kubectl.get("resourcequota", "pods", "-n", self.namespace)
        return str(found.get("status", {}).get("hard", {}).get("pods"))


def installed_in(handle: ClusterHandle) -> Iterator[Gated]:
    there = Installation.for_cluster(handle.cluster, Nodes.LOCAL, lease_seconds=LEASE_SECONDS)
    try:
        stop(there)
        install.install(there.kubectl, install.LOCAL, handle.cluster.port("webhooks"))
        yield Gated(handle, there, "default")
    finally:
        stop(there)


def stop(there: Installation) -> None:
    for name in (WEBHOOKS, OPERATOR):
        there.programs.stop(name)


@contextmanager
def gate_on(installed: Gated, **settings: str) -> Iterator[Gated]:
    """Start both programs with the gate switched on, in a namespace of its own."""
    installed.cluster.set_policy(gangGate="true", **settings)
    for name in (WEBHOOKS, OPERATOR):
        installed.installation.start(name)
    wait_for("new pods are held", lambda: holds_new_pods(installed), SECONDS)
    with installed.cluster.namespace("gate") as namespace:
        yield replace(installed, namespace=namespace)


def a_job(
    name: str = "train", pods: int = 4, gates: Any = (), annotations: Any = None, **labels: str
) -> Any:
    template = {
        "metadata": {"labels": labels or LABELS, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": list(gates),
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def a_pod(name: str, gates: Any = (), owner: Any = None, **labels: str) -> Any:
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    if owner is not None:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        metadata["ownerReferences"] = [
            reference | {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        ]
    spec = {"schedulingGates": list(gates), "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def holds_new_pods(gated: Gated) -> bool:
    """Say whether a gang's pod would be held: by a dry run in a namespace without a quota."""
    there = replace(gated, namespace="default")
    job = gated.cluster.kubectl.find("job", "idle", "-n", there.namespace)
    if job is None:
        idle = a_job("idle")
        idle["spec"]["suspend"] = True
        job = there.create(idle)
    return is_gated(there.create(a_pod("tried", owner=job, **LABELS), "--dry-run=server"))


def is_gated(pod: Any) -> bool:
    return OURS in pod["spec"].get("schedulingGates", [])


def is_held(pod: Any) -> bool:
    """As `kubectl get pods` shows it: the scheduler has seen it and leaves it alone."""
    reasons = {found["type"]: found.get("reason") for found in pod["status"].get("conditions", [])}
    return (
        is_gated(pod)
        and pod["metadata"]["labels"].get(GANG_GATE_LABEL) == "waiting"
        and reasons.get("PodScheduled") == "SchedulingGated"
    )


def runs(pod: Any) -> bool:
    """On a node where the stock scheduler put it, with no trace of the gate."""
    is_free = (
        "schedulingGates" not in pod["spec"] and GANG_GATE_LABEL not in pod["metadata"]["labels"]
    )
    return is_free and pod["status"]["phase"] == "Running"
