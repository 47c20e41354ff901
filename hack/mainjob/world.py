"""Where the story happens: a cluster, Reprieve installed in it as a user would, its two programs beside it."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from realcluster import build, install, lifecycle, node
from realcluster.errors import ClusterError
from realcluster.kubectl import Kubectl
from realcluster.programs import OPERATOR, WEBHOOKS, Place, Programs
from realcluster.progress import Progress

KWOK_NODES = 2
"""Where there is no real node: a pod that says nothing of nodes must not land on a simulated one beside it."""
MINE = {"app.kubernetes.io/part-of": "reprieve-demo"}
"""Marks what the story makes in the cluster, so that it can be told again."""
SELECTOR = ",".join(f"{key}={value}" for key, value in MINE.items())
CLEAN_SECONDS = 90.0
EFFECTIVE_SECONDS = 30.0

PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "labels": {"reprieve.dev/preemption-class": "not-a-class"}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}
"""Refused by the webhooks and by nobody else."""


class UnreachableError(ClusterError):
    """The API server does not reach the webhooks."""


class Nodes(Enum):
    """What runs the workloads."""

    REAL = "a real node: kubelet, containerd, runc"
    LOCAL = "simulated nodes, whose pods' workloads are local processes"
    FOREIGN = "whatever runs pods in this cluster"


@dataclass(frozen=True)
class World:
    """A cluster with Reprieve in it."""

    home: Path
    kubectl: Kubectl
    programs: Programs
    nodes: Nodes
    audit_log: Path | None = None

    def make_namespace(self, name: str) -> None:
        """Make a namespace of the story, anew."""
        self.remove_namespaces(name)
        self.kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": MINE}}
        )

    def remove_namespaces(self, *names: str) -> None:
        """Remove namespaces of the story, with what an interrupted run left in them; without names, all."""
        for item in self.kubectl.get("namespaces", "-l", SELECTOR)["items"]:
            name = item["metadata"]["name"]
            if not names or name in names:
                self.kubectl.read("delete", "namespace", name, "--wait=false")
                self._release_pods(name)
        late = ClusterError("the namespaces of an earlier run do not go away")
        _wait_until(lambda: not self._present(names), CLEAN_SECONDS, late)

    def log_of_local_pod(self, namespace: str, name: str) -> Path:
        """Return the file with what a local process wrote that stands for a pod's container."""
        return self.home / "logs" / f"pod-{namespace}-{name}.log"

    def is_guarded(self) -> bool:
        """Say whether the API server asks the webhooks now."""
        done = self.kubectl.run(
            "create", "-n", "default", "--dry-run=server", "-f", "-", stdin=json.dumps(PROBE)
        )
        return done.status != 0 and "denied the request" in done.stderr

    def start(self, name: str, tick: Callable[[], None] = lambda: None) -> None:
        """Start one of Reprieve's programs; return when it does its work."""
        self.programs.start(name)
        self.programs.wait_until_ready(name, tick)
        log = self.programs.log(name)
        if name == WEBHOOKS:
            late: ClusterError = UnreachableError(
                f"the API server does not reach the webhooks, see {log}"
            )
            _wait_until(self.is_guarded, EFFECTIVE_SECONDS, late)
        else:
            late = ClusterError(f"the operator does not get the lease, see {log}")
            _wait_until(self._leads, EFFECTIVE_SECONDS, late)

    @contextlib.contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Stop one of Reprieve's programs for as long as the block runs."""
        self.programs.stop(name)
        try:
            yield
        finally:
            self.start(name)

    def _leads(self) -> bool:
        return "\nreprieve_leader 1.0\n" in self.programs.read(OPERATOR, "/metrics")

    def _present(self, names: tuple[str, ...]) -> bool:
        items = self.kubectl.get("namespaces", "-l", SELECTOR)["items"]
        return any(not names or item["metadata"]["name"] in names for item in items)

    def _release_pods(self, namespace: str) -> None:
        """End the pods of a namespace that goes soon, whatever holds them."""
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


def bring_up(name: str, progress: Progress, *, prefer_real: bool = True) -> World:
    """Return the world in the cluster `name`, made or reused, with nothing of an earlier story in it."""
    obstacle = node.can_run() if prefer_real else "not wanted"
    nodes = Nodes.LOCAL if obstacle else Nodes.REAL
    if obstacle and prefer_real:
        progress.say(
            f"no real node can run here ({obstacle}): workloads are local processes beside simulated nodes"
        )
    asked: dict[str, object] = {
        "kwok_nodes": KWOK_NODES if obstacle else 0,
        "real_nodes": 0 if obstacle else 1,
        "local_processes": bool(obstacle),
    }
    cluster = lifecycle.up(name, asked, None, progress)
    kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
    here = places(cluster.port("webhooks"), cluster.port("operator"), nodes)
    world = World(
        cluster.home, kubectl, Programs(cluster.home, kubectl, here), nodes, cluster.audit_log
    )
    install_reprieve(world, cluster.port("webhooks"), progress)
    return world


def install_reprieve(world: World, webhooks_port: int, progress: Progress) -> None:
    """Remove what an earlier story left, apply the manifests, and start both programs as they are in the tree now."""
    with progress.task("removing what an earlier run left"):
        for name in (WEBHOOKS, OPERATOR):
            world.programs.stop(name)
        world.remove_namespaces()
        world.kubectl.read("delete", "priorityclasses", "-l", SELECTOR)
    with progress.task(
        f"installing Reprieve: kubectl apply -k manifests/overlays/{install.DEMO.name}, at its own port"
    ):
        install.install(world.kubectl, install.DEMO, webhooks_port)
    for name in (WEBHOOKS, OPERATOR):
        with progress.task(f"starting {name} with the rights of its own ServiceAccount") as task:
            world.start(name, task.tick)


def places(webhooks_port: int, operator_port: int, nodes: Nodes) -> dict[str, Place]:
    """Return where the programs listen, and the operator's intervals in seconds where the defaults are minutes."""
    here = ("--listen-address", "127.0.0.1", "--log-format", "text", "--listen-port")
    webhooks = [*here, webhooks_port, "--serving-ips", "127.0.0.1", "--drain-seconds", 0.5]
    lease = [
        "--lease-duration-seconds",
        4,
        "--renew-deadline-seconds",
        3,
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
