"""`make test-robustness`: an hour of random work and random faults, and a checker of the history.

A failing seed is played again, and shrunk to few actions that still fail.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from realcluster import command
from realcluster.progress import Progress
from reprieve_testing.cluster.handle import ClusterHandle, new_cluster

from . import report
from .plan import PlannedAction, PlannedRound, RobustnessPlan, generate
from .programs import install_reprieve
from .run import RobustnessOutcome, play
from .shrink import shrink

NAME = "reprieve-robustness"
KWOK_NODES = 8
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class RobustnessOptions:
    """The command line's options."""

    plan: RobustnessPlan
    shrink: int
    folder: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the status is 1 if a promise was broken or a planned fault never took effect."""
    options = _parse(arguments)
    return command.run("test-robustness", lambda progress: _run(options, progress))


def _run(options: RobustnessOptions, progress: Progress) -> int:
    plan, folder = options.plan, options.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(plan.to_json())
    progress.say(f"seed {plan.seed}: {len(plan.rounds)} rounds, written to {folder}")
    with new_cluster(NAME, kwok_nodes=KWOK_NODES) as cluster:
        handle = ClusterHandle.of(cluster)
        install_reprieve(handle)
        try:
            outcome = _play(handle, plan, folder, progress)
            _write(outcome, folder)
            _say(report.render(outcome))
            failed = report.failures(outcome)
            _keep_logs(handle, folder)
            if outcome.failed_round is not None and options.shrink:
                _shrink(handle, outcome, options, progress)
        finally:
            _keep_logs(handle, folder)
    return 1 if failed else 0


def _play(
    handle: ClusterHandle, plan: RobustnessPlan, folder: Path, progress: Progress
) -> RobustnessOutcome:
    return asyncio.run(play(handle, plan, folder, progress.say))


def _shrink(
    handle: ClusterHandle,
    outcome: RobustnessOutcome,
    options: RobustnessOptions,
    progress: Progress,
) -> None:
    """Play the failing round alone, and drop its actions by halves while it still fails."""
    assert outcome.failed_round is not None
    plan, failed = options.plan, outcome.failed_round
    pairs = [(failed, action) for action in failed.actions]

    async def fails(kept: Sequence[tuple[PlannedRound, PlannedAction]]) -> bool:
        began = time.monotonic()
        again = await play(handle, plan.with_actions(kept), options.folder, progress.say)
        verdict = "fails" if again.broken else "passes"
        progress.say(f"replay of {len(kept)} actions {verdict}, {time.monotonic() - began:.0f} s")
        return bool(again.broken)

    if not asyncio.run(fails(pairs)):
        _say("the failing round alone passes: what was before it matters, or chance")
        return
    found = asyncio.run(shrink(pairs, fails, options.shrink - 1))
    left = plan.with_actions(found.items)
    (options.folder / "shrunk.json").write_text(left.to_json())
    _say(report.replayed(left, found.attempts + 1))


def _keep_logs(handle: ClusterHandle, folder: Path) -> None:
    """Keep the audit log and our programs' logs, which go with the cluster."""
    log = handle.cluster.audit_log
    for file in [*log.parent.glob(f"{log.stem}-*{log.suffix}"), log]:
        shutil.copy(file, folder / file.name)
    logs = handle.cluster.home / "logs"
    for file in logs.glob("reprieve-*.log"):
        shutil.copy(file, folder / file.name)


def _write(outcome: RobustnessOutcome, folder: Path) -> None:
    """Write the samples, the report and the verdict."""
    rows = (
        f"{one.program},{one.pid},{one.seconds:.0f},{one.rss_mib:.1f},{one.descriptors}"
        for one in outcome.samples
    )
    header = "program,pid,seconds,rss_mib,descriptors"
    (folder / "resources.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "report.txt").write_text(report.render(outcome) + "\n")
    verdict = {
        "seed": outcome.plan.seed,
        "minutes": outcome.plan.minutes,
        "failures": report.failures(outcome),
        "failed round": None if outcome.failed_round is None else asdict(outcome.failed_round),
        "injected": dict(outcome.injected),
        "checks": dict(outcome.checks),
    }
    (folder / "verdict.json").write_text(json.dumps(verdict, indent=1) + "\n")


def _parse(arguments: Sequence[str] | None) -> RobustnessOptions:
    parser = argparse.ArgumentParser("test-robustness", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="about how long (default: %(default)s)")
    add("--seed", type=int, help="of the plan (default: a new one, which is printed)")
    add("--plan", type=Path, metavar="FILE", help="play this plan: plan.json or shrunk.json")
    add(
        "--shrink",
        type=int,
        default=10,
        metavar="N",
        help="replays at most, to shrink what fails; 0: none (default: %(default)s)",
    )
    add("--output", type=Path, metavar="FOLDER", help="(default: .robustness/seed-SEED)")
    found = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**9) if found.seed is None else found.seed
    plan = (
        RobustnessPlan.from_json(found.plan.read_text())
        if found.plan
        else generate(seed, found.minutes)
    )
    folder = found.output or ROOT / ".robustness" / f"seed-{plan.seed}"
    return RobustnessOptions(plan, found.shrink, folder)


def _say(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
