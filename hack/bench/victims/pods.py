"""The pods of this benchmark: victims with a checkpoint, and bystanders, which are not marked.

No I/O.
"""

from __future__ import annotations

from typing import Any

from reprieve_policy import keys
from reprieve_policy.lifecycle import mark

Document = dict[str, Any]

ADMIN = "admin"
"""The users that create and mark the pods, and the bare program's user, in the audit log."""
BYSTANDERS = "bench-bystanders"
_VARIABLES = 24
"""Environment variables of the container.

With them, a pod has 2.5 KB as JSON, like a training job.
"""

MARK: Document = {"metadata": {"labels": {keys.SOFT_EVICTION: mark.REQUESTED}}}
"""What a user's `kubectl label` sends."""
BARE_MARK_LABEL = f"bench.{keys.SOFT_EVICTION}"
BARE_MARK: Document = {"metadata": {"labels": {BARE_MARK_LABEL: mark.REQUESTED}}}
"""What the bare programs get: as much, but with a key that the running operator ignores."""
BARE_STATE: Document = {"metadata": {"annotations": {f"bench.{keys.EVICTION}": "x" * 300}}}
"""What the bare notifier writes before the hint: about as much as the operator."""
DELETE: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 30}


def name(number: int) -> str:
    """Return the name of a namespace's pod."""
    return f"pod-{number}"


def bystander_name(number: int) -> str:
    """Return the name of a bystander; all names have the same length."""
    return f"pod-{number:07}"


def bystander(number: int, nodes: int) -> Document:
    """Return a pod that is not marked.

    It uses its node's network, so that the addresses of simulated pods are left for the victims.
    """
    return _pod(bystander_name(number), number, nodes, {}, {"hostNetwork": True})


def victim(namespace: str, number: int, nodes: int, port: int) -> Document:
    """Return a pod whose hint's path names it, so that one process can answer for all pods."""
    hint = f"http://:{port}/{namespace}/{name(number)}"
    return _pod(
        name(number), number, nodes, {keys.CHECKPOINT: "auto", keys.CHECKPOINT_HINT: hint}, {}
    )


def _pod(
    name: str, number: int, nodes: int, annotations: dict[str, str], more: Document
) -> Document:
    container = {
        "name": "trainer",
        "image": "registry.example/team-a/trainer:v1",
        "env": [
            {"name": f"TRAINING_OPTION_{n:04}", "value": f"/data/shard-{n:04}"}
            for n in range(_VARIABLES)
        ],
    }
    spec = {
        # The node is set, as by a scheduler: scheduling is not measured.
        "nodeName": f"kwok-{number % nodes}",
        "containers": [container],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        **more,
    }
    labels = {
        "app.kubernetes.io/name": "trainer",
        "app.kubernetes.io/instance": f"trainer-{number % 100}",
    }
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
