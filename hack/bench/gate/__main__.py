"""`make bench-gate`: fails if a review, a victim or a call of the extender has become dearer.

It needs no cluster. Each program runs as its command line starts it, beside a stub API server; what
it does is counted: calls of functions, bytes and values that it decodes, calls to the API server.
The counts are compared with those that are checked in for the running version of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from realcluster import command
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import comparison, figures_file, part
from .comparison import Comparison
from .figures_file import KnownFigures

NAME = "bench-gate"
ENVIRONMENT: Mapping[str, str] = {
    "PYTHONHASHSEED": "0",  # the order of a set decides how many members are looked at
    "SSL_CERT_FILE": os.devnull,  # what the system trusts is not ours
    "SSL_CERT_DIR": os.devnull,
}
"""Of the parts' processes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and compare; the exit status is 1 if a figure grew."""
    parser = argparse.ArgumentParser(NAME, description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="check in what is counted")
    parser.add_argument("--all", action="store_true", help="show all figures")
    parser.add_argument(
        "--parts",
        default=",".join(part.PARTS),
        metavar="PART,…",
        help="count some of %(default)s (default: all)",
    )
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if unknown := [each for each in parts if each not in part.PARTS]:
        parser.error(f"--parts: {unknown[0]}: must be some of {', '.join(part.PARTS)}")
    return command.run(
        NAME,
        lambda progress: _run(parts, progress, updates=options.update, shows_all=options.all),
    )


def _run(parts: Sequence[str], progress: Progress, *, updates: bool, shows_all: bool) -> int:
    interpreter = figures_file.interpreter()
    path = figures_file.path_of(interpreter)
    counted = count(parts, progress)
    known = figures_file.read(path)
    if updates:
        others = {} if known is None else _of_other_parts(known.figures, parts)
        known = KnownFigures(others | counted, figures_file.libraries())
        figures_file.write(path, known)
        progress.say(f"{NAME}: wrote {len(counted)} figures to {_shown(path)}")
    if known is None:
        there = sorted(each.stem for each in figures_file.FOLDER.glob("*.toml"))
        progress.say(
            f"{NAME}: NOT COMPARED: no figures of {interpreter} are checked in, only of "
            f"{', '.join(there)}. make bench-gate UPDATE=1 writes them"
        )
        return 0
    rows = comparison.compare(_of_parts(known.figures, parts), counted)
    failed = [row for row in rows if row.is_failure]
    noted = rows if shows_all else [row for row in rows if row.verdict != comparison.OK]
    if noted:
        print(comparison.table(noted))
    return _report(failed, rows, known, path, progress)


def _report(
    failed: Sequence[Comparison],
    rows: Sequence[Comparison],
    known: KnownFigures,
    path: Path,
    progress: Progress,
) -> int:
    if not failed:
        fell = sum(row.verdict == comparison.FELL for row in rows)
        gain = f"; {fell} fell: make bench-gate UPDATE=1 keeps that gain" if fell else ""
        within = f"none of {len(rows)} figures grew by more than {comparison.TOLERANCE:.0%}"
        progress.say(f"{NAME}: ok: {within} above {_shown(path)}{gain}")
        return 0
    for row in failed:
        progress.say(f"{NAME}: {row.sentence}")
    for name, number in figures_file.libraries().items():
        if number != known.libraries.get(name):
            progress.say(
                f"{NAME}: {name} is {number} here, and was {known.libraries.get(name)} when the "
                "figures were counted, which may be the reason"
            )
    progress.say(
        f"{NAME}: FAILED: {len(failed)} of {len(rows)} figures. Make it cheaper; or, if that is "
        f"what the change costs, accept it: make bench-gate UPDATE=1 writes {_shown(path)}, which "
        "you check in with the change"
    )
    return 1


def count(
    parts: Sequence[str], progress: Progress, environment: Mapping[str, str] = ENVIRONMENT
) -> dict[str, float]:
    """Return the figures of some parts, counted side by side."""
    with tempfile.TemporaryDirectory(prefix="reprieve-gate-") as scratch:
        folder = Path(scratch)
        with progress.task(f"counting {', '.join(parts)}") as task, ExitStack() as stack:
            running = {
                name: stack.enter_context(_running(name, folder, environment)) for name in parts
            }
            while any(process.poll() is None for process in running.values()):
                task.tick()
                time.sleep(0.1)
        found: dict[str, float] = {}
        for name, process in running.items():
            if process.returncode:
                log = (folder / f"{name}.log").read_text(errors="replace")
                raise ClusterError(f"{log}\ncould not count {name}")
            found |= json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


@contextmanager
def _running(
    name: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a part's process; end it after the block."""
    words = [sys.executable, "-m", part.__name__, name, str(folder / f"{name}.json")]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, env=os.environ | environment, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            # With the processes that it started.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _of_parts(figures: Mapping[str, float], parts: Sequence[str]) -> dict[str, float]:
    """Return the figures of some parts."""
    beginnings = tuple(part.PARTS[name] for name in parts)
    return {name: value for name, value in figures.items() if name.startswith(beginnings)}


def _of_other_parts(figures: Mapping[str, float], parts: Sequence[str]) -> dict[str, float]:
    return {name: figures[name] for name in figures.keys() - _of_parts(figures, parts).keys()}


def _shown(path: Path) -> Path:
    """Return a path as people write it, from the root of the repository."""
    return path.relative_to(Path(__file__).parents[3])


if __name__ == "__main__":
    sys.exit(main())
