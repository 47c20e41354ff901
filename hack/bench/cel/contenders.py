"""What `make bench-cel` compares, and the pods that are created."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path

import yaml

from bench import pods, policies
from bench.pods import Document
from realcluster.errors import ClusterError
from reprieve_policy.keys import PREEMPTION_CLASS

NOTHING = "no policy"
SHORT = "by hand, six checks"
BY_HAND = "by hand, the same rules"
POLICIES = "overlay, policies"
WEBHOOKS = "overlay, webhooks' conditions"
OVERLAY = "overlay"
CONTENDERS = (NOTHING, SHORT, BY_HAND, POLICIES, WEBHOOKS, OVERLAY)

WITH_CLASS, SILENT = "a class", "no class"
"""Kinds of pods: with a class and a plan for checkpoints, and without a word about preemption."""
REFUSED_CLASS = "11"
SAME_RULES = Path(__file__).with_name("by_hand.yaml")
NAMESPACE: Document = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": pods.NAMESPACE,
        "labels": {"kubernetes.io/metadata.name": pods.NAMESPACE},
    },
}
_OF_OTHER_PLUGINS = [
    {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for condition in ("not-ready", "unreachable")
]
"""Tolerations that the API server has given every pod before it evaluates a policy."""


def documents(kubectl: Path) -> dict[str, list[Document]]:
    """Return the objects of each contender."""
    own = _read(policies.CEL / "policies.yaml")
    rendered = subprocess.run(
        [kubectl, "kustomize", policies.CEL], capture_output=True, text=True, check=False
    )
    if rendered.returncode:
        raise ClusterError(f"kubectl kustomize {policies.CEL}: {rendered.stderr.strip()}")
    webhooks = [
        item
        for item in yaml.load_all(rendered.stdout, yaml.CSafeLoader)
        if item["kind"].endswith("WebhookConfiguration")
    ]
    return {
        NOTHING: [],
        SHORT: list(policies.by_hand()),
        BY_HAND: _read(SAME_RULES),
        POLICIES: own,
        WEBHOOKS: webhooks,
        OVERLAY: [*own, *webhooks],
    }


def each_policy(objects: list[Document]) -> dict[str, list[Document]]:
    """Return each policy alone, with its bindings, after nothing at all."""
    alone: dict[str, list[Document]] = {NOTHING: []}
    for item in objects:
        name = item["spec"].get("policyName", item["metadata"]["name"])
        alone.setdefault(name, []).append(item)
    return alone


def created() -> dict[str, list[Document]]:
    """Return the pods of each kind as they are when the API server evaluates policies."""
    with_class = [json.loads(line) for line in pods.lines().splitlines()]
    silent = deepcopy(with_class[0])
    del silent["metadata"]["annotations"]
    silent["metadata"]["labels"] = {"app": "train"}
    for pod in (*with_class, silent):
        pod["spec"]["tolerations"] = _OF_OTHER_PLUGINS
    return {WITH_CLASS: with_class, SILENT: [silent]}


def probes() -> list[Document]:
    """Return pods that show whether a contender is in force: two to be filled in, one refused.

    The second one shows that not only the first call of a webhook is counted.
    """
    (silent,) = created()[SILENT]
    refused = deepcopy(silent)
    refused["metadata"]["labels"][PREEMPTION_CLASS] = REFUSED_CLASS
    return [silent, silent, refused]


def _read(file: Path) -> list[Document]:
    return list(yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader))
