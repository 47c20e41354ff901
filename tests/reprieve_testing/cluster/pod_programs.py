"""Pods whose programs really run, on real nodes and as local processes, and the end of such a
pod.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from typing import Any

from realcluster.real_nodes.image import PYTHON_IMAGE

from .hack_cluster import NAMESPACE, OwnCluster

# Saves on USR1; on TERM it ends at once, without saving.
POLITE = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("saved", flush=True))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("ready", flush=True)
while True:
    signal.pause()
"""
# Handles TERM and continues.
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""
# Serves HTTP on its pod's own address only.
SERVER = ("python3", "-m", "http.server", "8080", "--bind", "$(POD_IP)")
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}

# Prints the file that its argument names, and prints it again after each change.
READER = """
import pathlib, sys, time
said = ""
while True:
    text = pathlib.Path(sys.argv[1]).read_text()
    if text != said:
        print(text, flush=True)
    said = text
    time.sleep(0.05)
"""
PODINFO_FILE = "/podinfo/annotations"
PODINFO_MOUNT = {"volumeMounts": [{"name": "podinfo", "mountPath": "/podinfo"}]}
PODINFO = {
    "name": "podinfo",
    "downwardAPI": {
        "items": [{"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]
    },
}

HOLD = "example.com/hold"
"""A foreign finalizer: it keeps an ended pod, so that a test can read it."""


def a_pod(name: str, *command: str, main: Any = None, metadata: Any = None, **spec: Any) -> Any:
    """Return a pod that runs `command` in the image of real nodes.

    `main` has further fields of its container.
    """
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        **(main or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"containers": [container], **spec},
    }


@dataclass(frozen=True)
class Deletion:
    """A pod with the finalizer HOLD whose deletion was requested at `began` (monotonic)."""

    cluster: OwnCluster
    pod: str
    began: float

    def wait_ended(self) -> tuple[int, float]:
        """Wait until the pod's program ends, and release the pod; return exit code and duration
        [s].
        """
        dead = self.cluster.pod_once(self.pod, "dead", lambda pod: exit_code(pod) is not None)
        after = time.monotonic() - self.began
        release(self.cluster, self.pod)
        self.cluster.wait_pod_gone(self.pod)
        return exit_code(dead) or 0, after


def delete(cluster: OwnCluster, pod: str, grace_seconds: int) -> Deletion:
    """Request the deletion of a pod that has the finalizer HOLD."""
    began = time.monotonic()
    cluster.kubectl.read(
        "delete", "pod", pod, "-n", NAMESPACE, f"--grace-period={grace_seconds}", "--wait=false"
    )
    return Deletion(cluster, pod, began)


def release(cluster: OwnCluster, name: str) -> None:
    """Remove all finalizers of a pod."""
    freed = '{"metadata":{"finalizers":null}}'
    cluster.kubectl.read("patch", "pod", name, "-n", NAMESPACE, "--type=merge", "-p", freed)


def exit_code(pod: Any) -> int | None:
    """Return the exit code of a pod's program; `None` while it runs or has not started."""
    for status in pod["status"].get("containerStatuses", []):
        if ended := status["state"].get("terminated"):
            return int(ended["exitCode"])
    return None


def http_status(address: str) -> int | None:
    """Return the status of SERVER's answer at a pod's address; `None` without an answer."""
    connection = http.client.HTTPConnection(
        address, 8080, timeout=5
    )  # no proxy, regardless of the environment
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()
