"""`make bench-webhooks`: Reprieve's admission server beside two in Go, in one interleaved run.

Each server has one core, and the load generator has the other. All get the same reviews over the
same kept-alive TLS connections, as fast as they answer. Rounds go A B C A B C, so that other work
on the machine affects all of them; ratios compare turns of the same round.

With `--workers`, Reprieve's server is compared with itself: as one process, and as so many, which
may use all cores, as may the load generator.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from realcluster import command
from realcluster.binaries import build, pins
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from reprieve_certs import bundle

from . import contenders, figures, reviews, servers
from .figures import WebhooksTurn
from .servers import Server

CONNECTIONS = 8
WARM_UP_SECONDS = 1.0
REFERENCE = contenders.CONTROLLER_RUNTIME
CAVEAT = (
    "Medians over the rounds; × is the median of the ratios within each round. Ratios within a "
    "run are comparable; absolute figures depend on the machine and the moment."
)


@dataclass(frozen=True)
class WebhooksOptions:
    """The command line's options."""

    rounds: int
    seconds: float
    sizes: tuple[int, ...]
    connections: int
    workers: int
    """1: beside the servers in Go."""
    json_file: Path | None

    @property
    def reference(self) -> str:
        """The server that the others are compared with."""
        return REFERENCE if self.workers == 1 else contenders.REPRIEVE


@dataclass(frozen=True)
class WebhooksBench:
    """What a turn needs: the load generator, its core, and its files."""

    load: Path
    load_core: int | None
    """`None`: any."""
    authority: Path
    review_files: dict[int, Path]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if a server answers wrongly or cannot be measured."""
    options = _parse(arguments)
    return command.run("bench-webhooks", lambda progress: _run(options, progress))


def _run(options: WebhooksOptions, progress: Progress) -> int:
    conditions = _conditions(options)
    _report(_measure(options, progress), options, conditions)
    return 0


def _measure(options: WebhooksOptions, progress: Progress) -> list[WebhooksTurn]:
    needed = pins.GROUPS["bench"] if options.workers == 1 else ("bench-load",)
    programs = build.ensure(needed, progress)
    server_core, load_core = servers.two_cores() if options.workers == 1 else (None, None)
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder)
        commands = stack.enter_context(contenders.commands(programs, folder, options.workers))
        bench = WebhooksBench(
            programs["bench-load"],
            load_core,
            folder / bundle.CA_CERTIFICATES,
            _write_reviews(options, folder),
        )
        where = "any core" if server_core is None else f"core {server_core}, the load on another"
        with progress.task(f"starting {len(commands)} servers on {where}"):
            running = [
                stack.enter_context(
                    servers.running(command, server_core, folder / f"{command.port}.log", trust)
                )
                for command in commands
            ]
        return _rounds(bench, running, options, progress)


def _rounds(
    bench: WebhooksBench, running: Sequence[Server], options: WebhooksOptions, progress: Progress
) -> list[WebhooksTurn]:
    turns = []
    for size in options.sizes:
        with progress.task(f"warming up with reviews of {size:,} bytes"):
            for server in running:
                _turn(bench, server, size, 0, options)
        for number in range(1, options.rounds + 1):
            with progress.task(f"{size:,} bytes, round {number} of {options.rounds}"):
                turns += [_turn(bench, server, size, number, options) for server in running]
    return turns


def _turn(
    bench: WebhooksBench, server: Server, size: int, number: int, options: WebhooksOptions
) -> WebhooksTurn:
    seconds = options.seconds if number else WARM_UP_SECONDS
    words = [
        *(bench.load, "-address", f"127.0.0.1:{server.port}", "-ca", bench.authority),
        *("-reviews", bench.review_files[size], "-connections", options.connections),
        *("-seconds", seconds),
    ]
    before = server.cpu_seconds()
    with nullcontext() if bench.load_core is None else servers.pinned_to(bench.load_core):
        environment = {**os.environ, "GOMAXPROCS": "1"}
        done = subprocess.run(
            list(map(str, words)), capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise ClusterError(f"{server.name}: {done.stderr.strip()}")
    measured = json.loads(done.stdout)
    return WebhooksTurn(
        server=server.name,
        size=size,
        round=number,
        seconds=measured["seconds"],
        microseconds={int(latency): count for latency, count in measured["microseconds"].items()},
        server_cpu_seconds=server.cpu_seconds() - before,
        load_cpu_seconds=measured["cpu_seconds"],
        rss_mib=server.rss_mib(),
    )


def _write_reviews(options: WebhooksOptions, folder: Path) -> dict[int, Path]:
    files = {size: folder / f"reviews-{size}.jsonl" for size in options.sizes}
    for size, file in files.items():
        try:
            file.write_bytes(b"".join(review.line() for review in reviews.build(size)))
        except ValueError as error:
            raise ClusterError(str(error)) from error
    return files


def _report(
    turns: Sequence[WebhooksTurn], options: WebhooksOptions, conditions: Mapping[str, object]
) -> None:
    for size, rows in figures.summarise(turns, options.reference).items():
        print(f"\n{size:,}-byte reviews\n{figures.table(rows, options.reference)}")
    busiest = max(turn.load_share for turn in turns)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    print(
        f"{CAVEAT}\nEvery answer was checked. The load generator was busy {busiest:.0%} of its "
        "core at most."
    )
    for doubt in figures.doubts(turns):
        print(f"But {doubt}.")
    if options.json_file is not None:
        written = figures.document(turns, options.reference, conditions)
        options.json_file.write_text(json.dumps(written, indent=1) + "\n")


def _conditions(options: WebhooksOptions) -> dict[str, object]:
    return {
        **servers.read_machine(),
        "connections": options.connections,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }


def _parse(arguments: Sequence[str] | None) -> WebhooksOptions:
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
        "--connections",
        type=_at_least_one,
        default=CONNECTIONS,
        help="of the load generator (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=_at_least_one,
        default=1,
        help="above 1: compare Reprieve's server with itself, as one process and as so many",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all measurements")
    options = parser.parse_args(arguments)
    return WebhooksOptions(
        options.rounds,
        options.seconds,
        options.sizes,
        options.connections,
        options.workers,
        options.json,
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below one")
    return number


if __name__ == "__main__":
    sys.exit(main())
