"""The pods that are created: training jobs whose declarations CEL can evaluate.

A pod with a declaration that CEL cannot evaluate (a hint, a gang, a quota) also needs the webhooks
beside the CEL overlay, and costs both.
"""

from __future__ import annotations

import json
from typing import Any

from reprieve_policy.keys import CAN_PREEMPT, CHECKPOINT, CHECKPOINT_TIMEOUT, PREEMPTION_CLASS

from . import reviews

NAMESPACE = "default"
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
"""A dry run goes through all of admission and stores nothing: etcd is not measured."""
_VARIABLES = 10

Document = dict[str, Any]


def lines() -> bytes:
    """Return the client's file: one pod a line, of every class that is admitted."""
    made = (_pod(str(number)) for number in range(reviews.HIGHEST_ALLOWED + 1))
    return b"".join(json.dumps(pod, separators=(",", ":")).encode() + b"\n" for pod in made)


def probe(preemption_class: str | None = None) -> Document:
    """Return a pod that shows which policy is in force.

    Class 11 is refused, no class is defaulted.
    """
    return _pod(preemption_class)


def _pod(preemption_class: str | None) -> Document:
    labels = {"app": "train", CAN_PREEMPT: "false"}
    labels |= {} if preemption_class is None else {PREEMPTION_CLASS: preemption_class}
    annotations = {CHECKPOINT: "auto", CHECKPOINT_TIMEOUT: "10m"}
    container = {
        "name": "trainer",
        "image": "registry.example/team-a/trainer:v1",
        "env": [
            {"name": f"TRAINING_OPTION_{n:04}", "value": f"/data/shard-{n:04}"}
            for n in range(_VARIABLES)
        ],
        "resources": {
            "limits": {"cpu": "4", "memory": "16Gi"},
            "requests": {"cpu": "2", "memory": "8Gi"},
        },
    }
    metadata = {"generateName": "train-", "labels": labels, "annotations": annotations}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 600,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
