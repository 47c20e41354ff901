"""`make bench-preemption`: the same jobs against each way to preempt, one after another.

Each contender gets a fresh cluster of simulated nodes and the same trace, drawn from a seed. What is printed is how soon
preemptors start, how many victims that takes, and how much of the victims' work is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench import servers
from bench.victims import audit
from realcluster import pins
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import counted, figures, objects, plots, replay
from .contenders import BY_KEY, Contender, staged
from .figures import Turn
from .trace import LOAD, Trace, generate


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    traces: Sequence[Trace]
    contenders: Sequence[Contender]
    folder: Path
    cluster: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and draw; the exit status is 1 where something cannot be measured."""
    options, progress = _parse(arguments), Progress()
    conditions = _conditions(options)
    # Without this, cluster and programs would outlive a `kill`.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    turns: list[Turn] = []
    try:
        for trace, contender in product(options.traces, options.contenders):
            turns.append(_turn(contender, trace, options.cluster, progress))
    except ClusterError as error:
        progress.say(f"bench-preemption: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted")
        return 130
    finally:
        if turns:
            _report(turns, options.folder, conditions)
    return 0


def _turn(contender: Contender, trace: Trace, cluster: str, progress: Progress) -> Turn:
    with staged(contender, cluster, trace.nodes, progress) as stage:
        before = stage.counted()
        with progress.task(
            f"{len(trace.jobs):,} jobs, seed {trace.seed}, {contender.title}"
        ) as task:
            played = asyncio.run(replay.play(trace, stage.cluster.kubeconfig, task.tick))
        log, during = (
            audit.read(stage.cluster.audit_log, objects.NAMESPACE),
            counted.since(before, stage.counted()),
        )
    return figures.turn_of(contender.title, trace, played, log, during)


def _report(turns: Sequence[Turn], folder: Path, conditions: dict[str, object]) -> None:
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


def _conditions(options: Options) -> dict[str, object]:
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


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser("bench-preemption", description=__doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=2000, help="of a trace (default: %(default)s)")
    add("--nodes", type=int, default=200, help="simulated (default: %(default)s)")
    add(
        "--contenders",
        default=",".join(BY_KEY),
        metavar="NAME,…",
        help="some of %(default)s (default: all)",
    )
    add("--seeds", default="1", metavar="N,N", help="a trace for each (default: %(default)s)")
    add(
        "--window",
        type=float,
        metavar="SECONDS",
        help="in which the jobs arrive (default: 8 a second)",
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
        help="made and removed (default: %(default)s)",
    )
    found = parser.parse_args(arguments)
    names = found.contenders.split(",")
    if unknown := [name for name in names if name not in BY_KEY]:
        parser.error(f"--contenders: {unknown[0]}: must be some of {', '.join(BY_KEY)}")
    return Options(
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
