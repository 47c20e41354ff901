"""Reprieve's two programs as an admin runs them: the Deployments, on the real node of the demo.

The node is a part of this machine, so that its containers are processes that can be killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.programs import NAMESPACE, READY_SECONDS
from realcluster.progress import Progress
from realcluster.real_nodes import node

METRICS_PORT = 8081
_IN_OURS = ("-n", NAMESPACE)


class Deployments:
    """The two Deployments, each with one replica at most."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def start(self, name: str) -> None:
        """Start a program unless it runs."""
        self._scale(name, 1)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a program: with its Deployment, or at once with KILL, as in a crash.

        After a crash, the kubelet starts its container again.
        """
        if not kill:
            if self._kubectl.find("deployment", name, *_IN_OURS):
                self._scale(name, 0)
                self._wait(name, lambda: not self._pods(name), "does not end")
            return
        pid = self.pid(name)
        if pid is None:
            raise ClusterError(f"{name} has no process on this machine that could be killed")
        os.kill(pid, signal.SIGKILL)
        self._wait(name, lambda: self.pid(name) != pid, "does not end")

    def stop_command(self, name: str) -> str:
        """Return the command that does what `stop` does."""
        return f"kubectl scale deployment/{name} -n {NAMESPACE} --replicas=0"

    def pid(self, name: str) -> int | None:
        """Return the process id of a program, as this machine sees it, or None."""
        hosts = {b"HOSTNAME=" + pod["metadata"]["name"].encode() for pod in self._pods(name)}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                has_name = name.encode() in (process / "cmdline").read_bytes()
                if has_name and hosts & set((process / "environ").read_bytes().split(b"\0")):
                    return int(process.name)
        return None

    def log_command(self, name: str) -> str:
        """Return the command that shows a program's log."""
        return f"kubectl logs deployment/{name} -n {NAMESPACE}"

    def wait_until_ready(self, name: str, tick: Callable[[], None] = lambda: None) -> None:
        """Wait until a program is ready; raises `ClusterError` if that takes too long."""
        self._wait(name, lambda: self._ready_pod(name) is not None, "is not ready", tick)

    def read(self, name: str, path: str) -> str:
        """Return an answer of the program's port for metrics; raises `OSError` on failure."""
        with urllib.request.urlopen(self.url(name, path), timeout=3) as answer:  # noqa: S310 (the address of a pod of the demo's own node)
            return str(answer.read().decode())

    def url(self, name: str, path: str) -> str:
        """Return the URL of the metrics: this machine reaches the pods of its own node.

        Raises `OSError` while the program has no pod that is ready.
        """
        pod = self._ready_pod(name)
        if pod is None:
            raise ConnectionError(f"{name} has no pod that is ready")
        return f"http://{pod['status']['podIP']}:{METRICS_PORT}{path}"

    def _scale(self, name: str, replicas: int) -> None:
        self._kubectl.read("scale", f"deployment/{name}", *_IN_OURS, f"--replicas={replicas}")

    def _pods(self, name: str) -> list[Any]:
        selector = f"app.kubernetes.io/name={name}"
        found: list[Any] = self._kubectl.get("pods", *_IN_OURS, "-l", selector)["items"]
        return found

    def _ready_pod(self, name: str) -> Any | None:
        return next(
            (
                pod
                for pod in self._pods(name)
                if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)
            ),
            None,
        )

    def _wait(
        self,
        name: str,
        condition: Callable[[], bool],
        otherwise: str,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            tick()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{name} {otherwise} within {READY_SECONDS:.0f} s, see {self.log_command(name)}"
                )
            time.sleep(0.2)


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def build_image(folder: Path, progress: Progress) -> Path | None:
    """Build Reprieve's image into a folder, as `make image` does; return its archive.

    `None` where no real node can run it, or where it cannot be built.
    """
    if node.can_run():
        return None
    # Its output is shown: it says what it builds, and why it cannot.
    command = [sys.executable, "-m", "image", "--output", str(folder)]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        progress.say("without the image, both programs run beside the cluster, not as Deployments")
        return None
    (archive,) = folder.glob("*.oci.tar")
    return archive
