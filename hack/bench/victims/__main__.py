"""`make bench-victims`: from mark to hint to deletion, beside two minimal programs.

The cluster has many other pods. Rounds go through all contenders with the same number of fresh
victims each. Then the number of other pods is doubled, and the first size is measured again. At the
end, a turn of each contender goes through a relay that counts bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import servers
from realcluster import command, lifecycle
from realcluster.binaries import build, pins
from realcluster.client.kubectl import Kubectl
from realcluster.install import BASE, NAMESPACE_FILE
from realcluster.progress import Progress
from realcluster.state import Cluster

from . import figures, relay, workload
from .figures import BARE, NOTIFIER, REPRIEVE, OperatorStart, Traffic, VictimsTurn
from .measurement import Measurement, WorkloadProcess
from .operator_process import OperatorProcess, redirected


@dataclass(frozen=True)
class VictimsOptions:
    """The command line's options."""

    victims: tuple[int, ...]
    rounds: tuple[int, ...]  # for each number of victims
    pods: int
    nodes: int
    doubled: bool
    traffic: int
    answer: str
    json_file: Path | None
    cluster: str
    keep: bool


@dataclass
class Measured:
    """All measurements."""

    turns: list[VictimsTurn]
    starts: list[OperatorStart]
    traffic: list[Traffic]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if something cannot be measured."""
    options = _parse(arguments)
    return command.run("bench-victims", lambda progress: _run(options, progress))


def _run(options: VictimsOptions, progress: Progress) -> int:
    conditions = _conditions(options)
    measured = Measured([], [], [])
    try:
        _measure(options, progress, measured)
    finally:
        if measured.turns:
            _report(measured, options, conditions)
    return 0


def _measure(options: VictimsOptions, progress: Progress, measured: Measured) -> None:
    with ExitStack() as stack:
        cluster = lifecycle.up(options.cluster, {"kwok_nodes": options.nodes}, None, progress)
        if not options.keep:
            stack.callback(lifecycle.down, options.cluster, keep_logs=False, progress=progress)
        kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
        kubectl.read("apply", "-f", NAMESPACE_FILE)
        for file in ("guard.yaml", "users-rbac.yaml", "operator-rbac.yaml"):
            kubectl.read("apply", "-f", BASE / file)
        hints = stack.enter_context(WorkloadProcess.running(options.answer))
        measurement = Measurement(cluster, kubectl, hints, progress)
        for doubling, others in enumerate((options.pods, 2 * options.pods)[: 1 + options.doubled]):
            measurement.fill(others)
            with _operating(cluster, kubectl, measurement, progress) as (operator, start):
                measured.starts.append(start)
                sizes = options.victims if doubling == 0 else options.victims[:1]
                for victims, rounds in zip(sizes, options.rounds, strict=False):
                    measured.turns += _rounds(measurement, operator, victims, rounds)
        if options.traffic:
            measured.traffic += _count_bytes(
                cluster, kubectl, measurement, options.traffic, progress
            )


@contextmanager
def _operating(
    cluster: Cluster, kubectl: Kubectl, measurement: Measurement, progress: Progress
) -> Iterator[tuple[OperatorProcess, OperatorStart]]:
    operator = OperatorProcess(cluster, kubectl)
    try:
        with progress.task("the operator starts and reads all pods") as task:
            start = operator.start(measurement.bystanders, task.tick)
        yield operator, start
    finally:
        operator.stop()


def _rounds(
    measurement: Measurement, operator: OperatorProcess, victims: int, rounds: int
) -> Iterator[VictimsTurn]:
    for number in range(1, rounds + 1):
        contenders: tuple[OperatorProcess | str, ...] = (operator, NOTIFIER, BARE)
        for contender in contenders if number % 2 else contenders[::-1]:
            yield measurement.turn(contender, victims, number)


def _count_bytes(
    cluster: Cluster, kubectl: Kubectl, measurement: Measurement, victims: int, progress: Progress
) -> Iterator[Traffic]:
    for contender in (REPRIEVE, BARE):
        with relay.to(cluster.port("kube-apiserver")) as passed:
            kubeconfig = redirected(cluster.kubeconfig, passed.url, passed.authority)
            if contender == BARE:
                measurement.turn(BARE, victims, 1, kubeconfig)
            else:
                with _operating(
                    cluster, Kubectl(kubectl.program, kubeconfig), measurement, progress
                ) as (
                    operator,
                    _,
                ):
                    passed.clear()  # The sweep's bytes do not count.
                    measurement.turn(operator, victims, 1)
        yield Traffic(
            contender=contender,
            victims=victims,
            sent=passed.sent,
            received=dict(passed.received),
            answers=dict(passed.answers),
        )


def _report(measured: Measured, options: VictimsOptions, conditions: dict[str, object]) -> None:
    rows = figures.summarise(measured.turns)
    print(f"\n{figures.table(rows)}\n")
    said = figures.sentences(measured.turns, measured.starts, measured.traffic)
    beside = figures.by_round(measured.turns) + figures.beside_notifier(measured.turns)
    for sentence in beside + figures.doubled(rows) + said:
        print(sentence)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    for each in measured.traffic:
        print(f"\n{figures.traffic_table(each)}")
    for doubt in figures.doubts(measured.turns):
        print(f"But {doubt}.")
    if options.json_file is not None:
        more = {
            name: [vars(each) for each in getattr(measured, name)] for name in ("starts", "traffic")
        }
        written = figures.document(measured.turns, conditions=conditions, **more)
        options.json_file.write_text(json.dumps(written, indent=1) + "\n")


def _conditions(options: VictimsOptions) -> dict[str, object]:
    machine = servers.read_machine()
    del machine["controller-runtime"]
    rounds = "/".join(map(str, options.rounds))
    return {
        **machine,
        "kube-apiserver": pins.version(pins.BINARIES["kube-apiserver"]),
        "nodes": options.nodes,
        "rounds": rounds,
        "workloads answer": options.answer,
    }


def _parse(arguments: Sequence[str] | None) -> VictimsOptions:
    parser = argparse.ArgumentParser("bench-victims", description=__doc__)
    add = parser.add_argument
    add(
        "--victims",
        type=_numbers,
        default=(1000, 10_000),
        metavar="N,N",
        help="at once (default: 1000,10000)",
    )
    add(
        "--rounds",
        type=_numbers,
        default=(3, 1),
        metavar="N,N",
        help="for each of these sizes (default: 3,1)",
    )
    add("--pods", type=int, default=50_000, help="that are no victims (default: %(default)s)")
    add("--nodes", type=int, default=1000, help="simulated (default: %(default)s)")
    add("--once", action="store_true", help="do not double the pods that are no victims")
    add(
        "--traffic",
        type=int,
        default=200,
        metavar="N",
        help="victims whose bytes are counted (default: %(default)s)",
    )
    add(
        "--answer",
        choices=workload.ANSWERS,
        default="saving",
        help="to a hint (default: %(default)s)",
    )
    add("-o", "--output", type=Path, metavar="FILE", help="also write everything as JSON")
    add(
        "--cluster",
        default="bench-victims",
        metavar="NAME",
        help="made and removed (default: %(default)s)",
    )
    add(
        "--keep",
        action="store_true",
        help="leave the cluster and its pods: the next run begins sooner",
    )
    found = parser.parse_args(arguments)
    rounds = found.rounds + found.rounds[-1:] * (len(found.victims) - len(found.rounds))
    return VictimsOptions(
        victims=found.victims,
        rounds=rounds,
        pods=found.pods,
        nodes=found.nodes,
        doubled=not found.once,
        traffic=found.traffic,
        answer=found.answer,
        json_file=found.output,
        cluster=found.cluster,
        keep=found.keep,
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
