"""The memory of the webhooks, with and without the extender, by the size of the cluster.

The program is `reprieve-webhooks` itself; a stub API server makes the pods of a page as they are
listed, so that this process does not hold them. Run it as `python -m bench.memory`; 150,000 pods
take some minutes. Memory is that of the process once everything is listed and a call is answered.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, overload

from . import contenders, extender, servers, stub_api
from .figures import aligned

SIZES = ("100:1000", "500:5000", "1000:30000", "5000:50000", "5000:150000")
_FLAGS = ("--extender=true", "--extender-schedulers=", "--extender-timeout-seconds=60")
Document = dict[str, Any]


@dataclass(frozen=True)
class MadeList(Sequence[Document]):
    """A list whose items are made when they are read."""

    size: int
    make: Callable[[int], Document]

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self.make(number) for number in range(*index.indices(self.size))]
        return self.make(range(self.size)[index])


def collections(nodes: int, pods: int) -> stub_api.Collections:
    """Return a cluster with so many pods, all on nodes, and one that waits."""
    a_node = extender.collections(1, pods // nodes, 0)
    the_node = a_node["/api/v1/nodes"][0]

    def make_pod(number: int) -> Document:
        if number == pods:
            return extender.waiting_pod(0)
        node, index = number % nodes, number // nodes
        return extender.pod(f"n{node}-p{index}", index, f"n{node}")

    def make_node(number: int) -> Document:
        return the_node | {"metadata": {"name": f"n{number}"}}

    made = {
        "/api/v1/pods": MadeList(pods + 1, make_pod),
        "/api/v1/nodes": MadeList(nodes, make_node),
    }
    return {**a_node, **cast("stub_api.Collections", made)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size and print a table."""
    parser = argparse.ArgumentParser("bench.memory", description=__doc__)
    parser.add_argument(
        "--sizes", default=",".join(SIZES), help="NODES:PODS,… (default: %(default)s)"
    )
    sizes = [size.split(":") for size in parser.parse_args(arguments).sizes.split(",")]
    rows: list[tuple[str, ...]] = [
        ("nodes", "pods", "guard MiB", "guard and extender MiB", "CPU s until listed")
    ]
    for nodes, pods in sizes:
        rows.append(tuple(_measure(int(nodes), int(pods))))
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    print(aligned(rows))
    return 0


def _measure(nodes: int, pods: int) -> Iterator[str]:
    yield from (f"{nodes:,}", f"{pods:,}")
    cluster = collections(nodes, pods)
    guard, _ = _memory(cluster, ())
    both, cpu = _memory(cluster, _FLAGS)
    yield from (f"{guard:.0f}", f"{both:.0f}", f"{cpu:.1f}")


def _memory(cluster: stub_api.Collections, flags: Sequence[str]) -> tuple[float, float]:
    """Return the program's memory in MiB and its processor time, once it has listed everything."""
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder)
        with stub_api.serve(cluster) as url:
            command = contenders.reprieve(contenders.write_kubeconfig(url, folder), folder, *flags)
            with servers.running(
                command, None, folder / "log", trust, ready_seconds=extender.SYNC_SECONDS
            ) as server:
                if flags:
                    extender.wait_synced(server, trust, _call(cluster))
                return server.rss_mib(), server.cpu_seconds()


def _call(cluster: stub_api.Collections) -> bytes:
    """Return a scheduler's call about one node."""
    a_node = {
        "/api/v1/pods": [
            pod for pod in cluster["/api/v1/pods"][:1000] if pod["spec"]["nodeName"] == "n0"
        ]
    }
    return extender.call(a_node, len(a_node["/api/v1/pods"]), whole=False)


if __name__ == "__main__":
    sys.exit(main())
