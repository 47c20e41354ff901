"""`reprieve simulate` on a real API server, live and from kubectl's dumps; `explain` agrees."""

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.cluster.impersonated_users import cluster_binding

pytestmark = pytest.mark.cluster

USER_ROLES = Path(__file__).parents[3] / "manifests" / "base" / "users-rbac.yaml"
NODE = "kwok-0"
CLASS = "reprieve.dev/preemption-class"
DUMPED = "nodes,pods,poddisruptionbudgets,jobs,namespaces,priorityclasses,configmaps"
CYAN = "\x1b[36m"


@pytest.fixture
def team(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy()
    with cluster.namespace("simulate") as name:
        yield name


def preemptor(
    folder: Path, namespace: str, priority: int, preemption_class: int, cpu: str = "1"
) -> Path:
    containers = [
        {"name": "main", "image": "none", "resources": {"requests": {"example.com/slot": cpu}}}
    ]
    metadata = {"name": "urgent", "namespace": namespace, "labels": {CLASS: str(preemption_class)}}
    spec = {"priority": priority, "containers": containers}
    path = folder / f"{priority}-{preemption_class}.json"
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    return path


def simulated(
    cluster: ClusterHandle, path: Path, *words: str, kubeconfig: Path | None = None
) -> Any:
    done = cluster.reprieve(
        "simulate", "--preemptor", str(path), "-o", "json", *words, kubeconfig=kubeconfig
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def holders(cluster: ClusterHandle) -> Iterator[str]:
    on_node = cluster.kubectl.read(
        "get", "pods", "-A", "--field-selector", f"spec.nodeName={NODE}", "-o", "json"
    )
    for pod in json.loads(on_node)["items"]:
        if any(
            "example.com/slot" in each["resources"].get("requests", {})
            for each in pod["spec"]["containers"]
        ):
            yield pod["metadata"]["name"]


@pytest.fixture
def slots(cluster: ClusterHandle) -> Iterator[None]:
    """A resource that only this file's pods request: two units on one node, which are free."""
    wait_for("the slots to be free", lambda: not list(holders(cluster)))
    patch = [
        {"op": "add", "path": f"/status/{amounts}/example.com~1slot", "value": "2"}
        for amounts in ("capacity", "allocatable")
    ]
    words = ("patch", "node", NODE, "--subresource=status", "--type=json", "-p")
    cluster.kubectl.read(*words, json.dumps(patch))
    yield
    removal = [{"op": "remove", "path": change["path"]} for change in patch]
    cluster.kubectl.read(*words, json.dumps(removal))


def create_scheduled_pod(
    cluster: ClusterHandle, namespace: str, name: str, preemption_class: int, **metadata: Any
) -> Any:
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"example.com/slot": "1"}, "limits": {"example.com/slot": "1"}},
    }
    labels = {CLASS: str(preemption_class), **metadata.pop("labels", {})}
    return cluster.create_pod(
        namespace,
        name,
        spec={"nodeName": NODE, "containers": [container]},
        labels=labels,
        **metadata,
    )


@pytest.mark.usefixtures("slots")
def test_a_live_run_a_dump_and_explain_agree(
    cluster: ClusterHandle, team: str, tmp_path: Path
) -> None:
    create_scheduled_pod(cluster, team, "low", 2)
    create_scheduled_pod(
        cluster, team, "kept", 6, labels={"quota.scheduling.koordinator.sh/preemptible": "false"}
    )
    urgent = preemptor(tmp_path, team, 1000, 5)
    live = simulated(cluster, urgent)
    (choice,) = live["candidates"]
    assert (choice["node"], [victim["name"] for victim in choice["victims"]]) == (NODE, ["low"])
    (kept,) = [refused for refused in live["refused"] if refused["namespace"] == team]
    assert (kept["name"], kept["reason"]) == ("kept", "non-preemptible")

    for form in ("json", "yaml"):
        dump = tmp_path / f"cluster.{form}"
        dump.write_text(cluster.kubectl.read("get", DUMPED, "-A", "-o", form))
        found = simulated(cluster, urgent, "--from", str(dump), "--at", live["at"])
        assert found["candidates"] == live["candidates"]
        assert kept in found["refused"]

    explanation = json.loads(cluster.reprieve("explain", "low", "-n", team, "-o", "json").stdout)
    assert "protected" not in explanation
    for preemption_class in (1, 2, 3, 4, 9):
        path = preemptor(tmp_path, team, 1000, preemption_class)
        victims = [
            victim["name"]
            for each in simulated(cluster, path)["candidates"]
            for victim in each["victims"]
        ]
        assert (victims == ["low"]) == (preemption_class in explanation["preemptorClasses"]), (
            preemption_class
        )
    assert (
        simulated(cluster, preemptor(tmp_path, team, explanation["preemptionPriority"], 9))[
            "candidates"
        ]
        == []
    )
    explanation = json.loads(cluster.reprieve("explain", "kept", "-n", team, "-o", "json").stdout)
    assert (explanation["protected"]["reason"], explanation["preemptorClasses"]) == (
        "non-preemptible",
        [],
    )


@pytest.mark.usefixtures("slots")
def test_a_gang_is_simulated_with_all_its_pods(
    cluster: ClusterHandle, team: str, tmp_path: Path
) -> None:
    create_scheduled_pod(cluster, team, "low", 2)
    containers = [
        {"name": "main", "image": "none", "resources": {"requests": {"example.com/slot": "2"}}}
    ]
    template = {
        "metadata": {"labels": {CLASS: "5"}, "annotations": {keys.DISRUPTION_MODE: "gang"}},
        "spec": {"priority": 1000, "restartPolicy": "Never", "containers": containers},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "big", "namespace": team}}
    path = tmp_path / "job.json"
    for parallelism, is_found in ((1, True), (2, False)):
        path.write_text(
            json.dumps({**job, "spec": {"parallelism": parallelism, "template": template}})
        )
        found = simulated(cluster, path)
        assert found["preemptor"]["restOfGang"] == parallelism - 1
        assert bool(found["candidates"]) == is_found, (parallelism, found)


def test_the_documented_rights_suffice_and_missing_ones_are_reported(
    cluster: ClusterHandle, team: str, tmp_path: Path
) -> None:
    kubeconfig = cluster.account_kubeconfig("default", team)
    path = preemptor(tmp_path, team, 1000, 5)
    refused = cluster.reprieve("simulate", "--preemptor", str(path), kubeconfig=kubeconfig)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "unreadable: /api/v1/nodes: not allowed to read it: " in refused.stderr
    assert refused.stderr.splitlines()[-1] == (
        "reprieve: no nodes: the cluster or the dump has none, or they could not be read"
    )
    cluster.kubectl.read("apply", "-f", USER_ROLES)
    binding = cluster_binding(f"simulate-{team}", "reprieve:audit")
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "default", "namespace": team}]
    cluster.kubectl.apply(binding)
    try:
        assert simulated(cluster, path, kubeconfig=kubeconfig)["nodes"].keys() >= {NODE}
    finally:
        cluster.kubectl.read("delete", "clusterrolebinding", binding["metadata"]["name"])


@pytest.mark.usefixtures("slots")
def test_colours_appear_on_a_terminal_only(
    cluster: ClusterHandle, team: str, tmp_path: Path
) -> None:
    create_scheduled_pod(
        cluster, team, "kept", 6, labels={"quota.scheduling.koordinator.sh/preemptible": "false"}
    )
    words = ("simulate", "--preemptor", str(preemptor(tmp_path, team, 1000, 5)))
    assert "\x1b" not in cluster.reprieve(*words).stdout
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(
        cluster.reprieve_command(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    )
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 30
    while f"{CYAN}non-preemptible".encode() not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([ours], [], [], 0.2)[0]:
            shown += os.read(ours, 65536)
    process.wait(30)
    os.close(ours)
