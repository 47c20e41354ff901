"""Reprieve's two programs as local processes beside a cluster.

Each has the rights of its own ServiceAccount and no more. The programs outlive the command that
started them. They are identified by pid and start time, as the cluster's own processes are, and
their logs are beside those.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .client.kubectl import Kubectl
from .client.objects import TOKEN_SECONDS
from .errors import ClusterError
from .ports import METRICS_ABOVE
from .processes import Processes
from .state import write_private

NAMESPACE = "reprieve-system"
WEBHOOKS, OPERATOR = "reprieve-webhooks", "reprieve-operator"
READY_SECONDS = 180.0  # 2 are usual; a busy machine with two cores has needed more than 60


@dataclass(frozen=True)
class Place:
    """Where one program listens: `probe_url` has `/readyz`."""

    flags: Sequence[object]
    probe_url: str

    @property
    def metrics_port(self) -> int:
        """The port of `/metrics`."""
        return int(self.probe_url.rpartition(":")[2]) + METRICS_ABOVE

    def url(self, path: str) -> str:
        """Return the URL of a probe or of the metrics, which have no TLS."""
        if path != "/metrics":
            return self.probe_url + path
        host = self.probe_url.partition("://")[2].rpartition(":")[0]
        return f"http://{host}:{self.metrics_port}{path}"


class Programs:
    """The two programs beside one cluster; `places` has their addresses."""

    def __init__(self, home: Path, kubectl: Kubectl, places: dict[str, Place]) -> None:
        self._processes = Processes(home)
        self._home = home
        self._kubectl = kubectl
        self._places = places

    def start(self, name: str) -> None:
        """Start a program unless it runs."""
        if self.pid(name) is not None:
            return
        kubeconfig = self._write_kubeconfig(name)
        program = Path(sys.executable).with_name(name)  # where the package's installation puts it
        place = self._places[name]
        metrics = ("--metrics-port", place.metrics_port, "--metrics-authentication", "none")
        command = [program, "--kubeconfig", kubeconfig, *metrics, *place.flags]
        self._processes.start(name, command, _environment())

    def restart(self, name: str, *more_flags: object) -> None:
        """Start a program again, with further flags, and wait until it is ready."""
        place = self._places[name]
        self._places[name] = replace(place, flags=[*place.flags, *more_flags])
        self.stop(name)
        self.start(name)
        self.wait_until_ready(name)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a program with TERM, or at once with KILL, like a crash."""
        self._processes.stop([name], kill=kill)

    def stop_command(self, name: str) -> str:
        """Return the command that does what `stop` does."""
        return f"kill -TERM {self.pid(name)}    # {name}"

    def log_command(self, name: str) -> str:
        """Return the command that shows a program's log."""
        return f"cat {self.log(name)}"

    def pid(self, name: str) -> int | None:
        """Return the process id of a running program, or None."""
        alive = self._processes.running(name)
        return alive.pid if alive else None

    def log(self, name: str) -> Path:
        """Return the file with a program's output, over all its starts."""
        return self._processes.log(name)

    def is_ready(self, name: str) -> bool:
        """Return whether a program reports ready."""
        try:
            return bool(self.read(name, "/readyz"))
        except OSError:
            return False

    def wait_until_ready(self, name: str, tick: Callable[[], None] = lambda: None) -> None:
        """Wait until a program is ready.

        If it stops or takes too long, raise with the end of its log.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_ready(name):
            tick()
            late = time.monotonic() > deadline
            if late or self.pid(name) is None:
                what = f"is not ready within {READY_SECONDS:.0f} s" if late else "stopped"
                raise ClusterError(
                    f"{self._processes.last_lines(name)}\n{name} {what}, see {self.log(name)}"
                )
            time.sleep(0.05)

    def read(self, name: str, path: str) -> str:
        """Return an answer of the program's ports for probes and metrics.

        Raises OSError on failure.
        """
        # The certificate is not checked: the answer is public, and nothing is sent.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001
        with urllib.request.urlopen(self.url(name, path), timeout=3, context=context) as answer:  # noqa: S310 (a fixed loopback URL)
            return str(answer.read().decode()) or "ok"

    def url(self, name: str, path: str) -> str:
        """Return the URL of a probe or of the metrics."""
        return self._places[name].url(path)

    def _write_kubeconfig(self, name: str) -> Path:
        """Write a kubeconfig that holds only a new token of the program's ServiceAccount."""
        view = json.loads(self._kubectl.read("config", "view", "--raw", "--minify", "-o", "json"))
        account = ("create", "token", name, "-n", NAMESPACE, f"--duration={TOKEN_SECONDS}s")
        token = self._kubectl.read(*account).strip()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": view["clusters"],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [
                {"name": name, "context": {"cluster": view["clusters"][0]["name"], "user": name}}
            ],
            "current-context": name,
        }
        path = self._home / "kubeconfigs" / f"{name}.yaml"
        write_private(path, json.dumps(config, indent=2) + "\n")
        return path


def _environment() -> dict[str, str]:
    """Return the caller's environment without variables that change settings or credentials."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REPRIEVE_", "KUBE"))
    }
    return {**kept, "PYTHONUNBUFFERED": "1"}
