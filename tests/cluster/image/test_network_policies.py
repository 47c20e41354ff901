"""NetworkPolicies, enforced: those of the base, and the one that `docs/contract.md` shows.

Before they are: the last steps of `docs/install.md`, as an admin types them.

The programs are the Deployments of the base, on one real node. The API server calls from the node's
own address, as it does where it runs on a node; such calls reach all pods of that node.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mainjob.installation import PROBE
from realcluster.install import BASE
from reprieve_testing import manifests
from reprieve_testing.cluster import network_policies
from reprieve_testing.cluster.hack_cluster import OwnCluster, succeed
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.cluster.pod_programs import POLITE, a_pod
from reprieve_testing.page_blocks import blocks

pytestmark = [pytest.mark.cluster, pytest.mark.real_node, pytest.mark.slow]

SECONDS = 180.0  # 20 are usual
NEIGHBOUR, MONITORING, TEAM = "neighbour", "monitoring", "team"
EXAMPLE = "needs a cluster with Reprieve, a default StorageClass and public images"
JOB = ("-l", "batch.kubernetes.io/job-name=training")
# Prints those of its arguments, each ADDRESS:PORT, to which it could connect.
CONNECT = """
import socket, sys
for target in sys.argv[1:]:
    address, _, port = target.rpartition(":")
    try:
        socket.create_connection((address, int(port)), 5).close()
    except OSError:
        continue
    print(target)
"""


@pytest.fixture(scope="module")
def ours(archive: Path) -> Iterator[OwnCluster]:
    """Reprieve's base on a cluster with a pod each in two other namespaces."""
    if reason := network_policies.obstacle():
        pytest.skip(f"no NetworkPolicy can be enforced here: {reason}")
    with network_policies.cluster_of_one_node("test-policies") as cluster:
        succeed(cluster.hack("load-image", archive))
        cluster.kubectl.read("apply", "-k", BASE)
        for name, labels in ((NEIGHBOUR, {}), (MONITORING, {"metrics": "enabled"}), (TEAM, {})):
            cluster.kubectl.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": labels},
                }
            )
        for name in (NEIGHBOUR, MONITORING):
            client = a_pod("client", "python3", "-c", POLITE, metadata={"namespace": name})
            cluster.kubectl.apply(client)
            wait_until(cluster, "Ready", "pod/client", "-n", name)
        cluster.kubectl.read("apply", "-k", manifests.EXAMPLES, "-n", TEAM)
        wait_until(cluster, "Ready", "pod", *JOB, "-n", TEAM)
        wait_until(cluster, "Available", "deployment", "--all", "-n", OPERATOR_NAMESPACE)
        yield cluster


def test_the_victim_of_the_install_page_saves_and_its_replacement_resumes(
    ours: OwnCluster,
) -> None:
    page = (manifests.ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    found = re.search(rf'^ *```sh title="{EXAMPLE}"\n(.*?)^ *```$', page, re.MULTILINE | re.DOTALL)
    assert found, EXAMPLE
    printed = {}
    for line in map(str.strip, found[1].splitlines()):
        program, *words = shlex.split(line)
        assert program == "kubectl"
        done = replace(ours.kubectl, folder=manifests.ROOT).run(*words, seconds=2 * SECONDS)
        assert done.status == 0, f"{line}\n{done.output}"
        printed[words[0]] = done.stdout
    assert printed["logs"].startswith("resuming from step ")


@pytest.fixture(scope="module")
def enforced(ours: OwnCluster) -> Iterator[OwnCluster]:
    """The same, with its NetworkPolicies enforced; before, a neighbour reaches every port."""
    assert reached(ours, NEIGHBOUR) == {
        "webhooks https": 2,
        "webhooks metrics": 2,
        "operator http": 2,
        "operator metrics": 2,
        "training checkpoint": 1,
    }
    ours.kubectl.read("apply", "-n", TEAM, "-f", "-", stdin=policy_of_the_page())
    with network_policies.enforced(ours):
        wait_for("the rules of the firewall", lambda: len(reached(ours, NEIGHBOUR)) == 1, SECONDS)
        yield ours


def test_a_neighbour_reaches_only_the_port_of_the_webhooks(enforced: OwnCluster) -> None:
    assert reached(enforced, NEIGHBOUR) == {"webhooks https": 2}


def test_a_labelled_namespace_also_reaches_the_metrics_of_both_programs(
    enforced: OwnCluster,
) -> None:
    assert reached(enforced, MONITORING) == {
        "webhooks https": 2,
        "webhooks metrics": 2,
        "operator metrics": 2,
    }


def test_the_api_server_and_the_kubelet_on_the_node_reach_both_programs(
    enforced: OwnCluster,
) -> None:
    words = ("create", "-n", "default", "--dry-run=server", "-f", "-")
    refused = enforced.kubectl.run(*words, stdin=json.dumps(PROBE))
    assert "denied the request" in refused.stderr
    for target in ports(enforced):
        address, _, port = target.rpartition(":")
        socket.create_connection((address, int(port)), SECONDS).close()
    status = enforced.reprieve("status", seconds=SECONDS)
    assert status.returncode == 0, status.stdout + status.stderr
    for pod in program_pods(enforced):
        (container,) = pod["status"]["containerStatuses"]
        assert container["ready"], pod
        assert not container["restartCount"], pod


def test_the_operator_reaches_a_workload_that_admits_nobody_else(enforced: OwnCluster) -> None:
    kubectl = enforced.kubectl
    (pod,) = kubectl.get("pods", *JOB, "-n", TEAM)["items"]
    name = pod["metadata"]["name"]
    enforced.mark(TEAM, name)
    wait_for(
        "the Event of the saved checkpoint",
        lambda: "CheckpointSaved" in enforced.event_reasons(TEAM, name),
        SECONDS,
    )


def policy_of_the_page() -> str:
    (found,) = (text for text in blocks("docs/contract.md", "yaml") if "NetworkPolicy" in text)
    return found


def reached(ours: OwnCluster, namespace: str) -> Counter[str]:
    """Return the ports that a pod of `namespace` can connect to, and of how many pods each."""
    names = ports(ours)
    words = ("exec", "client", "-n", namespace, "--", "python3", "-c", CONNECT)
    return Counter(names[target] for target in ours.kubectl.read(*words, *names).split())


def ports(ours: OwnCluster) -> dict[str, str]:
    """Return the ports of the programs and of the workload: ADDRESS:PORT -> container and port."""
    pods = [*program_pods(ours), *ours.kubectl.get("pods", *JOB, "-n", TEAM)["items"]]
    return {
        f"{pod['status']['podIP']}:{port['containerPort']}": f"{container['name']} {port['name']}"
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container["ports"]
    }


def program_pods(ours: OwnCluster) -> list[Any]:
    return list(ours.kubectl.get("pods", "-n", OPERATOR_NAMESPACE)["items"])


def wait_until(ours: OwnCluster, condition: str, *words: str) -> None:
    options = (f"--for=condition={condition}", f"--timeout={SECONDS:g}s")
    done = ours.kubectl.run("wait", *words, *options, seconds=SECONDS)
    assert done.status == 0, done.output
