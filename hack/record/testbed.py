"""The cluster of the recording: two simulated nodes, one namespace, and calls to its API server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from realcluster.client import api
from realcluster.client.kubectl import Kubectl
from realcluster.state import ADMIN, Cluster

Json = Any
NAMESPACE = "team-a"
POD_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Testbed:
    """One cluster, called through kubectl, or directly if kubectl has no command for it."""

    cluster: Cluster
    kubectl: Kubectl

    def run(self, words: str, *more: str, stdin: Json = None) -> None:
        """Run kubectl, whatever its status: a refused or failing operation is reviewed too."""
        text = None if stdin is None else json.dumps(stdin)
        self.kubectl.run("-n", NAMESPACE, *words.split(), *more, stdin=text)

    def make(self, *objects: Json) -> None:
        """Create objects; this must succeed."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl.read("-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(items))

    def patch(self, what: str, document: Json, *words: str, kind: str = "merge") -> None:
        """Patch an object, named like `pod/name`."""
        self.run(f"patch {what} --type={kind}", "-p", json.dumps(document), *words)

    def raw(self, method: str, path: str, body: Json, user: str = ADMIN) -> None:
        """Make a call that kubectl does not make; it may be refused."""
        try:
            api.call(self.cluster, method, path, body, user=user)
        except api.Refused:
            return


def a_pod(name: str, *, labels: Json = None, annotations: Json = None, **metadata: Any) -> Json:
    """Return a pod that no scheduler takes, so that only the recorded operations are reviewed."""
    said = {"name": name, "labels": labels, "annotations": annotations, **metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _without_none(said),
        "spec": a_pod_spec("nobody"),
    }


def a_pod_spec(scheduler: str = "default-scheduler", **fields: Any) -> Json:
    """Return the spec of a small pod that tolerates simulated nodes."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    spec = {
        "containers": [container],
        "schedulerName": scheduler,
        "tolerations": [{"operator": "Exists"}],
    }
    return (
        spec | {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False} | fields
    )


def a_workload(
    kind: str, name: str, *, api_version: str = "apps/v1", labels: Json = None, **spec: Any
) -> Json:
    """Return a workload whose pods have `labels`; `spec` adds to its own spec."""
    template = {"metadata": {"labels": {"app": name, **(labels or {})}}, "spec": a_pod_spec()}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": selector | {"template": template} | spec,
    }


def _without_none(metadata: Json) -> Json:
    return {key: value for key, value in metadata.items() if value is not None}
