"""A real node: signals, grace periods and addresses are real; it survives a crash and cleans up."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from realcluster.processes import Identity
from realcluster.real_nodes import node, service_address
from realcluster.real_nodes.config import LABEL, Node
from realcluster.real_nodes.kernel import parse_cgroup_mounts
from reprieve_testing.cluster.hack_cluster import (
    NAMESPACE,
    SECONDS,
    OwnCluster,
    descendants,
    own_cluster,
    succeed,
)
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.pod_programs import (
    HOLD,
    POD_IP,
    PODINFO,
    PODINFO_FILE,
    PODINFO_MOUNT,
    POLITE,
    READER,
    SERVER,
    STUBBORN,
    a_pod,
    delete,
    http_status,
)

pytestmark = [pytest.mark.cluster, pytest.mark.real_node]

NODE = {"nodeSelector": dict([LABEL])}
REAL = ("--kwok-nodes", 0, "--real-nodes", 1)
GRACE_SECONDS = 3
# Prints the API server's version, with its certificate checked.
CALLER = """
import os, ssl, urllib.request
context = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}/version".format(**os.environ)
print(urllib.request.urlopen(url, context=context).read().decode(), flush=True)
"""
LATE_SECONDS = 30  # 0.1 are usual; a busy machine needs more


@pytest.fixture(scope="module", autouse=True)
def machine() -> None:
    """Skip with the reason where no real node can run."""
    if obstacle := node.can_run():
        pytest.skip(obstacle)


@pytest.fixture(scope="module")
def ours(machine: None) -> Iterator[OwnCluster]:
    assert machine is None
    with own_cluster("test-node", *REAL) as cluster:
        yield cluster


def test_a_pod_becomes_ready_and_its_output_is_read_with_kubectl_logs(ours: OwnCluster) -> None:
    ours.create(python("talks", POLITE))
    ours.pod_once("talks", "Ready", is_ready)
    ours.wait_output("talks", "ready")


def test_a_signal_sent_by_exec_reaches_the_program(ours: OwnCluster) -> None:
    ours.create(python("signalled", POLITE))
    ours.wait_output("signalled", "ready")
    ours.kubectl.read("exec", "signalled", "-n", NAMESPACE, "--", "kill", "-USR1", "1")
    ours.wait_output("signalled", "saved")


def test_a_program_that_handles_term_ends_with_its_own_exit_code_within_its_grace_period(
    ours: OwnCluster,
) -> None:
    ours.create(python("polite", POLITE, metadata={"finalizers": [HOLD]}))
    ours.wait_output("polite", "ready")
    exit_code, _ = delete(ours, "polite", grace_seconds=600).wait_ended()
    assert exit_code == 3


def test_a_program_that_ignores_term_is_killed_after_its_grace_period(ours: OwnCluster) -> None:
    ours.create(python("stubborn", STUBBORN, metadata={"finalizers": [HOLD]}))
    ours.wait_output("stubborn", "ready")
    deletion = delete(ours, "stubborn", GRACE_SECONDS)
    ours.wait_output("stubborn", "told")
    exit_code, seconds = deletion.wait_ended()
    assert exit_code == 128 + signal.SIGKILL
    assert GRACE_SECONDS <= seconds < GRACE_SECONDS + LATE_SECONDS


def test_a_changed_annotation_reaches_its_downward_api_file(ours: OwnCluster) -> None:
    ours.create(python("informed", READER, PODINFO_FILE, main=PODINFO_MOUNT, volumes=[PODINFO]))
    ours.wait_output("informed", "kubernetes.io/config.source")
    ours.kubectl.read("annotate", "pod", "informed", "-n", NAMESPACE, "example.com/asked=now")
    ours.wait_output("informed", 'example.com/asked="now"')


def test_a_process_of_the_host_reaches_a_pod_by_its_address(ours: OwnCluster) -> None:
    ours.create(a_pod("server", *SERVER, main={"env": [POD_IP]}, **NODE))
    address = ours.wait_running("server")["status"]["podIP"]
    assert (
        wait_for(f"an answer of {address}", lambda: http_status(address), SECONDS) == http.client.OK
    )


def test_a_pod_reaches_the_api_server_at_its_service_address(ours: OwnCluster) -> None:
    ours.create(python("caller", CALLER))
    ours.wait_output("caller", "gitVersion")


def test_a_node_whose_first_process_is_killed_loses_its_pods_and_up_repairs_it(
    ours: OwnCluster,
) -> None:
    ours.create(python("survivor", POLITE))
    ours.wait_output("survivor", "ready")
    first, *others = descendants(ours.processes()["test-node-real-0"].pid)
    os.kill(first.pid, signal.SIGKILL)
    wait_for(
        "the end of all its processes",
        lambda: not any(other.is_alive() for other in others),
        SECONDS,
    )
    assert "test-node-real-0 not running" in " ".join(ours.hack("status").stdout.split())
    succeed(ours.hack("up"))
    assert "1 of 1 nodes ready" in succeed(ours.hack("status")).stdout
    again = ours.pod_once("survivor", "started again", lambda pod: is_ready(pod) and restarts(pod))
    assert restarts(again) == 1


def test_down_leaves_no_process_mount_bridge_or_cgroup() -> None:
    with own_cluster("test-node-down", *REAL) as doomed:
        doomed.create(python("last", POLITE))
        doomed.wait_output("last", "ready")
        traces = Traces.of(doomed, "test-node-down-real-0")
        assert traces.seen() == {"processes", "interfaces", "cgroups"}
        succeed(doomed.hack("down"))
        assert traces.seen() == set()


@dataclass(frozen=True)
class Traces:
    """What a node with a running pod shows of itself on the machine."""

    node: Node
    processes: list[Identity]
    interfaces: list[Path]
    cgroups: list[Path]

    @classmethod
    def of(cls, cluster: OwnCluster, name: str) -> Traces:
        node = Node.from_json((cluster.cluster.home / "nodes" / name / "node.json").read_text())
        bridge = Path("/sys/class/net", node.bridge)
        ports = [bridge.parent / port.name for port in (bridge / "brif").iterdir()]
        hierarchies = [
            Path(folder) for folder, _ in parse_cgroup_mounts(Path("/proc/mounts").read_text())
        ]
        return cls(
            node,
            processes=descendants(cluster.processes()[name].pid),
            interfaces=[
                bridge,
                *ports,
                bridge.parent / service_address.bridge(cluster.cluster),
            ],
            cgroups=[folder / node.cgroup for folder in hierarchies],
        )

    def seen(self) -> set[str]:
        """Return the kinds of which anything is left. Only the node itself sees its mounts, while
        it lives.
        """
        left = {
            "processes": any(process.is_alive() for process in self.processes),
            "interfaces": any(interface.exists() for interface in self.interfaces),
            "cgroups": any(cgroup.exists() for cgroup in self.cgroups),
            "mounts": self.node.directory in Path("/proc/self/mounts").read_text(),
        }
        return {kind for kind, is_left in left.items() if is_left}


def python(name: str, program: str, *arguments: str, **more: Any) -> Any:
    return a_pod(name, "python3", "-c", program, *arguments, **more, **NODE)


def is_ready(pod: Any) -> bool:
    return any(
        found["type"] == "Ready" and found["status"] == "True"
        for found in pod["status"].get("conditions", [])
    )


def restarts(pod: Any) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))
