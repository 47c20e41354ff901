"""`make bench-cel`: processor time of an API server's admission plugins for a created pod.

The program `bench-admission` has the plugins of kube-apiserver in one process, without the rest of
it. Rounds go through all contenders, each round beginning with another one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import servers
from bench.pods import Document
from realcluster import command
from realcluster.binaries import build, pins
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from reprieve_policy.keys import PREEMPTION_CLASS

from . import contenders, table
from .table import CelTurn

_IN_FORCE = (contenders.BY_HAND, contenders.POLICIES, contenders.OVERLAY)
"""They refuse a pod of class 11, and give a pod without a class one."""


@dataclass(frozen=True)
class CelOptions:
    """The command line's options."""

    rounds: int
    count: int
    parts: bool
    profile: Path | None
    json_file: Path | None


@dataclass(frozen=True)
class AdmissionProgram:
    """The program, and a folder for its inputs."""

    path: Path
    folder: Path
    options: CelOptions

    def measure(
        self, compared: Mapping[str, Sequence[Document]], *more: str
    ) -> tuple[list[CelTurn], list[dict[str, Any]]]:
        """Return the turns of all contenders, and what they make of the probes."""
        words = [
            str(self.path),
            *more,
            "-namespace",
            self._file("namespace", [contenders.NAMESPACE]),
        ]
        words += ["-rounds", str(self.options.rounds), "-count", str(self.options.count)]
        words += ["-probes", self._file("probes", contenders.probes())]
        for number, (name, objects) in enumerate(compared.items()):
            words += ["-policies", f"{name}={self._file(f'policies-{number}', objects)}"]
        for number, (name, created) in enumerate(contenders.created().items()):
            words += ["-pods", f"{name}={self._file(f'pods-{number}', created)}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{self.path.name}: {done.stderr.strip()[-1000:]}")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return (
            [CelTurn(**line) for line in lines if "count" in line],
            [line for line in lines if "count" not in line],
        )

    def _file(self, name: str, documents: Iterable[Document]) -> str:
        file = self.folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
        return str(file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if something cannot be measured."""
    options = _parse(arguments)
    return command.run("bench-cel", lambda progress: _run(options, progress))


def _run(options: CelOptions, progress: Progress) -> int:
    conditions = servers.read_machine() | {
        "kube-apiserver": pins.version(pins.BINARIES["bench-admission"]),
        "rounds": options.rounds,
        "creations": options.count,
    }
    programs = build.ensure(("kubectl", "bench-admission"), progress)
    compared = contenders.documents(programs["kubectl"])
    reference = contenders.BY_HAND
    if options.parts:
        compared, reference = contenders.each_policy(compared[contenders.POLICIES]), ""
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as scratch:
        admission = AdmissionProgram(programs["bench-admission"], Path(scratch), options)
        with progress.task("creating pods"):
            turns, outcomes = admission.measure(compared)
        check(outcomes)
        if options.profile is not None:
            options.profile.mkdir(parents=True, exist_ok=True)
            for number, (name, objects) in enumerate(compared.items()):
                file = options.profile / f"{number}.pprof"
                admission.measure({name: objects}, "-profile", str(file))
                print(f"{file}: {name}")
    found = table.rows(turns, contenders.NOTHING, reference)
    for kind in contenders.created():
        print(f"\npods with {kind}\n{table.table(row for row in found if row.pods == kind)}")
        for name in table.left_out(turns, kind):
            print(f"{name}: left out, it calls webhooks for these pods")
    print(
        "\nProcessor time for one creation in µs, without the collection of garbage, which is as "
        f"dear as the bytes allocated are many. ratio: of what is added, to {contenders.BY_HAND}.\n"
        + ", ".join(f"{name} {value}" for name, value in conditions.items())
    )
    if options.json_file is not None:
        written = table.document(turns, found, conditions=conditions)
        options.json_file.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0


def check(outcomes: Iterable[Mapping[str, Any]]) -> None:
    """Raise unless contenders with all rules refuse class 11 and give a class.

    A policy that fails costs nothing. Each pod without a class makes the webhooks alone call, which
    must be counted, or its turns would be compared with turns that do the whole work.
    """
    for found in outcomes:
        admitted_as = found["labels"].get(PREEMPTION_CLASS)
        is_in_force = found["refused"] or admitted_as not in (None, contenders.REFUSED_CLASS)
        if found["contender"] in _IN_FORCE and not is_in_force:
            raise ClusterError(f"{found['contender']} was not in force: {json.dumps(found)}")
        if found["contender"] == contenders.WEBHOOKS and admitted_as is None and not found["calls"]:
            raise ClusterError(f"a call of a webhook was not counted: {json.dumps(found)}")


def _parse(arguments: Sequence[str] | None) -> CelOptions:
    parser = argparse.ArgumentParser(
        "bench-cel", description="Measure what policies cost an API server for a created pod."
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns of each contender (default: %(default)s)"
    )
    parser.add_argument(
        "--creations", type=int, default=1000, help="of a turn (default: %(default)s)"
    )
    parser.add_argument(
        "--parts", action="store_true", help="measure each policy of the overlay alone"
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FOLDER",
        help="also run each contender alone, and write its profile there, for `go tool pprof`",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also write everything as JSON"
    )
    options = parser.parse_args(arguments)
    return CelOptions(
        options.rounds, options.creations, options.parts, options.profile, options.output
    )


if __name__ == "__main__":
    sys.exit(main())
