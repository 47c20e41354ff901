"""`make fuzz`: the admission server answers everything, answers it correctly, and keeps running.

The server is the real process, started by its own command line, over TLS, with a stub API server
behind it. Of every answer must hold:

- It is never 500, and never later than a bound.
- A body that can be decoded gets an AdmissionReview with the same uid, allowed or denied as the
  policy decides in this process. A body that cannot gets 400, one that is too large 413, one that
  does not arrive 408.

Of the process must hold: it keeps running, its memory and file descriptors are at the end what they
were at the beginning, and its log reports no internal error.

    make fuzz                            # 100,000 reviews from a new seed
    make fuzz SEED=7 BUDGET=90s          # for 90 seconds
    make fuzz SEED=7 ONLY=4711           # one case again
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import contenders, servers, stub_api
from realcluster import command
from realcluster.progress import Progress, Task
from reprieve_webhooks.admission.large_review import LARGEST_BYTES as MAX_REVIEW_BYTES

from . import corpus
from .campaign import READ_TIMEOUT_SECONDS, Campaign, Counts, Finding
from .connection import Target
from .oracle import LOOKUP_SECONDS, Oracle
from .process_health import ProcessHealth


@dataclass(frozen=True)
class FuzzOptions:
    """The command line's options."""

    seed: int
    reviews: int  # 0: until time runs out
    seconds: float  # 0: until that many reviews were sent
    only: int | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 if anything was found."""
    options = _parse(arguments)
    interrupted = f"interrupted; seed {options.seed}"
    return command.run(
        "fuzz", lambda progress: _in_scratch(options, progress), interrupted=interrupted
    )


def _in_scratch(options: FuzzOptions, progress: Progress) -> int:
    progress.say(f"fuzz: seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="reprieve-fuzz-") as scratch:
        return _run(options, Path(scratch), progress)


def _run(options: FuzzOptions, folder: Path, progress: Progress) -> int:
    trust, log, started = (
        contenders.write_certificates(folder),
        folder / "server.log",
        time.monotonic(),
    )
    limits = (
        *(
            "--read-timeout-seconds",
            str(READ_TIMEOUT_SECONDS),
            "--lookup-timeout-seconds",
            str(LOOKUP_SECONDS),
        ),
        *("--max-review-bytes", str(MAX_REVIEW_BYTES)),
    )
    with stub_api.serve(corpus.CLUSTER) as url:
        command = contenders.reprieve(contenders.write_kubeconfig(url, folder), folder, *limits)
        with servers.running(command, None, log, trust) as server:
            health = ProcessHealth(server, log)
            health.begin()
            oracle, counts = Oracle(corpus.CLUSTER, MAX_REVIEW_BYTES), Counts()
            campaign = Campaign(
                options.seed, Target(server.port, trust), oracle, _is_over(options), counts
            )
            found = _send(options, campaign, health, progress)
            found = found or [Finding(counts.reviews, what) for what in health.complaints()]
            print(_summary(options, counts, health, time.monotonic() - started))
    return _report(options, found)


def _send(
    options: FuzzOptions, campaign: Campaign, health: ProcessHealth, progress: Progress
) -> list[Finding]:
    async def send(task: Task) -> None:
        def note(counts: Counts) -> None:
            health.sample(_share(options, counts, task.seconds))
            task.tick(_counted(counts))

        await (campaign.run(note) if options.only is None else campaign.send(options.only))
        health.sample(1.0)

    try:
        with (
            progress.task("sending") as task,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(send(task))
    except Finding as finding:
        return [finding]
    return []


def _share(options: FuzzOptions, counts: Counts, seconds: float) -> float:
    return seconds / options.seconds if options.seconds else counts.reviews / options.reviews


def _is_over(options: FuzzOptions) -> Callable[[Counts], bool]:
    deadline = time.monotonic() + options.seconds
    if options.seconds:
        return lambda _: time.monotonic() > deadline
    return lambda counts: counts.reviews >= options.reviews


def _counted(counts: Counts) -> str:
    return f"{counts.reviews:,} reviews: " + ", ".join(
        f"{count:,} × {status}" for status, count in sorted(counts.statuses.items())
    )


def _summary(options: FuzzOptions, counts: Counts, health: ProcessHealth, seconds: float) -> str:
    first, last = health.memory()
    return (
        f"fuzz: seed {options.seed}: {_counted(counts)}; "
        f"{counts.hostile_clients.total():,} hostile clients of "
        f"{len(counts.hostile_clients)} kinds; {seconds:.0f} s, "
        f"slowest answer {counts.slowest_seconds:.2f} s; "
        f"RSS {first:.0f} to {last:.0f} MiB, descriptors {health.descriptors_before} to "
        f"{health.descriptors()}"
    )


def _report(options: FuzzOptions, found: Sequence[Finding]) -> int:
    for finding in found:
        print(f"fuzz: FOUND at {finding.number}: {finding}", file=sys.stderr)
        if finding.sent:
            kept = (
                Path(tempfile.mkdtemp(prefix="reprieve-fuzz-found-"))
                / f"{options.seed}-{finding.number}.http"
            )
            kept.write_bytes(finding.sent)
            print(f"fuzz: the request is in {kept}", file=sys.stderr)
    if found:
        print(
            f"fuzz: repeat with: make fuzz SEED={options.seed} ONLY={found[0].number}",
            file=sys.stderr,
        )
    return 1 if found else 0


def _parse(arguments: Sequence[str] | None) -> FuzzOptions:
    parser = argparse.ArgumentParser(
        "fuzz", description="Send hostile reviews to the admission server."
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of all cases (default: a new one)"
    )
    parser.add_argument(
        "--budget",
        type=budget,
        default=(100_000, 0.0),
        help="number of reviews, or seconds as in 90s (default: 100000)",
    )
    parser.add_argument("--only", type=int, metavar="NUMBER", help="send this one case only")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    reviews, seconds = options.budget
    return FuzzOptions(seed, reviews, seconds, options.only)


def budget(text: str) -> tuple[int, float]:
    """Return a number of reviews and a number of seconds; one of them is 0."""
    found = re.fullmatch(r"([1-9][0-9_,]*)(s?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text}: must be a number of reviews, like 100000, or of seconds, like 90s"
        )
    number = int(found[1].replace(",", ""))
    return (0, float(number)) if found[2] else (number, 0.0)


if __name__ == "__main__":
    sys.exit(main())
