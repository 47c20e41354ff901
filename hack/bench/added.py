"""Figures of `make bench-admission`: what a policy adds to the latency of a creation. No I/O.

The addition is the difference to the turn without a policy in the same round. Printed figures are
medians over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from . import figures


@dataclass(frozen=True, kw_only=True)
class AdmissionTurn:
    """One contender's turn in one round, with a number of clients."""

    contender: str
    clients: int
    round: int
    seconds: float
    microseconds: Mapping[int, int]  # how often each latency was seen
    server_cpu_seconds: float  # of the webhooks' process
    api_server_cpu_seconds: float
    failed_open: int  # webhook calls that failed, so that the pod was admitted without a review

    @property
    def pods(self) -> int:
        """The number of pods that were created, all of them admitted."""
        return sum(self.microseconds.values())

    def percentile_ms(self, share: float) -> float:
        """Return the latency that `share` of all creations did not exceed."""
        return figures.percentile(self.microseconds, share) / 1000


@dataclass(frozen=True, kw_only=True)
class AdmissionRow:
    """One contender with a number of clients: medians over all rounds."""

    contender: str
    p50_ms: float
    p99_ms: float
    added_p50_ms: float
    added_p99_ms: float
    server_cpu_seconds_per_thousand: float
    added_api_server_cpu_seconds_per_thousand: float


def summarise(turns: Iterable[AdmissionTurn], reference: str) -> dict[int, dict[str, AdmissionRow]]:
    """Return the rows by number of clients and contender.

    `reference` is the one without a policy.
    """
    grouped: dict[int, dict[str, list[AdmissionTurn]]] = {}
    for turn in turns:
        grouped.setdefault(turn.clients, {}).setdefault(turn.contender, []).append(turn)
    return {
        clients: {name: _row(own, of[reference]) for name, own in of.items()}
        for clients, of in grouped.items()
    }


def _row(turns: Sequence[AdmissionTurn], reference: Sequence[AdmissionTurn]) -> AdmissionRow:
    def median(of: Callable[[AdmissionTurn], float]) -> float:
        return statistics.median(of(turn) for turn in turns)

    def added(of: Callable[[AdmissionTurn], float]) -> float:
        by_round = {turn.round: turn for turn in reference}
        return statistics.median(of(turn) - of(by_round[turn.round]) for turn in turns)

    return AdmissionRow(
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


def ratio(
    turns: Sequence[AdmissionTurn], one: str, other: str, clients: int, share: float
) -> float:
    """Return a contender's latency over another's in the same round: the median over the rounds."""
    of = {
        (turn.contender, turn.round): turn.percentile_ms(share)
        for turn in turns
        if turn.clients == clients
    }
    rounds = sorted({turn.round for turn in turns})
    return statistics.median(of[one, number] / of[other, number] for number in rounds)


def cpu_ratio(
    turns: Sequence[AdmissionTurn], one: str, other: str, reference: str, clients: int
) -> float:
    """Return what a contender adds to the API server's processor time, over what another adds.

    Both are sums over all rounds: what one creation adds is less than the noise of a turn.
    """

    def spent(name: str) -> float:
        return sum(
            turn.api_server_cpu_seconds / turn.pods
            for turn in turns
            if (turn.contender, turn.clients) == (name, clients)
        )

    without = spent(reference)
    return (spent(one) - without) / (spent(other) - without)


def doubts(turns: Iterable[AdmissionTurn]) -> list[str]:
    """Return a sentence for each policy that was not called each time."""
    failed: dict[str, int] = {}
    for turn in turns:
        failed[turn.contender] = failed.get(turn.contender, 0) + turn.failed_open
    return [
        f"{count} calls for {name} failed, and their pods were admitted without a review"
        for name, count in failed.items()
        if count
    ]


def table(rows: Iterable[AdmissionRow]) -> str:
    """Return the rows as text for a terminal."""
    columns = ("p50 ms", "p99 ms", "added p50", "added p99", "CPU s/1,000", "API server's")
    return figures.aligned([("contender", *columns), *(_cells(row) for row in rows)])


def _cells(row: AdmissionRow) -> tuple[str, ...]:
    return (
        row.contender,
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.added_p50_ms:+.2f}",
        f"{row.added_p99_ms:+.2f}",
        f"{row.server_cpu_seconds_per_thousand:.3f}",
        f"{row.added_api_server_cpu_seconds_per_thousand:+.3f}",
    )


def document(turns: Sequence[AdmissionTurn], reference: str, **more: object) -> dict[str, object]:
    """Return everything as JSON: each turn as measured, and the printed rows."""
    rows = {
        str(clients): [asdict(row) for row in of.values()]
        for clients, of in summarise(turns, reference).items()
    }
    return {"reference": reference, "rows": rows, "turns": [asdict(turn) for turn in turns], **more}
