"""The measurement: a cluster filled with pods, one process for all workloads, turns of victims."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench import servers
from realcluster.client import api
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.progress import Progress, Task
from realcluster.state import Cluster

from . import audit, bare_notifier, bystanders, figures, pod_actions, pods, workload
from .figures import NOTIFIER, REPRIEVE, VictimsTurn
from .operator_process import USER, OperatorProcess

_PAUSE_SECONDS = 0.2
_SETTLE_SECONDS = 2.0
_PATIENCE_SECONDS, _PATIENCE_SECONDS_A_POD = 120.0, 0.1


@dataclass(frozen=True)
class WorkloadProcess:
    """The process that answers all hints."""

    port: int

    @classmethod
    @contextmanager
    def running(cls, answer: str) -> Iterator[WorkloadProcess]:
        """Answer hints during the block."""
        words = [sys.executable, "-m", workload.__name__, "--answer", answer]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield cls(int(process.stdout.readline()))
        finally:
            process.kill()
            process.communicate()

    def heard(self, namespace: str) -> dict[str, float]:
        """Return when each pod of a namespace got its hint, in seconds since the epoch."""
        url = f"http://127.0.0.1:{self.port}{workload.HEARD}{namespace}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found: dict[str, float] = json.load(answer)
            return found


@dataclass
class Used:
    """What a contender used in a turn."""

    cpu_seconds: float = 0.0
    rss_mib: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    dropped_events: int = 0


class Measurement:
    """One cluster and its pods."""

    def __init__(
        self, cluster: Cluster, kubectl: Kubectl, hints: WorkloadProcess, progress: Progress
    ) -> None:
        self.bystanders = 0
        self._cluster = cluster
        self._kubectl = kubectl
        self._hints = hints
        self._progress = progress
        self._namespaces = (f"bench-{int(time.time())}-{number}" for number in count(1))

    def fill(self, wanted: int) -> None:
        """Bring the number of running pods that are not victims to `wanted`."""
        self._make_namespace(pods.BYSTANDERS)
        there = self._count(pods.BYSTANDERS)
        with self._progress.task(f"{wanted:,} pods that are no victims") as task:
            if there < (models := min(self._cluster.settings.kwok_nodes, wanted)):
                self._act(task, "create", pods.BYSTANDERS, models - there, first=there)
                self._wait("run", models, lambda: self._all_run(pods.BYSTANDERS), task)
            records = bystanders.Records(self._cluster, pods.BYSTANDERS)
            records.copy(models, max(there, models), wanted, lambda done: task.tick(f"{done:,}"))
            self._wait("are there", wanted, lambda: self._count(pods.BYSTANDERS) >= wanted, task)
        self.bystanders = max(there, wanted)

    def turn(
        self,
        contender: OperatorProcess | str,
        victims: int,
        number: int,
        kubeconfig: Path | None = None,
    ) -> VictimsTurn:
        """Create victims, mark them all at once, and wait until they no longer exist.

        The contender is the operator, or one of the bare programs, by its name.
        """
        name = contender if isinstance(contender, str) else REPRIEVE
        namespace = next(self._namespaces)
        with self._progress.task(f"{victims:,} victims, {name}, round {number}") as task:
            self._make_namespace(namespace)
            self._act(task, "create", namespace, victims, port=self._hints.port)
            self._wait("run", victims, lambda: self._all_run(namespace), task)
            time.sleep(_SETTLE_SECONDS)
            before = self._api_server_cpu()
            if isinstance(contender, str):
                used = (
                    self._notified(namespace, victims, task)
                    if contender == NOTIFIER
                    else self._ended(namespace, victims, task, kubeconfig)
                )
                self._wait("are gone", victims, lambda: not self._count(namespace), task)
            else:
                used = self._handled(contender, namespace, victims, task)
            turn = VictimsTurn(
                contender=name,
                victims=victims,
                bystanders=self.bystanders,
                round=number,
                api_server_cpu_seconds=self._api_server_cpu() - before,
                **vars(used),
                **figures.measure(
                    audit.read(self._cluster.audit_log, namespace),
                    self._hints.heard(namespace),
                    pods.ADMIN if isinstance(contender, str) else USER,
                ),
            )
            self._kubectl.read("delete", "namespace", namespace, "--wait=false")
        return turn

    def _handled(self, operator: OperatorProcess, namespace: str, victims: int, task: Task) -> Used:
        process, calls, dropped = operator.process(), operator.calls(), operator.dropped_events()
        cpu, peak = process.cpu_seconds(), process.rss_mib()

        def are_gone() -> bool:
            nonlocal peak
            peak = max(peak, process.rss_mib())
            return not self._count(namespace)

        self._act(task, "mark", namespace, victims)
        self._wait("are gone", victims, are_gone, task)
        self._wait("are handled", victims, _Unchanged(operator.calls), task)
        return Used(
            cpu_seconds=process.cpu_seconds() - cpu,
            rss_mib=peak,
            calls=operator.calls() - calls,
            dropped_events=operator.dropped_events() - dropped,
        )

    def _ended(self, namespace: str, victims: int, task: Task, kubeconfig: Path | None) -> Used:
        cpu_seconds = self._act(task, "end", namespace, victims, kubeconfig=kubeconfig)
        return Used(cpu_seconds=cpu_seconds)

    def _notified(self, namespace: str, victims: int, task: Task) -> Used:
        words = [sys.executable, "-m", bare_notifier.__name__]
        words += ["--kubeconfig", str(self._cluster.kubeconfig), "--namespace", namespace]
        words += ["--count", str(victims), "--port", str(self._hints.port)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()  # It watches.
            self._act(task, "bare-mark", namespace, victims)
            last, _ = process.communicate(
                timeout=_PATIENCE_SECONDS_A_POD * victims + _PATIENCE_SECONDS
            )
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise ClusterError(f"{NOTIFIER} failed with status {process.returncode}")
        return Used(cpu_seconds=float(json.loads(last)["cpu_seconds"]))

    def _make_namespace(self, name: str) -> None:
        self._kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = {"name": "default", "namespace": name}
        # The controller-manager creates it too, later; without it, no pod is admitted.
        self._kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})

    def _act(
        self,
        task: Task,
        verb: str,
        namespace: str,
        number: int,
        *,
        kubeconfig: Path | None = None,
        **more: int,
    ) -> float:
        """Do something to many pods; return the processor time that it took."""
        flags = {
            "namespace": namespace,
            "count": number,
            "nodes": self._cluster.settings.kwok_nodes,
            **more,
        }
        words = [
            sys.executable,
            "-m",
            pod_actions.__name__,
            verb,
            "--kubeconfig",
            kubeconfig or self._cluster.kubeconfig,
        ]
        words += [word for flag, value in flags.items() for word in (f"--{flag}", value)]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        last = ""
        try:
            assert process.stdout is not None
            for last in process.stdout:
                task.tick(f"{verb} {last.strip()}" if last[0].isdigit() else "")
        finally:
            # After an interruption, this process must not continue alone.
            process.terminate()
            process.communicate()
        if not last.startswith("{"):
            raise ClusterError(f"{verb} in {namespace} failed with status {process.returncode}")
        return float(json.loads(last)["cpu_seconds"])

    def _wait(self, what: str, number: int, holds: Callable[[], bool], task: Task) -> None:
        seconds = _PATIENCE_SECONDS + _PATIENCE_SECONDS_A_POD * number
        deadline = time.monotonic() + seconds
        while not holds():
            task.tick(f"until they {what}")
            if time.monotonic() > deadline:
                raise ClusterError(f"not within {seconds:.0f} s: {number:,} pods {what}")
            time.sleep(_PAUSE_SECONDS)

    def _count(self, namespace: str) -> int:
        listed = api.call(self._cluster, "GET", f"/api/v1/namespaces/{namespace}/pods?limit=1")
        return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))

    def _all_run(self, namespace: str) -> bool:
        pending = (
            f"/api/v1/namespaces/{namespace}/pods?fieldSelector=status.phase%3DPending&limit=1"
        )
        return not api.call(self._cluster, "GET", pending)["items"]

    def _api_server_cpu(self) -> float:
        running = self._cluster.processes.running("kube-apiserver")
        if running is None:
            raise ClusterError("the API server has ended")
        return servers.cpu_seconds(running.pid)


class _Unchanged:
    """True once the answer stays the same for a while: Events come after the last deletion."""

    def __init__(self, ask: Callable[[], Counter[str]]) -> None:
        self._ask = ask
        self._last: Counter[str] | None = None
        self._since = 0.0

    def __call__(self) -> bool:
        now, found = time.monotonic(), self._ask()
        if found != self._last:
            self._last, self._since = found, now
        return now - self._since > _SETTLE_SECONDS
