"""Pods as local processes: `python -m realcluster.local_processes.runner --name CLUSTER`.

This serves machines where no real node can run. kwok makes a pod on a simulated node Running, with
a loopback address of its own. If the pod is annotated `reprieve.dev/local-process: "true"`, this
program does the rest of a kubelet's work: it runs the first container's command on that address,
updates the downward-API files, sends TERM and, after the grace period, KILL, reports how the
container ended, and removes the pod. It never touches other pods.

Differences from a container: the process sees the machine's files, its user is the caller, and TERM
ends it if it has no handler (PID 1 of a container would ignore it). The process must listen on its
pod's address, not on all addresses.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from realcluster import state
from realcluster.client import api
from realcluster.errors import ClusterError
from realcluster.simulated_nodes import kwok
from realcluster.state import Cluster

from . import container
from .container import Folders, Json, Lookup
from .workload import USER, Workload

COMPONENT = "local-processes"
AGAIN_SECONDS = 0.3
WATCH_SECONDS = 240


def start(cluster: Cluster) -> None:
    """Start the runner of `cluster` unless it runs; `down` ends it with the rest."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", f"{__package__}.runner", "--name", cluster.name]
    cluster.processes.start(COMPONENT, command, environment)


def main() -> None:
    """Run until TERM, then end the processes too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="the cluster")
    runner = Runner(state.get(parser.parse_args().name))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        runner.run()
    finally:
        runner.stop()


class Runner:
    """The pods of one cluster that have, or had, a process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._home = cluster.home / "local-processes"
        self._workloads: dict[str, Workload] = {}
        self._simulated: dict[str, bool] = {}

    def run(self) -> None:
        """Follow the pods until the process ends.

        After a lost server or a broken watch, list again.
        """
        while True:
            try:
                for kind, pod in watch(self._cluster, self._relist()):
                    self.observe(kind, pod)
            except (OSError, ValueError, api.Refused, ClusterError) as error:
                print(f"looking again: {error}", file=sys.stderr, flush=True)
            time.sleep(AGAIN_SECONDS)

    def stop(self) -> None:
        """End all processes at once."""
        for workload in self._workloads.values():
            workload.kill()

    def observe(self, kind: str, pod: Json) -> None:
        """Handle a watch event of a pod."""
        if not container.is_local(pod) or not self._is_simulated(pod["spec"].get("nodeName", "")):
            return
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            if workload := self._workloads.pop(uid, None):
                workload.kill()
        elif workload := self._workloads.get(uid):
            workload.observe(pod)
        elif self._wants_process(pod):
            self._workloads[uid] = Workload(self._cluster, pod, self._folders(uid), self._data(pod))

    @staticmethod
    def _wants_process(pod: Json) -> bool:
        """Return whether to run the pod, or to end it because an earlier runner ran it."""
        if pod["metadata"].get("deletionTimestamp"):
            return True
        return bool(pod.get("status", {}).get("podIP")) and not container.has_ended(pod)

    def _relist(self) -> str:
        """Observe all pods as they are now; return the version to watch from."""
        pods = api.call(self._cluster, "GET", "/api/v1/pods", user=USER)
        present = {pod["metadata"]["uid"] for pod in pods["items"]}
        for uid in self._workloads.keys() - present:
            self._workloads.pop(uid).kill()
        for pod in pods["items"]:
            self.observe("ADDED", pod)
        return str(pods["metadata"]["resourceVersion"])

    def _is_simulated(self, node: str) -> bool:
        if node and node not in self._simulated:
            annotations = api.call(self._cluster, "GET", f"/api/v1/nodes/{node}", user=USER)[
                "metadata"
            ].get("annotations", {})
            key, value = kwok.ANNOTATION
            self._simulated[node] = annotations.get(key) == value
        return self._simulated.get(node, False)

    def _folders(self, uid: str) -> Folders:
        return Folders(self._home / "pods" / uid, self._home / "host")

    def _data(self, pod: Json) -> Lookup:
        """Read the ConfigMaps and Secrets that the pod refers to; a missing one counts as empty."""
        found = {}
        for kind, name in container.references(pod):
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/{kind}/{name}"
            try:
                content = api.call(self._cluster, "GET", path, user=USER).get("data", {})
            except api.Refused:
                content = {}
            decode = kind == "secrets"
            found[kind, name] = {
                key: base64.b64decode(text).decode() if decode else text
                for key, text in content.items()
            }
        return found


def watch(cluster: Cluster, version: str) -> Iterator[tuple[str, Json]]:
    """Yield (kind, pod) for each change of a pod since `version`; end when the server does."""
    path = f"/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
    for line in api.stream(cluster, path, user=USER):
        event = json.loads(line)
        if event["type"] == "ERROR":
            raise ValueError(event["object"].get("message", "the watch ended"))
        yield event["type"], event["object"]


if __name__ == "__main__":
    main()
