"""The memory of the webhooks and the processor time of one call, by the size of the cluster.

The program is `reprieve-webhooks` itself, with the guard alone and with the extender. A stub API
server makes the pods of a page as they are listed, so that this process does not hold them. Run it
as `python -m bench.memory`; 150,000 pods take some minutes. Each call names every node with three
victims: as uids, and as whole pods.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, overload

from . import contenders, extender, servers, stub_api
from .figures import aligned, nearest_rank

SIZES = ("100:3000", "1000:30000", "5000:150000")
_FLAGS = (
    "--extender=true",
    "--extender-schedulers=",
    "--extender-timeout-seconds=60",
    f"--max-extender-bytes={2**28}",
)
_PROPOSED_PODS = 10
"""Of each node, from which a call names the least important: a call needs no others."""
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


@dataclass(frozen=True, kw_only=True)
class SizeRow:
    """What was measured with a cluster of one size."""

    nodes: int
    pods: int
    guard_mib: float
    extender_mib: float
    peak_mib: float
    cpu_seconds_until_listed: float
    whole_call_mib: float
    uids_cpu_ms: Sequence[float]
    """Processor time of each call, as for whole pods."""
    whole_cpu_ms: Sequence[float]

    def cells(self) -> dict[str, str]:
        """Return a line of the table, by its columns."""
        of_a_pod = (self.extender_mib - self.guard_mib) * 2**20 / self.pods
        uids, whole = sorted(self.uids_cpu_ms), sorted(self.whole_cpu_ms)
        return {
            "nodes": f"{self.nodes:,}",
            "pods": f"{self.pods:,}",
            "guard alone, MiB": f"{self.guard_mib:.0f}",
            "with extender, MiB": f"{self.extender_mib:.0f}",
            "at most": f"{self.peak_mib:.0f}",
            "bytes a pod": f"{of_a_pod:,.0f}",
            "CPU s until listed": f"{self.cpu_seconds_until_listed:.1f}",
            "uids: CPU ms p50": f"{nearest_rank(uids, 0.5):,.0f}",
            "uids: p99": f"{nearest_rank(uids, 0.99):,.0f}",
            "whole pods: MiB": f"{self.whole_call_mib:.1f}",
            "whole pods: CPU ms p50": f"{nearest_rank(whole, 0.5):,.0f}",
            "whole pods: p99": f"{nearest_rank(whole, 0.99):,.0f}",
        }


@dataclass(frozen=True)
class _Memory:
    """What was measured of one program."""

    listed_mib: float
    peak_mib: float
    cpu_seconds: float
    calls_ms: Sequence[Sequence[float]] = ()
    """The processor time of each call, by way of calling."""


def collections(nodes: int, pods: int, waiting: int) -> stub_api.Collections:
    """Return a cluster with so many pods on nodes, and some that wait."""
    a_node = extender.collections(1, pods // nodes, 0)
    the_node = a_node["/api/v1/nodes"][0]

    def make_pod(number: int) -> Document:
        if number >= pods:
            return extender.waiting_pod(number - pods)
        return as_listed(_running(number // nodes, number % nodes))

    def make_node(number: int) -> Document:
        labels = {"kubernetes.io/hostname": f"n{number}", "kubernetes.io/os": "linux"}
        return the_node | {"metadata": {"name": f"n{number}", "labels": labels}}

    made = {
        "/api/v1/pods": MadeList(pods + waiting, make_pod),
        "/api/v1/nodes": MadeList(nodes, make_node),
    }
    return {**a_node, **cast("stub_api.Collections", made)}


def as_listed(pod: Document) -> Document:
    """Return a pod as an API server lists it: with owner, managed fields and whole status."""
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
    variables: Document = {
        f'k:{{"name":"{one["name"]}"}}': {".": {}, "f:value": {}} for one in container["env"]
    }
    fields = {"f:spec": {"f:containers": {'k:{"name":"main"}': {"f:env": variables}}}}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"app-{name.rpartition('-p')[2]}-5d4f8c7b9",
        "uid": f"{name.rpartition('-p')[2]:0>36}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "generateName": f"{owner['name']}-",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "1",
        "ownerReferences": [owner],
        "annotations": {
            "kubernetes.io/config.seen": pod["status"]["startTime"],
            "cni.example.com/podIP": "10.0.0.1/32",
        },
        "managedFields": [
            {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}
            for manager in ("kube-controller-manager", "kubelet")
        ],
    }
    state = {
        "name": "main",
        "ready": True,
        "started": True,
        "image": container["image"],
        "state": {"running": {"startedAt": pod["status"]["startTime"]}},
    }
    status = {"podIP": "10.0.0.1", "hostIP": "10.0.0.2", "containerStatuses": [state]}
    volumes = [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}]
    return {
        "metadata": pod["metadata"] | metadata,
        "spec": pod["spec"] | {"volumes": volumes, "serviceAccountName": "default"},
        "status": pod["status"] | status,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size and print a table."""
    parser = argparse.ArgumentParser("bench.memory", description=__doc__)
    parser.add_argument(
        "--sizes", default=",".join(SIZES), help="NODES:PODS,… (default: %(default)s)"
    )
    parser.add_argument("--calls", type=int, default=30, help="(default: %(default)s)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also write everything as JSON"
    )
    options = parser.parse_args(arguments)
    rows: list[SizeRow] = []
    for nodes, pods in (size.split(":") for size in options.sizes.split(",")):
        rows.append(_measure(int(nodes), int(pods), options.calls))
        print(" ".join(rows[-1].cells().values()), file=sys.stderr, flush=True)
    print(aligned([tuple(rows[0].cells()), *(tuple(row.cells().values()) for row in rows)]))
    if options.output is not None:
        document = {
            "conditions": {"sizes": options.sizes, "calls": options.calls},
            "rows": [asdict(row) for row in rows],
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _measure(nodes: int, pods: int, calls: int) -> SizeRow:
    cluster = collections(nodes, pods, 2 * calls + 1)
    by_uids, whole = (_call(nodes, pods // nodes, whole=whole) for whole in (False, True))
    guard = _run(cluster, (), (), 0)
    both = _run(cluster, _FLAGS, (by_uids, whole), calls)
    of_uids, of_whole = both.calls_ms
    return SizeRow(
        nodes=nodes,
        pods=pods,
        guard_mib=guard.listed_mib,
        extender_mib=both.listed_mib,
        peak_mib=both.peak_mib,
        cpu_seconds_until_listed=both.cpu_seconds,
        whole_call_mib=len(whole) / 2**20,
        uids_cpu_ms=of_uids,
        whole_cpu_ms=of_whole,
    )


def _run(
    cluster: stub_api.Collections, flags: Sequence[str], bodies: Sequence[bytes], calls: int
) -> _Memory:
    """Measure the program once it has listed everything, and then some calls of each body.

    The ways take turns, so that other work of the machine affects both.
    """
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder)
        with stub_api.serve(cluster) as url:
            command = contenders.reprieve(contenders.write_kubeconfig(url, folder), folder, *flags)
            with servers.running(
                command, None, folder / "log", trust, ready_seconds=extender.SYNC_SECONDS
            ) as server:
                if not flags:
                    return _Memory(server.rss_mib(), server.peak_mib(), server.cpu_seconds())
                extender.wait_synced(server, trust, bodies[0])
                listed = server.rss_mib(), server.peak_mib(), server.cpu_seconds()
                cpu_ms: list[list[float]] = [[] for _ in bodies]
                for number in range(calls * len(bodies)):
                    way = number % len(bodies)
                    cpu_ms[way].append(
                        extender.cpu_ms_of_call(server, trust, bodies[way], number + 1)
                    )
                return _Memory(*listed, cpu_ms)


def _running(index: int, node: int) -> Document:
    return extender.pod(f"n{node}-p{index}", index, f"n{node}")


def _call(nodes: int, pods: int, *, whole: bool) -> bytes:
    """Return a scheduler's call about every node."""
    few = min(pods, _PROPOSED_PODS)
    named = [_running(index, node) for node in range(nodes) for index in range(few)]
    return extender.call({"/api/v1/pods": named}, few, whole=whole)


if __name__ == "__main__":
    sys.exit(main())
