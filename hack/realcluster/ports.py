"""One block of ports a cluster, so that several clusters stand side by side and a glance at a port tells whose it is."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator

from .errors import ClusterError

FIRST = 16443
BLOCK = 20

OFFSETS = {
    "kube-apiserver": 0,
    "etcd": 1,
    "etcd-peer": 2,
    "kube-controller-manager": 3,
    "kube-scheduler": 4,
    "kwok": 5,
    # 6 to 9 are left to processes that run beside the cluster, such as Reprieve's own two programs; 10 to 19 to real nodes.
    "webhooks": 6,
    "operator": 7,
}


def port(base: int, component: str) -> int:
    """Return the port of `component` in the block that starts at `base`."""
    return base + OFFSETS[component]


def block(base: int) -> range:
    """Return all ports that belong to the cluster whose block starts at `base`."""
    return range(base, base + BLOCK)


def choose(taken_bases: Iterable[int]) -> int:
    """Return the first base whose block no recorded cluster has and where nothing listens."""
    for base in _bases():
        if not overlaps(base, taken_bases) and all(is_free(number) for number in block(base)):
            return base
    raise ClusterError(f"no {BLOCK} free ports in a row between {FIRST} and 65535; remove a cluster with `hack/cluster down --name …`")


def check(base: int, taken_bases: Iterable[int]) -> None:
    """Raise unless a cluster may have the block at `base`."""
    if not 1024 <= base <= 65536 - BLOCK:
        raise ClusterError(f"--port-base {base} must be between 1024 and {65536 - BLOCK}")
    if overlaps(base, taken_bases):
        raise ClusterError(f"--port-base {base} overlaps the {BLOCK} ports of another cluster; leave it out to have free ones chosen")
    if busy := [number for number in block(base) if not is_free(number)]:
        raise ClusterError(f"--port-base {base}: something listens on {busy[0]}; leave it out to have free ports chosen")


def overlaps(base: int, others: Iterable[int]) -> bool:
    """Say whether the block at `base` shares a port with the block of one of `others`."""
    return any(abs(base - other) < BLOCK for other in others)


def pod_cidr(base: int) -> str:
    """Return the loopback network of the cluster's simulated pods; two blocks of ports never share it (until 200 of them)."""
    return f"127.{20 + base // BLOCK % 200}.0.0/16"


def is_free(number: int) -> bool:
    """Say whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True


def _bases() -> Iterator[int]:
    return iter(range(FIRST, 65536 - BLOCK, BLOCK))
