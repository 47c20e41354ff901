"""The manifests' webhook configurations and policies, restricted to one test's objects.

They have names of their own. No server answers behind such webhooks, and a failed call refuses the
request: so a webhook is called exactly where a request fails.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

CALL_FAILED = "failed calling webhook"
_UNREACHABLE_URL = "https://127.0.0.1:1/"


def webhooks(
    configuration: Any, name: str, namespaces: Sequence[str], labels: Mapping[str, str]
) -> Any:
    """Return a configuration for objects in these namespaces.

    Cluster-wide objects are selected by these labels.
    """
    configuration = deepcopy(configuration)
    configuration["metadata"] = {"name": name}
    for webhook in configuration["webhooks"]:
        webhook |= {"failurePolicy": "Fail", "clientConfig": {"url": _UNREACHABLE_URL}}
        is_cluster_wide = webhook["rules"][0]["scope"] == "Cluster"
        _narrow(webhook, namespaces, labels, is_cluster_wide=is_cluster_wide)
    return configuration


def policy(document: Any, suffix: str, namespaces: Sequence[str], labels: Mapping[str, str]) -> Any:
    """Return a policy or its binding, restricted in the same way; an evaluation error refuses."""
    document = deepcopy(document)
    document["metadata"] = {"name": f"{document['metadata']['name']}-{suffix}"}
    spec = document["spec"]
    if "policyName" in spec:
        spec["policyName"] = f"{spec['policyName']}-{suffix}"
        return document
    spec["failurePolicy"] = "Fail"
    constraints = spec["matchConstraints"]
    is_cluster_wide = constraints["resourceRules"][0]["resources"] == ["priorityclasses"]
    _narrow(constraints, namespaces, labels, is_cluster_wide=is_cluster_wide)
    return document


def _narrow(
    holder: Any, namespaces: Sequence[str], labels: Mapping[str, str], *, is_cluster_wide: bool
) -> None:
    if is_cluster_wide:
        holder["objectSelector"] = {"matchLabels": dict(labels)}
        return
    narrowed = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    # A policy's own selector is in its binding.
    selector = holder.get("namespaceSelector", {})
    holder["namespaceSelector"] = {
        **selector,
        "matchExpressions": [*selector.get("matchExpressions", []), narrowed],
    }
