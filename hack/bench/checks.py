"""`make bench-check`: `reprieve check` on 10,000 documents, on one core: time and memory.

The documents are Deployments of 1 KB with the fields that rules read. In some runs, every tenth
document or every document breaks a rule, so that line numbers must be found. The aim is 10 seconds
of one core; a run that needs more is reported and sets the exit status. On a machine with other
work, the elapsed time exceeds the processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 10.0
DOCUMENTS = 10_000
_REPRIEVE = Path(sys.executable).with_name("reprieve")


@dataclass(frozen=True)
class CheckRun:
    """One way to call the command."""

    name: str
    every: int  # each such document breaks a rule; 0: none does
    form: str  # "stream" of YAML, "files", or a "list" in JSON
    output: str = "text"


RUNS = (
    CheckRun("one file, no violation", 0, "stream"),
    CheckRun("one file, every tenth is refused", 10, "stream"),
    CheckRun("one file, all are refused, as SARIF", 1, "stream", "sarif"),
    CheckRun("10,000 files, every tenth is refused", 10, "files"),
    CheckRun("one JSON list, all are refused", 1, "list", "json"),
)


@dataclass(frozen=True)
class CheckResult:
    """The figures of a run."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    status: int


def main() -> None:
    """Write the documents, run the command, and print a table."""
    parser = argparse.ArgumentParser(prog="bench-check", description=__doc__)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also write everything as JSON"
    )
    options = parser.parse_args()
    count, slow, rows = options.documents, False, list[dict[str, object]]()
    print(f"{'run':<40}{'s':>8}{'CPU s':>8}{'MiB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(RUNS):
            result = measure(run, write(run, count, Path(folder, str(number))))
            expected = 1 if run.every else 0
            if result.status != expected:
                sys.exit(
                    f"bench-check: {run.name}: ended with {result.status} instead of {expected}"
                )
            print(
                f"{run.name:<40}{result.seconds:>8.2f}{result.cpu_seconds:>8.2f}"
                f"{result.peak_mib:>8.0f}"
            )
            slow |= result.cpu_seconds > LIMIT_SECONDS
            rows.append({"name": run.name, **asdict(result)})
    if options.output is not None:
        document = {"conditions": {"documents": count}, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    if slow:
        sys.exit(f"bench-check: a run took more than {LIMIT_SECONDS:.0f} s of a core")


def measure(run: CheckRun, target: Path) -> CheckResult:
    """CheckRun the command on one core; discard its output."""
    begun = time.perf_counter()
    process = os.fork()
    if process == 0:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.execv(_REPRIEVE, [str(_REPRIEVE), "check", str(target), "-o", run.output])  # noqa: S606 - what is measured
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - begun
    cpu = usage.ru_utime + usage.ru_stime
    return CheckResult(seconds, cpu, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))


def write(run: CheckRun, count: int, folder: Path) -> Path:
    """Write the documents of a run; return the command's argument."""
    folder.mkdir()
    if run.form == "files":
        for number, text in enumerate(documents(run, count)):
            (folder / f"{number}.yaml").write_text(text)
        return folder
    if run.form == "list":
        items = [deployment(number, run.every) for number in range(count)]
        path = folder / "all.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
        return path
    path = folder / "all.yaml"
    path.write_text("".join(documents(run, count)))
    return path


def documents(run: CheckRun, count: int) -> Iterator[str]:
    """Yield the documents of a run as YAML, formatted as people write it."""
    return (f"---\n{_rendered(deployment(number, run.every), 0)}" for number in range(count))


def deployment(number: int, every: int) -> dict[str, Any]:
    """Return one Deployment; each `every`-th is in a class that does not exist."""
    preemption_class = "11" if every and number % every == 0 else "4"
    labels = {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": f"web-{number}"}
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10}
    resources = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    container = {
        "name": "main",
        "image": "registry.example.com/web:1.2.3",
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": resources,
        "readinessProbe": probe,
        "livenessProbe": probe,
    }
    pod_metadata = {
        "labels": {**labels, "reprieve.dev/preemption-class": preemption_class},
        "annotations": {
            "reprieve.dev/checkpoint-hint": "http://:8080/checkpoint",
            "reprieve.dev/checkpoint-timeout": "10m",
        },
    }
    spec = {"terminationGracePeriodSeconds": 30, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"web-{number}", "namespace": f"team-{number % 50}", "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": pod_metadata, "spec": spec},
        },
    }


def _rendered(value: Any, depth: int) -> str:
    """Return a mapping as YAML, ten times as fast as a general library."""
    lines = []
    for key, item in value.items():
        indent = "  " * depth
        if isinstance(item, dict):
            lines.append(f"{indent}{key}:\n{_rendered(item, depth + 1)}")
        elif isinstance(item, list):
            inner = "".join(
                f"{indent}-{_rendered(part, depth + 1)[len(indent) + 1 :]}" for part in item
            )
            lines.append(f"{indent}{key}:\n{inner}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(item)}\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
