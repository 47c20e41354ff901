"""The valid reviews that hostile ones are made from, and the cluster that they refer to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.stub_api import Collections
from reprieve_policy import keys

RECORDED = Path(__file__).parents[2] / "tests" / "contract" / "reviews"
"""What kube-apiserver sent, for every kind that has rules."""

_PRIORITIES = {"training": 1000, "service": 2000, "highest": 1_000_000_000, "lowest": -(2**31)}
_NAMESPACES: dict[str, dict[str, str]] = {
    "rec": {},
    "limited": {keys.ALLOWED_PREEMPTION_CLASSES: "1-3,5"},
    "sensitive": {keys.WORKLOAD_TYPE: "sensitive"},
    "training": {keys.WORKLOAD_TYPE: "ml-training", keys.DEFAULT_PREEMPTION_CLASS: "2"},
    "warned": {keys.ENFORCEMENT: "warn"},
    "off": {keys.ENFORCEMENT: "off"},
    "unreadable": {
        keys.ALLOWED_PREEMPTION_CLASSES: "all",
        keys.WORKLOAD_TYPE: "\u202e",
        keys.ENFORCEMENT: "",
    },
}
NAMESPACES = (*_NAMESPACES, "unknown", "", "..", "a/b?c=d", "Ä" * 1000)
PRIORITY_CLASSES = (*_PRIORITIES, "unknown", "", "..", "a/b?c=d", "Ä" * 1000)

CLUSTER: Collections = {
    "/api/v1/namespaces": [
        {"metadata": {"name": name, "annotations": said}} for name, said in _NAMESPACES.items()
    ],
    "/apis/scheduling.k8s.io/v1/priorityclasses": [
        {"metadata": {"name": name}, "value": value} for name, value in _PRIORITIES.items()
    ],
}


def load() -> tuple[str, ...]:
    """Return the recorded reviews as JSON texts: parsing is the cheapest deep copy."""
    documents: list[Any] = [
        json.loads(file.read_text()) for file in sorted(RECORDED.glob("*.json"))
    ]
    return tuple(json.dumps(document["review"]) for document in documents)
