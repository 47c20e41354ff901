"""Figures of `make bench-victims`: medians over the rounds, ratios within a round. No I/O."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from bench import figures
from bench.figures import nearest_rank

from . import pods
from .audit import PodChange

REPRIEVE = "Reprieve"
BARE = "patch and delete"
NOTIFIER = "watch, notify and delete"
"""The least that gives notice, `bare_notifier`."""
MOST_WRITES = 6
"""The notice, the answer, an extension, the end, the DELETE, and the release."""
_REFUSED = 400


@dataclass(frozen=True, kw_only=True)
class VictimsTurn:
    """One contender's turn with a number of victims, among pods that are not victims."""

    contender: str
    victims: int
    bystanders: int
    round: int
    # From the API server's entry about the mark to the workload's receipt.
    hint_seconds: Sequence[float]
    marks_seconds: float  # from the first mark's arrival to the last one's answer
    whole_seconds: float  # from the first mark's arrival to the last DELETE's answer
    # Number of victims by writes of the contender; the bare program's include marks.
    writes: Mapping[int, int]
    refused: int  # refused writes, mostly conflicts
    cpu_seconds: float  # of the contender
    api_server_cpu_seconds: float
    rss_mib: float  # the contender's maximum
    calls: Mapping[str, int]  # calls to the API server, by verb, from the contender's own metrics
    dropped_events: int

    @property
    def most_writes(self) -> int:
        """The most writes that any victim got."""
        return max(self.writes, default=0)

    @property
    def mean_writes(self) -> float:
        """Writes for each victim."""
        return sum(count * number for count, number in self.writes.items()) / self.victims


@dataclass(frozen=True, kw_only=True)
class VictimsRow:
    """One contender with a number of victims and of other pods: medians over the rounds."""

    contender: str
    victims: int
    bystanders: int
    p50_seconds: float  # from mark to hint; NaN without hints
    p99_seconds: float
    whole_seconds: float
    ratio: float  # of this to the bare program's in the same round
    mean_writes: float
    most_writes: int
    cpu_seconds_per_thousand: float
    api_server_cpu_seconds_per_thousand: float
    rss_mib: float


@dataclass(frozen=True, kw_only=True)
class OperatorStart:
    """The operator's start: the figures before there is a victim, once it has read all pods."""

    bystanders: int
    rss_mib: float
    idle_rss_mib: float  # before it read the pods
    sweep_cpu_seconds: float
    sweep_seconds: float


_LEAST_BYTES = 10
"""A victim, of a call that the table of bytes shows."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes between a contender and the API server, without TLS."""

    contender: str
    victims: int
    sent: int
    received: dict[str, int]
    """By call; a watch is one call."""
    answers: dict[str, int]


class AuditFigures(TypedDict):
    """The fields of a turn from the audit log and the workloads."""

    hint_seconds: list[float]
    marks_seconds: float
    whole_seconds: float
    writes: dict[int, int]
    refused: int


def measure(entries: Iterable[PodChange], heard: Mapping[str, float], user: str) -> AuditFigures:
    """Return what a contender, by its user, did to the victims that the admin marked, and when."""
    changes = [entry for entry in entries if entry.verb != "create"]
    own = [entry for entry in changes if entry.user == user]
    done = [entry for entry in own if entry.status < _REFUSED]
    # The bare notifier has the admin's identity too: the first patch is the mark.
    marks = {
        entry.pod: entry
        for entry in reversed(changes)
        if entry.user == pods.ADMIN and entry.verb == "patch"
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


def summarise(turns: Iterable[VictimsTurn]) -> list[VictimsRow]:
    """Return a row for each number of victims and other pods and each contender, in order."""
    return [_row(own, of.get(BARE, [])) for of in _grouped(turns).values() for own in of.values()]


def _grouped(turns: Iterable[VictimsTurn]) -> dict[tuple[int, int], dict[str, list[VictimsTurn]]]:
    """Return the turns by the numbers of other pods and victims, and by contender."""
    grouped: dict[tuple[int, int], dict[str, list[VictimsTurn]]] = {}
    for turn in turns:
        grouped.setdefault((turn.bystanders, turn.victims), {}).setdefault(
            turn.contender, []
        ).append(turn)
    return grouped


def _row(turns: Sequence[VictimsTurn], bare: Sequence[VictimsTurn]) -> VictimsRow:
    def median(of: Callable[[VictimsTurn], float]) -> float:
        return statistics.median(of(turn) for turn in turns)

    by_round = {turn.round: turn.whole_seconds for turn in bare}
    ratios = [turn.whole_seconds / by_round[turn.round] for turn in turns if turn.round in by_round]
    return VictimsRow(
        contender=turns[0].contender,
        victims=turns[0].victims,
        bystanders=turns[0].bystanders,
        p50_seconds=median(lambda turn: nearest_rank(turn.hint_seconds, 0.50)),
        p99_seconds=median(lambda turn: nearest_rank(turn.hint_seconds, 0.99)),
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


def table(rows: Sequence[VictimsRow]) -> str:
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


def _cells(row: VictimsRow) -> tuple[str, ...]:
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


def doubled(rows: Iterable[VictimsRow]) -> list[str]:
    """Say what changed when the number of other pods doubled.

    The sentences compare the victims, the operator, and the API server under both.
    """
    ours = {(row.victims, row.bystanders): row for row in rows if row.contender == REPRIEVE}
    return [
        f"{victims:,} victims among {2 * others:,} pods instead of {others:,}: "
        f"{_change(row, ours[victims, 2 * others])}"
        for (victims, others), row in ours.items()
        if (victims, 2 * others) in ours
    ]


def _change(before: VictimsRow, now: VictimsRow) -> str:
    api_server = (
        now.api_server_cpu_seconds_per_thousand / before.api_server_cpu_seconds_per_thousand - 1
    )
    return (
        f"hint p50 {before.p50_seconds:.2f} → {now.p50_seconds:.2f} s, p99 "
        f"{before.p99_seconds:.2f} → {now.p99_seconds:.2f} s, whole {before.whole_seconds:.1f} → "
        f"{now.whole_seconds:.1f} s; operator's CPU "
        f"{now.cpu_seconds_per_thousand / before.cpu_seconds_per_thousand - 1:+.1%}, memory "
        f"{now.rss_mib / before.rss_mib - 1:+.1%}, API server's CPU {api_server:+.1%}"
    )


def by_round(turns: Iterable[VictimsTurn]) -> list[str]:
    """Say how much the rounds differ, and how long the marks took.

    An unmarked victim gets no hint.
    """
    ours = {key: of[REPRIEVE] for key, of in _grouped(turns).items() if REPRIEVE in of}
    return [
        f"{victims:,} victims among {others:,} pods, by round: marks over "
        f"{_listed(turn.marks_seconds for turn in of)} s, "
        f"hint p50 {_listed(nearest_rank(turn.hint_seconds, 0.50) for turn in of)} s, "
        f"p99 {_listed(nearest_rank(turn.hint_seconds, 0.99) for turn in of)} s"
        for (others, victims), of in ours.items()
    ]


def beside_notifier(turns: Iterable[VictimsTurn]) -> list[str]:
    """Compare with the least that gives notice, in the same rounds.

    Its wait for a hint is that of the API server and the machine, so what is left is Reprieve's.
    """
    said = []
    for (others, victims), of in _grouped(turns).items():
        bare = {turn.round: turn for turn in of.get(NOTIFIER, [])}
        pairs = [(turn, bare[turn.round]) for turn in of.get(REPRIEVE, []) if turn.round in bare]
        if not pairs:
            continue
        p50, p99 = (
            statistics.median(
                nearest_rank(own.hint_seconds, rank) - nearest_rank(least.hint_seconds, rank)
                for own, least in pairs
            )
            for rank in (0.50, 0.99)
        )
        whole = statistics.median(own.whole_seconds / least.whole_seconds for own, least in pairs)
        said.append(
            f"{victims:,} victims among {others:,} pods, beside {NOTIFIER}: hint p50 {p50:+.2f} s, "
            f"p99 {p99:+.2f} s; whole × {whole:.2f}"
        )
    return said


def _listed(seconds: Iterable[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in seconds)


def sentences(
    turns: Sequence[VictimsTurn], starts: Iterable[OperatorStart], traffic: Iterable[Traffic]
) -> list[str]:
    """Return the figures that are in no table, one sentence each."""
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


def _start(start: OperatorStart) -> str:
    return (
        f"among {start.bystanders:,} pods without a victim: RSS {start.idle_rss_mib:.0f} MiB, "
        f"{start.rss_mib:.0f} after a sweep, which takes {start.sweep_cpu_seconds:.1f} s of CPU in "
        f"{start.sweep_seconds:.0f} s, every 5 minutes"
    )


def _traffic(each: Traffic) -> str:
    received = sum(each.received.values())
    sent, received_kib = (count / each.victims / 1024 for count in (each.sent, received))
    return (
        f"{each.contender}: {sent:.1f} KiB sent to the API server and {received_kib:.1f} KiB "
        "received, a victim"
    )


def traffic_table(each: Traffic) -> str:
    """Return what a contender received from the API server, by call, the most first."""
    rows = [
        (
            call,
            f"{each.answers.get(call, 0) / each.victims:.2f}",
            f"{size / each.victims / 1024:.2f}",
        )
        for call, size in sorted(each.received.items(), key=lambda item: -item[1])
        if size / each.victims >= _LEAST_BYTES
    ]
    title = f"{each.contender} receives"
    width = max(len(text) for text in (title, *(call for call, _, _ in rows)))
    head = f"{title:{width}}  answers/victim  KiB/victim"
    return "\n".join([head, *(f"{call:{width}}  {n:>14}  {kib:>10}" for call, n, kib in rows)])


def doubts(turns: Iterable[VictimsTurn]) -> list[str]:
    """Return reasons to mistrust a turn, one sentence each."""
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


def document(turns: Sequence[VictimsTurn], **more: object) -> dict[str, object]:
    """Return everything as JSON: each turn as measured, and the printed rows."""
    return {
        "rows": [vars(row) for row in summarise(turns)],
        "turns": [vars(turn) for turn in turns],
        **more,
    }
