"""What a real node needs of the kernel: mounts, a network bridge, a place in the cgroup trees.

By system calls, not by `ip` and `mount`: slim machines lack `ip`, and the errors are more exact.
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
NAME_BYTES = 16  # IFNAMSIZ
CPUSET_FILES = ("cpuset.mems", "cpuset.cpus")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount with the system call of that name; raise OSError with the target's name where it fails."""
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
    """Show a file or folder, with all that is mounted in it, at another place."""
    mount(source, target, flags=MS_BIND | MS_REC)


def unmount(target: str) -> None:
    """Call umount2(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(target.encode(), 0):
        raise OSError(number := ctypes.get_errno(), os.strerror(number), target)


def overlay_works(folder: Path) -> bool:
    """Say whether an overlay can be mounted in `folder`: not on another overlay, as in a Docker container."""
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
    """Make a bridge with an address in the host's network namespace; one that exists is given that address again."""
    with _network_socket() as control:
        with contextlib.suppress(FileExistsError):
            fcntl.ioctl(control, SIOCBRADDBR, _name(name))
        netmask = str(ipaddress.IPv4Network(network).netmask)
        for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, netmask)):
            sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, (_name(name) + sockaddr).ljust(40, b"\0"))
        _set_up(control, name, up=True)


def remove_bridge(name: str) -> None:
    """Remove a bridge; none of that name is fine."""
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
    """Yield (folder, options) of each cgroup hierarchy in the text of /proc/mounts; version 2 has the option "2"."""
    for line in proc_mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            yield folder, frozenset(options.split(","))
        elif kind == "cgroup2":
            yield folder, frozenset(["2"])


def make_cgroups(name: str) -> None:
    """Make `name` in every hierarchy: the kubelet does not start when its root is missing in one."""
    for folder, options in parse_cgroup_mounts(Path("/proc/mounts").read_text()):
        for parent, child in _steps(Path(folder), name):
            if "2" in options:
                _delegate(parent)
            child.mkdir(exist_ok=True)
            if "cpuset" in options:
                _copy_cpuset(parent, child)


def remove_cgroups(name: str, seconds: float = 10.0) -> list[str]:
    """Remove `name` and all below it in every hierarchy, waiting for its processes to be gone; return what is left."""
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
        with contextlib.suppress(OSError):  # the common parent goes with the last node in it
            Path(folder, name).parent.rmdir()


def _steps(root: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """Yield (parent, child) for each part of the relative path `name`, from the top."""
    parent = root
    for part in Path(name).parts:
        yield parent, parent / part
        parent = parent / part


def _delegate(group: Path) -> None:
    """Let the children of a version 2 group have the controllers that it has itself."""
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(
            OSError
        ):  # some cannot be (cpu, with real-time processes about); the kubelet names what it misses
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _copy_cpuset(parent: Path, child: Path) -> None:
    """Fill a new version 1 cpuset: without this, no process can be put into it ("no space left on device")."""
    for file in CPUSET_FILES:
        if (child / file).exists() and not (child / file).read_text().strip():
            (child / file).write_text((parent / file).read_text())
