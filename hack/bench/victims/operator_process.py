"""The operator that is measured: a process with its ServiceAccount's rights and its defaults."""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.servers import Server
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.programs import OPERATOR, Place, Programs
from realcluster.state import Cluster, write_private

from .figures import OperatorStart

USER = "system:serviceaccount:reprieve-system:reprieve-operator"
_LEAD_SECONDS = 60.0
_SWEEP_SECONDS = 600.0
_NEVER_AGAIN = 86_400
_PAUSE_SECONDS = 0.1
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_VERB = re.compile(r'verb="(\w+)"')


class OperatorProcess:
    """One run of the operator."""

    def __init__(self, cluster: Cluster, kubectl: Kubectl) -> None:
        port = cluster.port("operator")
        # The first sweep is measured separately; a later one would fall into a turn.
        flags = [
            "--listen-address=127.0.0.1",
            f"--listen-port={port}",
            "--allow-loopback-pod-ips=true",
        ]
        flags.append(f"--sweep-interval-seconds={_NEVER_AGAIN}")
        place = Place(flags, f"http://127.0.0.1:{port}")
        self._programs = Programs(cluster.home, kubectl, {OPERATOR: place})

    def start(self, bystanders: int, tick: Callable[[], None]) -> OperatorStart:
        """OperatorStart it and wait for its first read of all pods, which no turn includes."""
        self._programs.start(OPERATOR)
        self._programs.wait_until_ready(OPERATOR, tick)
        self._wait("lead", _LEAD_SECONDS, lambda: self._value("reprieve_leader") == 1, tick)
        begun, before = time.monotonic(), self.process()
        idle, cpu = before.rss_mib(), before.cpu_seconds()
        swept = "reprieve_last_sweep_timestamp_seconds"
        self._wait("sweep", _SWEEP_SECONDS, lambda: self._value(swept) > 0, tick)
        return OperatorStart(
            bystanders=bystanders,
            idle_rss_mib=idle,
            rss_mib=self.process().rss_mib(),
            sweep_cpu_seconds=self.process().cpu_seconds() - cpu,
            sweep_seconds=time.monotonic() - begun,
        )

    def stop(self) -> None:
        """Stop it if it runs."""
        self._programs.stop(OPERATOR)

    def process(self) -> Server:
        """Return the process, to read its processor time and memory."""
        pid = self._programs.pid(OPERATOR)
        if pid is None:
            raise ClusterError(f"the operator has ended, see {self._programs.log(OPERATOR)}")
        return Server(OPERATOR, 0, pid)

    def calls(self) -> Counter[str]:
        """Return its calls to the API server so far, by verb, from its metrics."""
        counted = Counter[str]()
        for labels, value in self._samples("reprieve_api_calls_total"):
            found = _VERB.search(labels)
            counted[found[1] if found else ""] += round(value)
        return counted

    def dropped_events(self) -> int:
        """Return how many Events it has dropped so far."""
        return round(self._value("reprieve_events_dropped_total"))

    def _value(self, name: str) -> float:
        return sum(value for _, value in self._samples(name))

    def _samples(self, name: str) -> list[tuple[str, float]]:
        found = _SAMPLE.findall(self._programs.read(OPERATOR, "/metrics"))
        return [(labels, float(value)) for called, labels, value in found if called == name]

    def _wait(
        self, what: str, seconds: float, holds: Callable[[], bool], tick: Callable[[], None]
    ) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            tick()
            if time.monotonic() > deadline:
                raise ClusterError(f"the operator did not {what} within {seconds:.0f} s")
            time.sleep(_PAUSE_SECONDS)


def redirected(kubeconfig: Path, url: str, authority: bytes) -> Path:
    """Write a kubeconfig for another URL, with another CA, beside one; return its path."""
    config = json.loads(kubeconfig.read_text())
    data = base64.b64encode(authority).decode()
    config["clusters"][0]["cluster"] |= {"server": url, "certificate-authority-data": data}
    path = kubeconfig.with_name(f"{kubeconfig.stem}-relayed.yaml")
    write_private(path, json.dumps(config))
    return path
