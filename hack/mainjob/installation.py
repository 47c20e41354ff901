"""The demo's cluster: Reprieve is installed as a user would, on a real node or beside it."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Self

from realcluster import install, lifecycle
from realcluster.binaries import build
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.programs import OPERATOR, WEBHOOKS, Place, Programs
from realcluster.progress import Progress
from realcluster.real_nodes import node
from realcluster.state import Cluster

from .deployments import Deployments

KWOK_NODES = 2
"""Annotation for clusters without a real node: without it, a pod could land on a simulated node."""
DEMO_LABELS = {"app.kubernetes.io/part-of": "reprieve-demo"}
"""Labels what the demo creates in the cluster, so that a later run can remove it."""
SELECTOR = ",".join(f"{key}={value}" for key, value in DEMO_LABELS.items())
CLEAN_SECONDS = 90.0
EFFECTIVE_SECONDS = 30.0

PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "labels": {"reprieve.dev/preemption-class": "not-a-class"}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}
"""A pod that only the webhooks refuse."""


class UnreachableError(ClusterError):
    """The API server does not reach the webhooks."""


class Nodes(Enum):
    """What runs the workloads."""

    REAL = "a real node: kubelet, containerd, runc"
    LOCAL = "simulated nodes, whose pods' workloads are local processes"
    FOREIGN = "the nodes of this cluster"


@dataclass(frozen=True)
class Installation:
    """A cluster with Reprieve in it."""

    home: Path
    kubectl: Kubectl
    programs: Programs | Deployments
    nodes: Nodes
    audit_log: Path | None = None
    overlay: Path = install.DEMO

    @classmethod
    def for_cluster(cls, cluster: Cluster, nodes: Nodes, *, lease_seconds: int = 4) -> Self:
        """Return the installation of a cluster of this machine; nothing is applied or started."""
        kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
        here = places(
            cluster.port("webhooks"), cluster.port("operator"), nodes, lease_seconds=lease_seconds
        )
        programs = Programs(cluster.home, kubectl, here)
        return cls(cluster.home, kubectl, programs, nodes, cluster.audit_log)

    def make_namespace(self, name: str) -> None:
        """Create a namespace of the demo; remove an existing one first."""
        self.remove_namespaces(name)
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": DEMO_LABELS},
            }
        )

    def remove_namespaces(self, *names: str) -> None:
        """Remove these namespaces of the demo, or all of them, with everything in them."""
        for item in self.kubectl.get("namespaces", "-l", SELECTOR)["items"]:
            name = item["metadata"]["name"]
            if not names or name in names:
                self.kubectl.read("delete", "namespace", name, "--wait=false")
                self._release_pods(name)
        late = ClusterError("the namespaces of an earlier run do not go away")
        _wait_until(lambda: not self._present(names), CLEAN_SECONDS, late)

    def log_of_local_pod(self, namespace: str, name: str) -> Path:
        """Return the log file of the local process that replaces a pod's container."""
        return self.home / "logs" / f"pod-{namespace}-{name}.log"

    def log_of_local_program(self, name: str) -> Path:
        """Return the log file of a program that runs beside the cluster."""
        return self.home / "logs" / f"{name}.log"

    def is_guarded(self) -> bool:
        """Return whether the API server calls the webhooks now."""
        done = self.kubectl.run(
            "create", "-n", "default", "--dry-run=server", "-f", "-", stdin=json.dumps(PROBE)
        )
        return done.status != 0 and "denied the request" in done.stderr

    def start(self, name: str, tick: Callable[[], None] = lambda: None) -> None:
        """Start one of Reprieve's programs; return when it is ready."""
        self.programs.start(name)
        self.programs.wait_until_ready(name, tick)
        log = self.programs.log_command(name)
        if name == WEBHOOKS:
            late: ClusterError = UnreachableError(
                f"the API server does not reach the webhooks, see `{log}`"
            )
            _wait_until(self.is_guarded, EFFECTIVE_SECONDS, late)
        else:
            late = ClusterError(f"the operator does not get the lease, see `{log}`")
            _wait_until(self._leads, EFFECTIVE_SECONDS, late)

    @contextlib.contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Stop one of Reprieve's programs while the block runs."""
        self.programs.stop(name)
        try:
            yield
        finally:
            self.start(name)

    def _leads(self) -> bool:
        try:
            return "\nreprieve_leader 1.0\n" in self.programs.read(OPERATOR, "/metrics")
        except OSError:  # a container that starts again after a crash
            return False

    def _present(self, names: tuple[str, ...]) -> bool:
        items = self.kubectl.get("namespaces", "-l", SELECTOR)["items"]
        return any(not names or item["metadata"]["name"] in names for item in items)

    def _release_pods(self, namespace: str) -> None:
        """End the pods of a namespace that is about to be deleted, despite their finalizers."""
        for pod in self.kubectl.get("pods", "-n", namespace)["items"]:
            if pod["metadata"].get("finalizers"):
                freed = '{"metadata":{"finalizers":null}}'
                self.kubectl.run(
                    "patch",
                    "pod",
                    pod["metadata"]["name"],
                    "-n",
                    namespace,
                    "--type=merge",
                    "-p",
                    freed,
                )
        self.kubectl.run(
            "delete", "pods", "--all", "-n", namespace, "--grace-period=1", "--wait=false"
        )


def bring_up(
    name: str, progress: Progress, *, prefer_real: bool = True, image: Path | None = None
) -> Installation:
    """Return the demo's cluster `name`, made or reused, without traces of an earlier run.

    `image`: the OCI archive from which a real node runs the Deployments. Without it, the programs
    run beside the cluster.
    """
    obstacle = node.can_run() if prefer_real else "not wanted"
    nodes = Nodes.LOCAL if obstacle else Nodes.REAL
    if obstacle and prefer_real:
        progress.say(
            f"no real node can run here ({obstacle}): workloads are local processes beside "
            "simulated nodes"
        )
    asked: dict[str, object] = {
        "kwok_nodes": KWOK_NODES if obstacle else 0,
        "real_nodes": 0 if obstacle else 1,
        "local_processes": bool(obstacle),
    }
    cluster = lifecycle.up(name, asked, None, progress)
    installation = Installation.for_cluster(cluster, nodes)
    if image is not None and nodes is Nodes.REAL:
        node.load_image(cluster, image, progress)
        installation = replace(
            installation,
            programs=Deployments(installation.kubectl),
            overlay=install.DEMO_DEPLOYMENTS,
        )
    install_reprieve(installation, cluster.port("webhooks"), progress)
    return installation


def install_reprieve(installation: Installation, webhooks_port: int, progress: Progress) -> None:
    """Remove what an earlier run left, apply the manifests, and start both programs."""
    with progress.task("removing what an earlier run left"):
        for name in (WEBHOOKS, OPERATOR):
            installation.programs.stop(name)
        installation.remove_namespaces()
        installation.kubectl.read("delete", "priorityclasses", "-l", SELECTOR)
    overlay = installation.overlay
    with progress.task(f"installing Reprieve: kubectl apply -k manifests/overlays/{overlay.name}"):
        install.install(installation.kubectl, overlay, webhooks_port)
    for name in (WEBHOOKS, OPERATOR):
        with progress.task(f"starting {name} with the rights of its own ServiceAccount") as task:
            installation.start(name, task.tick)


def places(
    webhooks_port: int, operator_port: int, nodes: Nodes, *, lease_seconds: int = 4
) -> dict[str, Place]:
    """Return where the programs listen; the operator's intervals are seconds instead of minutes.

    A short Lease suits a demo. A leader that is short of a processor needs a longer one.
    """
    here = ("--listen-address", "127.0.0.1", "--log-format", "text", "--listen-port")
    webhooks = [*here, webhooks_port, "--serving-ips", "127.0.0.1", "--drain-seconds", 0.5]
    lease = [
        "--lease-duration-seconds",
        lease_seconds,
        "--renew-deadline-seconds",
        lease_seconds * 0.75,
        "--retry-period-seconds",
        0.5,
    ]
    looks = [
        "--poll-interval-seconds",
        0.5,
        "--resync-interval-seconds",
        5,
        "--sweep-interval-seconds",
        15,
    ]
    loopback = ["--allow-loopback-pod-ips", str(nodes is Nodes.LOCAL).lower()]
    return {
        WEBHOOKS: Place(webhooks, f"https://127.0.0.1:{webhooks_port}"),
        OPERATOR: Place(
            [*here, operator_port, *lease, *looks, *loopback], f"http://127.0.0.1:{operator_port}"
        ),
    }


def _wait_until(condition: Callable[[], bool], seconds: float, otherwise: ClusterError) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise otherwise
        time.sleep(0.1)
