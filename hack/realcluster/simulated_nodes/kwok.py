"""Simulated nodes: kwok plays the kubelet of nodes that carry its annotation.

It leaves real nodes alone. Its pods get loopback addresses of the cluster's own network, so that a
local process can listen there as the pod's workload. Such a pod is annotated
`reprieve.dev/local-process: "true"`: kwok makes it Running, and the program that runs the process
decides the pod's end. `stages/` holds the pod lifecycle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from realcluster.client import api
from realcluster.progress import Progress
from realcluster.state import Cluster, write_private

COMPONENT = "kwok"
STAGES = Path(__file__).parent / "stages"
ANNOTATION = ("kwok.x-k8s.io/node", "fake")
CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
LEASE_SECONDS = 40  # as a kubelet's; kwok renews after a quarter of it
MANY_NODES = 100
SLOW_LEASE_SECONDS = (
    400  # for many nodes: a thousand renewals in 10 s would use a third of the API server
)
SLOW_GRACE_SECONDS = 300  # after this time, such a node is lost


def start(cluster: Cluster, program: Path) -> None:
    """Start kwok unless it runs."""
    kubeconfig = cluster.write_kubeconfig(COMPONENT)
    write_private(_config_file(cluster), _configuration(cluster))
    address = f"127.0.0.1:{cluster.port(COMPONENT)}"
    options = [
        f"--kubeconfig={kubeconfig}",
        f"--config={_config_file(cluster)}",
        f"--server-address={address}",
    ]
    # Quiet: kwok would otherwise log each renewal of each node's lease.
    cluster.processes.start(COMPONENT, [program, "--v=WARN", *options])


def ensure_nodes(cluster: Cluster, progress: Progress) -> None:
    """Create the nodes of the cluster's settings; wait until the scheduler can use them."""
    names = [f"kwok-{index}" for index in range(cluster.settings.kwok_nodes)]
    for name in names:
        api.create(cluster, "/api/v1/nodes", node(name))
    if names:
        ready = api.Condition(
            f"{len(names)} simulated nodes", lambda: _schedulable(cluster, names), COMPONENT
        )
        api.wait(cluster, ready, progress)


def node(name: str) -> dict[str, Any]:
    """Return a Node for kwok to run."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": dict([ANNOTATION])},
        "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
    }


def _schedulable(cluster: Cluster, names: list[str]) -> bool:
    nodes = {
        item["metadata"]["name"]: item
        for item in api.call(cluster, "GET", "/api/v1/nodes")["items"]
    }
    return all(is_ready(nodes[name]) for name in names)


def is_ready(item: dict[str, Any]) -> bool:
    """Return whether a Node is Ready and the node lifecycle controller removed its first taint."""
    conditions = item.get("status", {}).get("conditions", [])
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
    return ready and not any(
        taint["key"] == "node.kubernetes.io/not-ready" for taint in item["spec"].get("taints", [])
    )


def _configuration(cluster: Cluster) -> str:
    """Return kwok's configuration followed by the stages: kwok reads both from one file."""
    nodes = cluster.settings.kwok_nodes
    options = {
        "enableCRDs": [],  # stages come from this file only; if unset, kwok waits for its CRDs
        "cidr": cluster.pod_cidr,
        "nodeIP": "127.0.0.1",
        "nodePort": cluster.port(COMPONENT),
        "tlsCertFile": str(cluster.ca_file),
        "tlsPrivateKeyFile": str(cluster.ca_file.with_suffix(".key")),
        "manageAllNodes": False,
        "manageNodesWithAnnotationSelector": "=".join(ANNOTATION),
        # With a configuration file, kwok fills in no defaults: each of these fields is required.
        "podPlayStageParallelism": 4 if nodes <= MANY_NODES else 16,
        "nodePlayStageParallelism": 4,
        "nodeLeaseDurationSeconds": LEASE_SECONDS if nodes <= MANY_NODES else SLOW_LEASE_SECONDS,
        "nodeLeaseParallelism": 4,
        "podsOnNodeSyncParallelism": 1,
    }
    head = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": options,
    }
    stages = [file.read_text() for file in sorted(STAGES.glob("*.yaml"))]
    return "\n---\n".join([json.dumps(head, indent=2), *stages])


def _config_file(cluster: Cluster) -> Path:
    return cluster.home / "conf" / "kwok.yaml"
