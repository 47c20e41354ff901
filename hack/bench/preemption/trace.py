"""The trace: jobs drawn from a seed, the same for every contender. No I/O, no clock.

Times are seconds of the run, and one of them stands for a minute of a cluster's life (`SIMULATED_SECONDS`): what a policy says in
minutes is said in seconds, what it says in seconds is at least one, because Kubernetes knows no less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

SIMULATED_SECONDS = 60
"""Of a cluster's life in a second of the run."""
GRACE_SECONDS = 1
"""From SIGTERM to SIGKILL: 60 simulated ones, twice Kubernetes' default; there is no shorter grace that lets a program end."""
NODE_CPUS = 8
"""Of a simulated node (`realcluster.kwok.CAPACITY`). They stand for the GPUs of a real one."""
LOAD = 1.2
"""Of what all jobs ask for to what the nodes can give while jobs arrive: there is always somebody who waits."""

_MOST_JOBS_A_SECOND = 25 / 3
_LEAST_WINDOW_SECONDS = 45.0
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tier:
    """A PriorityClass, and what the jobs in it are like."""

    name: str
    priority: int
    share: float  # of all jobs
    classes: Sequence[int]  # preemption classes, equally likely
    cpus: Sequence[int]  # of a pod, equally likely
    minimum_preemptable_priority: int | None = None
    toleration_seconds: int = 0
    is_urgent: bool = False  # preempts the others; none arrives before the nodes are full


TIERS = (
    Tier("batch", 1000, 0.50, (1, 1, 2, 3), (1, 1, 2, 2, 4, 8)),
    Tier(
        "guaranteed",
        1000,
        0.15,
        (3,),
        (1, 2, 4, 8),
        minimum_preemptable_priority=10_000,
        toleration_seconds=20,
    ),
    Tier("training", 5000, 0.15, (5, 5, 5, 7), (1, 2, 4, 8)),
    Tier("urgent", 9000, 0.15, (7,), (2, 4, 8), is_urgent=True),
    Tier("critical", 10_000, 0.05, (9,), (4, 8), is_urgent=True),
)
PODS = (1, 1, 1, 1, 1, 1, 1, 2, 2, 4)
"""Of a job, equally likely: seven in ten have one. They are replaced one by one, as those of an indexed Job are."""
_SPREAD = 0.8
"""Sigma of the lognormal durations: the middle half is between 0.6 and 1.7 times the median."""
_SHORTEST, _LONGEST = 0.2, 4.0  # times the median
_EARLY_SHARE, _EARLY_WINDOW = 0.2, 0.15
"""So many of the jobs that are not urgent arrive within that share of the window, so that the nodes are full early."""
_URGENT_FROM = 0.2  # share of the window after which urgent jobs arrive

NO_CHECKPOINT, PERIODIC, HINTED = KINDS = ("none", "periodic", "hinted")
_KIND_WEIGHTS = (2, 3, 5)
_INTERVAL_SECONDS = (10.0, 30.0)  # uniform
_SAVE_SECONDS, _SAVE_SPREAD, _SAVE_BOUNDS = 2.0, 0.7, (0.5, 6.0)  # median, sigma, cut off
_ON_SIGTERM_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How a job's pods save what they have done; a save in time costs them nothing, one on demand stops their work."""

    interval_seconds: float
    save_seconds: float
    takes_hints: bool
    on_sigterm: bool  # begins to save on SIGTERM; who does not, ends at once


@dataclass(frozen=True, slots=True)
class Job:
    """So many equal pods, each with so many seconds of work."""

    name: str
    tier: Tier
    preemption_class: int
    arrives_at: float
    pods: int
    cpus: int
    seconds: float
    checkpoints: Checkpoints | None

    @property
    def kind(self) -> str:
        """How it saves, in a word."""
        if self.checkpoints is None:
            return NO_CHECKPOINT
        return HINTED if self.checkpoints.takes_hints else PERIODIC


@dataclass(frozen=True, slots=True)
class Trace:
    """What every contender is given."""

    seed: int
    nodes: int
    window_seconds: float  # in which jobs arrive
    jobs: Sequence[Job]

    @property
    def pods(self) -> int:
        """How many pods there are to be finished."""
        return sum(job.pods for job in self.jobs)

    @property
    def horizon_seconds(self) -> float:
        """When the run ends at the latest: half the window later, which is more than the load leaves to be done."""
        return 1.5 * self.window_seconds


def window_for(jobs: int) -> float:
    """Return for how long so many jobs should arrive: one machine's API server is not to be what is measured."""
    return max(_LEAST_WINDOW_SECONDS, jobs / _MOST_JOBS_A_SECOND)


def generate(seed: int, jobs: int, nodes: int, window_seconds: float | None = None) -> Trace:
    """Draw a trace; the durations are scaled so that the nodes are loaded by `LOAD`, whatever was drawn."""
    random = Random(seed)  # noqa: S311 (a trace is no secret)
    window = window_for(jobs) if window_seconds is None else window_seconds
    drawn = [_draw(random, number, window) for number in range(jobs)]
    work = sum(job.pods * job.cpus * job.seconds for job in drawn)
    scale = LOAD * nodes * NODE_CPUS * window / work
    scaled = [replace(job, seconds=max(_LEAST_SECONDS, job.seconds * scale)) for job in drawn]
    return Trace(seed, nodes, window, sorted(scaled, key=lambda job: job.arrives_at))


def _draw(random: Random, number: int, window: float) -> Job:
    tier = random.choices(TIERS, [tier.share for tier in TIERS])[0]
    return Job(
        name=f"job-{number:04}",
        tier=tier,
        preemption_class=random.choice(tier.classes),
        arrives_at=_draw_arrival(random, tier) * window,
        pods=random.choice(PODS),
        cpus=random.choice(tier.cpus),
        seconds=_draw_lognormal(random, 1.0, _SPREAD, (_SHORTEST, _LONGEST)),
        checkpoints=_draw_checkpoints(random),
    )


def _draw_arrival(random: Random, tier: Tier) -> float:
    """Return when a job arrives, as a share of the window. Given their number, Poisson arrivals are uniform."""
    if tier.is_urgent:
        return random.uniform(_URGENT_FROM, 1)
    return random.uniform(0, _EARLY_WINDOW if random.random() < _EARLY_SHARE else 1)


def _draw_checkpoints(random: Random) -> Checkpoints | None:
    kind = random.choices(KINDS, _KIND_WEIGHTS)[0]
    if kind == NO_CHECKPOINT:
        return None
    return Checkpoints(
        interval_seconds=random.uniform(*_INTERVAL_SECONDS),
        save_seconds=_draw_lognormal(random, _SAVE_SECONDS, _SAVE_SPREAD, _SAVE_BOUNDS),
        takes_hints=kind == HINTED,
        on_sigterm=random.random() < _ON_SIGTERM_SHARE,
    )


def _draw_lognormal(
    random: Random, median: float, sigma: float, bounds: tuple[float, float]
) -> float:
    lowest, highest = bounds
    return median * min(max(random.lognormvariate(0, sigma), lowest / median), highest / median)
