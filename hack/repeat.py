"""Runs `make test` several times, with a log of each run in `.test-runs` and a summary at the end.

It shows whether a suite fails in one run of ten.

Some of the runs have a busy loop beside them, which takes half of a machine with two processors.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".test-runs"
CLOSING = re.compile(r"^=+ (.*\b(?:passed|failed|error|errors)\b.* in .*?) =+$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """How one run ended."""

    number: int
    is_busy: bool
    status: int
    seconds: float
    closing: str

    def __str__(self) -> str:
        beside = "busy loop beside" if self.is_busy else "alone"
        result = "passed" if self.status == 0 else f"FAILED with status {self.status}"
        minutes = f"{self.seconds / 60:.1f} min"
        return f"run {self.number}: {result} after {minutes}, {beside}: {self.closing}"


def main() -> int:
    """Run, show each result as it comes and all of them at the end; return 1 where a run failed."""
    parser = argparse.ArgumentParser(
        prog="make test-repeat", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--times", type=int, default=5, help="how many runs")
    parser.add_argument(
        "--busy",
        type=int,
        default=2,
        help="how many of them, the last ones, with a busy loop beside",
    )
    parser.add_argument(
        "words", nargs="*", default=["make", "test"], help="another command than `make test`"
    )
    asked = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    runs = []
    for number in range(1, asked.times + 1):
        log = LOGS / f"run-{number}.log"
        print(f"run {number} of {asked.times}: {log}", flush=True)
        runs.append(_run(asked.words, number, log, is_busy=number > asked.times - asked.busy))
        print(runs[-1], flush=True)
    failed = sum(run.status != 0 for run in runs)
    summary = "\n".join([*map(str, runs), f"{len(runs) - failed} of {len(runs)} runs passed"])
    (LOGS / "summary.txt").write_text(summary + "\n")
    print(f"\n{summary}")
    return 1 if failed else 0


def _run(words: Sequence[str], number: int, log: Path, *, is_busy: bool) -> Run:
    began = time.monotonic()
    with log.open("wb") as file, _busy_loop(is_busy):
        status = subprocess.run(
            words, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, check=False
        ).returncode
    closing = CLOSING.findall(log.read_text(errors="replace"))
    return Run(
        number,
        is_busy,
        status,
        time.monotonic() - began,
        closing[-1] if closing else "no closing line of pytest",
    )


@contextmanager
def _busy_loop(wanted: bool) -> Iterator[None]:  # noqa: FBT001
    if not wanted:
        yield
        return
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


if __name__ == "__main__":
    sys.exit(main())
