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
from reprieve_testing.cluster import ClusterHandle, wait_for
from reprieve_testing.people import ImpersonatedUser, cluster_binding, role, rule, until_answered

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
class People:
    """The users of these tests."""

    owner: ImpersonatedUser
    """May do everything in the namespace, by wildcards."""
    claimer: ImpersonatedUser
    """May also claim class 10."""
    admin: Any
    """The cluster's administrator, as `kubectl`."""


@pytest.fixture(scope="module")
def people(cluster: ClusterHandle) -> Iterator[People]:
    kubectl = cluster.kubectl
    kubectl.read("apply", "-f", BASE / "people-rbac.yaml")
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
    )
    found = People(
        ImpersonatedUser(kubectl, "tenant", NAMESPACE),
        ImpersonatedUser(kubectl, "claimer", NAMESPACE),
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
    yield found
    kubectl.run("delete", "namespace", NAMESPACE, SENSITIVE, GIVEN, "--wait=false")
    kubectl.run("delete", "clusterrolebinding", "test:claimer")


@pytest.fixture
def pod(people: People, request: pytest.FixtureRequest) -> str:
    """A pod with the metadata of the test's parameter, created by the cluster's administrator."""
    name = f"pod-{abs(hash(request.node.nodeid))}"
    metadata = getattr(request, "param", {})
    people.admin.read("create", "-n", NAMESPACE, "-f", "-", stdin=a_pod(name, **metadata))
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


def patch(person: ImpersonatedUser, name: str, metadata: object, way: str = "") -> Done:
    return person.patch(name, json.dumps({"metadata": metadata}), way)


def refused(done: Done, words: str) -> bool:
    return done.status != 0 and "(Forbidden)" in done.output and words in done.output


def test_class_10_is_not_a_tenants_to_claim(people: People) -> None:
    done = people.owner.run("create", "-f", "-", stdin=a_pod("ten", **in_class("10")))
    assert refused(done, f"metadata.labels[{keys.PREEMPTION_CLASS}]: {NEEDS_CLAIM}"), done.output


def test_nor_in_a_template(people: People) -> None:
    done = people.owner.run("create", "-f", "-", stdin=a_job("ten", "10"))
    assert refused(
        done, f"spec.template.metadata.labels[{keys.PREEMPTION_CLASS}]: {NEEDS_CLAIM}"
    ), done.output


def test_nor_in_a_template_that_was_of_another_class(people: People) -> None:
    cronjob = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "later-ten"},
        "spec": {
            "schedule": "0 0 1 1 *",
            "jobTemplate": {"spec": json.loads(a_job("x", "4"))["spec"]},
        },
    }
    assert people.owner.run("create", "-f", "-", stdin=json.dumps(cronjob)).status == 0
    cronjob["spec"]["jobTemplate"]["spec"] = json.loads(a_job("x", "10"))["spec"]
    done = people.owner.run("replace", "-f", "-", stdin=json.dumps(cronjob))
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
def test_nor_by_a_revision_in_the_place_of_a_stateful_sets_own(
    people: People, metadata: dict[str, Any]
) -> None:
    name = f"revised-{abs(hash(json.dumps(metadata)))}"
    made = people.owner.run("create", "-f", "-", stdin=json.dumps(a_stateful_set(name)))
    assert made.status == 0, made.output
    of_it = ("controllerrevisions", "-n", NAMESPACE, "-l", f"app={name}")
    (revision,) = wait_for("its revision", lambda: people.admin.get(*of_it)["items"])
    assert (
        people.owner.run("delete", "controllerrevision", revision["metadata"]["name"]).status == 0
    )
    template = revision["data"]["spec"]["template"]["metadata"]
    for part, entries in metadata.items():
        template[part] = {**template.get(part, {}), **entries}
    for key in ("resourceVersion", "uid"):
        del revision["metadata"][key]
    done = people.owner.run("create", "-f", "-", stdin=json.dumps(revision))
    assert refused(done, "data.spec.template.metadata: Forbidden: what protects pods is written"), (
        done.output
    )


def test_who_may_claims_it_in_a_stateful_set_whose_controller_writes_the_revision(
    people: People,
) -> None:
    done = people.claimer.run(
        "create", "-f", "-", stdin=json.dumps(a_stateful_set("claimed", **in_class("10")))
    )
    assert done.status == 0, done.output
    wait_for("its pod", lambda: people.admin.find("pod", "claimed-0", "-n", NAMESPACE))


def test_who_may_claims_it_and_a_controller_makes_the_pods(people: People) -> None:
    done = people.claimer.run("create", "-f", "-", stdin=a_job("claimed", "10"))
    assert done.status == 0, done.output
    selected = ("pods", "-n", NAMESPACE, "-l", "batch.kubernetes.io/job-name=claimed")
    wait_for("the Job's pod", lambda: people.admin.get(*selected)["items"])


@pytest.mark.parametrize("namespace", [SENSITIVE, GIVEN])
def test_where_the_admin_gives_class_10_to_all_nobody_needs_a_right(
    people: People, namespace: str
) -> None:
    tenant = ImpersonatedUser(people.admin, "tenant", namespace)
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
def test_a_class_never_rises(people: People, pod: str, to: str | None, way: str) -> None:
    done = patch(people.claimer, pod, in_class(to), way)
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
def test_a_class_may_fall(people: People, pod: str, to: str | None, way: str) -> None:
    done = patch(people.owner, pod, in_class(to), way)
    assert done.status == 0, done.output


def test_a_class_does_not_rise_by_way_of_an_ephemeral_container_or_a_resize(
    people: People, pod: str
) -> None:
    for way in ("ephemeralcontainers", "resize"):
        raised = json.loads(a_pod(pod, **in_class("9")))
        current = people.admin.get("pod", pod, "-n", NAMESPACE)
        current["metadata"]["labels"] = raised["metadata"]["labels"]
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/{way}"
        done = people.owner.run("replace", "--raw", path, "-f", "-", stdin=json.dumps(current))
        after = people.admin.get("pod", pod, "-n", NAMESPACE)["metadata"].get("labels", {})
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
    people: People, pod: str, to: str | None, way: str
) -> None:
    done = patch(people.owner, pod, preemptible(to), way)
    assert refused(done, TAKEN_BACK), done.output


@pytest.mark.parametrize(
    ("pod", "to"),
    [(preemptible("false"), "true"), (preemptible("false"), None), ({}, "true")],
    indirect=["pod"],
)
def test_a_pod_may_become_preemptible(people: People, pod: str, to: str | None) -> None:
    done = patch(people.owner, pod, preemptible(to))
    assert done.status == 0, done.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("pod", "to"),
    [({}, "gold"), (defended_as("gold"), "silver"), (defended_as("gold"), None)],
    indirect=["pod"],
)
def test_what_defends_a_pod_does_not_change(
    people: People, pod: str, to: str | None, way: str
) -> None:
    done = patch(people.owner, pod, defended_as(to), way)
    assert refused(done, CHANGED), done.output


@pytest.mark.parametrize("pod", [{**in_class("10"), **defended_as("gold")}], indirect=True)
def test_updates_that_leave_the_protection_alone_pass(people: People, pod: str) -> None:
    for metadata in ({"labels": {"team": "research"}}, {"annotations": {"team": "research"}}):
        done = patch(people.owner, pod, metadata)
        assert done.status == 0, done.output


@pytest.mark.parametrize(
    "metadata",
    [in_class("10"), in_class("2"), preemptible("false"), defended_as("gold")],
    ids=json.dumps,
)
def test_a_binding_changes_no_protection(
    people: People, pod: str, metadata: dict[str, Any]
) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, **metadata},
        "target": target,
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding"
    done = people.owner.run("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert refused(done, "a binding may not change what protects its pod"), done.output
