"""A test module's own cluster, made and removed by `hack/cluster` as a user does it.

It is for tests of `hack/cluster` itself, which stop, break and remove what they test. Other tests
share one cluster: the fixture `cluster`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realcluster import install, state
from realcluster.binaries import build
from realcluster.client.kubectl import Done, Kubectl
from realcluster.processes import Identity, identify
from realcluster.programs import WEBHOOKS, Place, Programs
from reprieve_testing.rights import usage

from .handle import ClusterHandle, wait_for

PROGRAM = Path(__file__).resolve().parents[3] / "hack" / "cluster"
COMMAND_SECONDS = 1800.0  # a first `up` builds what is not cached
SECONDS = 60.0  # a timeout; a tenth is usual, and a busy machine needs more
NAMESPACE = "default"


class OwnCluster(ClusterHandle):
    """A cluster for one module only; its pods are in the default namespace and are removed with
    it.
    """

    def hack(self, command: str, *words: object) -> Done:
        """Run a command of `hack/cluster` on this cluster."""
        return hack_cluster(command, "--name", self.cluster.name, *words)

    def install_webhooks(self, *options: object) -> Programs:
        """Install Reprieve; return its webhooks as a local process that is not started yet."""
        port = self.cluster.port("webhooks")
        install.install(self.kubectl, install.LOCAL, port)
        address = ["--listen-address", "127.0.0.1", "--listen-port", port]
        flags = [*address, "--serving-ips", "127.0.0.1", "--drain-seconds", 0.5, *options]
        place = Place(flags, f"https://127.0.0.1:{port}")
        return Programs(self.cluster.home, self.kubectl, {WEBHOOKS: place})

    def create(self, *objects: Any) -> None:
        """Create objects given as JSON."""
        self.client.create(*objects, namespace=NAMESPACE)

    def pod_once(self, name: str, what: str, holds: Callable[[Any], object]) -> Any:
        """Wait until `holds` is true for a pod, which makes it `what`; return it as it is then."""
        seen: list[Any] = []

        def look() -> Any | None:
            seen[:] = [self.pod(NAMESPACE, name)]
            return seen[0] if seen[0] and holds(seen[0]) else None

        try:
            return wait_for(f"pod {name} is {what}", look, SECONDS)
        except AssertionError as late:
            late.add_note(json.dumps(seen, indent=1))
            raise

    def wait_running(self, name: str) -> Any:
        """Wait until a pod runs and has its address; return it."""
        return self.pod_once(
            name,
            "Running",
            lambda pod: pod["status"]["phase"] == "Running" and "podIP" in pod["status"],
        )

    def wait_pod_gone(self, name: str) -> None:
        """Wait until the pod does not exist."""
        self.wait_gone(NAMESPACE, name, SECONDS)

    def output(self, pod: str) -> str:
        """Return the output of a pod's workload so far; empty if it has not started."""
        if self.cluster.settings.local_processes:
            return self.hack("logs", f"pod-{NAMESPACE}-{pod}").stdout
        return self.kubectl.run("logs", pod, "-n", NAMESPACE).stdout

    def wait_output(self, pod: str, text: str) -> None:
        """Wait until the output of a pod's workload contains `text`."""
        wait_for(f"pod {pod} says {text}", lambda: text in self.output(pod), SECONDS)

    def processes(self) -> dict[str, Identity]:
        """Return the cluster's live processes by their recorded names."""
        recorded = self.cluster.processes
        return {name: alive for name in recorded.names() if (alive := recorded.running(name))}


@contextmanager
def own_cluster(name: str, *options: object) -> Iterator[OwnCluster]:
    """Make a cluster for the block; first remove one that an interrupted run has left."""
    with state.claimed(name):
        succeed(hack_cluster("down", "--name", name))
        try:
            succeed(hack_cluster("up", "--name", name, *options))
            cluster = state.get(name)
            yield OwnCluster(
                cluster, Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
            )
        finally:
            usage.collect(name)
            succeed(hack_cluster("down", "--name", name))


def hack_cluster(*words: object, **environment: str) -> Done:
    """Run `hack/cluster` to its end, whatever its status."""
    arguments = [str(word) for word in words]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=COMMAND_SECONDS,
    )
    return Done(" ".join(["hack/cluster", *arguments]), done.returncode, done.stdout, done.stderr)


def succeed(done: Done) -> Done:
    """Fail the test with the command's whole output, unless its status is 0."""
    assert done.status == 0, f"{done.command} ended with status {done.status}:\n{done.output}"
    return done


def descendants(pid: int) -> list[Identity]:
    """Return all processes below `pid`; children come before their own children."""
    children = [
        int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]
    found = [identity for child in children if (identity := identify(child))]
    return found + [below for identity in found for below in descendants(identity.pid)]
