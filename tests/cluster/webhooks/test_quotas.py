"""ElasticQuotas on a real API server, and the right to be non-preemptible without one.

The tests check what kubectl users see. They need a cluster of their own: Koordinator's
ElasticQuota is installed as a definition, and the tests write its figures as Koordinator does.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from realcluster.programs import WEBHOOKS
from reprieve_policy import keys
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE
from reprieve_testing.cluster import impersonated_users
from reprieve_testing.cluster.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.impersonated_users import ImpersonatedUser, until_answered

pytestmark = pytest.mark.cluster

GROUP = "scheduling.sigs.k8s.io"
DENIED = "denied the request"
LABEL = f"metadata.labels[{keys.PREEMPTIBLE}]"
NEEDS = (
    'needs an ElasticQuota with a min, or verb "claim" '
    f"on {CLAIM_NON_PREEMPTIBLE.resource}.reprieve.dev, cluster-wide"
)
BOUNDED = "bounded"
"""A namespace with a quota that has a min."""


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    with own_cluster("test-quotas", "--kwok-nodes", 1) as cluster:
        programs = cluster.install_webhooks()
        cluster.kubectl.apply(a_definition(), an_object("v1", "Namespace", BOUNDED))
        cluster.kubectl.read(
            "wait", f"crd/elasticquotas.{GROUP}", "--for=condition=Established", "--timeout=60s"
        )
        programs.start(WEBHOOKS)
        try:
            programs.wait_until_ready(WEBHOOKS)
            until_answered(
                DENIED,
                lambda: create(cluster, a_pod(**{keys.PREEMPTION_CLASS: "x"}), "--dry-run=server"),
            )
            until_answered(
                DENIED, lambda: create(cluster, a_quota("bad", "2", "1"), "--dry-run=server")
            )
            yield cluster
        finally:
            programs.stop(WEBHOOKS)


@pytest.fixture(scope="module")
def alice(ours: OwnCluster) -> ImpersonatedUser:
    """A user with every right in two namespaces, also on virtual resources there."""
    for namespace in (NAMESPACE, BOUNDED):
        anything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        ours.kubectl.apply(*impersonated_users.role("alice", namespace, [anything]))
    person = ImpersonatedUser(ours.kubectl, "alice", NAMESPACE)
    wait_for(
        "her Role is in force", lambda: person.run("auth", "can-i", "create", "pods").status == 0
    )
    return person


def create(ours: OwnCluster, document: Any, *words: str, namespace: str = NAMESPACE) -> Done:
    return ours.kubectl.run(
        "create", "-n", namespace, "-f", "-", *words, stdin=json.dumps(document)
    )


def as_person(person: ImpersonatedUser, document: Any, *words: str) -> Done:
    return person.run("create", "-f", "-", *words, stdin=json.dumps(document))


def an_object(api_version: str, kind: str, name: str, **fields: Any) -> Any:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def a_pod(name: str = "p", cpu: str = "10m", **labels: str) -> Any:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    pod = an_object("v1", "Pod", name, spec={"containers": [container], "restartPolicy": "Never"})
    pod["metadata"]["labels"] = labels
    return pod


def a_job(name: str, pods: int = 1, cpu: str = "10m", **labels: str) -> Any:
    pod = a_pod(cpu=cpu, **labels)
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    return an_object(
        "batch/v1",
        "Job",
        name,
        spec={"parallelism": pods, "completions": pods, "template": template},
    )


def a_quota(name: str, least: Any, most: Any) -> Any:
    return an_object(
        f"{GROUP}/v1alpha1",
        "ElasticQuota",
        name,
        spec={"min": {"cpu": least}, "max": {"cpu": most}},
    )


def a_definition() -> Any:
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
    definition = an_object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"elasticquotas.{GROUP}",
        spec={"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    )
    # A group with a kubernetes.io name: its API belongs to another project, which declares so.
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return definition


NOT_PREEMPTIBLE = {keys.PREEMPTIBLE: "false"}


def test_a_quota_whose_min_exceeds_its_max_is_refused(ours: OwnCluster) -> None:
    refused = create(ours, a_quota("gpu", 9, "8000m"), "--dry-run=server")
    assert 'spec.min[cpu]: Invalid value: "9": must be at most 8, its max' in refused.stderr
    assert create(ours, a_quota("gpu", "8", "8000m"), "--dry-run=server").status == 0


def test_a_user_without_the_right_is_refused_for_pods_and_templates(
    alice: ImpersonatedUser,
) -> None:
    pod = as_person(alice, a_pod(**NOT_PREEMPTIBLE))
    assert "(Forbidden)" in pod.stderr
    assert f"{LABEL}: Forbidden: {NEEDS}" in pod.stderr
    assert (
        f"spec.template.{LABEL}: Forbidden: {NEEDS}"
        in as_person(alice, a_job("j", **NOT_PREEMPTIBLE)).stderr
    )


def test_a_role_in_the_users_namespace_does_not_grant_the_right(alice: ImpersonatedUser) -> None:
    answer = alice.run("auth", "can-i", "claim", f"{CLAIM_NON_PREEMPTIBLE.resource}.reprieve.dev")
    assert answer.stdout.strip() == "yes"
    assert NEEDS in as_person(alice, a_pod(**NOT_PREEMPTIBLE)).stderr


def test_a_granted_right_counts_and_the_controller_needs_none(ours: OwnCluster) -> None:
    ours.kubectl.apply(
        *impersonated_users.role(
            "bob", NAMESPACE, [impersonated_users.rule("jobs", "create get", "batch")]
        ),
        impersonated_users.cluster_binding("bob", "reprieve:claim-non-preemptible"),
    )
    bob = ImpersonatedUser(ours.kubectl, "bob", NAMESPACE)
    until_answered("created", lambda: as_person(bob, a_job("claimed", **NOT_PREEMPTIBLE)))
    selector = ("-n", NAMESPACE, "-l", "batch.kubernetes.io/job-name=claimed")
    (pod,) = wait_for("the Job's pod", lambda: ours.kubectl.get("pods", *selector)["items"])
    assert pod["metadata"]["labels"][keys.PREEMPTIBLE] == "false"


def test_a_quota_with_a_min_replaces_the_right(ours: OwnCluster, alice: ImpersonatedUser) -> None:
    there = ImpersonatedUser(ours.kubectl, alice.name, BOUNDED)
    assert NEEDS in as_person(there, a_pod(**NOT_PREEMPTIBLE)).stderr
    assert create(ours, a_quota(BOUNDED, "4", "8"), namespace=BOUNDED).status == 0
    until_answered(
        "created", lambda: as_person(there, a_pod(**NOT_PREEMPTIBLE), "--dry-run=server")
    )


def test_a_job_that_does_not_fit_gets_a_warning_with_the_published_amounts(
    ours: OwnCluster,
) -> None:
    quota = a_quota("busy", "10", "20")
    assert create(ours, quota).status == 0
    used = {"metadata": {"annotations": {keys.NON_PREEMPTIBLE_USED: '{"cpu":"6"}'}}}
    ours.kubectl.read(
        "patch", "elasticquota", "busy", "-n", NAMESPACE, "--type=merge", "-p", json.dumps(used)
    )
    status = json.dumps({"status": {"used": {"cpu": "12"}}})
    patched = (
        "patch",
        "elasticquota",
        "busy",
        "-n",
        NAMESPACE,
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    )
    ours.kubectl.read(*patched)
    in_quota = {keys.QUOTA_NAME: "busy"}
    warning = "Warning: spec.template.spec: cpu 11 over min 10 of quota busy"
    job = a_job("tight", 5, "1", **in_quota, **NOT_PREEMPTIBLE)
    until_answered(warning, lambda: create(ours, job, "--dry-run=server"))
    preemptible = create(ours, a_job("tight", 9, "1", **in_quota), "--dry-run=server")
    assert "Warning: spec.template.spec: cpu 15 over" not in preemptible.stderr
    ours.set_policy(quotaFit="refuse")
    until_answered(
        'spec.template.spec: Forbidden: "cpu": asks for 5, 6 is taken, '
        'the min of ElasticQuota "busy" is 10',
        lambda: create(ours, job, "--dry-run=server"),
    )


def test_a_hint_to_a_port_that_is_not_declared_is_refused(ours: OwnCluster) -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {keys.CHECKPOINT_HINT: "grpc://:9000"}
    refused = create(ours, pod, "--dry-run=server")
    assert (
        'Invalid value: "grpc://:9000": must be a port that a container of the pod declares'
        in refused.stderr
    )
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 9000}]
    assert "created (server dry run)" in create(ours, pod, "--dry-run=server").stdout
