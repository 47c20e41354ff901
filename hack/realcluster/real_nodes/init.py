"""The first process of a real node: `python -m realcluster.real_nodes.init NODE.json`.

It has mount and PID namespaces of its own. The node's mounts are private and disappear with this
process. So do all processes of the node: the kernel kills a PID namespace with its first process.
Therefore `down` leaves nothing behind. The network namespace is the host's, so that the host's
processes reach the pods.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import kernel
from .config import (
    CNI_CONFIG,
    CONFIG,
    CONTAINERD_SOCKET,
    LABEL,
    SYSCTLS,
    Node,
    cni_config,
    containerd_config,
    kubelet_config,
)

# Where the node's programs keep their data. Empty folders cover these, so that the machine's own
# kubelet or Docker is not disturbed.
PRIVATE = ("/run", "/var/lib", "/var/log")
SHOWN = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "config": CONFIG,
    "pods": "/var/log/pods",
}
CONTAINERD_SECONDS = 60.0
RESTART_SECONDS = 1.0


def main() -> None:
    """Run the node until this process gets SIGTERM."""
    node = Node.from_json(Path(sys.argv[1]).read_text())
    # The first process of a namespace has no default actions.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    prepare_mounts(node)
    folders = dict.fromkeys(str(Path(program).parent) for program in node.programs.values())
    # Containerd looks there for its shim.
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
    }
    commands = {"containerd": containerd(node), "kubelet": kubelet(node)}
    running = {"containerd": start(node, "containerd", commands["containerd"], environment)}
    wait_for_containerd()
    for image in node.images:
        subprocess.run(
            [node.programs["ctr"], "-n", "k8s.io", "images", "import", image],
            check=True,
            stdout=sys.stderr,
        )
    running["kubelet"] = start(node, "kubelet", commands["kubelet"], environment)
    while True:
        ended, status = os.wait()  # also reaps orphaned processes
        for name in [name for name, pid in running.items() if pid == ended]:
            log(f"{name} ended with status {os.waitstatus_to_exitcode(status)}; starting it again")
            time.sleep(RESTART_SECONDS)
            running[name] = start(node, name, commands[name], environment)


def prepare_mounts(node: Node) -> None:
    """Put the node's own folders in the usual places.

    Show the kubelet the sysctl values that it wants.
    """
    home = Path(node.directory)
    for name in SHOWN:
        (home / name).mkdir(exist_ok=True)
    needed = [
        node.directory,
        node.logs,
        sys.base_prefix,
        sys.prefix,
        *node.programs.values(),
        *node.images,
        node.volumes,
        str(Path(__file__).parents[1]),
    ]
    with kept(needed):
        for folder in PRIVATE:
            kernel.mount("tmpfs", folder, "tmpfs", data="mode=0755")
    for name, place in SHOWN.items():
        Path(place).mkdir(parents=True, exist_ok=True)
        kernel.bind(str(home / name), place)
    for name, value in SYSCTLS.items():
        if Path("/proc/sys", name).exists():
            shown = Path("/run", name.replace("/", "."))
            shown.write_text(value)
            kernel.bind(str(shown), f"/proc/sys/{name}")


@contextmanager
def kept(paths: Iterable[str]) -> Iterator[None]:
    """Keep those of `paths` visible that the block covers (for example, a home under /var/lib)."""
    inside = sorted(
        {
            path
            for path in map(os.path.realpath, paths)
            if any(Path(path).is_relative_to(folder) for folder in PRIVATE)
        }
    )
    held = {path: os.open(path, os.O_PATH) for path in inside}
    yield
    for path, descriptor in held.items():
        source, target = Path(f"/proc/self/fd/{descriptor}"), Path(path)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir() if source.is_dir() else target.touch()
            kernel.bind(str(source), path)
        os.close(descriptor)


def containerd(node: Node) -> list[str]:
    """Write containerd's configuration; return its command."""
    snapshotter = "overlayfs" if kernel.overlay_works(Path(node.directory, "overlay")) else "native"
    config = Path(CONFIG, "containerd.toml")
    config.write_text(containerd_config(node, snapshotter))
    network = Path(CNI_CONFIG, "reprieve.conflist")
    network.parent.mkdir(exist_ok=True)
    network.write_text(cni_config(node))
    return [node.programs["containerd"], "--config", str(config)]


def kubelet(node: Node) -> list[str]:
    """Write the kubelet's configuration; return its command.

    Its credentials are already in place.
    """
    folder = Path(CONFIG)
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    (folder / "resolv.conf").touch()
    (folder / "kubelet.yaml").write_text(kubelet_config(node, open_files))
    return [
        node.programs["kubelet"],
        f"--config={folder / 'kubelet.yaml'}",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--node-labels={'='.join(LABEL)}",
        "--cert-dir=/var/lib/kubelet/pki",
    ]


def start(node: Node, name: str, command: list[str], environment: dict[str, str]) -> int:
    """Start a program of the node with a log of its own; return its pid."""
    with Path(node.logs, f"{node.name}-{name}.log").open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        ).pid


def wait_for_containerd() -> None:
    """Return when containerd accepts connections."""
    deadline = time.monotonic() + CONTAINERD_SECONDS
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(CONTAINERD_SOCKET) == 0:
                return
        time.sleep(0.02)
    sys.exit(f"containerd does not answer within {CONTAINERD_SECONDS:.0f} s; see its log")


def log(text: str) -> None:
    """Write a line with the time to the node's own log."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
