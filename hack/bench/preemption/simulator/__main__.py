"""`make bench-simulate`: each way to preempt against the same jobs, without a cluster.

Simulates what `make bench-preemption` measures, in about a minute. Several seeds give medians and
ranges. A second stands for a minute of a cluster's life.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from bench.preemption.sources import SOURCES
from bench.preemption.trace import LOAD

from . import figures, published
from .contenders import BY_KEY, CONTENDERS
from .figures import Figures, figures_of
from .scheduler import DecisionTimes
from .simulation import Simulation


@dataclass(frozen=True)
class SimulationTask:
    """One contender on one trace; small, so that it can be sent to another process."""

    source: str
    contender: str
    seed: int
    jobs: int
    nodes: int
    restart_seconds: float | None
    """None: as in the trace."""
    times: DecisionTimes


def simulate(task: SimulationTask) -> Figures:
    """Simulate one contender on one trace."""
    drawn = SOURCES[task.source].generate(task.seed, task.jobs, task.nodes)
    if task.restart_seconds is not None:
        drawn = replace(drawn, restart_seconds=task.restart_seconds)
    return figures_of(Simulation(drawn, BY_KEY[task.contender], task.times).run())


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, print the table, and write the figures if asked to."""
    options = _parse(arguments)
    times = DecisionTimes(
        attempt_seconds=options.attempt_seconds, call_seconds=options.call_seconds
    )
    tasks = [
        SimulationTask(
            options.trace, key, seed, options.jobs, options.nodes, options.restart_seconds, times
        )
        for key, seed in product(options.only, options.seeds)
    ]
    found = sorted(
        _simulated(tasks, options.workers),
        key=lambda each: (options.only.index(each.contender), each.seed),
    )
    _report(found, options)
    return 0


def _report(found: Sequence[Figures], options: argparse.Namespace) -> None:
    conditions = {
        "trace": options.trace,
        "jobs": options.jobs,
        "nodes": options.nodes,
        "load": LOAD,
        "seeds": "/".join(str(seed) for seed in options.seeds),
        "restart": "as in the trace"
        if options.restart_seconds is None
        else f"{options.restart_seconds:g} s",
        "attempt": f"{options.attempt_seconds:g} s",
        "call of the extender": f"{options.call_seconds:g} s",
    }
    print(figures.table(found, {contender.key: contender.title for contender in CONTENDERS}))
    print("\nstarts in seconds, of all pods whose tier may preempt; a second stands for a minute")
    print(", ".join(f"{name} {value}" for name, value in conditions.items()))
    if options.json:
        document = figures.document(found, conditions=conditions)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def _simulated(tasks: Sequence[SimulationTask], workers: int) -> Iterator[Figures]:
    """Yield the figures of each task as soon as they are there, and say so on standard error."""
    if workers == 1:
        yield from _with_progress(map(simulate, tasks), len(tasks))
        return
    with multiprocessing.Pool(workers) as pool:
        yield from _with_progress(pool.imap_unordered(simulate, tasks), len(tasks))


def _with_progress(found: Iterator[Figures], of: int) -> Iterator[Figures]:
    for number, each in enumerate(found, start=1):
        print(f"{number} of {of}: {each.contender}, seed {each.seed}", file=sys.stderr)
        yield each


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    found = parser.parse_args(arguments)
    size = SOURCES[found.trace].size
    found.jobs = size.jobs if found.jobs is None else found.jobs
    found.nodes = size.nodes if found.nodes is None else found.nodes
    found.only = found.only.split(",") if found.only else list(BY_KEY)
    if unknown := [name for name in found.only if name not in BY_KEY]:
        parser.error(f"--only: {unknown[0]}: must be some of {', '.join(BY_KEY)}")
    try:
        found.seeds = [int(seed) for seed in found.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds: {found.seeds}: must be whole numbers, like 1,2")
    return found


def _seconds(text: str) -> float:
    """Read a time that is not negative; `argparse` reports the error."""
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be 0 or more")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "bench-simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="contenders:\n"
        + "\n".join(f"  {contender.key:<18}{contender.title}" for contender in CONTENDERS),
    )
    add = parser.add_argument
    add(
        "--trace",
        choices=SOURCES,
        default="synthetic",
        help="the benchmark's own, or the runtimes of Microsoft's Philly or of Alibaba's GPU pods "
        "of 2023 (default: %(default)s)",
    )
    add("--seeds", default="1,2,3,4", metavar="N,N", help="a trace each (default: %(default)s)")
    add("--jobs", type=int, help="jobs in a trace (default: 2000; published traces: 3000)")
    add("--nodes", type=int, help="nodes of eight devices (default: 200; philly: 60; openb: 12)")
    add("--only", metavar="NAME,…", help="some of the contenders below (default: all)")
    add(
        "--restart-seconds",
        type=float,
        metavar="SECONDS",
        help="in which a replacement restores its work (default: 0, as in the benchmark; published "
        f"traces: {published.RESTART_SECONDS:g})",
    )
    add(
        "--attempt-seconds",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="in which the scheduler tries one pod, and no other (default: none; kube-scheduler: "
        "0.0025 with 200 nodes)",
    )
    add(
        "--call-seconds",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="in which it waits for the extender as well (default: none)",
    )
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="processes side by side (default: one for each processor)",
    )
    add("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
