"""From what was measured of a turn to what is printed: medians over the rounds, ratios within a round. No I/O."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from bench import figures

from . import pods
from .audit import Entry

REPRIEVE = "Reprieve"
BARE = "patch and delete"
MOST_WRITES = 5
_REFUSED = 400


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One contender's turn with so many victims, among so many pods that are none."""

    contender: str
    victims: int
    bystanders: int
    round: int
    hint_seconds: Sequence[
        float
    ]  # from the API server's word that the mark is there to the workload's receipt
    marks_seconds: float  # from the first mark's arrival to the last one's answer
    whole_seconds: float  # from the first mark's arrival to the last DELETE's answer
    writes: Mapping[
        int, int
    ]  # how many victims got how many writes from the contender, marks included for the bare one
    refused: int  # of its writes: conflicts above all
    cpu_seconds: float  # of the contender
    api_server_cpu_seconds: float
    rss_mib: float  # the most of it
    calls: Mapping[str, int]  # to the API server, by verb, as the contender itself counts them
    dropped_events: int

    @property
    def most_writes(self) -> int:
        """The most that any victim got."""
        return max(self.writes, default=0)

    @property
    def mean_writes(self) -> float:
        """Writes for each victim."""
        return sum(count * number for count, number in self.writes.items()) / self.victims


@dataclass(frozen=True, kw_only=True)
class Row:
    """One contender with so many victims among so many bystanders: medians over the rounds."""

    contender: str
    victims: int
    bystanders: int
    p50_seconds: float  # of mark to hint; NaN where nobody is told
    p99_seconds: float
    whole_seconds: float
    ratio: float  # of that to the bare program's in the same round
    mean_writes: float
    most_writes: int
    cpu_seconds_per_thousand: float
    api_server_cpu_seconds_per_thousand: float
    rss_mib: float


@dataclass(frozen=True, kw_only=True)
class Start:
    """The operator among so many pods before there is any victim, once it has looked at each of them."""

    bystanders: int
    rss_mib: float
    idle_rss_mib: float  # before it looked
    sweep_cpu_seconds: float
    sweep_seconds: float


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes between a contender and the API server."""

    contender: str
    victims: int
    sent: int
    received: int


class Seen(TypedDict):
    """The fields of a turn that the audit log and the workloads know."""

    hint_seconds: list[float]
    marks_seconds: float
    whole_seconds: float
    writes: dict[int, int]
    refused: int


def measure(entries: Iterable[Entry], heard: Mapping[str, float], user: str) -> Seen:
    """Return what a contender, by its user, did to victims that were marked by the admin, and how quickly."""
    changes = [entry for entry in entries if entry.verb != "create"]
    own = [entry for entry in changes if entry.user == user]
    done = [entry for entry in own if entry.status < _REFUSED]
    marks = {
        entry.pod: entry for entry in changes if entry.user == pods.ADMIN and entry.verb == "patch"
    }
    deleted_at = [entry.answered_at for entry in done if entry.verb == "delete"]
    first_mark = min(mark.received_at for mark in marks.values())
    return {
        "hint_seconds": sorted(
            heard[pod] - mark.answered_at for pod, mark in marks.items() if pod in heard
        ),
        "marks_seconds": max(mark.answered_at for mark in marks.values()) - first_mark,
        "whole_seconds": max(deleted_at) - first_mark,
        "writes": dict(sorted(Counter(Counter(entry.pod for entry in done).values()).items())),
        "refused": len(own) - len(done),
    }


def summarise(turns: Iterable[Turn]) -> list[Row]:
    """Return a row for each number of victims and bystanders and each contender, in the order in which they came."""
    return [_row(own, of.get(BARE, [])) for of in _grouped(turns).values() for own in of.values()]


def _grouped(turns: Iterable[Turn]) -> dict[tuple[int, int], dict[str, list[Turn]]]:
    """Return the turns by the numbers of bystanders and victims, and by contender."""
    grouped: dict[tuple[int, int], dict[str, list[Turn]]] = {}
    for turn in turns:
        grouped.setdefault((turn.bystanders, turn.victims), {}).setdefault(
            turn.contender, []
        ).append(turn)
    return grouped


def _row(turns: Sequence[Turn], bare: Sequence[Turn]) -> Row:
    def median(of: Callable[[Turn], float]) -> float:
        return statistics.median(of(turn) for turn in turns)

    by_round = {turn.round: turn.whole_seconds for turn in bare}
    ratios = [turn.whole_seconds / by_round[turn.round] for turn in turns if turn.round in by_round]
    return Row(
        contender=turns[0].contender,
        victims=turns[0].victims,
        bystanders=turns[0].bystanders,
        p50_seconds=median(lambda turn: percentile(turn.hint_seconds, 0.50)),
        p99_seconds=median(lambda turn: percentile(turn.hint_seconds, 0.99)),
        whole_seconds=median(lambda turn: turn.whole_seconds),
        ratio=statistics.median(ratios) if ratios else math.nan,
        mean_writes=median(lambda turn: turn.mean_writes),
        most_writes=max(turn.most_writes for turn in turns),
        cpu_seconds_per_thousand=median(lambda turn: turn.cpu_seconds / turn.victims * 1000),
        api_server_cpu_seconds_per_thousand=median(
            lambda turn: turn.api_server_cpu_seconds / turn.victims * 1000
        ),
        rss_mib=median(lambda turn: turn.rss_mib),
    )


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed (nearest rank), NaN of none."""
    return ascending[math.ceil(share * len(ascending)) - 1] if ascending else math.nan


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text for a terminal."""
    columns = (
        "others",
        "hint p50 s",
        "p99 s",
        "whole s",
        "× bare",
        "writes",
        "CPU s/1,000",
        "API server's",
        "RSS MiB",
    )
    return figures.aligned([("victims", *columns), *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.victims:,} {row.contender}",
        f"{row.bystanders:,}",
        _shown(row.p50_seconds),
        _shown(row.p99_seconds),
        f"{row.whole_seconds:.1f}",
        _shown(row.ratio),
        f"{row.mean_writes:.1f}, ≤ {row.most_writes}",
        f"{row.cpu_seconds_per_thousand:.1f}",
        f"{row.api_server_cpu_seconds_per_thousand:.1f}",
        f"{row.rss_mib:.0f}" if row.rss_mib else "",
    )


def _shown(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.2f}"


def doubled(rows: Iterable[Row]) -> list[str]:
    """Say what changed where the pods that are no victims doubled: for victims, the operator, and the API server under both."""
    ours = {(row.victims, row.bystanders): row for row in rows if row.contender == REPRIEVE}
    return [
        f"{victims:,} victims among {2 * others:,} pods instead of {others:,}: {_change(row, ours[victims, 2 * others])}"
        for (victims, others), row in ours.items()
        if (victims, 2 * others) in ours
    ]


def _change(before: Row, now: Row) -> str:
    api_server = (
        now.api_server_cpu_seconds_per_thousand / before.api_server_cpu_seconds_per_thousand - 1
    )
    return (
        f"hint p50 {before.p50_seconds:.2f} → {now.p50_seconds:.2f} s, p99 {before.p99_seconds:.2f} → {now.p99_seconds:.2f} s, "
        f"whole {before.whole_seconds:.1f} → {now.whole_seconds:.1f} s; "
        f"operator's CPU {now.cpu_seconds_per_thousand / before.cpu_seconds_per_thousand - 1:+.1%}, "
        f"memory {now.rss_mib / before.rss_mib - 1:+.1%}, API server's CPU {api_server:+.1%}"
    )


def by_round(turns: Iterable[Turn]) -> list[str]:
    """Say how much the rounds differ, and over which time the marks came: before its mark, nobody is told."""
    ours = {key: of[REPRIEVE] for key, of in _grouped(turns).items() if REPRIEVE in of}
    return [
        f"{victims:,} victims among {others:,} pods, by round: marks over {_listed(turn.marks_seconds for turn in of)} s, "
        f"hint p50 {_listed(percentile(turn.hint_seconds, 0.50) for turn in of)} s, "
        f"p99 {_listed(percentile(turn.hint_seconds, 0.99) for turn in of)} s"
        for (others, victims), of in ours.items()
    ]


def _listed(seconds: Iterable[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in seconds)


def sentences(
    turns: Sequence[Turn], starts: Iterable[Start], traffic: Iterable[Traffic]
) -> list[str]:
    """Return what no table has, one sentence each."""
    ours = [turn for turn in turns if turn.contender == REPRIEVE]
    calls = Counter[str]()
    for turn in ours:
        calls.update(
            {verb: count / sum(turn.victims for turn in ours) for verb, count in turn.calls.items()}
        )
    shown = ", ".join(f"{count:.2f} {verb}" for verb, count in sorted(calls.items()))
    dropped = sum(turn.dropped_events for turn in ours)
    return [
        *(
            f"calls to the API server a victim, as the operator counts them: {shown}"
            for _ in ours[:1]
        ),
        *(f"{dropped:,.0f} Events were dropped" for _ in [0] if dropped),
        *(_start(start) for start in starts),
        *(_traffic(each) for each in traffic),
    ]


def _start(start: Start) -> str:
    return (
        f"among {start.bystanders:,} pods without a victim: RSS {start.idle_rss_mib:.0f} MiB, {start.rss_mib:.0f} after a "
        f"sweep, which takes {start.sweep_cpu_seconds:.1f} s of CPU in {start.sweep_seconds:.0f} s, every 5 minutes"
    )


def _traffic(each: Traffic) -> str:
    sent, received = (count / each.victims / 1024 for count in (each.sent, each.received))
    return f"{each.contender}: {sent:.1f} KiB sent to the API server and {received:.1f} KiB received, a victim"


def doubts(turns: Iterable[Turn]) -> list[str]:
    """Return why a turn is not what it seems, one sentence each."""
    ours = [turn for turn in turns if turn.contender == REPRIEVE]
    unheard = sum(turn.victims - len(turn.hint_seconds) for turn in ours)
    written = sum(turn.victims - sum(turn.writes.values()) for turn in turns)
    over = sum(
        number for turn in ours for count, number in turn.writes.items() if count > MOST_WRITES
    )
    said = {
        f"{unheard:,} victims were never hinted": unheard,
        f"{written:,} victims are not in the audit log": written,
        f"{over:,} victims got more than {MOST_WRITES} writes": over,
    }
    return [sentence for sentence, is_so in said.items() if is_so]


def document(turns: Sequence[Turn], **more: object) -> dict[str, object]:
    """Return everything as JSON: each turn as it was measured, and the printed rows."""
    return {
        "rows": [vars(row) for row in summarise(turns)],
        "turns": [vars(turn) for turn in turns],
        **more,
    }
