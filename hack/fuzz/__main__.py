"""`make fuzz`: whatever is sent to the admission server, it answers, rightly, and lives.

The server is the real process, started by its own command line, over TLS; behind it a stand-in for the API server. What
must hold of every answer:

- never 500, and never later than a bound;
- what can be decoded is answered with an AdmissionReview of the same uid, allowed or denied as the policy says when it
  is asked in this process; what cannot, with 400; what is too large, with 413; what does not come, with 408;

and of the process: it lives, its memory and its descriptors are at the end what they were, its log tells of no fault.

    make fuzz                            # 100,000 reviews from a new seed
    make fuzz SEED=7 BUDGET=90s          # for so long
    make fuzz SEED=7 ONLY=4711           # one case again
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import contenders, servers, stub_api
from realcluster.errors import ClusterError
from realcluster.progress import Progress, Task

from . import corpus
from .bodies import MEBIBYTE
from .campaign import READ_TIMEOUT_SECONDS, Campaign, Tally, Wrong
from .connection import Target
from .oracle import LOOKUP_SECONDS, Oracle
from .vitals import Vitals

MAX_REVIEW_BYTES = 8 * MEBIBYTE


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    seed: int
    reviews: int  # 0: until the time is over
    seconds: float  # 0: until so many reviews were sent
    only: int | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 where anything was found."""
    options, progress = _parse(arguments), Progress()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # without this, the server would outlive a `kill`
    progress.say(f"fuzz: seed {options.seed}")
    try:
        with tempfile.TemporaryDirectory(prefix="reprieve-fuzz-") as scratch:
            return _run(options, Path(scratch), progress)
    except ClusterError as error:
        progress.say(f"fuzz: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say(f"interrupted; seed {options.seed}")
        return 130


def _run(options: Options, folder: Path, progress: Progress) -> int:
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
            vitals = Vitals(server, log)
            vitals.begin()
            judge, tally = Oracle(corpus.CLUSTER, MAX_REVIEW_BYTES), Tally()
            campaign = Campaign(
                options.seed, Target(server.port, trust), judge, _is_over(options), tally
            )
            found = _send(options, campaign, vitals, progress)
            found = found or [Wrong(tally.reviews, what) for what in vitals.complaints()]
            print(_summary(options, tally, vitals, time.monotonic() - started))
    return _report(options, found)


def _send(options: Options, campaign: Campaign, vitals: Vitals, progress: Progress) -> list[Wrong]:
    async def send(task: Task) -> None:
        def note(tally: Tally) -> None:
            vitals.sample(_share(options, tally, task.seconds))
            task.tick(_counts(tally))

        await (campaign.run(note) if options.only is None else campaign.send(options.only))
        vitals.sample(1.0)

    try:
        with (
            progress.task("sending") as task,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(send(task))
    except Wrong as wrong:
        return [wrong]
    return []


def _share(options: Options, tally: Tally, seconds: float) -> float:
    return seconds / options.seconds if options.seconds else tally.reviews / options.reviews


def _is_over(options: Options) -> Callable[[Tally], bool]:
    deadline = time.monotonic() + options.seconds
    if options.seconds:
        return lambda _: time.monotonic() > deadline
    return lambda tally: tally.reviews >= options.reviews


def _counts(tally: Tally) -> str:
    return f"{tally.reviews:,} reviews: " + ", ".join(
        f"{count:,} × {status}" for status, count in sorted(tally.statuses.items())
    )


def _summary(options: Options, tally: Tally, vitals: Vitals, seconds: float) -> str:
    first, last = vitals.memory()
    return (
        f"fuzz: seed {options.seed}: {_counts(tally)}; {tally.intruders.total():,} intruders of "
        f"{len(tally.intruders)} kinds; {seconds:.0f} s, slowest answer {tally.slowest_seconds:.2f} s; "
        f"RSS {first:.0f} to {last:.0f} MiB, descriptors {vitals.descriptors_before} to {vitals.descriptors()}"
    )


def _report(options: Options, found: Sequence[Wrong]) -> int:
    for wrong in found:
        print(f"fuzz: FOUND at {wrong.number}: {wrong}", file=sys.stderr)
        if wrong.sent:
            kept = (
                Path(tempfile.mkdtemp(prefix="reprieve-fuzz-found-"))
                / f"{options.seed}-{wrong.number}.http"
            )
            kept.write_bytes(wrong.sent)
            print(f"fuzz: what was sent is in {kept}", file=sys.stderr)
    if found:
        print(
            f"fuzz: again with: make fuzz SEED={options.seed} ONLY={found[0].number}",
            file=sys.stderr,
        )
    return 1 if found else 0


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        "fuzz", description="Send hostile reviews to the admission server."
    )
    parser.add_argument("--seed", type=int, default=None, help="of all cases (default: a new one)")
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
    return Options(seed, reviews, seconds, options.only)


def budget(text: str) -> tuple[int, float]:
    """Return a number of reviews or a number of seconds, the other one 0."""
    found = re.fullmatch(r"([1-9][0-9_,]*)(s?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text}: must be a number of reviews, like 100000, or of seconds, like 90s"
        )
    number = int(found[1].replace(",", ""))
    return (0, float(number)) if found[2] else (number, 0.0)


if __name__ == "__main__":
    sys.exit(main())
