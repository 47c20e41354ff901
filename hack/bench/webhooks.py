"""`make bench-webhooks`: Reprieve's admission server beside two in Go, in one interleaved run.

Every server has one core and all the load it can bear from the other, over the same kept-alive TLS connections, with
the same reviews. Rounds go A B C A B C, so that whatever else the machine does meets all of them; ratios are of turns
in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from realcluster import build, pins
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from reprieve_certs import bundle

from . import contenders, figures, reviews, servers
from .figures import Turn
from .servers import Server

CONNECTIONS = 8
WARM_UP_SECONDS = 1.0
REFERENCE = contenders.CONTROLLER_RUNTIME
CAVEAT = (
    "Medians over the rounds; × is the median of the ratios within each round. Ratios of one run hold; the absolute "
    "figures are of this machine at this hour."
)


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    rounds: int
    seconds: float
    sizes: tuple[int, ...]
    json_file: Path | None


@dataclass(frozen=True)
class Bench:
    """What a turn needs: the load generator, its core, and the files that it reads."""

    load: Path
    load_core: int
    authority: Path
    review_files: dict[int, Path]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 where a server answers wrongly or cannot be measured."""
    options, progress = _parse(arguments), Progress()
    conditions = _conditions(options)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # without this, the servers would outlive a `kill`
    try:
        turns = _measure(options, progress)
    except ClusterError as error:
        progress.say(f"bench-webhooks: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted")
        return 130
    _report(turns, options, conditions)
    return 0


def _measure(options: Options, progress: Progress) -> list[Turn]:
    programs = build.ensure(pins.GROUPS["bench"], progress)
    server_core, load_core = servers.two_cores()
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder)
        commands = stack.enter_context(contenders.commands(programs, folder))
        bench = Bench(
            programs["bench-load"],
            load_core,
            folder / bundle.CA_CERTIFICATES,
            _write_reviews(options, folder),
        )
        with progress.task(
            f"starting {len(commands)} servers on core {server_core}; the load is on core {load_core}"
        ):
            running = [
                stack.enter_context(
                    servers.running(command, server_core, folder / f"{command.port}.log", trust)
                )
                for command in commands
            ]
        return _rounds(bench, running, options, progress)


def _rounds(
    bench: Bench, running: Sequence[Server], options: Options, progress: Progress
) -> list[Turn]:
    turns = []
    for size in options.sizes:
        with progress.task(f"warming up with reviews of {size:,} bytes"):
            for server in running:
                _turn(bench, server, size, 0, WARM_UP_SECONDS)
        for number in range(1, options.rounds + 1):
            with progress.task(f"{size:,} bytes, round {number} of {options.rounds}"):
                turns += [_turn(bench, server, size, number, options.seconds) for server in running]
    return turns


def _turn(bench: Bench, server: Server, size: int, number: int, seconds: float) -> Turn:
    words = [
        *(bench.load, "-address", f"127.0.0.1:{server.port}", "-ca", bench.authority),
        *("-reviews", bench.review_files[size], "-connections", CONNECTIONS, "-seconds", seconds),
    ]
    before = server.cpu_seconds()
    with servers.pinned_to(bench.load_core):
        environment = {**os.environ, "GOMAXPROCS": "1"}
        done = subprocess.run(
            list(map(str, words)), capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise ClusterError(f"{server.name}: {done.stderr.strip()}")
    measured = json.loads(done.stdout)
    return Turn(
        server=server.name,
        size=size,
        round=number,
        seconds=measured["seconds"],
        microseconds={int(latency): count for latency, count in measured["microseconds"].items()},
        server_cpu_seconds=server.cpu_seconds() - before,
        load_cpu_seconds=measured["cpu_seconds"],
        rss_mib=server.rss_mib(),
    )


def _write_reviews(options: Options, folder: Path) -> dict[int, Path]:
    files = {size: folder / f"reviews-{size}.jsonl" for size in options.sizes}
    for size, file in files.items():
        try:
            file.write_bytes(b"".join(review.line() for review in reviews.build(size)))
        except ValueError as error:
            raise ClusterError(str(error)) from error
    return files


def _report(turns: Sequence[Turn], options: Options, conditions: Mapping[str, object]) -> None:
    for size, rows in figures.summarise(turns, REFERENCE).items():
        print(f"\n{size:,}-byte reviews\n{figures.table(rows, REFERENCE)}")
    busiest = max(turn.load_share for turn in turns)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    print(
        f"{CAVEAT}\nEvery answer was checked. The load generator was busy {busiest:.0%} of its core at most."
    )
    for doubt in figures.doubts(turns):
        print(f"But {doubt}.")
    if options.json_file is not None:
        written = figures.document(turns, REFERENCE, conditions)
        options.json_file.write_text(json.dumps(written, indent=1) + "\n")


def _conditions(options: Options) -> dict[str, object]:
    return {
        **servers.read_machine(),
        "connections": CONNECTIONS,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(
        "bench-webhooks", description="Measure Reprieve's admission server beside others."
    )
    parser.add_argument(
        "--rounds",
        type=_at_least_one,
        default=5,
        help="turns of each server (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="length of a turn (default: %(default)s)"
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=(4096, 30720),
        metavar="B,B",
        help="of the reviews [B] (default: 4096,30720)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write everything that was measured"
    )
    options = parser.parse_args(arguments)
    return Options(options.rounds, options.seconds, options.sizes, options.json)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below one")
    return number


if __name__ == "__main__":
    sys.exit(main())
