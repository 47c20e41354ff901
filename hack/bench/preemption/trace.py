"""The trace: jobs drawn from a seed, the same for every contender. No I/O, no clock.

Times are seconds of the run. One second stands for a minute of a cluster's life
(`SIMULATED_SECONDS`): a policy's minutes become seconds, and its seconds become at least one,
because Kubernetes has no shorter times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

SIMULATED_SECONDS = 60
"""Seconds of a cluster's life in a second of the run."""
GRACE_SECONDS = 1
"""Seconds from SIGTERM to SIGKILL: 60 simulated ones, twice Kubernetes' default.

No shorter grace period lets a program end.
"""
NODE_CPUS = 8
"""CPUs of a simulated node (`simulated_nodes.kwok.CAPACITY`), in place of a real node's GPUs."""
LOAD = 1.2
"""Requests of all jobs over the nodes' capacity while jobs arrive: some pod always waits."""

_MOST_JOBS_A_SECOND = 25 / 3
_LEAST_WINDOW_SECONDS = 45.0
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tier:
    """A PriorityClass, and the properties of its jobs."""

    name: str
    priority: int
    share: float  # of all jobs
    classes: Sequence[int]  # preemption classes, equally likely
    cpus: Sequence[int]  # of a pod, equally likely
    minimum_preemptable_priority: int | None = None
    toleration_seconds: int = 0
    is_urgent: bool = False  # preempts the others; arrives only after the nodes are full


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
"""Pods of a job, equally likely: seven in ten jobs have one. They are replaced one by one."""
_SPREAD = 0.8
"""Sigma of the lognormal durations: the middle half is between 0.6 and 1.7 times the median."""
_SHORTEST, _LONGEST = 0.2, 4.0  # times the median
_EARLY_SHARE, _EARLY_WINDOW = 0.2, 0.15
"""This share of the jobs that are not urgent arrives early, so that the nodes are soon full."""
_URGENT_FROM = 0.2  # share of the window after which urgent jobs arrive

NO_CHECKPOINT, PERIODIC, HINTED = KINDS = ("none", "periodic", "hinted")
_KIND_WEIGHTS = (2, 3, 5)
_INTERVAL_SECONDS = (10.0, 30.0)  # uniform
_SAVE_SECONDS, _SAVE_SPREAD, _SAVE_BOUNDS = 2.0, 0.7, (0.5, 6.0)  # median, sigma, cut off
_ON_SIGTERM_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How a job's pods save; periodic saves cost nothing, a requested save stops the work."""

    interval_seconds: float
    save_seconds: float
    takes_hints: bool
    on_sigterm: bool  # begins to save on SIGTERM; otherwise ends at once


@dataclass(frozen=True, slots=True)
class Job:
    """A number of equal pods, each with the same seconds of work."""

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
        """The way to save, in a word."""
        if self.checkpoints is None:
            return NO_CHECKPOINT
        return HINTED if self.checkpoints.takes_hints else PERIODIC


@dataclass(frozen=True, slots=True)
class Trace:
    """What every contender replays."""

    seed: int
    nodes: int
    window_seconds: float  # in which jobs arrive
    jobs: Sequence[Job]
    restart_seconds: float = 0.0
    """Time after its start in which a replacement restores its predecessor's work."""

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(job.pods for job in self.jobs)

    @property
    def horizon_seconds(self) -> float:
        """The latest end of the run: half a window after the arrivals, more than the load needs."""
        return 1.5 * self.window_seconds


def window_for(jobs: int) -> float:
    """Return the time over which jobs arrive, long enough that the API server is not the limit."""
    return max(_LEAST_WINDOW_SECONDS, jobs / _MOST_JOBS_A_SECOND)


def generate(seed: int, jobs: int, nodes: int, window_seconds: float | None = None) -> Trace:
    """Draw a trace; durations are scaled so that the load of the nodes is `LOAD`."""
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
        arrives_at=draw_arrival(random, tier) * window,
        pods=random.choice(PODS),
        cpus=random.choice(tier.cpus),
        seconds=_draw_lognormal(random, 1.0, _SPREAD, (_SHORTEST, _LONGEST)),
        checkpoints=_draw_checkpoints(random),
    )


def draw_arrival(random: Random, tier: Tier) -> float:
    """Return when a job arrives, as a share of the window.

    Given their number, arrivals are uniform.
    """
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
