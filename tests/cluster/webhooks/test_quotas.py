"""ElasticQuotas on a real API server, and the right to be non-preemptible without one.

The tests check what kubectl users see. They need a cluster of their own: Koordinator's
ElasticQuota is installed as a definition, and the tests write its figures as Koordinator does.
"""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from realcluster.programs import WEBHOOKS, Programs
from reprieve_certs import issue
from reprieve_policy import keys
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE
from reprieve_testing.cluster import elastic_quotas, impersonated_users
from reprieve_testing.cluster.elastic_quotas import a_quota
from reprieve_testing.cluster.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.impersonated_users import ImpersonatedUser, until_answered

pytestmark = pytest.mark.cluster

DENIED = "denied the request"
LABEL = f"metadata.labels[{keys.PREEMPTIBLE}]"
NEEDS = (
    "needs an ElasticQuota of this namespace whose min names all requested resources and has room, "
    f'or verb "claim" on {CLAIM_NON_PREEMPTIBLE.resource}.reprieve.dev, cluster-wide'
)
CONFIGURATION = "validatingwebhookconfiguration"
OTHER_CA = base64.b64encode(issue.issue_ca(datetime.now(UTC)).certificate_pem).decode()
NEVER_CHECKS = ("--certificate-check-seconds", 100_000)
"""Only the watch sees that another client changed a webhook configuration."""
PROGRAMS: dict[str, Programs] = {}
"""The webhooks of this module's cluster."""
NEEDS_CLASS_10 = 'class 10 needs verb "claim-sensitive"'
BOUNDED = "bounded"
"""A namespace with a quota that has a min."""


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    with own_cluster("test-quotas", "--kwok-nodes", 1) as cluster:
        programs = PROGRAMS[cluster.cluster.name] = cluster.install_webhooks(*NEVER_CHECKS)
        cluster.kubectl.apply(an_object("v1", "Namespace", BOUNDED))
        elastic_quotas.install(cluster.kubectl)
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


NOT_PREEMPTIBLE = {keys.PREEMPTIBLE: "false"}
OF_NARROW = {keys.QUOTA_NAME: "narrow", **NOT_PREEMPTIBLE}


def a_deployment(name: str, replicas: int, cpu: str, **labels: str) -> Any:
    spec = {**a_pod(cpu=cpu)["spec"], "restartPolicy": "Always"}
    template = {"metadata": {"labels": {"app": name, **labels}}, "spec": spec}
    selector = {"matchLabels": {"app": name}}
    return an_object(
        "apps/v1",
        "Deployment",
        name,
        spec={"replicas": replicas, "selector": selector, "template": template},
    )


def a_held_stateful_set(name: str, **labels: str) -> Any:
    """Return a StatefulSet that stays after its deletion, until its finalizer is removed."""
    made = a_deployment(name, 1, "10m", **labels)
    made["metadata"]["finalizers"] = ["example.com/held"]
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], "serviceName": name}}


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


def test_the_template_of_a_stateful_set_that_is_being_deleted_claims_nothing(
    ours: OwnCluster, alice: ImpersonatedUser
) -> None:
    """Its controller makes a revision of the template, from which another set could make pods."""

    def patch(name: str, change: Any, *words: str) -> Done:
        merge = ("--type=merge", "-p", json.dumps(change))
        return alice.run("patch", "statefulset", name, *merge, *words)

    def give(**labels: str) -> Any:
        return {"spec": {"template": {"metadata": {"labels": labels}}}}

    # The admin has the right to claim: the second one was made with it.
    for name, labels in {"modest": {}, "claiming": NOT_PREEMPTIBLE}.items():
        made = create(ours, a_held_stateful_set(name, **labels))
        assert made.status == 0, made.output
        assert alice.run("delete", "statefulset", name, "--wait=false").status == 0
    claimed = patch("modest", give(**NOT_PREEMPTIBLE))
    assert f"spec.template.{LABEL}: Forbidden: {NEEDS}" in claimed.stderr, claimed.output
    in_ten = give(**{keys.PREEMPTION_CLASS: "10"})
    until_answered(NEEDS_CLASS_10, lambda: patch("modest", in_ten, "--dry-run=server"))
    for name in ("modest", "claiming"):
        freed = patch(name, {"metadata": {"finalizers": None}})
        assert freed.status == 0, freed.output
        ours.kubectl.read("wait", "-n", NAMESPACE, "--for=delete", f"statefulset/{name}")


def test_a_quota_with_a_min_replaces_the_right(ours: OwnCluster, alice: ImpersonatedUser) -> None:
    there = ImpersonatedUser(ours.kubectl, alice.name, BOUNDED)
    assert NEEDS in as_person(there, a_pod(**NOT_PREEMPTIBLE)).stderr
    assert create(ours, a_quota(BOUNDED, "4", "8"), namespace=BOUNDED).status == 0
    until_answered(
        "created", lambda: as_person(there, a_pod(**NOT_PREEMPTIBLE), "--dry-run=server")
    )
    assert NEEDS in as_person(there, a_pod(cpu="5", **NOT_PREEMPTIBLE), "--dry-run=server").stderr
    of_another_namespace = a_pod(**NOT_PREEMPTIBLE, **{keys.QUOTA_NAME: BOUNDED})
    assert NEEDS in as_person(alice, of_another_namespace, "--dry-run=server").stderr


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


@pytest.fixture
def refusing(ours: OwnCluster) -> Iterator[None]:
    """Refuse jobs that do not fit, for one test; wait until the webhooks know."""
    assert create(ours, a_quota("narrow", "4", "8")).status == 0
    ours.set_policy(quotaFit="refuse")
    too_large = a_job("too-large", 5, "1", **OF_NARROW)
    until_answered(DENIED, lambda: create(ours, too_large, "--dry-run=server"))
    yield
    ours.kubectl.read("delete", "deployments,jobs,pods", "--all", "-n", NAMESPACE)
    ours.set_policy(quotaFit="warn")
    until_answered("created", lambda: create(ours, too_large, "--dry-run=server"))
    ours.kubectl.read("delete", "elasticquota", "narrow", "-n", NAMESPACE)


@pytest.mark.usefixtures("refusing")
def test_a_job_that_does_not_fit_is_refused_when_it_is_created_and_when_it_grows(
    ours: OwnCluster,
) -> None:
    refused = create(ours, a_job("large", 5, "1", **OF_NARROW))
    reason = 'Forbidden: "cpu": asks for 5, 0 is taken, the min of ElasticQuota "narrow" is 4'
    assert "(Forbidden)" in refused.stderr
    assert f"spec.template.spec: {reason}" in refused.stderr
    assert create(ours, a_job("fits", 3, "1", **OF_NARROW)).status == 0
    of_fits = ("job", "fits", "-n", NAMESPACE, "--type=merge", "-p")
    grown = ours.kubectl.run("patch", *of_fits, '{"spec":{"parallelism":2}}')
    assert grown.status == 0, grown.output
    deployment = a_deployment("web", 2, "2", **OF_NARROW)
    assert create(ours, deployment).status == 0
    of_web = ("deployment", "web", "-n", NAMESPACE, "--type=merge", "-p")
    grown = ours.kubectl.run("patch", *of_web, '{"spec":{"replicas":3}}')
    assert '"cpu": asks for 6, 0 is taken, the min of ElasticQuota "narrow" is 4' in grown.stderr


@pytest.mark.usefixtures("refusing")
def test_bare_pods_of_one_job_count_together(ours: OwnCluster) -> None:
    of_job = {**OF_NARROW, keys.KOORDINATOR_POD_GROUP: "job1"}
    assert create(ours, a_pod("first", "3", **of_job)).status == 0
    refused = create(ours, a_pod("second", "3", **of_job))
    reason = '"cpu": its job asks for 6, 0 is taken, the min of ElasticQuota "narrow" is 4'
    assert f"spec: Forbidden: {reason}" in refused.stderr
    assert create(ours, a_pod("second", "3", **OF_NARROW)).status == 0
    joining = ("label", "pod", "second", "-n", NAMESPACE, f"{keys.KOORDINATOR_POD_GROUP}=job1")
    assert reason in ours.kubectl.run(*joining).stderr


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


def test_a_wrong_ca_bundle_is_put_back_at_once(ours: OwnCluster) -> None:
    def bundles() -> set[str]:
        found = ours.kubectl.get(CONFIGURATION, "reprieve-webhooks")
        return {webhook["clientConfig"].get("caBundle", "") for webhook in found["webhooks"]}

    (before,) = bundles()
    wrong = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": OTHER_CA}]
    ours.kubectl.read(
        "patch", CONFIGURATION, "reprieve-webhooks", "--type=json", "-p", json.dumps(wrong)
    )
    wait_for("our CA", lambda: bundles() == {before})


def test_a_claim_does_not_get_in_during_an_outage_and_nothing_else_is_held_up(
    ours: OwnCluster, alice: ImpersonatedUser
) -> None:
    programs = PROGRAMS[ours.cluster.name]
    programs.stop(WEBHOOKS)
    try:
        claims = {
            "claims": a_pod("lone", **NOT_PREEMPTIBLE),
            "template-claims": a_job("outage", **NOT_PREEMPTIBLE),
        }
        for webhook, claim in claims.items():
            answer = as_person(alice, claim, "--dry-run=server")
            assert f'failed calling webhook "{webhook}.reprieve.dev"' in answer.stderr
        assert as_person(alice, a_pod("other"), "--dry-run=server").status == 0
        # The admin has the right, and a controller repeats a template that was checked.
        assert create(ours, a_job("granted", **NOT_PREEMPTIBLE)).status == 0
        selector = ("-n", NAMESPACE, "-l", "batch.kubernetes.io/job-name=granted")
        wait_for("the Job's pod", lambda: ours.kubectl.get("pods", *selector)["items"])
    finally:
        programs.start(WEBHOOKS)
        programs.wait_until_ready(WEBHOOKS)
