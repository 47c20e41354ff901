"""A mark in a template would evict every pod made from it: refused for all kinds and all users."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.cluster.impersonated_users import until_answered

pytestmark = pytest.mark.cluster

NAMESPACE = "guard-templates"
KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}
IN_TEMPLATE = "Forbidden: a mark in a template would evict every pod that it makes"


@pytest.fixture(scope="module")
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    marked = json.dumps(an_object("Deployment", labels={keys.SOFT_EVICTION: "requested"}))
    creating = ("-n", NAMESPACE, "create", "--dry-run=server", "-f", "-")
    until_answered(IN_TEMPLATE, lambda: cluster.kubectl.run(*creating, stdin=marked))
    yield NAMESPACE
    cluster.kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")


def an_object(kind: str, **metadata: Any) -> dict[str, Any]:
    """Return an object of `kind` that makes no pod; `metadata` is its template's."""
    labels = {"app": "templated"}
    template = {
        "metadata": {**metadata, "labels": {**labels, **metadata.get("labels", {})}},
        "spec": {
            "restartPolicy": "Never" if kind in ("Job", "CronJob") else "Always",
            "nodeSelector": {"nowhere": "true"},
            "containers": [
                {"name": "main", "image": "localhost/reprieve/python:1", "imagePullPolicy": "Never"}
            ],
        },
    }
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": spec}}
    elif kind == "Job":
        spec["suspend"] = True
    else:
        spec["selector"] = labels if kind == "ReplicationController" else {"matchLabels": labels}
        if kind in ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"):
            spec["replicas"] = 0
    return {
        "apiVersion": KINDS[kind],
        "kind": kind,
        "metadata": {"name": "templated"},
        "spec": spec,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_in_a_template_is_refused(cluster: ClusterHandle, namespace: str, kind: str) -> None:
    prefix = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    for part, key in (
        ("labels", keys.SOFT_EVICTION),
        ("labels", keys.KOORDINATOR_SOFT_EVICTION),
        ("annotations", keys.KOORDINATOR_SOFT_EVICTION),
    ):
        marked = json.dumps(an_object(kind, **{part: {key: "true"}}))
        done = cluster.kubectl.run("-n", namespace, "create", "-f", "-", stdin=marked)
        assert done.status != 0
        assert f"{prefix}.metadata.{part}[{key}]: {IN_TEMPLATE}" in done.output


@pytest.mark.parametrize("kind", KINDS)
def test_state_in_a_template_is_refused(cluster: ClusterHandle, namespace: str, kind: str) -> None:
    for part, forged in (
        ("annotations", {keys.EVICTION: "{}"}),
        ("annotations", {keys.PREEMPTOR: "uid"}),
        ("annotations", {keys.REFUSED_SINCE: "2026-01-01T00:00:00Z uid"}),
        ("finalizers", [keys.CLEANUP_FINALIZER]),
    ):
        document = json.dumps(an_object(kind, **{part: forged}))
        done = cluster.kubectl.run("-n", namespace, "create", "-f", "-", stdin=document)
        assert done.status != 0
        assert (
            f"metadata.{part}[{next(iter(forged))}]: Forbidden: written by Reprieve only"
            in done.output
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_without_a_mark_is_accepted_and_its_status_is_written(
    cluster: ClusterHandle, namespace: str, kind: str
) -> None:
    ordinary = an_object(kind, labels={keys.PREEMPTION_CLASS: "3"})
    created = cluster.kubectl.run("-n", namespace, "create", "-f", "-", stdin=json.dumps(ordinary))
    assert created.status == 0, created.output
    changed = cluster.kubectl.run("-n", namespace, "annotate", kind, "templated", "note=changed")
    assert changed.status == 0, changed.output
    cluster.kubectl.read("-n", namespace, "delete", kind, "templated", "--wait=false")


def test_a_mark_is_refused_in_an_update_of_a_template(
    cluster: ClusterHandle, namespace: str
) -> None:
    deployment = an_object("Deployment")
    deployment["metadata"]["name"] = "updated"
    cluster.kubectl.read("-n", namespace, "create", "-f", "-", stdin=json.dumps(deployment))
    patch = {"spec": {"template": {"metadata": {"labels": {keys.SOFT_EVICTION: "requested"}}}}}
    done = cluster.kubectl.run(
        "-n", namespace, "patch", "deployment", "updated", "-p", json.dumps(patch)
    )
    assert done.status != 0
    assert IN_TEMPLATE in done.output
