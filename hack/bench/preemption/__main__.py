"""`make bench-preemption`: the same jobs against each way to preempt, one after another.

Each contender gets a fresh cluster of simulated nodes and the same trace, drawn from a seed. The
report says how soon preemptors start, how many victims that takes, and how much work the victims
lose, beside the stock scheduler and the simulator. A turn of a contender is kept in a file: a run
that was stopped continues with the next turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path

from bench import servers
from bench.victims import audit
from realcluster import command
from realcluster.binaries import pins
from realcluster.progress import Progress

from . import comparison, counters, figures, objects, plots, replay
from .comparison import Comparison
from .contenders import BY_KEY, NO_NOTICE, POLICY_ONLY, STOCK, Contender, running_contender
from .figures import PreemptionTurn
from .simulator.contenders import BOUND, Knowledge
from .simulator.contenders import BY_KEY as SIMULATED
from .simulator.figures import Figures, figures_of
from .simulator.simulation import Simulation
from .sources import SOURCES
from .trace import LOAD
from .turns import Setting, TurnFiles, draw


@dataclass(frozen=True)
class PreemptionOptions:
    """The command line's options."""

    setting: Setting
    seeds: Sequence[int]
    contenders: Sequence[Contender]
    folder: Path
    """Of this setting."""
    cluster: str
    measures_again: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and draw; the exit status is 1 if something cannot be measured."""
    options = _parse(arguments)
    return command.run("bench-preemption", lambda progress: _run(options, progress))


def _run(options: PreemptionOptions, progress: Progress) -> int:
    files = TurnFiles(options.folder / "turns")
    try:
        _measure(files, options, progress, partial(_turn, options=options, progress=progress))
    finally:
        _report(files, options, progress)
    return 0


def _measure(
    files: TurnFiles,
    options: PreemptionOptions,
    progress: Progress,
    turn: Callable[[Contender, int], PreemptionTurn],
) -> None:
    """Measure the turns that have no file yet, or all."""
    for seed, contender in product(options.seeds, options.contenders):
        there = files.path(contender.key, seed)
        if there.exists() and not options.measures_again:
            progress.say(f"{contender.title}, seed {seed}: is in {there} (--again measures it)")
        else:
            files.write(contender.key, turn(contender, seed))


def _turn(
    contender: Contender, seed: int, options: PreemptionOptions, progress: Progress
) -> PreemptionTurn:
    trace = draw(options.setting, seed)
    with running_contender(contender, options.cluster, trace.nodes, progress) as contender_cluster:
        before = contender_cluster.counted()
        with progress.task(f"{len(trace.jobs):,} jobs, seed {seed}, {contender.title}") as task:
            replayed = asyncio.run(
                replay.play(
                    trace,
                    contender_cluster.cluster.kubeconfig,
                    task.tick,
                    publishes=options.setting.publishes,
                )
            )
        log, during = (
            audit.read(contender_cluster.cluster.audit_log, objects.NAMESPACE),
            counters.since(before, contender_cluster.counted()),
        )
    return figures.turn_of(contender.title, trace, replayed, log, during)


def _report(files: TurnFiles, options: PreemptionOptions, progress: Progress) -> None:
    """Report all turns of the setting, also those of earlier runs."""
    by_contender = {key: turns for key in BY_KEY if (turns := files.read(key))}
    turns = [turn for own in by_contender.values() for turn in own]
    if not turns:
        return
    compared = _compare(by_contender, options.setting, progress)
    rows = figures.summarise(turns)
    conditions = _conditions(options.setting, sorted({turn.seed for turn in turns}))
    print(f"\n{comparison.table(compared)}\n")
    print("starts are those of all pods whose tier may preempt; a second stands for a minute")
    print(f"\nall seeds together:\n{figures.table(rows)}\n")
    for sentence in figures.sentences(rows, turns):
        print(sentence)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    for doubt in figures.doubts(turns):
        print(f"But {doubt}.")
    written = options.folder / "figures.json"
    document = figures.document(
        turns, conditions=conditions, comparison=[asdict(each) for each in compared]
    )
    written.write_text(json.dumps(document) + "\n")
    for file in (written, *plots.draw(rows, options.folder)):
        print(file)


def _compare(
    by_contender: Mapping[str, Sequence[PreemptionTurn]], setting: Setting, progress: Progress
) -> list[Comparison]:
    """Return each contender beside the stock scheduler, and the simulator on the same traces."""
    with progress.task("simulating the same traces") as task:

        def simulated(key: str | None, turns: Sequence[PreemptionTurn]) -> list[Figures]:
            found = []
            for turn in turns if key else ():
                task.tick(f"{key}, seed {turn.seed}")
                found.append(_simulated(str(key), setting, turn.seed))
            return found

        measured = {
            key: [comparison.figures_of(turn, draw(setting, turn.seed)) for turn in turns]
            for key, turns in by_contender.items()
        }
        return [
            Comparison(
                title=BY_KEY[key].title,
                measured=measured[key],
                stock=measured.get(STOCK.key, ()),
                without_notice=measured.get(NO_NOTICE.key, ()),
                policy_only=measured.get(POLICY_ONLY.key, ()),
                simulated=simulated(BY_KEY[key].simulated, turns),
                bound=simulated(BOUND.key, turns),
            )
            for key, turns in by_contender.items()
        ]


@cache
def _simulated(key: str, setting: Setting, seed: int) -> Figures:
    contender = SIMULATED[key]
    if not setting.publishes and contender != BOUND:
        contender = replace(contender, knowledge=Knowledge.DECLARED)
    return figures_of(Simulation(draw(setting, seed), contender).run())


def _conditions(setting: Setting, seeds: Sequence[int]) -> dict[str, object]:
    machine = servers.read_machine()
    del machine["controller-runtime"]
    traces = [draw(setting, seed) for seed in seeds]
    saves = [
        job.checkpoints.save_seconds for each in traces for job in each.jobs if job.checkpoints
    ]
    return {
        **machine,
        "kube-scheduler": pins.version(pins.BINARIES["kube-scheduler"]),
        "scheduler-plugins": pins.version(pins.BINARIES["kube-scheduler-plugins"]),
        "trace": setting.trace,
        "jobs": setting.jobs,
        "pods": "/".join(str(each.pods) for each in traces),
        "nodes": setting.nodes,
        "load": LOAD,
        "arriving for": "/".join(f"{each.window_seconds:.0f}" for each in traces) + " s",
        "a save takes": f"{statistics.median(saves):.1f} s, at most {max(saves):.1f} s",
        "saves published": "yes" if setting.publishes else "no",
        "seeds": "/".join(map(str, seeds)),
    }


def _parse(arguments: Sequence[str] | None) -> PreemptionOptions:
    parser = _parser()
    found = parser.parse_args(arguments)
    names = found.contenders.split(",")
    if unknown := [name for name in names if name not in BY_KEY]:
        parser.error(f"--contenders: {unknown[0]}: must be some of {', '.join(BY_KEY)}")
    try:
        seeds = [int(seed) for seed in found.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds: {found.seeds}: must be whole numbers, like 1,2")
    size = SOURCES[found.trace].short_size
    setting = Setting(
        trace=found.trace,
        jobs=size.jobs if found.jobs is None else found.jobs,
        nodes=size.nodes if found.nodes is None else found.nodes,
        window_seconds=found.window,
        publishes=not found.no_publish,
    )
    return PreemptionOptions(
        setting=setting,
        seeds=seeds,
        contenders=[BY_KEY[name] for name in names],
        folder=found.output / setting.name,
        cluster=found.cluster,
        measures_again=found.again,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("bench-preemption", description=__doc__)
    sizes = ", ".join(
        f"{name}: {source.short_size.jobs} on {source.short_size.nodes}"
        for name, source in SOURCES.items()
    )
    add = parser.add_argument
    add(
        "--trace",
        choices=SOURCES,
        default="synthetic",
        help="the benchmark's own, or a few hours with the runtimes of Microsoft's Philly or of "
        "Alibaba's GPU pods of 2023 (default: %(default)s)",
    )
    add("--jobs", type=int, help=f"jobs in a trace (default: {sizes} nodes)")
    add("--nodes", type=int, help="simulated; of eight CPUs")
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
        help="time in which the jobs arrive (default: synthetic: 8 a second; published traces: as "
        "long as the jobs load the nodes)",
    )
    add(
        "--no-publish",
        action="store_true",
        help="workloads do not publish when they saved (reprieve.dev/last-checkpoint-at)",
    )
    add("--again", action="store_true", help="measure also what the output folder has already")
    add(
        "-o",
        "--output",
        type=Path,
        default=Path("build/bench-preemption"),
        metavar="FOLDER",
        help="with a folder for each trace and size (default: %(default)s)",
    )
    add(
        "--cluster",
        default="bench-preemption",
        metavar="NAME",
        help="name of the cluster that is created and removed (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
