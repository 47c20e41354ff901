"""Webhook configurations and policies as they are in the manifests, but for one test's objects only, under names of its own.

Nothing answers behind such webhooks, and that is refused: so a request is called for exactly where it fails.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

CALL_FAILED = "failed calling webhook"
_UNREACHABLE_URL = "https://127.0.0.1:1/"


def webhooks(
    configuration: Any, name: str, namespaces: Sequence[str], labels: Mapping[str, str]
) -> Any:
    """Return a configuration for objects in these namespaces, and cluster-wide ones with these labels."""
    configuration = deepcopy(configuration)
    configuration["metadata"] = {"name": name}
    for webhook in configuration["webhooks"]:
        webhook |= {"failurePolicy": "Fail", "clientConfig": {"url": _UNREACHABLE_URL}}
        _narrow(webhook, webhook["rules"][0]["scope"] == "Cluster", namespaces, labels)
    return configuration


def policy(document: Any, suffix: str, namespaces: Sequence[str], labels: Mapping[str, str]) -> Any:
    """Return a policy, or its binding, likewise; an error in an expression refuses."""
    document = deepcopy(document)
    document["metadata"] = {"name": f"{document['metadata']['name']}-{suffix}"}
    spec = document["spec"]
    if "policyName" in spec:
        spec["policyName"] = f"{spec['policyName']}-{suffix}"
        return document
    spec["failurePolicy"] = "Fail"
    constraints = spec["matchConstraints"]
    _narrow(constraints, "namespaceSelector" not in constraints, namespaces, labels)
    return document


def _narrow(
    holder: Any, is_cluster_wide: bool, namespaces: Sequence[str], labels: Mapping[str, str]
) -> None:  # noqa: FBT001
    if is_cluster_wide:
        holder["objectSelector"] = {"matchLabels": dict(labels)}
        return
    narrowed = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    selector = holder["namespaceSelector"]
    holder["namespaceSelector"] = {
        **selector,
        "matchExpressions": [*selector.get("matchExpressions", []), narrowed],
    }
