"""`make bench-webhooks`: Reprieve's admission server beside two in Go, in one interleaved run.

Every server has one core and all the load it can bear from the other, over the same kept-alive TLS connections, with
the same reviews. Rounds go A B C A B C, so that whatever else the machine does meets all of them; ratios are of turns
in the same round.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import platform
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from realcluster import build, pins
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from reprieve_certs import bundle, issue

from . import figures, reviews, servers, stub_api
from .figures import Turn
from .servers import Command, Server

CONNECTIONS = 8
WARM_UP_SECONDS = 1.0
REFERENCE = "controller-runtime"
REPRIEVE = "Reprieve, all rules"
NET_HTTP = "Go net/http + encoding/json"
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
    try:
        turns = _measure(options, progress)
    except ClusterError as error:
        progress.say(f"bench-webhooks: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted")
        return 130
    _report(turns, options)
    return 0


def _measure(options: Options, progress: Progress) -> list[Turn]:
    programs = build.ensure(pins.GROUPS["bench"], progress)
    server_core, load_core = servers.two_cores()
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        trust = _write_certificates(folder)
        commands = stack.enter_context(_commands(programs, folder))
        bench = Bench(
            programs["bench-load"], load_core, folder / bundle.CA_CERTIFICATES, _write_reviews(options, folder)
        )
        with progress.task(f"starting {len(commands)} servers on core {server_core}; the load is on core {load_core}"):
            running = [
                stack.enter_context(servers.running(command, server_core, folder / f"{command.port}.log", trust))
                for command in commands
            ]
        return _rounds(bench, running, options, progress)


def _rounds(bench: Bench, running: Sequence[Server], options: Options, progress: Progress) -> list[Turn]:
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
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, env=environment)
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


@contextmanager
def _commands(programs: dict[str, Path], folder: Path) -> Iterator[list[Command]]:
    """Yield how each server is started, with what Reprieve's needs to know of a cluster behind it."""
    with stub_api.serve(_cluster()) as url:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(url)))
        yield [
            _reprieve(kubeconfig, folder),
            _peer(REFERENCE, programs["bench-controller-runtime"], folder),
            _peer(NET_HTTP, programs["bench-net-http"], folder),
        ]


def _reprieve(kubeconfig: Path, folder: Path) -> Command:
    port = servers.free_port()
    words = [
        *(sys.executable, "-m", "reprieve_webhooks.main", "--listen-address", "127.0.0.1", "--listen-port", str(port)),
        *("--kubeconfig", str(kubeconfig), "--cert-dir", str(folder)),
    ]
    return Command(REPRIEVE, port, words, ready_path="/readyz")


def _peer(name: str, program: Path, folder: Path) -> Command:
    port = servers.free_port()
    return Command(name, port, [str(program), "-port", str(port), "-cert-dir", str(folder)])


def _cluster() -> stub_api.Collections:
    """Return the objects that rules ask for: the reviews' Namespace and PriorityClass."""
    metadata = {"name": reviews.PRIORITY_CLASS}
    return {
        "/api/v1/namespaces": [{"metadata": {"name": reviews.NAMESPACE}}],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [{"metadata": metadata, "value": reviews.PRIORITY}],
    }


def _kubeconfig(url: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "users": [{"name": "bench", "user": {}}],
    }


def _write_certificates(folder: Path) -> ssl.SSLContext:
    """Write one serving certificate for all, and its CA; return what trusts it."""
    now = datetime.now(UTC)
    authority = issue.issue_ca(now)
    names = issue.ServingNames(ips=(ipaddress.IPv4Address("127.0.0.1"),))
    serving = issue.issue_serving(authority, names, now)
    (folder / bundle.CA_CERTIFICATES).write_bytes(authority.certificate_pem)
    (folder / bundle.SERVING_CERTIFICATE).write_bytes(serving.certificate_pem)
    (folder / bundle.SERVING_KEY).write_bytes(serving.key_pem)
    return ssl.create_default_context(cafile=str(folder / bundle.CA_CERTIFICATES))


def _write_reviews(options: Options, folder: Path) -> dict[int, Path]:
    files = {size: folder / f"reviews-{size}.jsonl" for size in options.sizes}
    for size, file in files.items():
        try:
            file.write_bytes(b"".join(review.line() for review in reviews.build(size)))
        except ValueError as error:
            raise ClusterError(str(error)) from error
    return files


def _report(turns: Sequence[Turn], options: Options) -> None:
    for size, rows in figures.summarise(turns, REFERENCE).items():
        what = (
            f"{size:,}-byte reviews, {CONNECTIONS} connections, {options.rounds} rounds of {options.seconds:g} s each"
        )
        print(f"\n{what}\n{figures.table(rows, REFERENCE)}")
    busiest = max(turn.load_share for turn in turns)
    print(f"\n{CAVEAT}\nEvery answer was checked. The load generator was busy {busiest:.0%} of its core at most.")
    for doubt in figures.doubts(turns):
        print(f"But {doubt}.")
    if options.json_file is not None:
        conditions = {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "controller-runtime": pins.version(pins.BINARIES["bench-controller-runtime"]),
            "connections": CONNECTIONS,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        options.json_file.write_text(json.dumps(figures.document(turns, REFERENCE, conditions), indent=1) + "\n")


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser("bench-webhooks", description="Measure Reprieve's admission server beside others.")
    parser.add_argument("--rounds", type=_at_least_one, default=5, help="turns of each server (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn (default: %(default)s)")
    parser.add_argument(
        "--sizes", type=_sizes, default=(4096, 30720), metavar="B,B", help="of the reviews [B] (default: 4096,30720)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything that was measured")
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
