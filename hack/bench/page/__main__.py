"""`make bench`: runs the benchmarks one after the other, and writes docs/benchmarks.md.

Each result goes to hack/bench/measured as soon as it is there, and the page is written anew. A
benchmark that this commit has measured already is left out, so that a run that was stopped
continues. One that fails does not stop the others; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from realcluster import command
from realcluster.binaries import pins, toolchain
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import markdown, results
from .parts import BY_KEY, PARTS, Part
from .results import Result

NAME = "bench"
ROOT = Path(__file__).parents[3]
RAW = ROOT / "build" / "bench"
"""What the benchmarks write in full, in a folder for each commit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; the exit status is 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(NAME, description=__doc__)
    add = parser.add_argument
    add("--only", default=",".join(BY_KEY), metavar="PART,…", help="some of %(default)s")
    add("--again", action="store_true", help="measure also what this commit has measured already")
    add("--write", action="store_true", help="write the page, and measure nothing")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := [name for name in names if name not in BY_KEY]:
        parser.error(f"--only: {unknown[0]}: must be some of {', '.join(BY_KEY)}")
    if options.write:
        write_page(ROOT)
        return 0
    chosen = [part for part in PARTS if part.key in names]
    return command.run(NAME, lambda progress: _run(chosen, progress, again=options.again))


def _run(chosen: Sequence[Part], progress: Progress, *, again: bool) -> int:
    folder, failed = RAW / _commit(), []
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(chosen, start=1):
        what = f"{NAME}: {number} of {len(chosen)}: {part.key}"
        kept = folder / f"{part.key}.json"
        if kept.exists() and not again:
            progress.say(f"{what}: is measured already, {kept.relative_to(ROOT)} (AGAIN=1 repeats)")
            continue
        progress.say(f"{what} ({part.takes})")
        if again:
            shutil.rmtree(_output(part, kept), ignore_errors=True)
        try:
            measure(part, kept)
        except ClusterError as error:
            progress.say(f"{what}: {error}")
            failed.append(part.key)
        write_page(ROOT)
    progress.say(f"{NAME}: wrote {markdown.PAGE}")
    if failed:
        progress.say(f"{NAME}: failed: {', '.join(failed)}")
    return 1 if failed else 0


def measure(part: Part, kept: Path) -> None:
    """Run a benchmark; keep what it wrote, and check in its result."""
    conditions = _conditions()
    output = _output(part, kept)
    done = subprocess.run(part.command(output), check=False)
    if done.returncode:
        raise ClusterError(f"ended with status {done.returncode}")
    written = max(output.rglob("figures.json")) if part.writes_into_folder else output
    document = json.loads(written.read_text(encoding="utf-8"))
    results.write(results.path_of(part.key), Result(conditions, part.read(document)))
    shutil.copyfile(written, kept)


def _output(part: Part, kept: Path) -> Path:
    """Return where a benchmark writes: a folder has what it continues with."""
    return kept.with_suffix("" if part.writes_into_folder else ".partial")


def write_page(root: Path) -> None:
    """Write the page and its drawings."""
    for name, text in rendered().items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def rendered() -> dict[str, str]:
    """Return the files of the page by their paths, from the results that are checked in."""
    found = {key: result for key in BY_KEY if (result := results.read(results.path_of(key)))}
    drawings = markdown.drawings(found)
    return {
        markdown.PAGE: markdown.page(found),
        **{f"{markdown.DRAWINGS}/{name}": text for name, text in drawings.items()},
    }


def _conditions() -> Mapping[str, str]:
    """Return when, where and with what is measured now."""
    return {
        "on": datetime.now(UTC).date().isoformat(),
        "Reprieve": f"{version('reprieve')} ({_commit()})",
        "Python": platform.python_version(),
        "Kubernetes": pins.version(pins.BINARIES["kube-apiserver"]),
        "controller-runtime": pins.version(pins.BINARIES["bench-controller-runtime"]),
        "Go": _go_version(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {_processor()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
    }


def _commit() -> str:
    """Return the commit, and whether there are changes besides results and the page."""
    others = [f":!{path}" for path in (markdown.PAGE, markdown.DRAWINGS, "hack/bench/measured")]
    changed = _git("status", "--porcelain", "--", ".", *others)
    return (_git("rev-parse", "--short", "HEAD") or "unknown") + ("-changed" if changed else "")


def _git(*words: str) -> str:
    said = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip()


def _go_version() -> str:
    """Return the version of the Go that builds the programs in Go."""
    found = next(_go_versions(), ())
    return ".".join(map(str, found)) or "unknown"


def _go_versions() -> Iterator[tuple[int, ...]]:
    return (number for go in toolchain.candidates() if (number := toolchain.go_version(go)))


def _processor() -> str:
    """Return the name of the processor, as far as the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")


if __name__ == "__main__":
    sys.exit(main())
