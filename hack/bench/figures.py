"""Figures of `make bench-webhooks`: percentiles, medians over rounds, ratios within a round.

No I/O.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

SATURATED = 0.9  # from this share of its core on, the load generator may limit the figures


@dataclass(frozen=True, kw_only=True)
class WebhooksTurn:
    """One server's turn in one round, under reviews of one size."""

    server: str
    size: int  # of each review [B]
    round: int
    seconds: float
    microseconds: Mapping[int, int]  # how often each latency was seen
    server_cpu_seconds: float
    load_cpu_seconds: float
    rss_mib: float

    @property
    def requests(self) -> int:
        """The number of answered reviews, all of them correct."""
        return sum(self.microseconds.values())

    @property
    def requests_per_second(self) -> float:
        """Throughput at full load."""
        return self.requests / self.seconds

    @property
    def load_share(self) -> float:
        """The share of its core that the load generator was busy."""
        return self.load_cpu_seconds / self.seconds


@dataclass(frozen=True, kw_only=True)
class WebhooksRow:
    """One server under reviews of one size: medians over all rounds."""

    server: str
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_seconds_per_thousand: float
    rss_mib: float
    ratio: float  # its requests per second over the reference's in the same round


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return the lowest value that `share` of all values do not exceed (nearest rank).

    NaN for none.
    """
    return ascending[math.ceil(share * len(ascending)) - 1] if ascending else math.nan


def percentile(microseconds: Mapping[int, int], share: float) -> int:
    """Return the lowest latency that `share` of all requests do not exceed (nearest rank) [µs]."""
    total, seen = sum(microseconds.values()), 0
    for latency in sorted(microseconds):
        seen += microseconds[latency]
        if seen >= share * total:
            return latency
    raise ValueError("no request was measured")


def summarise(turns: Iterable[WebhooksTurn], reference: str) -> dict[int, list[WebhooksRow]]:
    """Return a row for each server, by review size, in the order of their first turns."""
    by_size: dict[int, dict[str, list[WebhooksTurn]]] = {}
    for turn in turns:
        by_size.setdefault(turn.size, {}).setdefault(turn.server, []).append(turn)
    return {
        size: [_row(name, own, servers[reference]) for name, own in servers.items()]
        for size, servers in by_size.items()
    }


def _row(
    server: str, turns: Sequence[WebhooksTurn], reference: Sequence[WebhooksTurn]
) -> WebhooksRow:
    def median(values: Iterable[float]) -> float:
        return statistics.median(list(values))

    # The same rounds: a slow machine slows both servers.
    paired = zip(turns, reference, strict=True)
    return WebhooksRow(
        server=server,
        requests_per_second=median(turn.requests_per_second for turn in turns),
        p50_ms=median(percentile(turn.microseconds, 0.50) / 1000 for turn in turns),
        p99_ms=median(percentile(turn.microseconds, 0.99) / 1000 for turn in turns),
        cpu_seconds_per_thousand=median(
            turn.server_cpu_seconds / turn.requests * 1000 for turn in turns
        ),
        rss_mib=median(turn.rss_mib for turn in turns),
        ratio=median(own.requests_per_second / other.requests_per_second for own, other in paired),
    )


def table(rows: Sequence[WebhooksRow], reference: str) -> str:
    """Return the rows as text for a terminal."""
    columns = ("requests/s", "p50 ms", "p99 ms", "CPU s/1,000", "RSS MiB", f"× {reference}")
    return aligned([("server", *columns), *(_cells(row) for row in rows)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as a table: the first column aligned left, the others right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(
            "  " + cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
        )
        for line in lines
    )


def _cells(row: WebhooksRow) -> tuple[str, ...]:
    return (
        row.server,
        f"{row.requests_per_second:,.0f}",
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.cpu_seconds_per_thousand:.3f}",
        f"{row.rss_mib:.0f}",
        f"{row.ratio:.2f}",
    )


def doubts(turns: Iterable[WebhooksTurn]) -> list[str]:
    """Return why the figures may not be the servers' own, one sentence a reason."""
    busiest = max(turns, key=lambda turn: turn.load_share)
    if busiest.load_share < SATURATED:
        return []
    share = f"{busiest.load_share:.0%} of its core"
    load = f"the load generator was busy {share} against {busiest.server}"
    return [f"{load}, which may be faster than shown"]


def document(
    turns: Sequence[WebhooksTurn], reference: str, conditions: Mapping[str, object]
) -> dict[str, object]:
    """Return everything as JSON: the conditions, each turn as measured, and the printed rows."""
    rows = {
        str(size): [asdict(row) for row in found]
        for size, found in summarise(turns, reference).items()
    }
    return {
        "conditions": conditions,
        "reference": reference,
        "rows": rows,
        "turns": [asdict(turn) for turn in turns],
    }
