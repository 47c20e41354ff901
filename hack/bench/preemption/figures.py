"""Figures of `make bench-preemption`, from the record of each pod. No I/O.

If a contender had several traces, their pods are counted together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import figures
from bench.figures import nearest_rank
from bench.victims.audit import PodChange

from . import counters
from .records import Record, ReplayResult
from .run import End
from .trace import KINDS, SIMULATED_SECONDS, Trace

LATE_SECONDS = 0.1
"""From this share of a core on, the process that plays the workloads affects the figures."""
_SCHEDULER = "system:kube-scheduler"
_REFUSED = 400
_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class PreemptionTurn:
    """One contender's turn at one trace."""

    contender: str
    seed: int
    records: Sequence[Record]
    wanted: Mapping[str, int]  # pods of the trace, by tier
    seconds: float
    horizon_seconds: float
    late_seconds: float  # p99 of the replay process
    deletions: int  # pod deletions by the scheduler that were admitted
    refusals: int  # and those that were refused
    counted: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class PreemptionRow:
    """One contender, over all its traces."""

    contender: str
    preemptors: int
    placed: int  # preemptors that were placed
    starts: Sequence[float]  # seconds from a placed preemptor's creation to its start, ascending
    urgent_starts: Sequence[float]  # the same for all urgent pods, with or without a preemption
    urgent_unplaced: int
    victims: int
    wasted: Mapping[str, float]  # pod-seconds of victims, by their way to save
    victims_by_kind: Mapping[str, int]
    occupied: float  # pod-seconds on nodes, of all pods
    wanted: int
    finished: int
    # Pods that were never placed, by tier.
    unplaced: Mapping[str, int] = field(default_factory=dict)

    @property
    def victims_a_placement(self) -> float:
        """Victims for each placed preemptor."""
        return self.victims / self.placed if self.placed else math.nan

    @property
    def wasted_seconds(self) -> float:
        """Pod-seconds of work that preemptions discarded."""
        return sum(self.wasted.values())


def turn_of(
    contender: str,
    trace: Trace,
    replayed: ReplayResult,
    log: Iterable[PodChange],
    counted: dict[str, int],
) -> PreemptionTurn:
    """Return a turn from the replay, the audit log, and the programs' counters."""
    asked = [
        entry
        for entry in log
        if (entry.user, entry.verb, entry.subresource) == (_SCHEDULER, "delete", "")
    ]
    wanted = Counter[str]()
    for job in trace.jobs:
        wanted[job.tier.name] += job.pods
    return PreemptionTurn(
        contender=contender,
        seed=trace.seed,
        records=replayed.records,
        wanted=dict(wanted),
        seconds=replayed.seconds,
        horizon_seconds=trace.horizon_seconds,
        late_seconds=nearest_rank(replayed.late_seconds, 0.99),
        deletions=sum(entry.status < _REFUSED for entry in asked),
        refusals=sum(entry.status >= _REFUSED for entry in asked),
        counted=counted,
    )


def is_victim(record: Record) -> bool:
    """True if the pod was deleted before its work was done."""
    return record.terminated_at is not None and record.end != End.FINISHED.value


def start_of(record: Record) -> float:
    """Return the seconds from a pod's creation to its start; infinity if it never started."""
    return math.inf if record.started_at is None else record.started_at - record.created_at


def summarise(turns: Iterable[PreemptionTurn]) -> list[PreemptionRow]:
    """Return a row for each contender, in the order of their first turns."""
    by_contender: dict[str, list[PreemptionTurn]] = {}
    for turn in turns:
        by_contender.setdefault(turn.contender, []).append(turn)
    return [_row(contender, own) for contender, own in by_contender.items()]


def _row(contender: str, turns: Sequence[PreemptionTurn]) -> PreemptionRow:
    records = [record for turn in turns for record in turn.records]
    preemptors = [start_of(record) for record in records if record.nominated_at is not None]
    urgent = [start_of(record) for record in records if record.is_urgent]
    victims = [record for record in records if is_victim(record)]
    return PreemptionRow(
        contender=contender,
        preemptors=len(preemptors),
        placed=len(_finite(preemptors)),
        starts=_finite(preemptors),
        urgent_starts=_finite(urgent),
        urgent_unplaced=len(urgent) - len(_finite(urgent)),
        victims=len(victims),
        wasted={kind: sum(each.wasted for each in victims if each.kind == kind) for kind in KINDS},
        victims_by_kind={kind: sum(each.kind == kind for each in victims) for kind in KINDS},
        occupied=sum(record.occupied for record in records),
        wanted=sum(sum(turn.wanted.values()) for turn in turns),
        finished=sum(record.end == End.FINISHED.value for record in records),
        unplaced=_unplaced(turns),
    )


def _finite(values: Iterable[float]) -> list[float]:
    return sorted(value for value in values if value < math.inf)


def _unplaced(turns: Iterable[PreemptionTurn]) -> dict[str, int]:
    left = Counter[str]()
    for turn in turns:
        started = {
            (record.job, record.index, record.tier)
            for record in turn.records
            if record.started_at is not None
        }
        left.update(turn.wanted)
        left.subtract(tier for *_, tier in started)
    return {tier: number for tier, number in left.items() if number}


def table(rows: Sequence[PreemptionRow]) -> str:
    """Return the rows as text for a terminal."""
    columns = (
        *("preemptors", "placed", "start p50 s", "p90", "p99"),
        *("victims", "a placement", "wasted pod-s", "a victim", "of all"),
        "finished",
    )
    return figures.aligned([("contender", *columns), *(_cells(row) for row in rows)])


def _cells(row: PreemptionRow) -> tuple[str, ...]:
    return (
        row.contender,
        f"{row.preemptors:,}",
        f"{row.placed:,}",
        *(_shown(nearest_rank(row.starts, share)) for share in (0.5, 0.9, 0.99)),
        f"{row.victims:,}",
        _shown(row.victims_a_placement),
        f"{row.wasted_seconds:,.0f}",
        _shown(row.wasted_seconds / row.victims if row.victims else math.nan),
        f"{row.wasted_seconds / row.occupied:.1%}" if row.occupied else "",
        f"{row.finished / row.wanted:.1%}",
    )


def _shown(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.2f}"


def sentences(rows: Sequence[PreemptionRow], turns: Sequence[PreemptionTurn]) -> list[str]:
    """Return the figures that are in no table, one sentence each."""
    return [
        *(_waste_by_kind(row) for row in rows if row.victims),
        *(_urgent(row) for row in rows if row.urgent_starts),
        *(_left(row) for row in rows),
        *(sentence for row in rows for sentence in _asked(row.contender, turns)),
        (
            f"a second stands for {SIMULATED_SECONDS}: a wasted pod-second is "
            f"{SIMULATED_SECONDS / _HOUR:.3f} pod-hours of a cluster's life"
        ),
    ]


def _waste_by_kind(row: PreemptionRow) -> str:
    each = (
        f"{row.wasted[kind] / number:.1f} ({kind}, {number:,})"
        for kind, number in row.victims_by_kind.items()
        if number
    )
    return f"{row.contender}: wasted pod-seconds a victim by how it saves: {', '.join(each)}"


def _urgent(row: PreemptionRow) -> str:
    p50, p99 = (_shown(nearest_rank(row.urgent_starts, share)) for share in (0.5, 0.99))
    return (
        f"{row.contender}: all urgent pods, preempting or not, start after {p50} s (p50), {p99} s "
        f"(p99); {row.urgent_unplaced:,} never"
    )


def _left(row: PreemptionRow) -> str:
    if not row.unplaced:
        return f"{row.contender}: every pod was placed"
    each = ", ".join(f"{number:,} {tier}" for tier, number in row.unplaced.items())
    return (
        f"{row.contender}: {sum(row.unplaced.values()):,} of {row.wanted:,} pods were never "
        f"placed: {each}"
    )


def _asked(contender: str, turns: Iterable[PreemptionTurn]) -> Iterator[str]:
    own = [turn for turn in turns if turn.contender == contender]
    deletions, refusals = sum(turn.deletions for turn in own), sum(turn.refusals for turn in own)
    yield (
        f"{contender}: the scheduler requested {deletions + refusals:,} deletions; {refusals:,} "
        "were refused"
    )
    for who in (counters.GUARD, counters.EXTENDER):
        if said := counters.shown([turn.counted for turn in own], who):
            yield f"{contender}: answers of the {who}: {said}"


def doubts(turns: Iterable[PreemptionTurn]) -> list[str]:
    """Return reasons to mistrust a turn, one sentence each."""
    return [
        f"{turn.contender}, seed {turn.seed}: {doubt}" for turn in turns for doubt in _doubts(turn)
    ]


def _doubts(turn: PreemptionTurn) -> Iterator[str]:
    failed = sum(record.end == End.FAILED.value for record in turn.records)
    late, left_alone = turn.late_seconds, counters.fallbacks(turn.counted)
    if late > LATE_SECONDS:
        yield f"the replay was late by {late:.2f} s (p99): the machine was busy"
    if failed:
        yield f"{failed:,} pods ended without a deletion"
    if counters.FAILED_OPEN in turn.counted:
        failed_open = turn.counted[counters.FAILED_OPEN]
        yield f"{failed_open:,} {counters.FAILED_OPEN}: no webhook was called"
    if left_alone:
        yield (
            f"{left_alone:,} calls that the extender did not answer: the scheduler's own choice "
            "stood"
        )
    if turn.seconds >= turn.horizon_seconds:
        yield f"stopped after {turn.seconds:.0f} s, with work left"


def document(turns: Sequence[PreemptionTurn], **more: object) -> dict[str, object]:
    """Return everything as JSON: the printed rows, and each pod's record, times in milliseconds."""
    rows = [asdict(row) for row in summarise(turns)]
    return {"rows": rows, "turns": [turn_document(turn) for turn in turns], **more}


def turn_document(turn: PreemptionTurn) -> dict[str, Any]:
    """Return a turn as JSON, times in milliseconds."""
    return {name: _rounded(value) for name, value in asdict(turn).items()}


def turn_from(document: Mapping[str, Any]) -> PreemptionTurn:
    """Return the turn of a JSON document."""
    records = [Record(**record) for record in document["records"]]
    return PreemptionTurn(**{**document, "records": records})


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
