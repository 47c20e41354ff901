"""The kernel objects of a real node: mounts, a network bridge, cgroups; a network namespace.

The module uses system calls instead of `ip` and `mount`, because slim machines lack `ip` and the
errors are more exact.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

MS_BIND, MS_REC = 0x1000, 0x4000
SIOCBRADDBR, SIOCBRDELBR = 0x89A0, 0x89A1
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8913, 0x8914, 0x8916, 0x891C
IFF_UP = 1
CLONE_NEWNET = 0x40000000
NAME_BYTES = 16  # IFNAMSIZ
CPUSET_FILES = ("cpuset.mems", "cpuset.cpus")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount by system call; raise OSError with the target's name if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    ):
        raise OSError(number := ctypes.get_errno(), os.strerror(number), target)


def bind(source: str, target: str) -> None:
    """Bind-mount a file or folder, with all mounts inside it, at another place."""
    mount(source, target, flags=MS_BIND | MS_REC)


def unmount(target: str) -> None:
    """Call umount2(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(target.encode(), 0):
        raise OSError(number := ctypes.get_errno(), os.strerror(number), target)


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Give the calling thread, and all that it starts, a network namespace of its own.

    It has the loopback interface and no other. The kernel removes it, with the bridges and firewall
    rules that were made in it, once its last process has ended.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as before:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(number := ctypes.get_errno(), os.strerror(number))
        try:
            with _network_socket() as control:
                _set_up(control, "lo", up=True)
            yield
        finally:
            if libc.setns(before.fileno(), CLONE_NEWNET):
                raise OSError(number := ctypes.get_errno(), os.strerror(number))


def overlay_works(folder: Path) -> bool:
    """Return whether an overlay can be mounted in `folder`.

    Not on another overlay, as in Docker.
    """
    parts = [folder / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir(parents=True, exist_ok=True)
    lower, upper, work, merged = map(str, parts)
    try:
        mount(
            "overlay", merged, "overlay", data=f"lowerdir={lower},upperdir={upper},workdir={work}"
        )
    except OSError:
        return False
    unmount(merged)
    return True


def add_bridge(name: str, network: str, address: str) -> None:
    """Create a bridge with an address in the host's network namespace.

    Reset an existing one's address.
    """
    with _network_socket() as control:
        with contextlib.suppress(FileExistsError):
            fcntl.ioctl(control, SIOCBRADDBR, _name(name))
        netmask = str(ipaddress.IPv4Network(network).netmask)
        for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, netmask)):
            sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, (_name(name) + sockaddr).ljust(40, b"\0"))
        _set_up(control, name, up=True)


def remove_bridge(name: str) -> None:
    """Remove a bridge; it need not exist."""
    with _network_socket() as control:
        try:
            _set_up(control, name, up=False)
            fcntl.ioctl(control, SIOCBRDELBR, _name(name))
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.ENXIO):
                raise


def _set_up(control: socket.socket, name: str, *, up: bool) -> None:
    answer = fcntl.ioctl(control, SIOCGIFFLAGS, _name(name).ljust(40, b"\0"))
    (flags,) = struct.unpack_from("=h", answer, NAME_BYTES)
    flags = flags | IFF_UP if up else flags & ~IFF_UP
    fcntl.ioctl(control, SIOCSIFFLAGS, (_name(name) + struct.pack("=h", flags)).ljust(40, b"\0"))


def _network_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _name(name: str) -> bytes:
    return name.encode().ljust(NAME_BYTES, b"\0")


def parse_cgroup_mounts(proc_mounts: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield (folder, options) of each cgroup hierarchy in /proc/mounts.

    Version 2 has the option "2".
    """
    for line in proc_mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            yield folder, frozenset(options.split(","))
        elif kind == "cgroup2":
            yield folder, frozenset(["2"])


def make_cgroups(name: str) -> None:
    """Create `name` in every hierarchy.

    The kubelet does not start if its root is missing in one.
    """
    for folder, options in parse_cgroup_mounts(Path("/proc/mounts").read_text()):
        for parent, child in _steps(Path(folder), name):
            if "2" in options:
                _delegate(parent)
            child.mkdir(exist_ok=True)
            if "cpuset" in options:
                _copy_cpuset(parent, child)


def remove_cgroups(name: str, seconds: float = 10.0) -> list[str]:
    """Remove `name` and its children in every hierarchy after their processes end.

    Return what is left.
    """
    deadline = time.monotonic() + seconds
    while left := list(_remove_what_is_empty(name)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def _remove_what_is_empty(name: str) -> Iterator[str]:
    for folder, _ in parse_cgroup_mounts(Path("/proc/mounts").read_text()):
        for inner, _, _ in os.walk(Path(folder, name), topdown=False):
            try:
                Path(inner).rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                yield inner
        with contextlib.suppress(OSError):  # the last node removes the common parent
            Path(folder, name).parent.rmdir()


def _steps(root: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """Yield (parent, child) for each part of the relative path `name`, from the top."""
    parent = root
    for part in Path(name).parts:
        yield parent, parent / part
        parent = parent / part


def _delegate(group: Path) -> None:
    """Give a version 2 group's controllers to its children."""
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(
            OSError
        ):  # some cannot (cpu, if real-time processes run); the kubelet reports what is missing
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _copy_cpuset(parent: Path, child: Path) -> None:
    """Fill a new version 1 cpuset.

    Without this, it accepts no process ("no space left on device").
    """
    for file in CPUSET_FILES:
        if (child / file).exists() and not (child / file).read_text().strip():
            (child / file).write_text((parent / file).read_text())
