"""Figures of simulated runs, in the terms of `bench.preemption.figures`; medians over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.figures import aligned, nearest_rank
from bench.preemption.figures import is_victim, start_of
from bench.preemption.records import Record
from bench.preemption.run import End
from bench.preemption.trace import TIERS, Trace

from .contenders import STOCK
from .notice import Counts
from .simulation import Result

_LOWEST_PRIORITY = min(tier.priority for tier in TIERS)
PREEMPTING_TIERS = frozenset(tier.name for tier in TIERS if tier.priority > _LOWEST_PRIORITY)
"""The tiers whose pods may preempt: above another tier."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One contender on one trace; times are seconds of the benchmark's clock."""

    contender: str
    seed: int
    wasted_pod_seconds: float
    """Time on nodes whose work preemptions discarded; saves and restarts included."""
    wasted_device_seconds: float
    """The same, times the CPUs or GPUs of each pod."""
    start_p50: float
    """From creation to start, of all pods whose tier may preempt; infinite if never started."""
    start_p90: float
    start_p99: float
    urgent_start_p99: float
    victims: int
    finished_jobs: int
    finished_pods: int
    deletions: int
    """DELETEs that the scheduler sends, with those that are refused."""
    refusals: int
    notices: int
    reprieves: int


def figures_of(result: Result) -> Figures:
    """Return the figures of a simulated run."""
    return figures_from(result.contender.key, result.trace, result.records, result.counts)


def figures_from(
    contender: str, trace: Trace, records: Sequence[Record], counts: Counts
) -> Figures:
    """Return the figures of a run, simulated or not."""
    victims = [record for record in records if is_victim(record)]
    # A victim's wasted time has its own restart in it.
    wasted = [
        (record.wasted if is_victim(record) else record.restarting, record.cpus)
        for record in records
    ]
    # A pod that was preempted before it ran never starts; its replacement has a start of its own.
    may_start = [
        record for record in records if record.started_at is not None or not is_victim(record)
    ]
    starts = sorted(start_of(record) for record in may_start if record.tier in PREEMPTING_TIERS)
    urgent = sorted(start_of(record) for record in may_start if record.is_urgent)
    finished = {
        (record.job, record.index) for record in records if record.end == End.FINISHED.value
    }
    return Figures(
        contender=contender,
        seed=trace.seed,
        wasted_pod_seconds=sum(seconds for seconds, _ in wasted),
        wasted_device_seconds=sum(seconds * cpus for seconds, cpus in wasted),
        start_p50=nearest_rank(starts, 0.5),
        start_p90=nearest_rank(starts, 0.9),
        start_p99=nearest_rank(starts, 0.99),
        urgent_start_p99=nearest_rank(urgent, 0.99),
        victims=len(victims),
        finished_jobs=sum(
            all((job.name, index) in finished for index in range(job.pods)) for job in trace.jobs
        ),
        finished_pods=len(finished),
        deletions=counts.deletions + counts.refusals,
        refusals=counts.refusals,
        notices=counts.notices,
        reprieves=counts.reprieves,
    )


def table(found: Sequence[Figures], titles: Mapping[str, str]) -> str:
    """Return a row for each contender: medians over the seeds, ranges of the waste."""
    own: dict[str, list[Figures]] = {}
    for each in found:
        own.setdefault(each.contender, []).append(each)
    columns = (
        *("wasted pod-h", "/ stock", "range", "device-h / stock", "start p50", "p90", "p99"),
        *("urgent p99", "victims", "notices", "taken back", "DELETEs", "jobs finished"),
    )
    stock = own.get(STOCK.key)
    rows = [(titles[key], *_cells(each, stock)) for key, each in own.items()]
    return aligned([("contender", *columns), *rows])


def ratios(
    own: Sequence[Figures], stock: Sequence[Figures], value: Callable[[Figures], float]
) -> list[float]:
    """Return a figure over the stock scheduler's on the same trace, for each seed of both."""
    by_seed = {each.seed: value(each) for each in stock}
    return [
        value(each) / by_seed[each.seed] if by_seed[each.seed] else math.nan
        for each in own
        if each.seed in by_seed
    ]


def document(found: Iterable[Figures], **more: object) -> dict[str, object]:
    """Return everything as JSON."""
    return {**more, "figures": [asdict(each) for each in found]}


def _cells(own: Sequence[Figures], stock: Sequence[Figures] | None) -> tuple[str, ...]:
    def median(value: Callable[[Figures], float]) -> float:
        return statistics.median(value(each) for each in own)

    against: tuple[str, str, str] = "", "", ""
    if stock is not None:
        pods = ratios(own, stock, lambda each: each.wasted_pod_seconds)
        devices = ratios(own, stock, lambda each: each.wasted_device_seconds)
        spread = f"{min(pods):.2f} to {max(pods):.2f}"
        against = f"{statistics.median(pods):.2f}", spread, f"{statistics.median(devices):.2f}"
    return (
        # A second stands for a minute, so a pod-hour is 60 of them.
        f"{median(lambda each: each.wasted_pod_seconds) / 60:,.1f}",
        *against,
        *(
            _seconds(median(value))
            for value in (
                lambda each: each.start_p50,
                lambda each: each.start_p90,
                lambda each: each.start_p99,
                lambda each: each.urgent_start_p99,
            )
        ),
        *(
            f"{median(value):,.0f}"
            for value in (
                lambda each: each.victims,
                lambda each: each.notices,
                lambda each: each.reprieves,
                lambda each: each.deletions,
                lambda each: each.finished_jobs,
            )
        ),
    )


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f}"
