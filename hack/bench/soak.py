"""Growth of a server: its memory before and after the reviews of a busy hour.

The load generator sends them directly and as fast as the server answers: through the API server,
they would take an hour.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import reviews
from .servers import Server

QUARTER_OF_AN_HOUR = 90_000
"""A quarter of an hour of reviews, at 100 a second."""
_SIZE = 4096
_STEP_SECONDS = 3.0
_CONNECTIONS = 8

NEEDED: tuple[dict[str, object], ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": reviews.NAMESPACE}},
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": reviews.PRIORITY_CLASS},
        "value": reviews.PRIORITY,
    },
)
"""The PriorityClass of the reviews' pods."""


@dataclass(frozen=True)
class Load:
    """The load generator and what it sends."""

    program: Path
    authority: Path
    reviews_file: Path


@dataclass(frozen=True)
class Growth:
    """One server's memory and work."""

    server: str
    reviews: int
    rss_mib_before: float
    rss_mib_after: float
    cpu_seconds_per_thousand: float

    def __str__(self) -> str:
        return (
            f"{self.server}: after {self.reviews:,} reviews of {_SIZE:,} bytes asked directly RSS "
            f"went from {self.rss_mib_before:.0f} to {self.rss_mib_after:.0f} MiB; "
            f"{self.cpu_seconds_per_thousand:.3f} CPU s/1,000"
        )


def write_reviews(folder: Path) -> Path:
    """Write the load generator's file; return its path."""
    file = folder / "reviews.jsonl"
    file.write_bytes(b"".join(review.line() for review in reviews.build(_SIZE)))
    return file


def grow(load: Load, server: Server, count: int, progress: Progress) -> Growth:
    """Send at least `count` reviews."""
    rss, cpu, asked = server.rss_mib(), server.cpu_seconds(), 0
    with progress.task(f"{count:,} reviews for {server.name}") as task:
        while asked < count:
            asked += _ask(load, server)
            task.tick(f"{asked:,}")
    used = (server.cpu_seconds() - cpu) / max(asked, 1) * 1000
    return Growth(server.name, asked, rss, server.rss_mib(), used)


def _ask(load: Load, server: Server) -> int:
    words = (load.program, "-address", f"{server.address}:{server.port}", "-ca", load.authority)
    more = ("-reviews", load.reviews_file, "-connections", _CONNECTIONS, "-seconds", _STEP_SECONDS)
    done = subprocess.run(
        [str(word) for word in (*words, *more)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(f"{server.name}: {done.stderr.strip()}")
    return sum(json.loads(done.stdout)["microseconds"].values())
