"""Traces with the runtimes, and for Alibaba's the sizes, of jobs of real clusters.

`traces/*.json` hold quantiles of published traces, with their sources. A runtime of a minute is a
second here, as everywhere in the benchmark. What the publications do not tell comes from the
synthetic trace: who arrives when, which classes there are, and who can save. The differences:

- A pod saves periodically every 30 to 120 minutes, and a save takes 1 to 10 minutes, both uniform.
- Runtimes are capped at a day, so that a run has an end; runs of less than a minute are left out.
- Jobs arrive over a time in which they ask for `LOAD` times what the nodes can give.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from bench.preemption import trace
from bench.preemption.trace import LOAD, NODE_CPUS, SIMULATED_SECONDS, TIERS, Job, Tier, Trace

INTERVAL_SECONDS = (30.0, 120.0)
"""Between two periodic saves: 30 minutes to 2 hours."""
SAVE_SECONDS = (1.0, 10.0)
"""Of a save: 1 to 10 minutes."""
LONGEST_SECONDS = 1440.0
"""A day."""
SHORTEST_SECONDS = 1.0
RESTART_SECONDS = 1.0
"""A minute, in which a replacement loads its checkpoint: an assumption, no source tells it."""
_LEAST_WINDOW_SECONDS = 45.0
_WINDOW_PRECISION_SECONDS = 0.01

_FOLDER = Path(__file__).parent / "traces"
_TIERS_BY_QOS: Mapping[str, Sequence[Tier]] = {
    # Alibaba's latency-sensitive pods displace best-effort ones; the others are in between.
    "BE": [tier for tier in TIERS if tier.name in ("batch", "guaranteed")],
    "Burstable": [tier for tier in TIERS if tier.name == "training"],
    "Guaranteed": [tier for tier in TIERS if tier.name == "training"],
    "LS": [tier for tier in TIERS if tier.is_urgent],
}


def philly(seed: int, jobs: int, nodes: int) -> Trace:
    """Draw a trace with the runtimes of Microsoft's Philly."""
    runtimes = _runtimes(_read("philly")["runtime_seconds"])

    def draw(random: Random, job: Job) -> Job:
        return replace(job, seconds=random.choice(runtimes))

    return _generate(seed, jobs, nodes, draw)


def openb(seed: int, jobs: int, nodes: int) -> Trace:
    """Draw a trace with the runtimes, GPUs and QoS of Alibaba's GPU pods of 2023.

    Each pod is a job of its own, as in the publication. Pods without a GPU are left out, and a
    share of a GPU counts as one.
    """
    document = _read("openb")
    runtimes = {
        qos: _runtimes(seconds)
        for qos, seconds in document["runtime_seconds_quantiles_by_qos"].items()
    }
    shapes = [
        (qos, int(gpus), number)
        for name, number in document["pods_by_qos_and_gpus"].items()
        for qos, gpus in [name.split("/")]
        if int(gpus)
    ]
    numbers = [number for *_, number in shapes]

    def draw(random: Random, job: Job) -> Job:
        qos, gpus, _ = random.choices(shapes, numbers)[0]
        tiers = _TIERS_BY_QOS[qos]
        tier = random.choices(tiers, [tier.share for tier in tiers])[0]
        return replace(
            job,
            tier=tier,
            preemption_class=random.choice(tier.classes),
            arrives_at=trace.draw_arrival(random, tier),
            pods=1,
            cpus=gpus,
            seconds=random.choice(runtimes[qos]),
        )

    return _generate(seed, jobs, nodes, draw)


def shortened(drawn: Trace, window_seconds: float | None = None) -> Trace:
    """Return the same jobs, arriving faster: `LOAD` counts only what they can do in the run.

    The run is a few hours of a cluster's life. A job that would run longer is cut off at its end,
    and holds its room until then.
    """
    window = _window_of_cut_jobs(drawn) if window_seconds is None else window_seconds
    faster = window / drawn.window_seconds
    jobs = [replace(job, arrives_at=job.arrives_at * faster) for job in drawn.jobs]
    return replace(drawn, window_seconds=window, jobs=jobs)


def _window_of_cut_jobs(drawn: Trace) -> float:
    """Return the window in which jobs ask for `LOAD`, by bisection: a shorter one loads more."""
    horizon = drawn.horizon_seconds / drawn.window_seconds
    parts = [
        (job.pods * job.cpus, job.seconds, horizon - job.arrives_at / drawn.window_seconds)
        for job in drawn.jobs
    ]
    longest = drawn.window_seconds
    shortest = min(_LEAST_WINDOW_SECONDS, longest)
    while longest - shortest > _WINDOW_PRECISION_SECONDS:
        window = (shortest + longest) / 2
        work = sum(devices * min(seconds, share * window) for devices, seconds, share in parts)
        if work > LOAD * drawn.nodes * NODE_CPUS * window:
            shortest = window
        else:
            longest = window
    return longest


def _generate(seed: int, jobs: int, nodes: int, draw: Callable[[Random, Job], Job]) -> Trace:
    """Draw a synthetic trace, and change each of its jobs."""
    random = Random(seed)  # noqa: S311 (a trace is no secret)
    synthetic = trace.generate(seed, jobs, nodes, window_seconds=1.0)
    drawn = [_with_long_saves(random, draw(random, job)) for job in synthetic.jobs]
    work = sum(job.pods * job.cpus * job.seconds for job in drawn)
    window = work / (LOAD * nodes * NODE_CPUS)
    placed = [replace(job, arrives_at=job.arrives_at * window) for job in drawn]
    ordered = sorted(placed, key=lambda job: job.arrives_at)
    return Trace(seed, nodes, window, ordered, RESTART_SECONDS)


def _with_long_saves(random: Random, job: Job) -> Job:
    if job.checkpoints is None:
        return job
    checkpoints = replace(
        job.checkpoints,
        interval_seconds=random.uniform(*INTERVAL_SECONDS),
        save_seconds=random.uniform(*SAVE_SECONDS),
    )
    return replace(job, checkpoints=checkpoints)


def _runtimes(seconds: Sequence[float]) -> list[float]:
    """Return quantiles of runtimes in the benchmark's seconds."""
    scaled = [each / SIMULATED_SECONDS for each in seconds]
    return [min(each, LONGEST_SECONDS) for each in scaled if each >= SHORTEST_SECONDS]


@cache
def _read(name: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text())
    return document
