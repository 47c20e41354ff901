"""A recorded cluster: its settings, its ports, its tokens and its files.

Everything under `Cluster.home` belongs to that cluster alone; `down` removes it.
"""

from __future__ import annotations

import base64
import csv
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TextIO

from . import paths, ports
from .binaries import pins
from .errors import ClusterError
from .processes import Processes
from .progress import Progress

ADMIN = "admin"
NAME = r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"  # used for a folder and in node names
MAX_REAL_NODES = 8  # the API server reads tokens only at its start, so all nodes need theirs then


@dataclass(frozen=True)
class Settings:
    """The options of `hack/cluster up`."""

    provider: str = "local"
    kwok_nodes: int = 10
    real_nodes: int = 0
    local_processes: bool = False
    feature_gates: str = ""
    runtime_config: str = ""
    scheduler_config: str = ""
    kubernetes: str = field(default_factory=pins.kubernetes_version)
    """No option of `up`: the version that the process which made the cluster runs."""

    def differences(self, asked: dict[str, object]) -> list[str]:
        """Return one phrase for each setting in `asked` (None: no preference) that differs here."""
        return [
            f"--{name.replace('_', '-')} {getattr(self, name)!s}, not {value!s}"
            for name, value in asked.items()
            if value is not None and getattr(self, name) != value
        ]


@dataclass(frozen=True)
class Cluster:
    """A recorded cluster, running or not."""

    name: str
    port_base: int
    settings: Settings

    @property
    def home(self) -> Path:
        """The cluster's own folder (`state_dir` for other programs)."""
        return _root() / self.name

    state_dir = home

    @property
    def api_server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.port('kube-apiserver')}"

    @property
    def ca_file(self) -> Path:
        """The API server's self-signed certificate, which is its own authority."""
        return self.home / "pki" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.kubeconfig_of(ADMIN)

    @property
    def audit_log(self) -> Path:
        """One JSON document a line: every change of a pod, with its user."""
        return self.home / "audit.log"

    @property
    def pod_cidr(self) -> str:
        """The loopback network of simulated pods."""
        return ports.pod_cidr(self.port_base)

    @property
    def service_cidr(self) -> str:
        """The network of its Service addresses."""
        return ports.service_cidr(self.port_base)

    @cached_property
    def processes(self) -> Processes:
        """The processes of this cluster."""
        return Processes(self.home)

    def port(self, component: str) -> int:
        """Return the port of one of `ports.OFFSETS`."""
        return ports.port(self.port_base, component)

    def real_node_name(self, index: int) -> str:
        """Return the name of the real node number `index` (from 0).

        Its user is `system:node:NAME`.
        """
        return f"{self.name}-real-{index}"

    def kubeconfig_of(self, user: str) -> Path:
        """Return where the kubeconfig of `user` is written by `write_kubeconfig`."""
        return self.home / "kubeconfigs" / f"{user.replace(':', '-')}.yaml"

    def token(self, user: str) -> str:
        """Return the bearer token of `user`: one of those in the token file."""
        with (self.home / "tokens.csv").open(newline="") as file:
            for token, name, *_ in csv.reader(file):
                if name == user:
                    return token
        raise ClusterError(f"cluster {self.name} has no user {user}")

    def write_kubeconfig(self, user: str, path: Path | None = None) -> Path:
        """Write a self-contained kubeconfig, which may be copied; return its path."""
        path = path or self.kubeconfig_of(user)
        cluster = {"server": self.api_server, "certificate-authority-data": _base64(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": user}}],
            "current-context": self.name,
        }
        write_private(path, json.dumps(config, indent=2) + "\n")  # JSON is YAML
        return path

    def write_tokens(self) -> None:
        """Give each user a token, once.

        Users have real names, so that webhooks and the audit log see them.
        """
        file = self.home / "tokens.csv"
        if file.exists():
            return
        users = {ADMIN: "system:masters", "kwok": "system:masters"}
        users |= dict.fromkeys(
            ("system:kube-controller-manager", "system:kube-scheduler"), "system:authenticated"
        )
        users |= {
            f"system:node:{self.real_node_name(index)}": "system:nodes"
            for index in range(MAX_REAL_NODES)
        }
        lines = [
            f'{secrets.token_hex(16)},{user},{number},"{group}"\n'
            for number, (user, group) in enumerate(users.items())
        ]
        write_private(file, "".join(lines))

    def remove(self, *, keep_logs: bool) -> None:
        """Delete the cluster's files, except the logs if they are wanted."""
        kept = {"logs", "audit.log"} if keep_logs else set()
        for entry in self.home.iterdir():
            if entry.name not in kept:
                shutil.rmtree(
                    entry
                ) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if not kept:
            self.home.rmdir()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def find(name: str) -> Cluster | None:
    """Return the recorded cluster of that name."""
    try:
        record = json.loads((_root() / name / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    known = {field.name for field in fields(Settings)}
    settings = Settings(**{key: value for key, value in record["settings"].items() if key in known})
    return Cluster(record["name"], record["port_base"], settings)


def get(name: str) -> Cluster:
    """Return the recorded cluster of that name; raise with the command that creates it."""
    if cluster := find(name):
        return cluster
    raise ClusterError(
        f"there is no cluster named {name}; `hack/cluster up --name {name}` makes it"
    )


def create_or_get(name: str, asked: dict[str, object], port_base: int | None) -> Cluster:
    """Return the cluster of that name, recorded now if it is new.

    `asked` holds fields of Settings; None means no preference. Raises if the recorded cluster has
    other settings.
    """
    check_name(name)
    with _lock():
        if cluster := find(name):
            return _agreeing(cluster, asked, port_base)
        taken = [other.port_base for other in everyone()]
        if port_base is None:
            port_base = ports.choose(taken)
        ports.check(port_base, taken)
        said = {key: value for key, value in asked.items() if value is not None}
        cluster = Cluster(name, port_base, replace(Settings(), **said))  # type: ignore[arg-type]
        record = {"name": name, "port_base": port_base, "settings": asdict(cluster.settings)}
        cluster.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(cluster.home / "cluster.json", json.dumps(record, indent=2) + "\n")
        return cluster


@contextmanager
def held(name: str, progress: Progress) -> Iterator[None]:
    """Hold one cluster.

    Of two `up` or `down` at once, the second waits, then finds the work done.
    """
    with _lock_file(name, "lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"another command works on cluster {name}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def claimed(name: str) -> Iterator[None]:
    """Claim one cluster for the block; raise if another run has claimed it and still needs it."""
    with _lock_file(name, "claim") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(f"cluster {name} is in use by another run on this machine") from None
        yield


def _lock_file(name: str, purpose: str) -> TextIO:
    check_name(name)
    _root().mkdir(parents=True, exist_ok=True, mode=0o700)
    return (_root() / f".{name}.{purpose}").open("w")


def check_name(name: str) -> None:
    """Raise unless a cluster may have this name."""
    if not re.fullmatch(NAME, name):
        raise ClusterError(
            f"--name {name}: must be up to 32 of a-z, 0-9, -, beginning and ending with a letter "
            "or digit"
        )


def forget_logs(name: str) -> None:
    """Remove the logs that a `down --keep-logs` left."""
    if find(name) is None:
        shutil.rmtree(_root() / name, ignore_errors=True)


def everyone() -> list[Cluster]:
    """Return all recorded clusters of this user."""
    names = sorted(file.parent.name for file in _root().glob("*/cluster.json"))
    return [cluster for name in names if (cluster := find(name))]


def check_version(cluster: Cluster) -> None:
    """Raise unless this process builds and runs the Kubernetes version of the cluster."""
    wanted, found = pins.kubernetes_version(), cluster.settings.kubernetes
    if wanted != found:
        raise ClusterError(
            f"cluster {cluster.name} runs Kubernetes {found}, not {wanted}: set "
            f"{pins.KUBERNETES_VERSION} as for its `up`, or `hack/cluster down --name "
            f"{cluster.name}` first"
        )


def _agreeing(cluster: Cluster, asked: dict[str, object], port_base: int | None) -> Cluster:
    check_version(cluster)
    different = cluster.settings.differences(asked)
    if port_base not in (None, cluster.port_base):
        different.append(f"--port-base {cluster.port_base}, not {port_base}")
    if different:
        raise ClusterError(
            f"cluster {cluster.name} exists with {'; '.join(different)}: "
            f"`hack/cluster down --name {cluster.name}` first, or choose another --name"
        )
    return cluster


def _root() -> Path:
    return paths.state_home() / "clusters"


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@contextmanager
def _lock() -> Iterator[None]:
    """Lock the state of all clusters: two `up` at once must not choose the same ports."""
    _root().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (_root() / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
