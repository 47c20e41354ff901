"""`hack/cluster`: repeatable, several side by side, repaired by `up`; `down` ends only its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from realcluster import lifecycle
from realcluster.client.kubectl import Kubectl
from reprieve_testing.cluster.hack_cluster import (
    NAMESPACE,
    SECONDS,
    OwnCluster,
    hack_cluster,
    own_cluster,
    succeed,
)
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.kubernetes_version import (
    NATIVE_GROUPS_SINCE,
    is_since,
    needs_native_groups,
)
from reprieve_testing.cluster.pod_programs import HOLD, a_pod, release

pytestmark = pytest.mark.cluster

NATIVE_TYPES = ("--feature-gates", "GenericWorkload=true", "--runtime-config", "api/all=true")
SCHEDULER_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: other
"""
KWOK = {"nodeSelector": {"type": "kwok"}}


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    with own_cluster("test-hack", "--kwok-nodes", 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def neighbour(ours: OwnCluster) -> Iterator[OwnCluster]:
    """Another cluster beside the one under test."""
    assert ours.processes()
    native_types = NATIVE_TYPES if is_since(NATIVE_GROUPS_SINCE) else ()
    with own_cluster("test-hack-native", "--kwok-nodes", 0, *native_types) as cluster:
        yield cluster


def test_a_second_up_says_already_up_and_restarts_nothing(ours: OwnCluster) -> None:
    before = ours.processes()
    done = succeed(ours.hack("up"))
    assert "cluster test-hack is already up\n" in done.stderr
    assert ours.processes() == before


def test_up_with_other_arguments_is_refused_in_one_sentence_and_changes_nothing(
    ours: OwnCluster,
) -> None:
    before = ours.processes()
    done = ours.hack("up", "--kwok-nodes", 5)
    assert done.status == 1
    assert done.stdout == ""
    assert done.stderr == (
        "hack/cluster: cluster test-hack exists with --kwok-nodes 2, not 5: "
        "`hack/cluster down --name test-hack` first, or choose another --name\n"
    )
    assert ours.processes() == before
    assert "2 of 2 nodes ready" in succeed(ours.hack("status")).stdout


def test_kubectl_works_with_the_printed_kubeconfig_alone(ours: OwnCluster) -> None:
    path = Path(succeed(ours.hack("kubeconfig")).stdout.removesuffix("\n"))
    kubectl = Path(succeed(hack_cluster("bin")).stdout.removesuffix("\n"), "kubectl")
    names = {node["metadata"]["name"] for node in Kubectl(kubectl, path).get("nodes")["items"]}
    assert names == {"kwok-0", "kwok-1"}


@pytest.mark.parametrize(
    "component",
    [
        "etcd",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in lifecycle.COMPONENTS
            if name != "etcd"
        ),
    ],
)
def test_up_repairs_a_cluster_of_which_a_component_was_killed(
    ours: OwnCluster, component: str
) -> None:
    before = ours.processes()
    os.kill(before[component].pid, signal.SIGKILL)
    wait_for(f"the end of {component}", lambda: not before[component].is_alive(), SECONDS)
    status = ours.hack("status")
    assert status.status == 1
    assert f"{component} not running" in " ".join(status.stdout.split())
    succeed(ours.hack("up"))
    after = ours.processes()
    assert after[component] != before[component]
    assert after | {component: before[component]} == before, "what was alive is left alone"
    assert "2 of 2 nodes ready" in succeed(ours.hack("status")).stdout


def test_two_clusters_side_by_side_share_nothing(ours: OwnCluster, neighbour: OwnCluster) -> None:
    ours.kubectl.read("create", "namespace", "only-in-ours")
    assert neighbour.kubectl.find("namespace", "only-in-ours") is None
    assert neighbour.kubectl.get("nodes")["items"] == []
    assert not set(ours.processes().values()) & set(neighbour.processes().values())


@needs_native_groups
def test_feature_gates_and_runtime_configuration_serve_the_native_types(
    ours: OwnCluster, neighbour: OwnCluster
) -> None:
    listing = ("api-resources", "--api-group=scheduling.k8s.io", "-o", "name")
    native = {"workloads.scheduling.k8s.io", "podgroups.scheduling.k8s.io"}
    assert native <= set(neighbour.kubectl.read(*listing).split())
    assert not native & set(ours.kubectl.read(*listing).split())


def test_the_scheduler_gets_the_configuration_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(SCHEDULER_CONFIG)
    with own_cluster("test-hack-config", "--kwok-nodes", 1, "--scheduler-config", file) as cluster:
        cluster.create(a_pod("mine", "none", schedulerName="other", **KWOK))
        cluster.wait_running("mine")


def test_down_ends_the_processes_that_up_started_and_no_others() -> None:
    with (
        own_cluster("test-hack-down", "--kwok-nodes", 0) as doomed,
        foreign_processes(doomed) as others,
    ):
        ended = doomed.processes()
        assert ended.keys() == {*lifecycle.COMPONENTS} - {"kwok"}
        succeed(doomed.hack("down"))
        assert not [name for name, process in ended.items() if process.is_alive()]
        assert not doomed.cluster.home.exists()
        assert [other.poll() for other in others] == [None, None]
        assert (
            "there is no cluster named test-hack-down: nothing to stop"
            in succeed(doomed.hack("down")).stderr
        )


def test_kind_without_docker_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = hack_cluster("up", "--name", "test-hack-kind", "--provider", "kind", PATH=str(tmp_path))
    assert done.status == 1
    assert done.output == (
        "hack/cluster: --provider kind needs kind, which is not on PATH; "
        "without --provider, the cluster is built from source\n"
    )
    assert (
        "there is no cluster named test-hack-kind"
        in hack_cluster("kubeconfig", "--name", "test-hack-kind").stderr
    )


def test_the_stock_scheduler_preempts_on_simulated_nodes(ours: OwnCluster) -> None:
    ours.create(
        priority_class("urgent", 1000), demanding("victim", metadata={"finalizers": [HOLD]})
    )
    ours.wait_running("victim")
    ours.create(demanding("preemptor", priorityClassName="urgent"))
    victim = ours.pod_once(
        "victim", "preempted", lambda pod: "deletionTimestamp" in pod["metadata"]
    )
    (target,) = [
        found for found in victim["status"]["conditions"] if found["type"] == "DisruptionTarget"
    ]
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    assert ours.wait_running("preemptor")["spec"]["nodeName"] == "kwok-0"
    deletions = [
        entry for entry in ours.audit(NAMESPACE, "victim", user="") if entry.what == "delete"
    ]
    assert deletions[0].user == "system:kube-scheduler"
    release(ours, "victim")
    ours.wait_pod_gone("victim")


def test_a_foreign_finalizer_holds_a_dead_pod(ours: OwnCluster) -> None:
    ours.create(a_pod("held", "none", metadata={"finalizers": [HOLD]}, **KWOK))
    ours.wait_running("held")
    ours.kubectl.read("delete", "pod", "held", "-n", NAMESPACE, "--wait=false")
    dead = ours.pod_once("held", "dead", lambda pod: pod["status"]["phase"] == "Failed")
    assert dead["metadata"]["finalizers"] == [HOLD]
    release(ours, "held")
    ours.wait_pod_gone("held")


def priority_class(name: str, value: int) -> Any:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def demanding(name: str, **spec: Any) -> Any:
    """Return a pod for one node that has no room for two such pods."""
    spec |= {"nodeSelector": {"kubernetes.io/hostname": "kwok-0"}}
    return a_pod(name, "none", main={"resources": {"requests": {"cpu": "5"}}}, **spec)


@contextmanager
def foreign_processes(cluster: OwnCluster) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run two decoys.

    One process has almost etcd's command line; the other got the pid that is on record for kwok,
    which has died.
    """
    etcd, kwok = (cluster.processes()[name] for name in ("etcd", "kwok"))
    name, *arguments = Path(f"/proc/{etcd.pid}/cmdline").read_text().split("\0")
    os.kill(kwok.pid, signal.SIGKILL)
    commands = [[name, "-c", "read forever", *arguments], ["sh", "-c", "read forever"]]
    started = [
        subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE)
        for command in commands
    ]
    record = replace(kwok, pid=started[1].pid)
    (cluster.cluster.home / "pids" / "kwok.json").write_text(json.dumps(asdict(record)))
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()
