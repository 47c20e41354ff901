"""From latencies of creations to what a policy adds to them. No I/O.

What is added is the difference to the turn without a policy in the same round; what is printed is the median over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from . import figures


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One contender's turn in one round, with a number of clients."""

    contender: str
    clients: int
    round: int
    seconds: float
    microseconds: Mapping[int, int]  # how often each latency was seen
    server_cpu_seconds: float  # of the webhooks' process
    api_server_cpu_seconds: float
    failed_open: int  # calls of webhooks that failed, so that the pod was admitted unseen

    @property
    def pods(self) -> int:
        """How many pods were created, all admitted."""
        return sum(self.microseconds.values())

    def percentile_ms(self, share: float) -> float:
        """Return a latency that `share` of all creations did not exceed."""
        return figures.percentile(self.microseconds, share) / 1000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One contender with a number of clients: medians over all rounds."""

    contender: str
    p50_ms: float
    p99_ms: float
    added_p50_ms: float
    added_p99_ms: float
    server_cpu_seconds_per_thousand: float
    added_api_server_cpu_seconds_per_thousand: float


def summarise(turns: Iterable[Turn], reference: str) -> dict[int, dict[str, Row]]:
    """Return, by the number of clients and the contender, what was measured; `reference` is the one without a policy."""
    grouped: dict[int, dict[str, list[Turn]]] = {}
    for turn in turns:
        grouped.setdefault(turn.clients, {}).setdefault(turn.contender, []).append(turn)
    return {
        clients: {name: _row(own, of[reference]) for name, own in of.items()}
        for clients, of in grouped.items()
    }


def _row(turns: Sequence[Turn], reference: Sequence[Turn]) -> Row:
    def median(of: Callable[[Turn], float]) -> float:
        return statistics.median(of(turn) for turn in turns)

    def added(of: Callable[[Turn], float]) -> float:
        by_round = {turn.round: turn for turn in reference}
        return statistics.median(of(turn) - of(by_round[turn.round]) for turn in turns)

    return Row(
        contender=turns[0].contender,
        p50_ms=median(lambda turn: turn.percentile_ms(0.50)),
        p99_ms=median(lambda turn: turn.percentile_ms(0.99)),
        added_p50_ms=added(lambda turn: turn.percentile_ms(0.50)),
        added_p99_ms=added(lambda turn: turn.percentile_ms(0.99)),
        server_cpu_seconds_per_thousand=median(
            lambda turn: turn.server_cpu_seconds / turn.pods * 1000
        ),
        added_api_server_cpu_seconds_per_thousand=added(
            lambda turn: turn.api_server_cpu_seconds / turn.pods * 1000
        ),
    )


def ratio(turns: Sequence[Turn], one: str, other: str, clients: int, share: float) -> float:
    """Return one contender's latency by another's in the same round, the median over the rounds."""
    of = {
        (turn.contender, turn.round): turn.percentile_ms(share)
        for turn in turns
        if turn.clients == clients
    }
    rounds = sorted({turn.round for turn in turns})
    return statistics.median(of[one, number] / of[other, number] for number in rounds)


def doubts(turns: Iterable[Turn]) -> list[str]:
    """Return whose latencies are not those of a policy that was asked each time, one sentence each."""
    failed: dict[str, int] = {}
    for turn in turns:
        failed[turn.contender] = failed.get(turn.contender, 0) + turn.failed_open
    return [
        f"{count} calls for {name} failed, and their pods were admitted unseen"
        for name, count in failed.items()
        if count
    ]


def table(rows: Iterable[Row]) -> str:
    """Return the rows as text for a terminal."""
    columns = ("p50 ms", "p99 ms", "added p50", "added p99", "CPU s/1,000", "API server's")
    return figures.aligned([("contender", *columns), *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.contender,
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.added_p50_ms:+.2f}",
        f"{row.added_p99_ms:+.2f}",
        f"{row.server_cpu_seconds_per_thousand:.3f}",
        f"{row.added_api_server_cpu_seconds_per_thousand:+.3f}",
    )


def document(turns: Sequence[Turn], reference: str, **more: object) -> dict[str, object]:
    """Return everything as JSON: each turn as it was measured, and the printed rows."""
    rows = {
        str(clients): [asdict(row) for row in of.values()]
        for clients, of in summarise(turns, reference).items()
    }
    return {"reference": reference, "rows": rows, "turns": [asdict(turn) for turn in turns], **more}
