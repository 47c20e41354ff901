"""Protecting a pod needs rights, and protection may only be lowered afterwards; attacks on that.

No webhook runs that could see the attacks.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from realcluster.install import BASE
from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.cluster.impersonated_users import (
    ImpersonatedUser,
    cluster_binding,
    cluster_role,
    role,
    rule,
    until_answered,
)

pytestmark = pytest.mark.cluster

NAMESPACE, SENSITIVE, GIVEN = "guard-protection", "guard-sensitive", "guard-given"
WAYS = ["", "status"]
NEEDS_CLAIM = (
    'Forbidden: class 10 needs verb "claim-sensitive" '
    "on preemptionclasses.reprieve.dev, cluster-wide"
)
RISES = f"metadata.labels[{keys.PREEMPTION_CLASS}]: Forbidden: may only be lowered after creation"
TAKEN_BACK = (
    f"metadata.labels[{keys.PREEMPTIBLE}]: "
    "Forbidden: a preemptible pod stays preemptible after creation"
)
CHANGED = (
    f"metadata.annotations[{keys.PREEMPTION_PRIORITY_CLASS}]: "
    "Forbidden: may not be changed after creation"
)


@dataclass(frozen=True)
class UsersByRight:
    """The users of these tests."""

    owner: ImpersonatedUser
    """May do everything in the namespace, by wildcards."""
    claimer: ImpersonatedUser
    """May also claim class 10."""
    binder: ImpersonatedUser
    """May bind the pods of every namespace, as a scheduler may."""
    admin: Any
    """The cluster's administrator, as `kubectl`."""


@pytest.fixture(scope="module")
def users(cluster: ClusterHandle) -> Iterator[UsersByRight]:
    kubectl = cluster.kubectl
    kubectl.read("apply", "-f", BASE / "users-rbac.yaml")
    everything = [rule("*", "*", group="*")]
    kubectl.apply(
        # Where enforcement is off, the guard holds all the same.
        a_namespace(NAMESPACE, labels={keys.ENFORCEMENT: "off"}),
        a_namespace(SENSITIVE, annotations={keys.WORKLOAD_TYPE: "sensitive"}),
        a_namespace(
            GIVEN,
            annotations={
                keys.ALLOWED_PREEMPTION_CLASSES: "0-10",
                keys.DEFAULT_PREEMPTION_CLASS: "10",
            },
        ),
        *(
            part
            for name in (NAMESPACE, SENSITIVE, GIVEN)
            for part in role("tenant", name, everything)
        ),
        *role("claimer", NAMESPACE, everything),
        cluster_binding("claimer", "reprieve:claim-sensitive"),
        *cluster_role("binder", [rule("pods/binding", "create")]),
    )
    found = UsersByRight(
        ImpersonatedUser(kubectl, "tenant", NAMESPACE),
        ImpersonatedUser(kubectl, "claimer", NAMESPACE),
        ImpersonatedUser(kubectl, "binder", NAMESPACE),
        kubectl,
    )
    sensitive = a_pod("unseen", labels={keys.PREEMPTION_CLASS: "10"})
    for name in (NAMESPACE, SENSITIVE, GIVEN):
        kubectl.run("create", "serviceaccount", "default", "-n", name)
    until_answered(
        NEEDS_CLAIM,
        lambda: found.owner.run("create", "--dry-run=server", "-f", "-", stdin=sensitive),
    )
    until_answered(
        "created",
        lambda: found.claimer.run("create", "--dry-run=server", "-f", "-", stdin=sensitive),
    )
    can_bind = ("auth", "can-i", "create", "pods", "--subresource=binding")
    until_answered("yes", lambda: found.binder.run(*can_bind))
    yield found
    kubectl.run("delete", "namespace", NAMESPACE, SENSITIVE, GIVEN, "--wait=false")
    kubectl.run("delete", "clusterrolebinding", "test:claimer", "test:binder")
    kubectl.run("delete", "clusterrole", "test:binder")


@pytest.fixture
def pod(users: UsersByRight, request: pytest.FixtureRequest) -> str:
    """A pod with the metadata of the test's parameter, created by the cluster's administrator."""
    name = f"pod-{abs(hash(request.node.nodeid))}"
    metadata = getattr(request, "param", {})
    users.admin.read("create", "-n", NAMESPACE, "-f", "-", stdin=a_pod(name, **metadata))
    return name


def a_namespace(name: str, **metadata: object) -> Any:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def a_pod(name: str, **metadata: object) -> str:
    container = {"name": "main", "image": "none"}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
    )


def a_job(name: str, preemption_class: str, **spec: object) -> str:
    pod = {
        "schedulerName": "nobody",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none"}],
    }
    template = {"metadata": {"labels": {keys.PREEMPTION_CLASS: preemption_class}}, "spec": pod}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return json.dumps({**document, "spec": {"template": template, **spec}})


def in_class(text: str | None) -> dict[str, Any]:
    return {"labels": {keys.PREEMPTION_CLASS: text}}


def preemptible(text: str | None) -> dict[str, Any]:
    return {"labels": {keys.PREEMPTIBLE: text}}


def defended_as(text: str | None) -> dict[str, Any]:
    return {"annotations": {keys.PREEMPTION_PRIORITY_CLASS: text}}


def using(quota: str) -> dict[str, Any]:
    return {"labels": {keys.QUOTA_NAME: quota}}


def patch(person: ImpersonatedUser, name: str, metadata: object, way: str = "") -> Done:
    return person.patch(name, json.dumps({"metadata": metadata}), way)


def refused(done: Done, words: str) -> bool:
    return done.status != 0 and "(Forbidden)" in done.output and words in done.output


def test_a_user_without_the_right_may_not_claim_class_10(users: UsersByRight) -> None:
    done = users.owner.run("create", "-f", "-", stdin=a_pod("ten", **in_class("10")))
    assert refused(done, f"metadata.labels[{keys.PREEMPTION_CLASS}]: {NEEDS_CLAIM}"), done.output


def test_a_user_without_the_right_may_not_claim_class_10_in_a_template(users: UsersByRight) -> None:
    done = users.owner.run("create", "-f", "-", stdin=a_job("ten", "10"))
    assert refused(
        done, f"spec.template.metadata.labels[{keys.PREEMPTION_CLASS}]: {NEEDS_CLAIM}"
    ), done.output


def test_a_user_without_the_right_may_not_change_a_template_to_class_10(
    users: UsersByRight,
) -> None:
    cronjob = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "later-ten"},
        "spec": {
            "schedule": "0 0 1 1 *",
            "jobTemplate": {"spec": json.loads(a_job("x", "4"))["spec"]},
        },
    }
    assert users.owner.run("create", "-f", "-", stdin=json.dumps(cronjob)).status == 0
    cronjob["spec"]["jobTemplate"]["spec"] = json.loads(a_job("x", "10"))["spec"]
    done = users.owner.run("replace", "-f", "-", stdin=json.dumps(cronjob))
    path = f"spec.jobTemplate.spec.template.metadata.labels[{keys.PREEMPTION_CLASS}]"
    assert refused(done, f"{path}: {NEEDS_CLAIM}"), done.output


def a_stateful_set(name: str, **template: Any) -> Any:
    pod = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
    template = {
        "metadata": {**template, "labels": {"app": name, **template.get("labels", {})}},
        "spec": pod,
    }
    spec = {
        "replicas": 1,
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize(
    "metadata",
    [
        in_class("10"),
        preemptible("false"),
        defended_as("gold"),
        {"Labels": {keys.PREEMPTION_CLASS: "10"}},
    ],
    ids=json.dumps,
)
def test_class_10_cannot_be_claimed_by_a_forged_revision_of_a_stateful_set(
    users: UsersByRight, metadata: dict[str, Any]
) -> None:
    name = f"revised-{abs(hash(json.dumps(metadata)))}"
    made = users.owner.run("create", "-f", "-", stdin=json.dumps(a_stateful_set(name)))
    assert made.status == 0, made.output
    of_it = ("controllerrevisions", "-n", NAMESPACE, "-l", f"app={name}")
    (revision,) = wait_for("its revision", lambda: users.admin.get(*of_it)["items"])
    assert users.owner.run("delete", "controllerrevision", revision["metadata"]["name"]).status == 0
    template = revision["data"]["spec"]["template"]["metadata"]
    for part, entries in metadata.items():
        template[part] = {**template.get(part, {}), **entries}
    for key in ("resourceVersion", "uid"):
        del revision["metadata"][key]
    done = users.owner.run("create", "-f", "-", stdin=json.dumps(revision))
    assert refused(done, "data.spec.template.metadata: Forbidden: what protects pods is written"), (
        done.output
    )


def test_a_revision_that_is_merged_into_a_protected_template_needs_the_right(
    users: UsersByRight,
) -> None:
    """Its data has no key that protects: it takes that of the StatefulSet's own template."""
    merged = {"spec": {"template": {"metadata": {"labels": {keys.QUOTA_NAME: "imagined"}}}}}

    def create(by: ImpersonatedUser, name: str, **data: Any) -> Done:
        revision = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": name},
            "data": data,
            "revision": 1,
        }
        return by.run("create", "-f", "-", stdin=json.dumps(revision))

    told = "data.spec.template: Forbidden: a revision that changes a part of a template is written"
    assert refused(create(users.owner, "merged", **merged), told)
    whole = {"spec": {"template": {**merged["spec"]["template"], "$patch": "replace"}}}
    for name, data in (("whole", whole), ("no-template", {"spec": {"networkConfig": {}}})):
        made = create(users.owner, name, **data)
        assert made.status == 0, made.output
    # Another project's controller, with rights everywhere.
    controller = ImpersonatedUser(users.admin, "vm-controller", NAMESPACE)
    users.admin.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "vm-controller"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:controller:statefulset-controller",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User",
                    "name": controller.name,
                }
            ],
        }
    )
    made = create(controller, "of-another-project", **merged)
    assert made.status == 0, made.output
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": True}
    for metadata, is_refused in (
        ({"ownerReferences": [owner]}, True),
        ({"labels": {"a": "b"}}, False),
    ):
        words = ("--type=merge", "-p", json.dumps({"metadata": metadata}))
        done = users.owner.run("patch", "controllerrevision", "of-another-project", *words)
        assert refused(done, told) if is_refused else done.status == 0, done.output


def test_class_10_is_admitted_in_an_authorized_stateful_set_and_in_its_revision(
    users: UsersByRight,
) -> None:
    done = users.claimer.run(
        "create", "-f", "-", stdin=json.dumps(a_stateful_set("claimed", **in_class("10")))
    )
    assert done.status == 0, done.output
    wait_for("its pod", lambda: users.admin.find("pod", "claimed-0", "-n", NAMESPACE))


def test_class_10_is_admitted_in_an_authorized_template_and_its_pods(users: UsersByRight) -> None:
    done = users.claimer.run("create", "-f", "-", stdin=a_job("claimed", "10"))
    assert done.status == 0, done.output
    selected = ("pods", "-n", NAMESPACE, "-l", "batch.kubernetes.io/job-name=claimed")
    wait_for("the Job's pod", lambda: users.admin.get(*selected)["items"])


@pytest.mark.parametrize("namespace", [SENSITIVE, GIVEN])
def test_if_the_namespace_allows_class_10_no_right_is_needed(
    users: UsersByRight, namespace: str
) -> None:
    tenant = ImpersonatedUser(users.admin, "tenant", namespace)
    for document in (a_pod("ten", **in_class("10")), a_job("ten", "10")):
        done = tenant.run("create", "-f", "-", stdin=document)
        assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("pod", "to"),
    [
        (in_class("3"), "4"),
        (in_class("0"), "10"),
        (in_class("3"), None),
        (in_class("10"), None),
        (in_class("3"), "high"),
        ({}, "5"),
        ({}, "10"),
        (in_class("high"), "6"),
    ],
    indirect=["pod"],
)
def test_the_class_of_a_pod_may_not_rise(
    users: UsersByRight, pod: str, to: str | None, way: str
) -> None:
    done = patch(users.claimer, pod, in_class(to), way)
    assert refused(done, RISES), done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("pod", "to"),
    [
        (in_class("10"), "9"),
        (in_class("3"), "0"),
        ({}, "4"),
        ({}, "0"),
        ({}, "high"),
        (in_class("high"), None),
    ],
    indirect=["pod"],
)
def test_the_class_of_a_pod_may_fall(
    users: UsersByRight, pod: str, to: str | None, way: str
) -> None:
    done = patch(users.owner, pod, in_class(to), way)
    assert done.status == 0, done.output


def test_a_class_may_not_rise_through_an_ephemeral_container_or_a_resize(
    users: UsersByRight, pod: str
) -> None:
    for way in ("ephemeralcontainers", "resize"):
        raised = json.loads(a_pod(pod, **in_class("9")))
        current = users.admin.get("pod", pod, "-n", NAMESPACE)
        current["metadata"]["labels"] = raised["metadata"]["labels"]
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/{way}"
        done = users.owner.run("replace", "--raw", path, "-f", "-", stdin=json.dumps(current))
        after = users.admin.get("pod", pod, "-n", NAMESPACE)["metadata"].get("labels", {})
        assert RISES in done.output or keys.PREEMPTION_CLASS not in after, done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("pod", "to"),
    [
        ({}, "false"),
        (preemptible("true"), "false"),
        (preemptible("true"), None),
        (preemptible("yes"), "false"),
    ],
    indirect=["pod"],
)
def test_a_preemptible_pod_stays_preemptible(
    users: UsersByRight, pod: str, to: str | None, way: str
) -> None:
    done = patch(users.owner, pod, preemptible(to), way)
    assert refused(done, TAKEN_BACK), done.output


@pytest.mark.parametrize(
    ("pod", "to"),
    [(preemptible("false"), "true"), (preemptible("false"), None), ({}, "true")],
    indirect=["pod"],
)
def test_a_pod_may_become_preemptible(users: UsersByRight, pod: str, to: str | None) -> None:
    done = patch(users.owner, pod, preemptible(to))
    assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("pod", "to"),
    [({}, "gold"), (defended_as("gold"), "silver"), (defended_as("gold"), None)],
    indirect=["pod"],
)
def test_the_preemption_priority_of_a_pod_does_not_change(
    users: UsersByRight, pod: str, to: str | None, way: str
) -> None:
    done = patch(users.owner, pod, defended_as(to), way)
    assert refused(done, CHANGED), done.output


@pytest.mark.parametrize("pod", [{**in_class("10"), **defended_as("gold")}], indirect=True)
def test_updates_that_change_no_protection_are_admitted(users: UsersByRight, pod: str) -> None:
    for metadata in ({"labels": {"team": "research"}}, {"annotations": {"team": "research"}}):
        done = patch(users.owner, pod, metadata)
        assert done.status == 0, done.output


@pytest.mark.parametrize(
    "metadata",
    [in_class("10"), in_class("2"), preemptible("false"), defended_as("gold"), using("another")],
    ids=json.dumps,
)
def test_a_binding_changes_no_protection(
    users: UsersByRight, pod: str, metadata: dict[str, Any]
) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **metadata},
        "target": target,
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding"
    creating = ("create", "--raw", path, "-f", "-")
    done = users.owner.run(*creating, stdin=json.dumps(binding))
    assert refused(done, "a binding may not change what protects its pod"), done.output
    # Volcano's scheduler copies the pod's own annotations. Its labels are no copies.
    done = users.binder.run(*creating, stdin=json.dumps(binding))
    assert (done.status == 0) is ("annotations" in metadata), done.output
