"""A block of ports for each cluster: several run side by side, without a common port."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator

from .errors import ClusterError

FIRST = 16443
BLOCK = 20
LEAST, END = 1024, 65536  # unprivileged ports
OTHERWISE = "without --port-base, free ports are chosen"

OFFSETS = {
    "kube-apiserver": 0,
    "etcd": 1,
    "etcd-peer": 2,
    "kube-controller-manager": 3,
    "kube-scheduler": 4,
    "kwok": 5,
    # 6 to 9 are for Reprieve's own two programs and their metrics; 10 to 19 for real nodes.
    "webhooks": 6,
    "operator": 7,
}
METRICS_ABOVE = 2
"""From a program's port to that of its metrics."""


def port(base: int, component: str) -> int:
    """Return the port of `component` in the block that starts at `base`."""
    return base + OFFSETS[component]


def block(base: int) -> range:
    """Return all ports that belong to the cluster whose block starts at `base`."""
    return range(base, base + BLOCK)


def choose(taken_bases: Iterable[int]) -> int:
    """Return the first base whose block is free: no recorded cluster has it and nothing listens."""
    for base in _bases():
        if not overlaps(base, taken_bases) and all(is_free(number) for number in block(base)):
            return base
    raise ClusterError(
        f"no {BLOCK} free ports in a row above {FIRST}: remove a cluster with `hack/cluster down`"
    )


def check(base: int, taken_bases: Iterable[int]) -> None:
    """Raise unless a cluster may have the block at `base`."""
    if not LEAST <= base <= END - BLOCK:
        raise ClusterError(f"--port-base {base} must be between {LEAST} and {END - BLOCK}")
    if overlaps(base, taken_bases):
        raise ClusterError(
            f"--port-base {base} overlaps the {BLOCK} ports of another cluster; {OTHERWISE}"
        )
    if busy := [number for number in block(base) if not is_free(number)]:
        raise ClusterError(f"--port-base {base}: something listens on {busy[0]}; {OTHERWISE}")


def overlaps(base: int, others: Iterable[int]) -> bool:
    """Return whether the block at `base` shares a port with a block of `others`."""
    return any(abs(base - other) < BLOCK for other in others)


def pod_cidr(base: int) -> str:
    """Return the loopback network of the cluster's simulated pods.

    200 blocks have different ones.
    """
    return f"127.{20 + base // BLOCK % 200}.0.0/16"


def service_cidr(base: int) -> str:
    """Return the network of the cluster's Service addresses. Every block has a different one.

    The clusters of a machine share its network, and each has the Service `kubernetes` at the first
    address.
    """
    number = base // BLOCK
    return f"10.{224 + number // 256}.{number % 256}.0/24"


def is_free(number: int) -> bool:
    """Return whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True


def any_free() -> int:
    """Return a port of 127.0.0.1 that is free now, as the kernel chooses it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _bases() -> Iterator[int]:
    return iter(range(FIRST, END - BLOCK, BLOCK))
