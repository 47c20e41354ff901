"""`make bench-preemption`: the same jobs against each way to preempt, one after another.

Each contender gets a fresh cluster of simulated nodes and the same trace, drawn from a seed. The
report says how soon preemptors start, how many victims that takes, and how much work the victims
lose.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench import servers
from bench.victims import audit
from realcluster import command
from realcluster.binaries import pins
from realcluster.progress import Progress

from . import counters, figures, objects, plots, replay
from .contenders import BY_KEY, Contender, running_contender
from .figures import PreemptionTurn
from .trace import LOAD, Trace, generate


@dataclass(frozen=True)
class PreemptionOptions:
    """The command line's options."""

    traces: Sequence[Trace]
    contenders: Sequence[Contender]
    folder: Path
    cluster: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and draw; the exit status is 1 if something cannot be measured."""
    options = _parse(arguments)
    return command.run("bench-preemption", lambda progress: _run(options, progress))


def _run(options: PreemptionOptions, progress: Progress) -> int:
    conditions = _conditions(options)
    turns: list[PreemptionTurn] = []
    try:
        for trace, contender in product(options.traces, options.contenders):
            turns.append(_turn(contender, trace, options.cluster, progress))
    finally:
        if turns:
            _report(turns, options.folder, conditions)
    return 0


def _turn(contender: Contender, trace: Trace, cluster: str, progress: Progress) -> PreemptionTurn:
    with running_contender(contender, cluster, trace.nodes, progress) as contender_cluster:
        before = contender_cluster.counted()
        with progress.task(
            f"{len(trace.jobs):,} jobs, seed {trace.seed}, {contender.title}"
        ) as task:
            replayed = asyncio.run(
                replay.play(trace, contender_cluster.cluster.kubeconfig, task.tick)
            )
        log, during = (
            audit.read(contender_cluster.cluster.audit_log, objects.NAMESPACE),
            counters.since(before, contender_cluster.counted()),
        )
    return figures.turn_of(contender.title, trace, replayed, log, during)


def _report(turns: Sequence[PreemptionTurn], folder: Path, conditions: dict[str, object]) -> None:
    rows = figures.summarise(turns)
    print(f"\n{figures.table(rows)}\n")
    for sentence in figures.sentences(rows, turns):
        print(sentence)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    for doubt in figures.doubts(turns):
        print(f"But {doubt}.")
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "figures.json"
    written.write_text(json.dumps(figures.document(turns, conditions=conditions)) + "\n")
    for file in (written, *plots.draw(rows, folder)):
        print(file)


def _conditions(options: PreemptionOptions) -> dict[str, object]:
    machine = servers.read_machine()
    del machine["controller-runtime"]
    trace = options.traces[0]
    return {
        **machine,
        "kube-scheduler": pins.version(pins.BINARIES["kube-scheduler"]),
        "scheduler-plugins": pins.version(pins.BINARIES["kube-scheduler-plugins"]),
        "jobs": len(trace.jobs),
        "pods": "/".join(str(each.pods) for each in options.traces),
        "nodes": trace.nodes,
        "load": LOAD,
        "arriving for": f"{trace.window_seconds:.0f} s",
        "seeds": "/".join(str(each.seed) for each in options.traces),
    }


def _parse(arguments: Sequence[str] | None) -> PreemptionOptions:
    parser = argparse.ArgumentParser("bench-preemption", description=__doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=2000, help="jobs in a trace (default: %(default)s)")
    add("--nodes", type=int, default=200, help="simulated (default: %(default)s)")
    add(
        "--contenders",
        default=",".join(BY_KEY),
        metavar="NAME,…",
        help="some of %(default)s (default: all)",
    )
    add(
        "--seeds", default="1", metavar="N,N", help="one trace for each seed (default: %(default)s)"
    )
    add(
        "--window",
        type=float,
        metavar="SECONDS",
        help="time in which the jobs arrive (default: 8 a second)",
    )
    add(
        "-o",
        "--output",
        type=Path,
        default=Path("build/bench-preemption"),
        metavar="FOLDER",
        help="(%(default)s)",
    )
    add(
        "--cluster",
        default="bench-preemption",
        metavar="NAME",
        help="name of the cluster that is created and removed (default: %(default)s)",
    )
    found = parser.parse_args(arguments)
    names = found.contenders.split(",")
    if unknown := [name for name in names if name not in BY_KEY]:
        parser.error(f"--contenders: {unknown[0]}: must be some of {', '.join(BY_KEY)}")
    return PreemptionOptions(
        traces=[
            generate(int(seed), found.jobs, found.nodes, found.window)
            for seed in found.seeds.split(",")
        ],
        contenders=[BY_KEY[name] for name in names],
        folder=found.output,
        cluster=found.cluster,
    )


if __name__ == "__main__":
    sys.exit(main())
