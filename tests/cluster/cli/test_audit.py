"""`reprieve audit` on a real API server: objects of every kind, pages, rights, absent kinds."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.cluster.impersonated_users import RBAC, cluster_binding

pytestmark = pytest.mark.cluster

CLASS = "reprieve.dev/preemption-class"
LABEL = f"metadata.labels[{CLASS}]"
USER_ROLES = Path(__file__).parents[3] / "manifests" / "base" / "users-rbac.yaml"


def audit(kubeconfig: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [
        Path(sys.executable).with_name("reprieve"),
        "audit",
        "--kubeconfig",
        kubeconfig,
        *words,
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def findings(kubeconfig: Path, *words: object) -> list[Any]:
    found = audit(kubeconfig, "-o", "json", *words)
    return list(json.loads(found.stdout)["findings"])


def named(found: list[Any]) -> set[tuple[str, str, str]]:
    return {(each["object"]["kind"], each["object"]["name"], each["rule"]) for each in found}


def template(**labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def workload(kind: str, group: str, name: str, **labels: str) -> dict[str, Any]:
    labels = {"app": name, **labels}
    selector = {"matchLabels": {"app": name}}
    spec: dict[str, Any] = {"replicas": 0, "selector": selector, "template": template(**labels)}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def job(name: str, **labels: str) -> dict[str, Any]:
    spec = {"suspend": True, "template": template(**labels)}
    spec["template"]["spec"]["restartPolicy"] = "Never"  # type: ignore[index]  # a dict of dicts
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def cron_job(name: str, **labels: str) -> dict[str, Any]:
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(name, **labels)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def team(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("audit") as namespace:
        yield namespace


@pytest.fixture
def broken(cluster: ClusterHandle, team: str) -> str:
    """A namespace with one object of each of five kinds that a rule would refuse, and one accepted
    one.
    """
    bad = {CLASS: "11"}
    objects = (
        workload("Deployment", "apps", "deployment", **bad),
        workload("StatefulSet", "apps", "stateful", **bad),
        job("job", **bad),
        cron_job("cron", **bad),
        job("good", **{CLASS: "4"}),
    )
    for document in objects:
        cluster.kubectl.read("apply", "-n", team, "-f", "-", stdin=json.dumps(document))
    cluster.create_pod(team, "pod", labels=bad)
    return team


def test_every_violation_of_every_kind_is_listed_and_nothing_else(
    cluster: ClusterHandle, broken: str
) -> None:
    found = findings(cluster.cluster.kubeconfig, "-n", broken)
    kinds = (
        ("Pod", "pod"),
        ("Deployment", "deployment"),
        ("StatefulSet", "stateful"),
        ("Job", "job"),
        ("CronJob", "cron"),
    )
    assert named(found) == {(kind, name, "preemption-class") for kind, name in kinds}
    assert {each["enforcement"] for each in found} == {"enforce"}
    paths = {each["object"]["kind"]: each["path"] for each in found}
    assert paths["Pod"] == LABEL
    assert paths["CronJob"] == f"spec.jobTemplate.spec.template.{LABEL}"


def test_only_replicasets_of_deployments_are_left_out_for_their_owners(
    cluster: ClusterHandle, team: str
) -> None:
    bad = {CLASS: "11"}
    of_rollout = workload("ReplicaSet", "apps", "of-rollout", **bad)
    owner = {
        "apiVersion": "rollouts.example.com/v1",
        "kind": "Rollout",
        "name": "r",
        "uid": "r",
        "controller": True,
    }
    of_rollout["metadata"]["ownerReferences"] = [owner]
    for document in (of_rollout, workload("Deployment", "apps", "web", **bad)):
        cluster.kubectl.read("create", "-n", team, "-f", "-", stdin=json.dumps(document))
    replica_sets = ("replicasets", "-n", team)
    wait_for(
        "the Deployment's ReplicaSet", lambda: len(cluster.kubectl.get(*replica_sets)["items"]) == 2
    )
    found = findings(cluster.cluster.kubeconfig, "-n", team)
    rows = {
        ("ReplicaSet", "of-rollout", "preemption-class"),
        ("Deployment", "web", "preemption-class"),
    }
    assert named(found) == rows


def test_the_exit_status_is_1_with_violations_and_0_without(
    cluster: ClusterHandle, broken: str
) -> None:
    assert audit(cluster.cluster.kubeconfig, "-n", broken).returncode == 1
    with cluster.namespace("clean") as clean:
        done = audit(cluster.cluster.kubeconfig, "-n", clean)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 objects checked: 0 violations, 0 warnings\n"


def test_cluster_scoped_objects_are_checked_with_all_namespaces(
    cluster: ClusterHandle, broken: str
) -> None:
    slip = {"preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "1h"}
    metadata = {"name": f"slip-{broken}", "annotations": slip}
    cluster.kubectl.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": metadata,
            "value": 5,
        }
    )
    try:
        found = named(findings(cluster.cluster.kubeconfig))
    finally:
        cluster.kubectl.read("delete", "priorityclass", metadata["name"])
    assert ("PriorityClass", metadata["name"], "preemption-toleration") in found
    assert ("Pod", "pod", "preemption-class") in found


@pytest.mark.parametrize("enforcement", ["warn", "off"])
def test_a_namespace_without_enforcement_is_shown_as_such(
    cluster: ClusterHandle, team: str, enforcement: str
) -> None:
    cluster.kubectl.read("label", "namespace", team, f"reprieve.dev/enforcement={enforcement}")
    cluster.create_pod(team, "pod", labels={CLASS: "11"})
    (found,) = findings(cluster.cluster.kubeconfig, "-n", team)
    assert found["enforcement"] == enforcement
    assert found["level"] == "violation"


def test_values_that_the_namespace_allows_are_no_violations(
    cluster: ClusterHandle, team: str
) -> None:
    cluster.create_pod(
        team,
        "pod",
        labels={CLASS: "8"},
        annotations={"reprieve.dev/checkpoint-hint": "annotation:"},
    )
    assert len(findings(cluster.cluster.kubeconfig, "-n", team)) == 1
    cluster.kubectl.read(
        "annotate", "namespace", team, "reprieve.dev/allowed-preemption-classes=0-9"
    )
    assert findings(cluster.cluster.kubeconfig, "-n", team) == []


def test_warnings_are_listed_and_count_if_requested(cluster: ClusterHandle, team: str) -> None:
    annotations = {"reprieve.dev/checkpoint": "none", "reprieve.dev/checkpoint-hint": "annotation:"}
    cluster.create_pod(team, "pod", annotations=annotations)
    assert audit(cluster.cluster.kubeconfig, "-n", team).returncode == 0
    strict = audit(cluster.cluster.kubeconfig, "-n", team, "--strict")
    assert strict.returncode == 1
    assert (
        "warning: metadata.annotations[reprieve.dev/checkpoint-hint]: has no effect"
        in strict.stdout
    )


def test_objects_on_all_pages_of_a_list_are_checked(cluster: ClusterHandle, team: str) -> None:
    jobs = [job(f"job-{number}", **{CLASS: "11"}) for number in range(260)]
    listed = {"apiVersion": "v1", "kind": "List", "items": jobs}
    cluster.kubectl.read("create", "-n", team, "-f", "-", stdin=json.dumps(listed))
    assert len(findings(cluster.cluster.kubeconfig, "-n", team)) == 260


def test_gauges_have_counts_and_no_names_of_objects(cluster: ClusterHandle, broken: str) -> None:
    done = audit(cluster.cluster.kubeconfig, "-n", broken, "-o", "prometheus")
    samples = dict(
        line.rsplit(" ", 1) for line in done.stdout.splitlines() if not line.startswith("#")
    )
    assert (
        samples[
            'reprieve_audit_violations{rule="preemption-class",kind="Job",enforcement="enforce"}'
        ]
        == "1"
    )
    assert (
        samples['reprieve_audit_violations{rule="checkpoint",kind="Job",enforcement="enforce"}']
        == "0"
    )
    assert samples['reprieve_audit_objects{kind="Job"}'] == "2"
    assert samples["reprieve_audit_unreadable"] == "0"
    assert broken not in done.stdout
    assert (
        f'namespace="{broken}"'
        in audit(
            cluster.cluster.kubeconfig, "-n", broken, "-o", "prometheus", "--by-namespace"
        ).stdout
    )


def test_the_documented_rights_suffice_and_missing_ones_are_reported(
    cluster: ClusterHandle, broken: str
) -> None:
    account = "auditor"
    cluster.kubectl.read("create", "serviceaccount", account, "-n", broken)
    kubeconfig = cluster.account_kubeconfig(account, broken)
    refused = audit(kubeconfig, "-n", broken)
    assert refused.returncode == 2
    assert f"/api/v1/namespaces/{broken}: not allowed to read it: " in refused.stderr
    assert (
        f"/apis/apps/v1/namespaces/{broken}/deployments: not allowed to read it: " in refused.stderr
    )
    assert "Traceback" not in refused.stderr
    cluster.kubectl.read("apply", "-f", USER_ROLES)
    binding = cluster_binding(f"audit-{broken}", "reprieve:audit")
    binding["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": broken}]
    assert binding["roleRef"]["apiGroup"] == RBAC
    cluster.kubectl.apply(binding)
    done = audit(kubeconfig)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_unreachable_cluster_prints_one_sentence_and_exits_with_2(
    cluster: ClusterHandle, tmp_path: Path
) -> None:
    config = json.loads(cluster.cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    away = tmp_path / "away"
    away.write_text(json.dumps(config))
    for words in ((away,), (tmp_path / "none",), (cluster.cluster.kubeconfig, "--context", "none")):
        done = audit(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "Traceback" not in done.stderr, words
    assert audit(away).stderr.startswith("reprieve: no answer from the API server: ")


def test_a_missing_namespace_prints_one_sentence_and_exits_with_2(cluster: ClusterHandle) -> None:
    done = audit(cluster.cluster.kubeconfig, "-n", "none")
    assert done.returncode == 2
    assert done.stderr.startswith("unreadable: /api/v1/namespaces/")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout.startswith("0 objects checked")


CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io"},
    "spec": {
        "group": "jobset.x-k8s.io",
        "names": {"kind": "JobSet", "plural": "jobsets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def test_kinds_of_other_projects_are_checked_if_they_are_served(
    cluster: ClusterHandle, team: str
) -> None:
    name = str(CRD["metadata"]["name"])  # type: ignore[index]  # a dict of dicts
    is_new = cluster.kubectl.find("crd", name) is None
    cluster.kubectl.apply(CRD)
    try:
        cluster.kubectl.read("wait", "crd", name, "--for=condition=Established")
        spec = {
            "replicatedJobs": [
                {"name": "a", "template": {"spec": {"template": template(**{CLASS: "11"})}}}
            ]
        }
        document = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "set"},
            "spec": spec,
        }
        wait_for(
            "a JobSet",
            lambda: (
                not cluster.kubectl.run(
                    "apply", "-n", team, "-f", "-", stdin=json.dumps(document)
                ).status
            ),
        )
        (found,) = findings(cluster.cluster.kubeconfig, "-n", team)
    finally:
        if is_new:
            cluster.kubectl.read("delete", "crd", name)
    assert (found["object"]["kind"], found["path"]) == (
        "JobSet",
        f"spec.replicatedJobs[0].template.spec.template.{LABEL}",
    )


def test_a_context_of_the_kubeconfig_can_be_chosen(
    cluster: ClusterHandle, team: str, tmp_path: Path
) -> None:
    config = json.loads(cluster.cluster.kubeconfig.read_text())
    config["contexts"].append({**config["contexts"][0], "name": "other"})
    config["current-context"] = "nowhere"
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    assert audit(path, "-n", team, "--context", "other").returncode == 0
