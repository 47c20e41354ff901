"""A cluster of simulated nodes whose unmodified kube-scheduler calls our extender.

The scheduler's configuration is the stanza of `manifests/scheduler`.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from realcluster import install
from realcluster.programs import OPERATOR, WEBHOOKS, Place, Programs
from reprieve_policy import keys
from reprieve_testing.manifests import MANIFESTS
from reprieve_testing.servers.corrupting_proxy import corrupting_proxy
from reprieve_webhooks.extender.metrics import CallOutcome

from .hack_cluster import NAMESPACE, SECONDS, OwnCluster, own_cluster, succeed
from .handle import OPERATOR_NAMESPACE, OPERATOR_PACE, wait_for

STANZA = MANIFESTS / "scheduler" / "stanza.yaml"
RIGHTS = MANIFESTS / "components" / "extender" / "rbac.yaml"
HTTP_TIMEOUT_SECONDS = 2
BARE = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@dataclass(frozen=True)
class ExtenderCluster:
    """The cluster, the webhooks beside it, and the scheduler's configuration file."""

    cluster: OwnCluster
    programs: Programs
    config: Path

    def configure_extender(self, **changes: Any) -> None:
        """Configure the extender in the scheduler by the stanza, with `changes` to its fields."""
        document = yaml.safe_load(STANZA.read_text())
        (extender,) = document["extenders"]
        port, ca = self.cluster.cluster.port("webhooks"), self.config.with_name("ca.crt")
        ca.write_bytes(self._ca())
        extender["urlPrefix"] = f"https://127.0.0.1:{port}/scheduler"
        extender["tlsConfig"]["caFile"] = str(ca)
        extender["httpTimeout"] = f"{HTTP_TIMEOUT_SECONDS}s"
        extender.update(changes)
        self.config.write_text(json.dumps(document))
        self.restart_scheduler()

    @contextmanager
    def with_corrupted_answers(self, spoil: Callable[[bytes], bytes]) -> Iterator[list[bytes]]:
        """Pass our answers to the scheduler through `spoil`, still with status 200.

        Yields the answers as the extender gave them.
        """
        port = self.cluster.cluster.port("webhooks")
        with corrupting_proxy(f"https://127.0.0.1:{port}", spoil) as (url, answers):
            self.configure_extender(urlPrefix=f"{url}/scheduler", enableHTTPS=False, tlsConfig=None)
            yield answers

    def restart_scheduler(self) -> None:
        """Have the scheduler read its configuration again."""
        succeed(self.cluster.hack("stop", "kube-scheduler", "--kill"))
        succeed(self.cluster.hack("start", "kube-scheduler"))

    def signal_webhooks(self, number: signal.Signals) -> None:
        """Send a signal to the webhooks' process."""
        pid = self.programs.pid(WEBHOOKS)
        assert pid is not None
        os.kill(pid, number)

    def metric(self, name: str) -> float:
        """Return a metric of the webhooks by its name with labels; 0 if it does not exist yet."""
        lines = self.programs.read(WEBHOOKS, "/metrics").splitlines()
        values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return next((float(value) for shown, _, value in values if shown == name), 0.0)

    def calls(self, outcome: str) -> float:
        """Return how many calls had this outcome."""
        return self.metric(f'reprieve_extender_calls_total{{outcome="{outcome}"}}')

    def outcomes(self) -> dict[str, float]:
        """Return how many calls had each outcome, for the message of a failing test."""
        return {
            outcome.value: found for outcome in CallOutcome if (found := self.calls(outcome.value))
        }

    def last_choices(self, count: int) -> str:
        """Return the webhooks' log lines about their last choices, for the message of a failing
        test.
        """
        lines = self.programs.log(WEBHOOKS).read_text().splitlines()
        return "\n".join([line for line in lines if '"victims chosen"' in line][-count:])

    def wait_calls(self, outcome: str, more_than: float = 0.0) -> None:
        """Wait until more calls than that had this outcome."""
        wait_for(f"calls answered with {outcome}", lambda: self.calls(outcome) > more_than, SECONDS)

    def run(self, *pods: Any) -> None:
        """Create pods, and wait until all of them run."""
        self.cluster.create(*pods)
        for pod in pods:
            self.cluster.wait_running(pod["metadata"]["name"])

    def wait_gone(self, name: str) -> None:
        """Wait until a pod was deleted and is gone."""
        self.cluster.wait_gone(NAMESPACE, name, SECONDS)

    def names(self) -> set[str]:
        """Return the names of all pods that exist and are not being deleted."""
        items = self.cluster.kubectl.get("pods", "-n", NAMESPACE)["items"]
        return {
            item["metadata"]["name"]
            for item in items
            if "deletionTimestamp" not in item["metadata"]
        }

    def clear(self) -> None:
        """Delete all pods and the objects that make pods."""
        everything = "jobs,poddisruptionbudgets,pods"
        self.cluster.kubectl.read(
            "delete", everything, "--all", "-n", NAMESPACE, "--wait=true", "--timeout=60s"
        )

    def _ca(self) -> bytes:
        secret = self.cluster.kubectl.get(
            "secret", "reprieve-webhook-certs", "-n", OPERATOR_NAMESPACE
        )
        return base64.b64decode(secret["data"]["ca.crt"])


@contextmanager
def extender_cluster(
    name: str,
    directory: Path,
    *,
    nodes: int,
    cluster_flags: tuple[object, ...] = (),
    extra: tuple[object, ...] = (),
) -> Iterator[ExtenderCluster]:
    """Make a cluster whose scheduler calls our extender; `extra` are further flags of the
    webhooks.
    """
    config = directory / "scheduler.yaml"
    config.write_text(BARE)
    flags = ("--kwok-nodes", nodes, "--scheduler-config", config, *cluster_flags)
    with own_cluster(name, *flags) as cluster:
        programs = _programs(cluster, extra)
        install.install(cluster.kubectl, install.LOCAL, cluster.cluster.port("webhooks"))
        cluster.kubectl.read("apply", "-f", RIGHTS)
        programs.start(WEBHOOKS)
        try:
            programs.wait_until_ready(WEBHOOKS)
            made = ExtenderCluster(cluster, programs, config)
            made.configure_extender()
            yield made
        finally:
            programs.stop(OPERATOR)
            programs.stop(WEBHOOKS)


def _programs(cluster: OwnCluster, extra: tuple[object, ...]) -> Programs:
    webhooks, operator = (cluster.cluster.port(part) for part in ("webhooks", "operator"))
    address = ("--listen-address", "127.0.0.1", "--listen-port")
    flags = [
        *address,
        webhooks,
        "--serving-ips",
        "127.0.0.1",
        "--drain-seconds",
        0.2,
        "--extender=true",
        *extra,
    ]
    pace = [
        f"--{key.replace('_', '-')}={str(value).lower()}" for key, value in OPERATOR_PACE.items()
    ]
    places = {
        WEBHOOKS: Place(flags, f"https://127.0.0.1:{webhooks}"),
        OPERATOR: Place([*address, operator, *pace], f"http://127.0.0.1:{operator}"),
    }
    return Programs(cluster.cluster.home, cluster.kubectl, places)


def a_priority_class(name: str, value: int, **annotations: str) -> Any:
    """Return a PriorityClass; the last part of a key names its annotation
    (`toleration_seconds`).
    """
    prefixed = {
        f"{keys.TOLERATION_PREFIX}{key.replace('_', '-')}": text
        for key, text in annotations.items()
    }
    metadata = {"name": name, "annotations": prefixed}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": value,
    }


def a_pod(
    name: str, priority_class: str, cpu: int, *, node: str = "", labels: Any = None, **spec: Any
) -> Any:
    """Return a pod that requests CPUs, for a node by name or for any node."""
    where = {"kubernetes.io/hostname": node} if node else {"type": "kwok"}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "priorityClassName": priority_class,
            "nodeSelector": where,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }
