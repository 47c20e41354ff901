"""A real cluster for tests and demos: kubectl, namespaces, local programs, the audit log.

Independent of pytest. On a machine that cannot run a cluster, the reason is raised as an error:
nothing here skips.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from realcluster import lifecycle, ports, state
from realcluster.binaries import build
from realcluster.client.kubectl import Kubectl
from realcluster.client.objects import Client, RefusedError
from realcluster.errors import ClusterError
from realcluster.install import BASE, NAMESPACE_FILE
from realcluster.progress import Progress
from reprieve_testing.cluster.audit_log import AuditEntry, changes_of_a_pod
from reprieve_testing.rights import usage

Json = Any
T = TypeVar("T")

OPERATOR_NAMESPACE = "reprieve-system"
CONTROLLER = "reprieve.dev/operator"
_OPERATOR = "reprieve-operator"
_PAUSE_SECONDS = 0.1
PATIENCE_SECONDS = 180.0
"""For what takes a second: a busy machine with two processors has needed twenty times that."""
_STOP_SECONDS = 60.0
_QUOTED = re.compile(r"(?:\(before that: |; )([A-Z][A-Za-z]+): ")
"""Reasons of earlier steps in the note of a burst's Event, the newest first."""
_WORKER = "PYTEST_XDIST_WORKER"
"""`gw0`, `gw1`, …; unset without pytest-xdist."""
_FIRST_PORT, _PORTS = 25_000, 7_000
"""Below the ports that Linux gives to outgoing connections (32768 and up), and above those of
clusters (16443 and up).
"""
_names = count(1)
_ports = count(os.getpid() * 97 % _PORTS)


def wait_for(what: str, find: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """Return the first true result of `find`; raise an error with `what` once the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(_PAUSE_SECONDS)


@dataclass
class Program:
    """One of our programs as a local process."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str
    metrics_url: str
    end_lease: Callable[[], None] = lambda: None

    def wait_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until it is ready; if it ends instead, the error shows the end of its log."""
        wait_for(f"{self.url}/readyz\n{self.tail()}", self._is_ready, seconds)

    def wait_leading(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until this replica leads."""
        wait_for(f"leadership\n{self.tail()}", lambda: self.metric("reprieve_leader") == 1, seconds)

    def metric(self, name: str) -> float | None:
        """Return a metric's value by its name with labels.

        Return `None` if the metric does not exist (yet), or the program does not answer.
        """
        try:
            with urllib.request.urlopen(self.metrics_url, timeout=2) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return next((float(value) for shown, _, value in values if shown == name), None)

    def release(self) -> None:
        """Let a prepared program start."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process."""
        self.process.send_signal(number)

    def kill(self, *, end_lease: bool = True) -> None:
        """End it as a crash would.

        Its Lease ends at once, so that the Lease can be long and a successor need not wait for it.
        """
        self.process.kill()
        self._wait()
        if end_lease:
            self.end_lease()

    def stop(self) -> int:
        """End it with TERM and return its status; one that hangs is killed and is an error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self._wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"did not end within {_STOP_SECONDS:g} s of TERM\n{self.tail()}"
            ) from None

    def tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _wait(self, seconds: float | None = None) -> int:
        status = self.process.wait(seconds)
        if self.process.stdin is not None:
            # It is open where a prepared program was never released.
            self.process.stdin.close()
        return status

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"ended with status {self.process.returncode}\n{self.tail()}")
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def cleared(name: str) -> Iterator[str]:
    """Claim a cluster's name for the block; remove a cluster of that name before and after.

    An interrupted run leaves one.
    """
    with state.claimed(name):
        lifecycle.down(name, keep_logs=False, progress=Progress())
        try:
            yield name
        finally:
            usage.collect(name)
            lifecycle.down(name, keep_logs=False, progress=Progress())


@contextmanager
def new_cluster(name: str, **settings: Json) -> Iterator[state.Cluster]:
    """Make a cluster for the block; raise `ClusterError` with the reason where that fails."""
    with cleared(name):
        yield lifecycle.up(name, settings, None, Progress())


def own_name(name: str) -> str:
    """Return the name of this worker's own cluster: workers of pytest-xdist share none."""
    worker = os.environ.get(_WORKER, "")
    return f"{name}-{worker}" if worker else name


def make_namespace(client: Client, name: str) -> None:
    """Create a namespace in which pods are admitted."""
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # The controller-manager creates it too, but takes a minute to reconnect to a restarted API
    # server.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with suppress(RefusedError):
        client.create(account, namespace=name)


@contextmanager
def cluster_for_tests(
    name: str, *, kwok_nodes: int = 2, variable: str = "REPRIEVE_TEST_CLUSTER"
) -> Iterator["ClusterHandle"]:
    """Return a cluster of this worker for the block.

    If the variable names a cluster, return that one, and leave it running.
    """
    if kept := os.environ.get(variable):
        up = lifecycle.up(own_name(kept), {"kwok_nodes": kwok_nodes}, None, Progress())
        with _ending(ClusterHandle.of(up)) as handle:
            yield handle
        return
    with (
        new_cluster(own_name(name), kwok_nodes=kwok_nodes) as cluster,
        _ending(ClusterHandle.of(cluster)) as handle,
    ):
        yield handle


@contextmanager
def _ending(handle: "ClusterHandle") -> Iterator["ClusterHandle"]:
    try:
        yield handle
    finally:
        handle.stop_programs()


@dataclass
class ClusterHandle:
    """A running cluster, and the programs started beside it."""

    cluster: state.Cluster
    kubectl: Kubectl
    programs: list[Program] = field(default_factory=list)

    @property
    def client(self) -> Client:
        """A client that writes objects without a kubectl process."""
        return self.kubectl.client

    @classmethod
    def of(cls, cluster: state.Cluster) -> "ClusterHandle":
        """Return the handle of a running cluster."""
        return cls(cluster, Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig))

    def stop_programs(self) -> None:
        """Stop the remaining programs that were started through this handle."""
        for program in self.programs:
            # A program that hangs is killed: its test has failed already, or will.
            with suppress(AssertionError):
                program.stop()
        self.programs.clear()

    def reprieve_command(self, *words: str, kubeconfig: Path | None = None) -> list[str]:
        """Return the command line of `reprieve` with these words, for this cluster.

        Without `kubeconfig` it runs as an admin.
        """
        program = Path(sys.executable).with_name("reprieve")
        return [
            str(program),
            words[0],
            "--kubeconfig",
            str(kubeconfig or self.cluster.kubeconfig),
            *words[1:],
        ]

    def reprieve(
        self, *words: str, kubeconfig: Path | None = None, seconds: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """Run `reprieve` to its end."""
        command = self.reprieve_command(*words, kubeconfig=kubeconfig)
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)

    def install_operator_rights(self) -> None:
        """Apply the namespace, the guard with its rights, and the operator's rights with their
        limits; no webhooks, no pods.
        """
        self.kubectl.read("apply", "-f", NAMESPACE_FILE)
        files = ("guard.yaml", "program-limits.yaml", "users-rbac.yaml", "operator-rbac.yaml")
        self.kubectl.read("apply", *(word for file in files for word in ("-f", BASE / file)))

    def set_policy(self, **data: str) -> None:
        """Replace the ConfigMap `reprieve-policy`."""
        metadata = {"name": "reprieve-policy", "namespace": OPERATOR_NAMESPACE}
        self.client.replace(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    def account_kubeconfig(self, account: str, namespace: str = OPERATOR_NAMESPACE) -> Path:
        """Write a kubeconfig with only a fresh token of a ServiceAccount; return its path."""
        token = self.client.create_token(account, namespace)
        config = json.loads(self.cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path = self.cluster.home / "kubeconfigs" / f"{namespace}-{account}.yaml"
        state.write_private(path, json.dumps(config))
        return path

    def start_operator(self, **settings: object) -> Program:
        """Start `reprieve-operator` with the rights of its own ServiceAccount and short
        intervals.
        """
        return self._start_operator(settings)

    def prepare_operator(self, prelude: str = "", **settings: object) -> Program:
        """Start an operator that has loaded its code and waits for `release`: a quick successor.

        Its process first runs `prelude`, a line of Python, for example to set its clock.
        """
        code = (
            f"{prelude}\nimport sys; from reprieve_operator.main import main; "
            "sys.stdin.readline() and main()"
        )
        return self._start_operator(settings, [sys.executable, "-c", code])

    def _start_operator(self, settings: dict[str, object], command: Sequence[str] = ()) -> Program:
        if "kubeconfig" not in settings:
            settings["kubeconfig"] = self.account_kubeconfig(_OPERATOR)
        return self._start(_OPERATOR, OPERATOR_PACE | settings, command)

    def _start(
        self, name: str, settings: dict[str, object], command: Sequence[str] = ()
    ) -> Program:
        port, metrics_port = free_port(), free_port()
        address = {
            "listen_address": "127.0.0.1",
            "listen_port": port,
            "metrics_port": metrics_port,
            "metrics_authentication": "none",
        }
        flags = address | settings
        words = [f"--{key.replace('_', '-')}={_shown(value)}" for key, value in flags.items()]
        log = self.cluster.home / "logs" / f"{name}-{next(_names)}.log"
        with log.open("wb") as file:
            program = command or [str(Path(sys.executable).with_name(name))]
            stdin = subprocess.PIPE if command else subprocess.DEVNULL
            process = subprocess.Popen(
                [*program, *words], stdin=stdin, stdout=file, stderr=file, env=_env()
            )
        here = "http://127.0.0.1"
        started = Program(process, log, f"{here}:{port}", f"{here}:{metrics_port}/metrics")
        if name == _OPERATOR:
            started.end_lease = self._end_lease
        self.programs.append(started)
        return started

    def _end_lease(self) -> None:
        # Where the API server is away too, the Lease ends in its own time.
        with suppress(ClusterError):
            self.client.delete("lease", _OPERATOR, namespace=OPERATOR_NAMESPACE)

    @contextmanager
    def namespace(self, prefix: str) -> Iterator[str]:
        """Make a namespace for the block; delete it afterwards, and remove its pods' finalizers."""
        name = f"{prefix}-{next(_names)}-{os.getpid()}"
        make_namespace(self.client, name)
        try:
            yield name
        finally:
            self.client.delete("namespace", name)
            for pod in self.kubectl.get("pods", "-n", name)["items"]:
                with suppress(RefusedError):
                    freed = {"metadata": {"finalizers": None}}
                    self.client.patch("pod", pod["metadata"]["name"], freed, namespace=name)

    def create_pod(self, namespace: str, name: str, **metadata: Json) -> Json:
        """Create a pod on a simulated node and return it once it runs."""
        grace, spec = metadata.pop("grace_seconds", 30), metadata.pop("spec", {})
        node = f"kwok-{next(_names) % self.cluster.settings.kwok_nodes}"
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": {
                # Without the scheduler, which may still be restarting, as without the
                # ServiceAccount's token.
                "nodeName": node,
                "terminationGracePeriodSeconds": grace,
                "containers": [{"name": "main", "image": "none"}],
                "tolerations": [{"operator": "Exists"}],
                **spec,
            },
        }
        self.client.create(document)
        return wait_for(f"pod {name} runs", lambda: self._running(namespace, name))

    def pod(self, namespace: str, name: str) -> Json | None:
        """Return a pod, or `None` if it does not exist."""
        return self.kubectl.find("pod", name, "-n", namespace)

    def wait_gone(self, namespace: str, name: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the pod does not exist."""
        wait_for(f"pod {name} is gone", lambda: self.pod(namespace, name) is None, seconds)

    def wait_phase(
        self, namespace: str, name: str, phase: str, seconds: float = PATIENCE_SECONDS
    ) -> Json:
        """Wait until the pod's label shows a phase of a soft eviction; return the pod."""

        def find() -> Json | None:
            pod = self.pod(namespace, name)
            return (
                pod
                if pod
                and pod["metadata"].get("labels", {}).get("reprieve.dev/soft-eviction") == phase
                else None
            )

        return wait_for(f"pod {name} is {phase}", find, seconds)

    def mark(self, namespace: str, name: str) -> None:
        """Mark a pod for eviction, as a user does."""
        labels = {"reprieve.dev/soft-eviction": "requested"}
        self.client.patch("pod", name, {"metadata": {"labels": labels}}, namespace=namespace)

    def annotate(self, namespace: str, name: str, text: str) -> None:
        """Set an annotation `key=value`, or remove one, `key-`."""
        key, separator, value = text.partition("=")
        annotations = {key: value} if separator else {key.removesuffix("-"): None}
        self.client.patch(
            "pod", name, {"metadata": {"annotations": annotations}}, namespace=namespace
        )

    def event_reasons(self, namespace: str, name: str) -> list[str]:
        """Return the reasons of our Events about a pod, ordered by time, quoted ones included."""
        items = self.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
        ours = [
            item
            for item in items
            # Events of others may be about nothing.
            if item.get("reportingController") == CONTROLLER and item["regarding"]["name"] == name
        ]
        return [
            reason
            for item in sorted(ours, key=lambda item: str(item["eventTime"]))
            for reason in (*reversed(_QUOTED.findall(item["note"])), item["reason"])
        ]

    def audit(self, namespace: str, name: str, user: str = "reprieve-operator") -> list[AuditEntry]:
        """Return the changes of a pod by users whose name ends with `user`, oldest first."""
        return changes_of_a_pod(self.cluster.audit_log, namespace, name, user)

    def writes_until_end(self, namespace: str, name: str) -> list[str]:
        """Return the operator's accepted changes of a pod, up to its DELETE or eviction.

        The removal of Reprieve's finalizer, which may follow, is left out.
        """
        accepted = [entry.what for entry in self.audit(namespace, name) if entry.status < 400]
        ends = [number for number, what in enumerate(accepted) if what in _ENDS_OF_A_POD]
        return accepted[: ends[0] + 1] if ends else accepted

    def kill_component(self, name: str) -> None:
        """Kill a component of the control plane, as a crash would."""
        lifecycle.stop_component(self.cluster, name, kill=True)

    def start_component(self, name: str) -> None:
        """Restart a component of the control plane, and wait for the API server."""

        def answers() -> bool:
            # Retry where the component has ended: another cluster that looks for free ports may
            # hold its port for a moment.
            lifecycle.start_component(self.cluster, name, Progress())
            return lifecycle.answers(self.cluster)

        wait_for("the API server answers", answers)

    def compact_etcd(self) -> None:
        """Let etcd drop all but the newest versions of objects, as a real one does every few
        minutes.
        """
        url = f"http://127.0.0.1:{self.cluster.port('etcd')}/v3/kv"
        # Every response carries the revision in its header.
        revision = _post(f"{url}/range", {"key": "AA=="})["header"]["revision"]
        _post(f"{url}/compaction", {"revision": revision, "physical": True})

    def _running(self, namespace: str, name: str) -> Json | None:
        pod = self.pod(namespace, name)
        return (
            pod
            if pod and pod["status"].get("phase") == "Running" and pod["status"].get("podIP")
            else None
        )


_ENDS_OF_A_POD = ("delete", "create eviction")
LEASE_SECONDS = 12
"""A leader on a busy machine that has to renew its Lease within four seconds loses it."""
OPERATOR_PACE: dict[str, object] = {
    "allow_loopback_pod_ips": True,
    "poll_interval_seconds": 0.3,
    "sweep_interval_seconds": 1.0,
    "resync_interval_seconds": 5.0,
    "retry_period_seconds": 0.5,
    "renew_deadline_seconds": LEASE_SECONDS * 0.75,
    "lease_duration_seconds": LEASE_SECONDS,
    "hint_timeout_seconds": 3.0,
    "log_format": "text",
}
"""Intervals of seconds, where a real cluster uses minutes."""

__all__: Sequence[str] = ("AuditEntry", "ClusterError", "ClusterHandle", "Program", "wait_for")


def _post(url: str, body: Json) -> Json:
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _env() -> dict[str, str]:
    """Return the environment without variables that the programs read as settings or
    credentials.
    """
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("REPRIEVE_", "KUBE"))
    }


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def free_port() -> int:
    """Return a port on which a program can listen.

    A port that the kernel chooses may belong to an outgoing connection of another worker before
    the program listens.
    """
    for _ in range(_PORTS):
        port = _FIRST_PORT + next(_ports) % _PORTS
        if ports.is_free(port):
            return port
    raise AssertionError(f"no free port from {_FIRST_PORT} to {_FIRST_PORT + _PORTS}")
