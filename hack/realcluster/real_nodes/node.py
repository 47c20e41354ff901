"""Real nodes: a kubelet, containerd and runc each, in namespaces of their own. Linux and root.

Real nodes show the true behaviour of signals, grace periods and pod addresses, which simulated
nodes only imitate. `init` runs inside the namespaces.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from realcluster import tools, volumes
from realcluster.binaries import build, pins
from realcluster.client import api
from realcluster.control_plane import components
from realcluster.errors import ClusterError
from realcluster.processes import memory_mib
from realcluster.progress import Progress
from realcluster.simulated_nodes import kwok
from realcluster.state import Cluster

from . import image, kernel, runc, service_address
from .config import CONTAINERD_SOCKET, Node, bridge_name, choose_subnet, parse_routes

READY_SECONDS = 180.0  # 3 are usual; a busy machine with two cores has needed more
# `--kill-child`: the recorded process is `unshare`, outside; its end ends the first process inside.
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PROBE = "reprieve-probe"


def can_run() -> str | None:
    """Return None if a real node can run here, otherwise the reason, in one phrase.

    The function tries it out, because containers differ in what they forbid.
    """
    if platform.system() != "Linux":
        return "this is not Linux"
    if os.geteuid():
        return "not root"
    if missing := [
        tool for tool in ("unshare", "mount", "umount", "ldd") if not shutil.which(tool)
    ]:
        return f"the program {missing[0]} is missing"
    if not Path("/dev/kmsg").exists():
        return "there is no /dev/kmsg, which the kubelet reads"
    return _namespaces_obstacle() or _cgroup_obstacle() or _bridge_obstacle() or runc.obstacle()


def _namespaces_obstacle() -> str | None:
    tried = subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "none", "/run"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = (tried.stderr.strip() or "refused").splitlines()[-1]
    return f"no right to create namespaces and mounts ({said})" if tried.returncode else None


def _cgroup_obstacle() -> str | None:
    name = f"{PROBE}-{os.getpid()}"
    try:
        kernel.make_cgroups(name)
    except OSError as error:
        return f"no right to create cgroups ({error})"
    finally:
        kernel.remove_cgroups(name)
    return None


def _bridge_obstacle() -> str | None:
    name = bridge_name(f"{PROBE}-{os.getpid()}")
    try:
        kernel.add_bridge(name, "169.254.255.248/30", "169.254.255.249")
        kernel.remove_bridge(name)
    except OSError as error:
        return f"no right to create a network bridge ({error})"
    return None


def up(cluster: Cluster, count: int, progress: Progress) -> None:
    """Start those of the first `count` real nodes that do not run; return when all are Ready."""
    if reason := can_run():
        raise ClusterError(f"no real node can run here: {reason}")
    programs = build.ensure(pins.GROUPS["node"], progress) | {"runc": runc.ensure(progress)}
    images = (image.pause_image(programs["pause"]), image.python_image(progress))
    service_address.start(cluster)
    names = [cluster.real_node_name(index) for index in range(count)]
    began = datetime.now(UTC).replace(microsecond=0)  # the API server's times have whole seconds
    fresh = [name for name in names if cluster.processes.running(name) is None]
    for name in fresh:
        _start(cluster, name, programs, images)
    for name in names:
        ready = functools.partial(_is_ready, cluster, name, began if name in fresh else None)
        api.wait(cluster, api.Condition(f"node {name}", ready, name, READY_SECONDS), progress)


def down(cluster: Cluster, progress: Progress) -> None:
    """End the cluster's real nodes with all their processes; clean up what stays in the kernel."""
    service_address.stop(cluster)
    names = [folder.name for folder in sorted(_nodes(cluster).glob("*"))]
    if not names:
        return
    with progress.task(f"stopping {', '.join(names)}"):
        cluster.processes.stop(names, kill=True)
        for name in names:
            _clean_up(name)
            shutil.rmtree(_nodes(cluster) / name)


def load_image(cluster: Cluster, archive: Path, progress: Progress) -> None:
    """Import an OCI archive into all real nodes of the cluster, under the name that it states."""
    folders = sorted(_nodes(cluster).glob("*"))
    if not folders:
        raise ClusterError(f"cluster {cluster.name} has no real node: `up --real-nodes 1` adds one")
    for folder in folders:
        node = Node.from_json((folder / "node.json").read_text())
        with progress.task(f"importing {archive.name} into {node.name}"):
            _import(node, _containerd_of(cluster, node.name), archive)


def _containerd_of(cluster: Cluster, name: str) -> int:
    """Return the process id of a node's containerd."""
    first = cluster.processes.running(name)
    inside = _descendants(first.pid) if first else []
    found = next((pid for pid, comm in inside if comm == "containerd"), None)
    if found is None:
        raise ClusterError(f"node {name} does not run: `hack/cluster up` starts it again")
    return found


def _import(node: Node, containerd: int, archive: Path) -> None:
    # The socket as the node sees it: its /run is its own.
    socket = f"/proc/{containerd}/root{CONTAINERD_SOCKET}"
    command = [node.programs["ctr"], "--address", socket, "--namespace", "k8s.io"]
    tools.run([*command, "images", "import", archive], f"{archive} cannot be imported")


def status(cluster: Cluster) -> str:
    """Return one line for each real node."""
    return "\n".join(_line(cluster, folder.name) for folder in sorted(_nodes(cluster).glob("*")))


def _line(cluster: Cluster, name: str) -> str:
    node = Node.from_json((_nodes(cluster) / name / "node.json").read_text())
    if not (first := cluster.processes.running(name)):
        return f"  {name:<26} not running; `hack/cluster up --name {cluster.name}` starts it again"
    inside = {
        comm: f"{comm} {memory_mib(pid)} MiB"
        for pid, comm in _descendants(first.pid)
        if comm in ("kubelet", "containerd")
    }
    return (
        f"  {name:<26} address {node.address}, pods in {node.subnet}, {', '.join(inside.values())}"
    )


def _descendants(pid: int) -> list[tuple[int, str]]:
    """Return (pid, command name) of all descendants of `pid`."""
    found = []
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            found += [
                (child, Path(f"/proc/{child}/comm").read_text().strip()),
                *_descendants(child),
            ]
    return found


def _nodes(cluster: Cluster) -> Path:
    return cluster.home / "nodes"


def _start(
    cluster: Cluster, name: str, programs: dict[str, Path], images: tuple[Path, ...]
) -> None:
    """Start a node that does not run.

    It is new, or its first process was killed; then it keeps its disk.
    """
    _clean_up(name)
    node = _record(cluster, name, programs, images)
    config = Path(node.directory, "config")
    config.mkdir(exist_ok=True)
    cluster.write_kubeconfig(f"system:node:{name}", config / "kubeconfig")
    shutil.copy(components.kubelet_client(cluster)[0], config / "client-ca.crt")
    kernel.make_cgroups(node.cgroup)
    kernel.add_bridge(node.bridge, node.subnet, node.address)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        *UNSHARE,
        sys.executable,
        "-m",
        f"{__package__}.init",
        f"{node.directory}/node.json",
    ]
    cluster.processes.start(name, command, environment)


def _record(
    cluster: Cluster, name: str, programs: dict[str, Path], images: tuple[Path, ...]
) -> Node:
    """Record the node for `init` and for later commands.

    A node that existed before keeps its subnet, because its pods have addresses there.
    """
    file = _nodes(cluster) / name / "node.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    routes = parse_routes(Path("/proc/net/route").read_text())
    node = Node(
        name=name,
        directory=str(file.parent),
        subnet=Node.from_json(file.read_text()).subnet
        if file.exists()
        else choose_subnet(name, routes),
        programs={program: str(path) for program, path in programs.items()},
        images=tuple(map(str, images)),
        logs=str(cluster.home / "logs"),
        volumes=str(volumes.folder(cluster)),
    )
    file.write_text(node.to_json())
    return node


def _clean_up(name: str) -> None:
    """Remove a node's bridge, and its cgroups once they are empty: they outlive its processes."""
    if left := kernel.remove_cgroups(Node.cgroup_of(name)):
        raise ClusterError(f"processes of node {name} do not end: see {left[0]}")
    kernel.remove_bridge(bridge_name(name))


def _is_ready(cluster: Cluster, name: str, since: datetime | None) -> bool:
    """Return whether the kubelet that started at `since`, not an earlier one, reports Ready."""
    item = api.call(cluster, "GET", f"/api/v1/nodes/{name}")
    return kwok.is_ready(item) and (since is None or last_heartbeat(item) >= since)


def last_heartbeat(item: dict[str, Any]) -> datetime:
    """Return when the kubelet last reported Ready. Its first lease would come 10 s too late."""
    times = [
        condition["lastHeartbeatTime"]
        for condition in item["status"]["conditions"]
        if condition["type"] == "Ready"
    ]
    return datetime.fromisoformat(times[0])
