"""The command line of `hack/cluster`. Results go to standard output, messages to standard error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from . import kind, lifecycle, processes, state
from .binaries import build, pins
from .errors import ClusterError
from .progress import Progress
from .simulated_nodes import kwok

_USABLE = "usable"
DESCRIPTION = (
    "A real Kubernetes control plane on this machine, with simulated or real nodes, from pinned "
    "sources."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    progress = Progress()
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace, Progress], int] = options.command
        return command(options, progress)
    except ClusterError as error:
        progress.say(f"hack/cluster: {error}" if "\n" not in str(error) else str(error))
        return 1
    except BrokenPipeError:
        # The reader (`| head`) closed the pipe. Without this, Python reports it again when it
        # flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # For example, a home that is not writable or a full disk: the error names the file.
        progress.say(f"hack/cluster: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted; run the same command again to continue")
        return 130


def _up(options: argparse.Namespace, progress: Progress) -> int:
    asked = {field.name: getattr(options, field.name, None) for field in fields(state.Settings)}
    cluster = lifecycle.up(options.name, asked, options.port_base, progress)
    progress.say(f"cluster {cluster.name}: {cluster.api_server}")
    progress.say(f"  export KUBECONFIG={cluster.kubeconfig}")
    progress.say(f"  export PATH={build.bin_directory()}:$PATH")
    return 0


def _down(options: argparse.Namespace, progress: Progress) -> int:
    lifecycle.down(options.name, keep_logs=options.keep_logs, progress=progress)
    return 0


def _status(options: argparse.Namespace, _: Progress) -> int:
    cluster = state.get(options.name)
    if cluster.settings.provider == "kind":
        print(kind.status(cluster))
        return 0
    print(
        f"cluster {cluster.name}: {cluster.api_server}, pods in {cluster.pod_cidr}, files in "
        f"{cluster.home}"
    )
    names = sorted({*lifecycle.COMPONENTS, *cluster.processes.names()})
    stopped = [name for name in names if not _print_component(cluster, name)]
    if not lifecycle.answers(cluster):
        print("the API server does not answer")
        return 1
    ready, nodes = lifecycle.ready_nodes(cluster)
    print(f"{ready} of {nodes} nodes ready")
    if cluster.settings.real_nodes:
        from .real_nodes import node  # noqa: PLC0415 (only those who ask for real nodes load it)

        print(node.status(cluster))
    return 1 if stopped or ready < nodes else 0


def _print_component(cluster: state.Cluster, name: str) -> bool:
    """Print one line about a component; return whether it runs."""
    alive = cluster.processes.running(name)
    what = (
        f"pid {alive.pid:<8} {processes.memory_mib(alive.pid):>5} MiB" if alive else "not running"
    )
    print(f"  {name:<26} {what}")
    return alive is not None


def _kubeconfig(options: argparse.Namespace, _: Progress) -> int:
    cluster = state.get(options.name)
    if not cluster.kubeconfig.exists():
        raise ClusterError(
            f"cluster {cluster.name} is not up yet: `hack/cluster up --name {cluster.name}`"
        )
    print(cluster.kubeconfig)
    return 0


def _logs(options: argparse.Namespace, _: Progress) -> int:
    files = [str(file) for file in lifecycle.log_files(state.get(options.name), options.component)]
    os.execvp(  # noqa: S606 (no shell is wanted)
        "tail", ["tail", "-n", str(options.tail), *(["-F"] if options.follow else []), *files]
    )


def _start(options: argparse.Namespace, progress: Progress) -> int:
    lifecycle.start_component(state.get(options.name), options.component, progress)
    return 0


def _stop(options: argparse.Namespace, _: Progress) -> int:
    lifecycle.stop_component(state.get(options.name), options.component, kill=options.kill)
    return 0


def _build(options: argparse.Namespace, progress: Progress) -> int:
    names = _usable(progress) if options.what == _USABLE else pins.GROUPS[options.what]
    for name, path in build.ensure(names, progress).items():
        print(f"{name} {path}")
    return 0


def _usable(progress: Progress) -> tuple[str, ...]:
    """Return the programs that this machine can run.

    The control plane, and a real node's if possible.
    """
    from .real_nodes import node  # noqa: PLC0415 (only those who ask for real nodes load it)

    obstacle = node.can_run()
    if obstacle is None:
        return pins.GROUPS["control-plane"] + pins.GROUPS["node"]
    progress.say(f"no real node can run here: {obstacle}; building for simulated nodes")
    return pins.GROUPS["control-plane"]


def _bin(_options: argparse.Namespace, _: Progress) -> int:
    print(build.link_cached())
    return 0


def _load_image(options: argparse.Namespace, progress: Progress) -> int:
    cluster = state.get(options.name)
    if cluster.settings.provider == "kind":
        kind.load_image(cluster, options.image)
    else:
        from .real_nodes import node  # noqa: PLC0415 (only those who ask for real nodes load it)

        node.load_image(cluster, Path(options.image), progress)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("hack/cluster", description=DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _up_options(_command(commands, "up", _up, "create the cluster, or what is missing of it"))
    down = _command(commands, "down", _down, "end the cluster's processes and remove its files")
    down.add_argument("--keep-logs", action="store_true", help="leave the logs and the audit log")
    _command(commands, "status", _status, "show what runs; status 0 if everything runs")
    _command(
        commands, "kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig"
    )
    _log_options(_command(commands, "logs", _logs, "show the components' logs"))
    parts = ", ".join(lifecycle.COMPONENTS)
    _command(commands, "start", _start, "start one component again").add_argument(
        "component", help=parts
    )
    stop = _command(commands, "stop", _stop, "stop one component and leave the rest running")
    stop.add_argument("component", help=parts)
    stop.add_argument("--kill", action="store_true", help="with SIGKILL, like a crash")
    what = _command(commands, "build", _build, "build programs into the cache; prints their paths")
    what.add_argument(
        "--what",
        choices=[_USABLE, *pins.GROUPS],
        default=_USABLE,
        help="default: %(default)s: all that can run on this machine",
    )
    _command(
        commands,
        "bin",
        _bin,
        "print the directory with the built programs, kubectl among them, to put on PATH",
    )
    load = _command(
        commands, "load-image", _load_image, "import an OCI archive into all real nodes"
    )
    load.add_argument("image", help="file; with --provider kind, untried, a Docker image's name")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    function: Callable[[argparse.Namespace, Progress], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.set_defaults(command=function)
    parser.add_argument("--name", default="reprieve", help="which cluster (default: %(default)s)")
    return parser


def _up_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `up`.

    Their defaults are None: an `up` without options fits any cluster.
    """
    defaults = state.Settings()
    size = kwok.CAPACITY
    simulated = (
        f"simulated nodes of {size['cpu']} CPUs and {size['memory']} each "
        f"(default: {defaults.kwok_nodes})"
    )
    parser.add_argument("--kwok-nodes", type=_count, metavar="N", help=simulated)
    real = "nodes with kubelet, containerd and runc; they need Linux and root (default: 0)"
    parser.add_argument("--real-nodes", type=_count, metavar="N", help=real)
    local = (
        'run pods annotated reprieve.dev/local-process: "true" as local processes, '
        "on simulated nodes"
    )
    parser.add_argument("--local-processes", action="store_const", const=True, help=local)
    base = "first of 20 ports on 127.0.0.1 (default: the first that are free)"
    parser.add_argument("--port-base", type=int, metavar="P", help=base)
    gates = "for API server, controller-manager and scheduler"
    parser.add_argument("--feature-gates", metavar="A=true,…", help=gates)
    parser.add_argument("--runtime-config", metavar="api/all=true,…", help="for the API server")
    config = (
        "KubeSchedulerConfiguration, read at each start of the scheduler; "
        "`up` adds clientConnection"
    )
    parser.add_argument("--scheduler-config", type=_absolute, metavar="FILE", help=config)
    provider = "kind: from Docker images instead; untried (default: local)"
    parser.add_argument("--provider", choices=["local", "kind"], help=provider)


def _log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("component", nargs="?", help="default: all")
    parser.add_argument("-f", "--follow", action="store_true", help="follow the logs as they grow")
    parser.add_argument(
        "--tail",
        type=_count,
        default=40,
        metavar="N",
        help="last lines of each (default: %(default)s)",
    )


def _absolute(text: str) -> str:
    return str(Path(text).resolve())  # components don't run where the command did


def _count(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below zero")
    return number
