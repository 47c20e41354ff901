"""Every kind that makes pods, native groups and the policy itself, refused at `kubectl apply`.

The tests need a cluster of their own: the native types have to be switched on, and all of
Reprieve's webhooks are installed. JobSet is a stand-in here, a CustomResourceDefinition of that
name that takes any spec; no such controller runs.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster import install
from realcluster.client.kubectl import Done
from realcluster.client.objects import RefusedError
from realcluster.programs import WEBHOOKS
from reprieve_policy import keys
from reprieve_testing.cluster.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.cluster.impersonated_users import until_answered
from reprieve_testing.cluster.kubernetes_version import (
    NATIVE_GROUPS,
    needs_native_groups,
)

pytestmark = pytest.mark.cluster

CLASS = f"metadata.labels[{keys.PREEMPTION_CLASS}]"
DEFENCE = f"metadata.annotations[{keys.PREEMPTION_PRIORITY_CLASS}]"
BAD = 'Invalid value: "11": must be between 0 and 10, in plain digits'
DENIED = "denied the request"
CONTAINERS = [{"name": "main", "image": "none"}]


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    with own_cluster("test-kinds", "--kwok-nodes", 0, *NATIVE_GROUPS) as cluster:
        programs = cluster.install_webhooks()
        for name, value in (("low", 100), ("high", 9000)):
            cluster.kubectl.apply(a_priority_class(name, value))
        programs.start(WEBHOOKS)
        try:
            programs.wait_until_ready(WEBHOOKS)
            until_answered(
                DENIED, lambda: create(cluster, a_pod(labels={keys.PREEMPTION_CLASS: "x"}))
            )
            yield cluster
        finally:
            programs.stop(WEBHOOKS)


def create(ours: OwnCluster, document: Any, *words: str) -> Done:
    return ours.kubectl.run(
        "create", "-n", NAMESPACE, "-f", "-", *words, stdin=json.dumps(document)
    )


def patch(ours: OwnCluster, kind: str, name: str, change: Any, *words: str) -> Done:
    return ours.kubectl.run(
        "patch", "-n", NAMESPACE, kind, name, "--type=merge", "-p", json.dumps(change), *words
    )


def an_object(
    api_version: str, kind: str, name: str, *, annotations: Any = None, **fields: Any
) -> Any:
    metadata = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def a_template(preemption_class: str, **spec: Any) -> Any:
    labels = {keys.PREEMPTION_CLASS: preemption_class, "app": "x"}
    return {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS, **spec}}


def a_pod(name: str = "p", labels: Any = None, **spec: Any) -> Any:
    pod = an_object("v1", "Pod", name, spec={"containers": CONTAINERS, **spec})
    pod["metadata"]["labels"] = labels or {}
    return pod


def a_priority_class(name: str, value: int, **fields: Any) -> Any:
    return an_object("scheduling.k8s.io/v1", "PriorityClass", name, value=value, **fields)


def a_job(preemption_class: str) -> Any:
    return {"template": a_template(preemption_class, restartPolicy="Never")}


def a_definition(group: str, kind: str, version: str) -> Any:
    plural = kind.lower() + "s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": plural},
        "versions": versions,
    }
    return an_object(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{group}", spec=spec
    )


def define(ours: OwnCluster, group: str, kind: str, version: str) -> None:
    ours.kubectl.apply(a_definition(group, kind, version))
    crd = f"crd/{kind.lower()}s.{group}"
    ours.kubectl.read("wait", crd, "--for=condition=Established", "--timeout=60s")


def a_job_set(name: str, *classes: str) -> Any:
    jobs = [
        {"name": f"job-{index}", "template": {"spec": a_job(value)}}
        for index, value in enumerate(classes)
    ]
    return an_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec={"replicatedJobs": jobs})


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (
            an_object(
                "batch/v1",
                "CronJob",
                "c",
                spec={"schedule": "* * * * *", "jobTemplate": {"spec": a_job("11")}},
            ),
            "spec.jobTemplate.spec.template.",
        ),
        (
            an_object(
                "v1",
                "ReplicationController",
                "r",
                spec={"replicas": 0, "template": a_template("11")},
            ),
            "spec.template.",
        ),
        (an_object("batch/v1", "Job", "j", spec=a_job("11")), "spec.template."),
    ],
    ids=["CronJob", "ReplicationController", "Job"],
)
def test_a_refusal_of_a_template_names_the_whole_path(
    ours: OwnCluster, document: Any, path: str
) -> None:
    assert f"{path}{CLASS}: {BAD}" in create(ours, document).stderr


def test_a_refusal_of_a_listed_kind_names_the_path_of_its_template(ours: OwnCluster) -> None:
    define(ours, "jobset.x-k8s.io", "JobSet", "v1alpha2")
    refused = create(ours, a_job_set("bad", "3", "11"))
    assert f"spec.replicatedJobs[1].template.spec.template.{CLASS}: {BAD}" in refused.stderr
    assert create(ours, a_job_set("good", "3", "3")).status == 0
    worse = a_job_set("good", "3", "11")
    assert BAD in patch(ours, "jobset", "good", {"spec": worse["spec"]}).stderr
    assert patch(ours, "jobset", "good", {"metadata": {"labels": {"team": "research"}}}).status == 0
    assert ours.kubectl.run("delete", "-n", NAMESPACE, "jobset", "good").status == 0


def test_an_admin_adds_a_kind_by_a_setting_and_a_patch(ours: OwnCluster) -> None:
    define(ours, "example.com", "Sweep", "v1")
    sweep = an_object(
        "example.com/v1", "Sweep", "s", spec={"trials": [{"template": a_template("11")}]}
    )
    assert create(ours, sweep, "--dry-run=server").status == 0
    ours.set_policy(templateKinds="example.com/Sweep: spec.trials[*].template")
    rule = {
        "apiGroups": ["example.com"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["sweeps"],
    }
    (name,) = ("validatingwebhookconfiguration/reprieve-webhooks",)
    webhooks = ours.kubectl.get("validatingwebhookconfiguration", "reprieve-webhooks")["webhooks"]
    index = [found["name"] for found in webhooks].index("custom.reprieve.dev")
    added = [{"op": "add", "path": f"/webhooks/{index}/rules/-", "value": rule}]
    ours.kubectl.read("patch", name, "--type=json", "-p", json.dumps(added))
    until_answered(
        f"spec.trials[0].template.{CLASS}: {BAD}", lambda: create(ours, sweep, "--dry-run=server")
    )


def test_an_invalid_policy_is_refused_with_all_violations(ours: OwnCluster) -> None:
    ours.set_policy(ceiling="1h")
    bad = {"data": {"ceiling": "soon", "colour": "red"}}
    refused = ours.kubectl.run(
        *(
            "patch",
            "configmap",
            "reprieve-policy",
            "-n",
            OPERATOR_NAMESPACE,
            "--type=merge",
            "-p",
            json.dumps(bad),
        )
    )
    assert 'data[ceiling]: Invalid value: "soon": must be a duration' in refused.stderr
    assert 'data[colour]: Unsupported value: "colour"' in refused.stderr
    assert ours.kubectl.get("configmap", "reprieve-policy", "-n", OPERATOR_NAMESPACE)["data"] == {
        "ceiling": "1h"
    }


def test_a_policy_survives_that_the_manifests_are_applied_again(ours: OwnCluster) -> None:
    document = json.dumps(a_config_map(ceiling="45m"))
    for words in (("apply",), ("apply", "--server-side", "--force-conflicts")):
        ours.kubectl.run("delete", "configmap", "reprieve-policy", "-n", OPERATOR_NAMESPACE)
        ours.kubectl.read(*words, "-f", "-", stdin=document)
        # Another editor's key, beside those of the file.
        change = ("configmap", "reprieve-policy", {"data": {"maxVictims": "5"}})
        ours.kubectl.client.patch(*change, namespace=OPERATOR_NAMESPACE)
        port = ours.cluster.port("webhooks")
        rendered = install.render(ours.kubectl, install.LOCAL, port)
        ours.kubectl.read(*words, "-f", "-", stdin=rendered)
        found = ours.kubectl.get("configmap", "reprieve-policy", "-n", OPERATOR_NAMESPACE)
        assert found["data"] == {"ceiling": "45m", "maxVictims": "5"}


def test_what_is_created_together_with_its_namespace_is_held_to_its_policy(
    ours: OwnCluster,
) -> None:
    # Some of these Namespaces may be too new for the webhooks' watch.
    client, policy = ours.kubectl.client, {keys.ALLOWED_PREEMPTION_CLASSES: "0-1"}
    job = an_object("batch/v1", "Job", "together", spec=a_job("5"))
    for number in range(20):
        name = f"new-{number}"
        client.create(an_object("v1", "Namespace", name, annotations=policy))
        with pytest.raises(RefusedError, match=re.escape("0-1")):
            client.create(job, namespace=name)
        client.delete("namespace", name)


def a_config_map(**data: str) -> Any:
    metadata = {"name": "reprieve-policy", "namespace": OPERATOR_NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_no_other_configmap_and_no_deletion_is_reviewed(ours: OwnCluster) -> None:
    ours.set_policy()
    for namespace, name in ((OPERATOR_NAMESPACE, "other"), (NAMESPACE, "reprieve-policy")):
        made = ours.kubectl.run(
            "create", "configmap", name, "-n", namespace, "--from-literal=ceiling=soon"
        )
        assert made.status == 0, made.output
        assert ours.kubectl.run("delete", "configmap", name, "-n", namespace).status == 0
    assert (
        ours.kubectl.run("delete", "configmap", "reprieve-policy", "-n", OPERATOR_NAMESPACE).status
        == 0
    )


def a_group(name: str, priority_class: str, defence: str) -> Any:
    spec = {"schedulingPolicy": {"basic": {}}, "priorityClassName": priority_class}
    annotations = {keys.PREEMPTION_PRIORITY_CLASS: defence}
    return an_object(
        "scheduling.k8s.io/v1beta1", "PodGroup", name, annotations=annotations, spec=spec
    )


def a_workload(name: str, defence: str, *priority_classes: str) -> Any:
    templates = [
        {"name": f"t{index}", "schedulingPolicy": {"basic": {}}, "priorityClassName": found}
        for index, found in enumerate(priority_classes)
    ]
    annotations = {keys.PREEMPTION_PRIORITY_CLASS: defence}
    spec = {"podGroupTemplates": templates}
    return an_object(
        "scheduling.k8s.io/v1beta1", "Workload", name, annotations=annotations, spec=spec
    )


@needs_native_groups
def test_a_native_groups_preemption_priority_may_not_be_below_its_priority(
    ours: OwnCluster,
) -> None:
    refused = create(ours, a_group("g", "high", "low"))
    assert (
        f'{DEFENCE}: Invalid value: "low": its value 100 is below the priority 9000'
        in refused.stderr
    )
    assert f'{DEFENCE}: Not found: "gold"' in create(ours, a_group("g", "low", "gold")).stderr
    assert (
        f"{DEFENCE}: Forbidden: its value 9000 is above 100"
        in create(ours, a_group("g", "low", "high")).stderr
    )
    made = create(ours, a_group("g", "low", "low"))
    assert made.status == 0, made.output
    changed = patch(
        ours, "podgroup", "g", {"metadata": {"annotations": {keys.PREEMPTION_PRIORITY_CLASS: None}}}
    )
    assert f"{DEFENCE}: Forbidden: may not be changed after creation" in changed.stderr


@needs_native_groups
def test_a_native_workloads_preemption_priority_may_not_be_below_its_groups_priority(
    ours: OwnCluster,
) -> None:
    refused = create(ours, a_workload("w", "low", "high", "high"))
    below = (
        f'{DEFENCE}: Invalid value: "low": '
        "its value 100 is below the priority 9000: must be 9000 or higher"
    )
    assert refused.stderr.count(below) == 1, refused.output
    warned = create(ours, a_workload("w", "gold", "low"))
    assert warned.status == 0, warned.output
    assert f"Warning: {DEFENCE}: no such PriorityClass yet" in warned.stderr


def test_a_new_global_default_priority_class_applies_to_pods_at_once(ours: OwnCluster) -> None:
    defended = {keys.PREEMPTION_PRIORITY_CLASS: "low"}
    pod = a_pod("defaulted")
    pod["metadata"]["annotations"] = defended
    assert (
        f"{DEFENCE}: Forbidden: its value 100 is above 0"
        in create(ours, pod, "--dry-run=server").stderr
    )
    ours.kubectl.apply(a_priority_class("by-default", 500, globalDefault=True))
    # The API server's own cache has to learn of the class; the webhook looks up the pod's resolved
    # priority.
    below = (
        f'{DEFENCE}: Invalid value: "low": '
        "its value 100 is below the priority 500: must be 500 or higher"
    )
    wait_for(
        "the default is resolved", lambda: below in create(ours, pod, "--dry-run=server").stderr
    )
    ours.kubectl.read("delete", "priorityclass", "by-default")


def test_a_non_preemptible_pod_on_borrowed_nodes_gets_a_warning_or_a_refusal(
    ours: OwnCluster,
) -> None:
    pod = a_pod(
        "borrower", {keys.PREEMPTIBLE: "false"}, nodeSelector={keys.HOME_NAMESPACE: "lender"}
    )
    path = f"spec.nodeSelector[{keys.HOME_NAMESPACE}]"
    warned = create(ours, pod, "--dry-run=server")
    assert warned.status == 0, warned.output
    assert f"Warning: {path}: non-preemptible on borrowed nodes" in warned.stderr
    ours.set_policy(nonPreemptibleOnBorrowedNodes="refuse")
    until_answered(
        f"{path}: Forbidden: a non-preemptible workload",
        lambda: create(ours, pod, "--dry-run=server"),
    )
    ours.set_policy()
