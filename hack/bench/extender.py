"""`make bench-extender`: one call of kube-scheduler about every node of a large cluster.

The program is `reprieve-webhooks` itself, with a stub API server that holds the nodes, their pods
and waiting pods. Each call names every node with three victims, in turn as uids
(`nodeCacheCapable: true`) and as whole pods. Meanwhile, small requests go on, as reviews would:
their waiting time is what a call costs every other client.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from realcluster.errors import ClusterError
from reprieve_webhooks.extender.route import PATH
from reprieve_webhooks.settings import Settings

from . import contenders, servers, stub_api
from .figures import aligned, nearest_rank
from .servers import Server

PRIORITIES = {"tolerant": 500, "low": 1000, "middle": 2000, "urgent": 5000}
ANNOTATIONS = "preemption-toleration.scheduling.x-k8s.io/"
TOLERANT = {
    f"{ANNOTATIONS}minimum-preemptable-priority": "10000",
    f"{ANNOTATIONS}toleration-seconds": "-1",
}
KINDS = ("tolerant", "low", "middle", "low", "low", "middle", "tolerant", "low", "middle", "low")
PROPOSED = 3
OK = 200
_FIRST_START = datetime(2026, 1, 1, tzinfo=UTC)
_STARTS_SECONDS = 14 * 24 * 3600
SYNC_SECONDS = 900.0
PROBE_SECONDS = 0.005
WAITING = "status.nominatedNodeName!=,spec.nodeName="
"""Selects the pods that the guard watches; none has this label."""


@dataclass(frozen=True)
class ExtenderResult:
    """The figures of one way of calling."""

    way: str
    mebibytes: float
    seconds: list[float]
    cpu_seconds: float
    probe_seconds: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """The processor time of each call; the small requests meanwhile take part of it."""
    memory_mib: float = 0.0
    peak_mib: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """Return a line of the table."""
        waits = self.probe_seconds
        return (
            self.way,
            f"{self.mebibytes:.1f}",
            f"{nearest_rank(sorted(self.seconds), 0.5) * 1000:,.0f}",
            f"{nearest_rank(sorted(self.seconds), 0.99) * 1000:,.0f}",
            f"{nearest_rank(sorted(self.cpu_ms), 0.5):,.0f}",
            f"{nearest_rank(sorted(self.cpu_ms), 0.99):,.0f}",
            f"{nearest_rank(sorted(waits), 0.5) * 1000:.1f}",
            f"{nearest_rank(sorted(waits), 0.99) * 1000:.1f}",
            f"{self.memory_mib:.0f}",
            f"{self.peak_mib:.0f}",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if an answer is wrong or late."""
    options = _parse(arguments)
    conditions = servers.read_machine()
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder)
        try:
            _measure(options, folder, trust)
        except ClusterError as error:
            print(f"bench-extender: {error}", file=sys.stderr)
            return 1
    print(", ".join(f"{name} {value}" for name, value in conditions.items()))
    return 0


def collections(nodes: int, pods: int, waiting: int) -> stub_api.Collections:
    """Return the cluster: full nodes, and pods that wait for two CPUs each."""
    running = [
        pod(f"n{node}-p{index}", index, f"n{node}")
        for node in range(nodes)
        for index in range(pods)
    ]
    size = {"cpu": f"{800 * pods}m", "memory": "64Gi", "pods": "110"}
    return {
        "/api/v1/pods": [*running, *map(waiting_pod, range(waiting))],
        f"/api/v1/pods?{WAITING}": [],
        "/api/v1/nodes": [
            {"metadata": {"name": f"n{node}"}, "status": {"allocatable": size}}
            for node in range(nodes)
        ],
        "/api/v1/namespaces": [{"metadata": {"name": "default"}}],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [
            {
                "metadata": {"name": name, "annotations": TOLERANT if name == "tolerant" else {}},
                "value": value,
            }
            for name, value in PRIORITIES.items()
        ],
    }


def waiting_pod(number: int) -> dict[str, Any]:
    """Return a pod that waits for two CPUs."""
    made = pod(f"waiting-{number:04}", 0, "") | {"status": {"phase": "Pending"}}
    made["spec"] |= {"priorityClassName": "urgent", "priority": PRIORITIES["urgent"]}
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return made


def pod(name: str, index: int, node: str) -> dict[str, Any]:
    """Return a pod of about 3 KB, as a scheduler's cache holds it: without managed fields."""
    kind = KINDS[index % len(KINDS)]
    env = [{"name": f"SETTING_{number}", "value": f"value-{number}" * 4} for number in range(20)]
    mounts = [
        {
            "name": "token",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": True,
        }
    ]
    requests = {"cpu": "800m", "memory": "1Gi"}
    container = {
        "name": "main",
        "image": f"registry.example.com/{name}:1",
        "resources": {"requests": requests},
    }
    spec = {
        "nodeName": node,
        "priorityClassName": kind,
        "priority": PRIORITIES[kind],
        "preemptionPolicy": "PreemptLowerPriority",
        "containers": [{**container, "env": env, "volumeMounts": mounts}],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
        ],
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in (
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        )
    ]
    labels = {
        "app.kubernetes.io/name": f"app-{index}",
        "pod-template-hash": "5d4f8c7b9",
        "team": f"team-{index}",
    }
    uid = f"{name:x>36}"[-36:]
    metadata = {"name": name, "namespace": "default", "uid": uid, "labels": labels}
    status = {"phase": "Running", "startTime": _start_of(name), "conditions": conditions}
    return {"metadata": metadata, "spec": spec, "status": status}


def _start_of(name: str) -> str:
    """Return a time in two weeks, for each pod another: no cluster starts all pods at once."""
    started = _FIRST_START + timedelta(seconds=zlib.crc32(name.encode()) % _STARTS_SECONDS)
    return f"{started:%Y-%m-%dT%H:%M:%SZ}"


def call(cluster: stub_api.Collections, pods: int, *, whole: bool) -> bytes:
    """Return what kube-scheduler would send: for each node, the three victims of its own choice."""
    running = [found for found in cluster["/api/v1/pods"] if found["spec"]["nodeName"]]
    by_node = {}
    for first in range(0, len(running), pods):
        lowest = sorted(running[first : first + pods], key=lambda found: found["spec"]["priority"])[
            :PROPOSED
        ]
        victims = lowest if whole else [{"UID": found["metadata"]["uid"]} for found in lowest]
        by_node[lowest[0]["spec"]["nodeName"]] = {"Pods": victims, "NumPDBViolations": 0}
    way = "NodeNameToVictims" if whole else "NodeNameToMetaVictims"
    return json.dumps({"Pod": waiting_pod(0), way: by_node}, separators=(",", ":")).encode()


def about(body: bytes, number: int) -> bytes:
    """Return a call about another waiting pod."""
    return body.replace(_uid(0), _uid(number))


def _measure(options: argparse.Namespace, folder: Path, trust: ssl.SSLContext) -> None:
    cluster = collections(options.nodes, options.pods, 2 * options.calls + 1)
    ways = {"uids": False, "whole pods": True}
    bodies = {name: call(cluster, options.pods, whole=whole) for name, whole in ways.items()}
    flags = (
        "--extender=true",
        # What is read by default is enough for 5,000 nodes.
        f"--max-extender-bytes={max(Settings().max_extender_bytes, *map(len, bodies.values()))}",
        "--extender-schedulers=",
        "--extender-timeout-seconds=60",
    )
    with stub_api.serve(cluster) as url:
        command = contenders.reprieve(contenders.write_kubeconfig(url, folder), folder, *flags)
        with servers.running(
            command, None, folder / "log", trust, ready_seconds=SYNC_SECONDS
        ) as server:
            wait_synced(server, trust, bodies["uids"])
            count, cpu = len(cluster["/api/v1/pods"]), server.cpu_seconds()
            print(
                f"{options.nodes:,} nodes, {count:,} pods: ready after {cpu:.1f} CPU s, "
                f"{server.rss_mib():.0f} MiB, {server.peak_mib():.0f} MiB at most"
            )
            # Each call is about another pod: a second call for a pod with notified victims says to
            # wait.
            preemptors = {
                name: range(1 + turn * options.calls, 1 + (turn + 1) * options.calls)
                for turn, name in enumerate(ways)
            }
            results = [_turn(server, trust, name, bodies[name], preemptors[name]) for name in ways]
            columns = (
                "call",
                "MiB",
                "p50 ms",
                "p99 ms",
                "CPU ms p50",
                "p99",
                "others' p50 ms",
                "others' p99 ms",
                "memory MiB",
                "at most",
            )
            print(aligned([columns, *(result.cells() for result in results)]))
            print(f"{server.rss_mib():.0f} MiB afterwards; {options.calls} calls each way")
            if options.output is not None:
                _write(options, results, server.rss_mib())


def _write(options: argparse.Namespace, results: Iterable[ExtenderResult], rss_mib: float) -> None:
    conditions = {
        "nodes": options.nodes,
        "pods": options.nodes * options.pods,
        "calls": options.calls,
        "RSS MiB": round(rss_mib),
    }
    document = {"conditions": conditions, "rows": [vars(result) for result in results]}
    options.output.write_text(json.dumps(document, indent=1) + "\n")


def _turn(
    server: Server, trust: ssl.SSLContext, way: str, body: bytes, preemptors: Iterable[int]
) -> ExtenderResult:
    seconds: list[float] = []
    cpu_ms: list[float] = []
    before = server.cpu_seconds()
    with _probing(server, trust) as waits:
        for number in preemptors:
            begun = time.perf_counter()
            cpu_ms.append(cpu_ms_of_call(server, trust, body, number))
            seconds.append(time.perf_counter() - begun)
    return ExtenderResult(
        way,
        len(body) / 2**20,
        seconds,
        server.cpu_seconds() - before,
        waits,
        cpu_ms,
        server.rss_mib(),
        server.peak_mib(),
    )


def cpu_ms_of_call(server: Server, trust: ssl.SSLContext, body: bytes, number: int) -> float:
    """Return the processor time of one call about a waiting pod."""
    before = server.cpu_nanoseconds()
    status, answer = _post(server, trust, about(body, number))
    if status != OK or len(json.loads(answer)["NodeNameToMetaVictims"]) != 1:
        raise ClusterError(f"answered with {status}: {answer[:200]!r}")
    return (server.cpu_nanoseconds() - before) / 1e6


def _uid(number: int) -> bytes:
    uid: str = waiting_pod(number)["metadata"]["uid"]
    return uid.encode()


def wait_synced(server: Server, trust: ssl.SSLContext, body: bytes) -> None:
    """Wait until a call is answered: everything is listed then."""
    deadline = time.monotonic() + SYNC_SECONDS
    while not _is_answered(server, trust, body):
        if time.monotonic() > deadline:
            raise ClusterError(f"no answer within {SYNC_SECONDS:.0f} s")
        time.sleep(0.2)


def _is_answered(server: Server, trust: ssl.SSLContext, body: bytes) -> bool:
    try:
        return _post(server, trust, body)[0] == OK
    except OSError:
        # A program that lists 150,000 pods on a busy machine gives up clients that wait.
        return False


def _post(server: Server, trust: ssl.SSLContext, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection(
        server.address, server.port, timeout=120, context=trust
    )
    try:
        connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def _probing(server: Server, trust: ssl.SSLContext) -> Iterator[list[float]]:
    """Send small requests on one connection during the block; the list fills with waiting times."""
    ended, waits = threading.Event(), list[float]()

    def probe() -> None:
        connection = http.client.HTTPSConnection(
            server.address, server.port, timeout=120, context=trust
        )
        while not ended.wait(PROBE_SECONDS):
            begun = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            waits.append(time.perf_counter() - begun)
        connection.close()

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "bench-extender", description="Measure one call of a scheduler about many nodes."
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=5000,
        help="in the cluster and in each call (default: %(default)s)",
    )
    parser.add_argument("--pods", type=int, default=10, help="on each node (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=30, help="each way (default: %(default)s)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also write everything as JSON"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
