"""The memory and the open files of our programs over a run, and how they grow."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

WARM_UP_SECONDS = 60.0
"""A program that was just started loads code and fills its caches."""


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """One process at one moment."""

    program: str
    pid: int
    seconds: float
    """Since the beginning of the run."""
    rss_mib: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class ResourceSlope:
    """How a program grows; 0 where it never ran long enough."""

    program: str
    samples: int
    rss_mib_an_hour: float
    descriptors_an_hour: float
    most_rss_mib: float
    most_descriptors: int


def read_sample(program: str, pid: int, seconds: float) -> ResourceSample | None:
    """Return a sample of a process, or `None` if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    return ResourceSample(
        program, pid, seconds, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, descriptors
    )


def slopes(samples: Iterable[ResourceSample]) -> list[ResourceSlope]:
    """Return the slope of each program.

    A program is killed and started again: the lines of all its processes have one slope in common,
    and each a height of its own.
    """
    lives: dict[str, dict[int, list[ResourceSample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        lives[sample.program][sample.pid].append(sample)
    return [_slope(program, list(of.values())) for program, of in sorted(lives.items())]


def _slope(program: str, lives: Sequence[Sequence[ResourceSample]]) -> ResourceSlope:
    every = [sample for life in lives for sample in life]
    warm = [
        [one for one in life if one.seconds >= life[0].seconds + WARM_UP_SECONDS] for life in lives
    ]
    return ResourceSlope(
        program=program,
        samples=sum(map(len, warm)),
        rss_mib_an_hour=3600
        * common_slope([[(one.seconds, one.rss_mib) for one in life] for life in warm]),
        descriptors_an_hour=3600
        * common_slope([[(one.seconds, float(one.descriptors)) for one in life] for life in warm]),
        most_rss_mib=max(sample.rss_mib for sample in every),
        most_descriptors=max(sample.descriptors for sample in every),
    )


def common_slope(lines: Iterable[Sequence[tuple[float, float]]]) -> float:
    """Return the least-squares slope of lines that differ in height only; 0 without two points."""
    over = under = 0.0
    for points in lines:
        if len(points) < 2:
            continue
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        over += sum((x - mean_x) * (y - mean_y) for x, y in points)
        under += sum((x - mean_x) ** 2 for x, _ in points)
    return over / under if under else 0.0
