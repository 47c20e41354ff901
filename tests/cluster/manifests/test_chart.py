"""Helm installs, upgrades and removes the chart in a real cluster; an admin's policy stays.

The webhooks do not run: `write_as_webhooks` stands for what they write into their configurations.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distribution.templates import CHART
from realcluster.binaries import build
from realcluster.progress import Progress
from reprieve_testing import chart
from reprieve_testing.cluster.hack_cluster import OwnCluster, own_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONFIGURATION = ("validatingwebhookconfiguration", "reprieve-webhooks")
POLICY = ("configmap", "reprieve-policy", "-n", chart.NAMESPACE)
PATH = "/guard/secret"
UPGRADE = ("upgrade", "reprieve", str(CHART), "--force-conflicts")
"""Forced, because the webhooks write a path that the chart has too."""


class Helm:
    """Helm on a cluster of its own."""

    def __init__(self, program: Path, cluster: OwnCluster) -> None:
        self.program, self.cluster = program, cluster

    def run(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.program, *words, "--namespace", chart.NAMESPACE],
            capture_output=True,
            text=True,
            timeout=300,
            env=dict(self.cluster.kubectl.environment),
            check=False,
        )

    def policy(self) -> Any:
        found = self.cluster.kubectl.find(*POLICY)
        return found and found["data"]


@pytest.fixture(scope="module")
def helm() -> Iterator[Helm]:
    program = build.ensure(["helm"], Progress())["helm"]
    with own_cluster("test-chart", "--kwok-nodes", 1) as cluster:
        yield Helm(program, cluster)


def write_as_webhooks(helm: Helm) -> None:
    """Write a CA and the guard's path, as the webhooks do."""
    webhooks = helm.cluster.kubectl.get(*CONFIGURATION)["webhooks"]
    patch = []
    for index, webhook in enumerate(webhooks):
        at = f"/webhooks/{index}/clientConfig"
        patch.append({"op": "add", "path": f"{at}/caBundle", "value": "Q0E="})
        if webhook["clientConfig"]["service"]["path"].startswith("/guard"):
            patch.append({"op": "replace", "path": f"{at}/service/path", "value": PATH})
    words = ("--type=json", "--field-manager=reprieve-webhooks", "-p", str(patch).replace("'", '"'))
    helm.cluster.kubectl.read("patch", *CONFIGURATION, *words)


def test_the_chart_is_installed_upgraded_and_removed(helm: Helm) -> None:
    kubectl = helm.cluster.kubectl
    said = helm.run("install", "reprieve", str(CHART), "--create-namespace")
    assert "set image.repository" in said
    kubectl.read(
        "wait",
        "deployment",
        "-n",
        chart.NAMESPACE,
        "--all",
        "--for=condition=Available",
        "--timeout=120s",
    )

    # The admin's own policy, and what the webhooks write, before an upgrade with other values.
    kubectl.read("create", *POLICY, "--from-literal=ceiling=45m")
    write_as_webhooks(helm)
    unforced = helm.call("upgrade", "reprieve", str(CHART))
    assert "conflict occurred" in unforced.stderr
    assert "reprieve-webhooks" in unforced.stderr
    helm.run(*UPGRADE, "--set", "operator.replicas=3")
    assert helm.policy() == {"ceiling": "45m"}
    operator = kubectl.get("deployment", "reprieve-operator", "-n", chart.NAMESPACE)
    assert operator["spec"]["replicas"] == 3
    configurations = kubectl.get(*CONFIGURATION)["webhooks"]
    assert {webhook["clientConfig"]["caBundle"] for webhook in configurations} == {"Q0E="}

    # Helm takes the policy over, and leaves the keys of others.
    taken = ("--take-ownership", "--set-string", "policy.ceiling=1h,policy.maxVictims=5")
    helm.run(*UPGRADE, *taken)
    assert helm.policy() == {"ceiling": "1h", "maxVictims": "5"}
    change = ("configmap", "reprieve-policy", {"data": {"endWith": "evict"}})
    kubectl.client.patch(*change, namespace=chart.NAMESPACE)
    helm.run(*UPGRADE, "--set-string", "policy.ceiling=2h")
    assert helm.policy() == {"ceiling": "2h", "endWith": "evict"}

    helm.run("uninstall", "reprieve", "--wait")
    left = kubectl.read(
        *("get", "deployments,configmaps,secrets,clusterroles,validatingadmissionpolicies"),
        *("-A", "-l", "app.kubernetes.io/part-of=reprieve", "-o", "name"),
    )
    assert left == ""
