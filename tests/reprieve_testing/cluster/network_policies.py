"""NetworkPolicies that are enforced: kube-router on a real node, in a network of the cluster's own.

The nodes' network plugin enforces none. kube-router makes firewall rules of them, which stay in the
network namespace of the cluster and never reach the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from realcluster import paths
from realcluster.binaries import build, pins
from realcluster.progress import Progress
from realcluster.real_nodes import debian_packages, kernel, node, runc

from .hack_cluster import OwnCluster, own_cluster

# Without it, packets between the pods of a node pass by the firewall.
BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
# What makes the firewall's sets of addresses: a program and its library.
IPSET = ("ipset", "libipset13")
STOP_SECONDS = 60.0


def obstacle() -> str | None:
    """Return None if NetworkPolicies can be enforced here, otherwise the reason, in one phrase."""
    if reason := node.can_run():
        return reason
    if not shutil.which("iptables"):
        return "there is no iptables"
    if not BRIDGED.exists():
        return "the kernel module br_netfilter is not loaded"
    missing = debian_packages.obstacle()
    return f"there is no {missing} to get ipset with" if missing else None


@contextmanager
def cluster_of_one_node(name: str) -> Iterator[OwnCluster]:
    """Make a cluster for the block, in a network of its own: no process outside reaches its pods.

    The calling thread and what it starts are inside.
    """
    # All that needs a network comes before.
    for group in ("control-plane", "node", "kube-router"):
        build.ensure(pins.GROUPS[group], Progress())
    runc.ensure(Progress())
    _ipset()
    with kernel.own_network(), own_cluster(name, "--kwok-nodes", 0, "--real-nodes", 1) as cluster:
        yield cluster


@contextmanager
def enforced(cluster: OwnCluster) -> Iterator[None]:
    """Enforce the cluster's NetworkPolicies on its node for the block."""
    program = build.path_of("kube-router")
    command: list[str | Path] = [
        *(program, "--kubeconfig", cluster.cluster.kubeconfig),
        *("--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
        *("--enable-cni=false", "--health-port=0", "--metrics-port=0"),
        f"--service-cluster-ip-range={cluster.cluster.service_cidr}",
    ]
    unpacked = _ipset()
    libraries = {str(file.parent) for file in unpacked.rglob("libipset.so.*")}
    environment = {
        **os.environ,
        "NODE_NAME": cluster.cluster.real_node_name(0),
        "PATH": os.pathsep.join([str(unpacked / "usr/sbin"), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
    }
    with (cluster.cluster.home / "logs" / "kube-router.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
        assert process.poll() is None, "kube-router ended; see its log"
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _ipset() -> Path:
    """Return the folder with the files of IPSET's packages; download them if necessary."""
    kept = paths.cache_home() / "bin" / "ipset-debian"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            debian_packages.unpack(IPSET, Path(scratch)).rename(kept)
    return kept
