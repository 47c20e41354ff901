"""Koordinator's ElasticQuota in a test cluster: its definition, and quotas of CPUs."""

from typing import Any

from realcluster.client.kubectl import Kubectl

GROUP = "scheduling.sigs.k8s.io"


def install(kubectl: Kubectl) -> None:
    """Install the definition, without Koordinator: tests write the figures that it would."""
    kubectl.apply(_definition())
    kubectl.read(
        "wait", f"crd/elasticquotas.{GROUP}", "--for=condition=Established", "--timeout=60s"
    )


def a_quota(name: str, least: Any, most: Any) -> Any:
    """Return a quota with these amounts of CPUs as its `min` and `max`."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name},
        "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
    }


def _definition() -> Any:
    amounts = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
    spec = {"type": "object", "properties": {"min": amounts, "max": amounts}}
    status = {"type": "object", "properties": {"used": amounts}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}},
    }
    names = {"kind": "ElasticQuota", "plural": "elasticquotas"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"elasticquotas.{GROUP}",
            # A group with a kubernetes.io name: its API belongs to another project.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
