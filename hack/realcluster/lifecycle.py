"""Bring a cluster up or down; start and stop its parts. Safe to repeat and to interrupt."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import kind, state, volumes
from .binaries import build, pins
from .client import api
from .control_plane import components, scheduler_config
from .errors import ClusterError
from .local_processes import runner
from .progress import Progress
from .simulated_nodes import kwok
from .state import Cluster

COMPONENTS = (*components.COMPONENTS, kwok.COMPONENT)


def up(name: str, asked: dict[str, object], port_base: int | None, progress: Progress) -> Cluster:
    """Return the running cluster of that name with the settings in `asked` (None.

    No preference).
    """
    _check(asked, progress)
    with state.held(name, progress):
        cluster = state.create_or_get(name, asked, port_base)
        if cluster.settings.provider == "kind":
            kind.up(cluster, progress)
        else:
            _up_local(cluster, progress)
    return cluster


def _up_local(cluster: Cluster, progress: Progress) -> None:
    programs = build.ensure(pins.GROUPS["control-plane"], progress)
    runs_pods = bool(cluster.settings.real_nodes) or cluster.settings.local_processes
    if is_up(cluster):
        if runs_pods:
            volumes.ensure_free(cluster)
        progress.say(f"cluster {cluster.name} is already up")
        return
    components.write_files(cluster)
    components.start(cluster, programs, progress)
    kwok.start(cluster, programs[kwok.COMPONENT])
    kwok.ensure_nodes(cluster, progress)
    if runs_pods:
        volumes.ensure_free(cluster)
    if cluster.settings.real_nodes:
        from .real_nodes import node  # noqa: PLC0415 (only those who ask for real nodes load it)

        node.up(cluster, cluster.settings.real_nodes, progress)
    if cluster.settings.local_processes:
        runner.start(cluster)
    (cluster.home / "complete").touch()


def down(name: str, *, keep_logs: bool, progress: Progress) -> None:
    """End this cluster's processes, and no others, and remove its files; it need not exist."""
    with state.held(name, progress):
        _down(name, keep_logs=keep_logs, progress=progress)


def _down(name: str, *, keep_logs: bool, progress: Progress) -> None:
    cluster = state.find(name)
    if cluster is None:
        if not keep_logs:
            state.forget_logs(name)
        progress.say(f"there is no cluster named {name}: nothing to stop")
        return
    if cluster.settings.provider == "kind":
        kind.down(cluster, progress)
    else:
        _down_local(cluster, progress)
    cluster.remove(keep_logs=keep_logs)
    progress.say(
        f"cluster {name} is down"
        + (f"; its logs stay in {cluster.home / 'logs'}" if keep_logs else "")
    )


def _down_local(cluster: Cluster, progress: Progress) -> None:
    if cluster.settings.real_nodes:
        from .real_nodes import node  # noqa: PLC0415 (only those who ask for real nodes load it)

        node.down(cluster, progress)
    with progress.task(f"stopping cluster {cluster.name}"):
        # etcd ends last: without this, each of the others would wait for a failing write before it
        # ends.
        cluster.processes.stop(name for name in cluster.processes.names() if name != "etcd")
        cluster.processes.stop(["etcd"])


def start_component(cluster: Cluster, name: str, progress: Progress) -> None:
    """Start one part of a recorded cluster again."""
    _check_component(name)
    state.check_version(cluster)
    programs = build.ensure(pins.GROUPS["control-plane"], progress)
    if name == kwok.COMPONENT:
        kwok.start(cluster, programs[name])
    else:
        components.start_component(cluster, name, programs[name])


def stop_component(cluster: Cluster, name: str, *, kill: bool) -> None:
    """End one part of a recorded cluster, with TERM or at once with KILL.

    The rest keeps running.
    """
    _check_component(name)
    cluster.processes.stop([name], kill=kill)


def is_up(cluster: Cluster) -> bool:
    """Return whether the last `up` finished and everything that it started is alive."""
    if not (cluster.home / "complete").exists():
        return False
    names = {*COMPONENTS, *cluster.processes.names()}
    return all(cluster.processes.running(name) for name in names) and answers(cluster)


def answers(cluster: Cluster) -> bool:
    """Return whether the API server reports ready."""
    try:
        return components.is_ready(cluster)
    except (api.Refused, OSError, ClusterError):
        return False


def ready_nodes(cluster: Cluster) -> tuple[int, int]:
    """Return how many nodes are Ready, and how many there are."""
    items = api.call(cluster, "GET", "/api/v1/nodes")["items"]
    return sum(kwok.is_ready(item) for item in items), len(items)


def log_files(cluster: Cluster, component: str | None) -> list[Path]:
    """Return the log of one component, or all logs; raise if the component has none."""
    logs = {file.stem: file for file in sorted((cluster.home / "logs").glob("*.log"))} | {
        "audit": cluster.audit_log
    }
    if component is None:
        return list(logs.values())
    if component not in logs:
        raise ClusterError(
            f"cluster {cluster.name} has no log of {component}; there are {', '.join(logs)}"
        )
    return [logs[component]]


def _check(asked: dict[str, object], progress: Progress) -> None:
    """Check before any work whether this machine can provide what was asked for."""
    wanted = asked.get("real_nodes") or 0
    if asked.get("provider") == "kind":
        kind.check(progress)
    elif isinstance(wanted, int) and wanted:
        from .real_nodes import node  # noqa: PLC0415 (only those who ask for real nodes load it)

        if wanted > state.MAX_REAL_NODES:
            raise ClusterError(f"--real-nodes {wanted}: at most {state.MAX_REAL_NODES}")
        if reason := node.can_run():
            raise ClusterError(f"no real node can run here: {reason}; use --kwok-nodes alone")
    if config := asked.get("scheduler_config"):
        if asked.get("provider") == "kind":
            raise ClusterError("--scheduler-config: not with --provider kind")
        scheduler_config.check(Path(str(config)))
    if not Path("/proc/self/stat").exists() or not shutil.which("tail"):
        raise ClusterError("hack/cluster needs Linux (/proc) and the usual command line tools")


def _check_component(name: str) -> None:
    if name not in COMPONENTS:
        raise ClusterError(f"there is no component {name}; there are {', '.join(COMPONENTS)}")
