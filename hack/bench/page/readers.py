"""Reads what each benchmark writes: its parameters, tables and plots for the page. No I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench import contenders
from bench.cel.table import KINDS
from bench.figures import nearest_rank
from bench.memory import SizeRow
from bench.preemption.simulator.contenders import BY_KEY as SIMULATED
from bench.victims.figures import NOTIFIER, REPRIEVE

from .results import Measurement, Plot, Table

Document = Mapping[str, Any]
Columns = Mapping[str, Callable[[Document], str]]
"""The columns of a table, by title, and the text of a row in each."""
_OWN = "Reprieve"


def of_webhooks(document: Document) -> Measurement:
    """Return the measurement of `make bench-webhooks`."""
    columns: Columns = {
        "server": lambda row: row["server"],
        "requests/s": lambda row: f"{row['requests_per_second']:,.0f}",
        "p50 ms": lambda row: f"{row['p50_ms']:.2f}",
        "p99 ms": lambda row: f"{row['p99_ms']:.2f}",
        "CPU s/1,000": lambda row: f"{row['cpu_seconds_per_thousand']:.3f}",
        "RSS MiB": lambda row: f"{row['rss_mib']:.0f}",
        f"× {document['reference']}": lambda row: f"{row['ratio']:.2f}",
    }
    rows = document["rows"]
    return Measurement(
        _parameters(document, "connections", "rounds", "seconds"),
        [_table(f"Reviews of {int(size):,} bytes", columns, of) for size, of in rows.items()],
        [
            Plot(
                f"Requests a second, if {contenders.CONTROLLER_RUNTIME} answers 1: reviews of "
                f"{int(size):,} bytes",
                {row["server"]: row["ratio"] for row in of},
            )
            for size, of in rows.items()
        ],
    )


def of_admission(document: Document) -> Measurement:
    """Return the measurement of `make bench-admission`."""
    columns: Columns = {
        "policy": lambda row: row["contender"],
        "p50 ms": lambda row: f"{row['p50_ms']:.2f}",
        "p99 ms": lambda row: f"{row['p99_ms']:.2f}",
        "added p50": lambda row: f"{row['added_p50_ms']:+.2f}",
        "added p99": lambda row: f"{row['added_p99_ms']:+.2f}",
        "CPU s/1,000": lambda row: f"{row['server_cpu_seconds_per_thousand']:.3f}",
        "API server's": lambda row: f"{row['added_api_server_cpu_seconds_per_thousand']:+.3f}",
    }
    rows = document["rows"]
    first = next(iter(rows))
    return Measurement(
        _parameters(document, "rounds", "seconds"),
        [_table(_clients(number), columns, of) for number, of in rows.items()],
        [
            Plot(
                f"What a policy adds to the creation of a pod, p50 in ms: {_clients(first)}",
                {
                    row["contender"]: row["added_p50_ms"]
                    for row in rows[first]
                    if row["contender"] != document["reference"]
                },
            ),
            Plot(
                "Processor time for 1,000 pods, of webhooks and API server, in seconds: "
                f"{_clients(first)}",
                {
                    row["contender"]: _processor_seconds(row)
                    for row in rows[first]
                    if row["contender"] != document["reference"]
                },
            ),
        ],
    )


def of_cel(document: Document) -> Measurement:
    """Return the measurement of `make bench-cel`."""
    columns: Columns = {
        "policies": lambda row: row["contender"],
        **{kind: partial(_microseconds, kind) for kind in KINDS},
        "all": lambda row: f"{row['all_microseconds']:.0f}",
        "× by hand": lambda row: f"{row['ratio']:.2f}",
        "allocations": lambda row: f"{row['allocations']:,}",
    }
    by_kind: dict[str, list[Document]] = {}
    for row in document["rows"]:
        by_kind.setdefault(row["pods"], []).append(row)
    first = next(iter(by_kind))
    return Measurement(
        _parameters(document, "rounds", "creations"),
        [
            _table(f"Pods with {kind}, in µs of processor time for a creation", columns, rows)
            for kind, rows in by_kind.items()
        ],
        [
            Plot(
                "Processor time that is added to a creation, if the same rules by hand add 1: "
                f"pods with {first}",
                {row["contender"]: round(row["ratio"], 2) for row in by_kind[first]},
            )
        ],
    )


def _microseconds(kind: str, row: Document) -> str:
    return f"{row['microseconds'][kind]:.0f}"


def of_check(document: Document) -> Measurement:
    """Return the measurement of `make bench-check`."""
    columns: Columns = {
        "run": lambda row: row["name"],
        "s": lambda row: f"{row['seconds']:.2f}",
        "CPU s": lambda row: f"{row['cpu_seconds']:.2f}",
        "MiB": lambda row: f"{row['peak_mib']:.0f}",
    }
    rows = document["rows"]
    return Measurement(
        _parameters(document, "documents"),
        [_table("", columns, rows)],
        [
            Plot(
                "Processor time of reprieve check, in seconds",
                {row["name"]: row["cpu_seconds"] for row in rows},
            )
        ],
    )


def of_victims(document: Document) -> Measurement:
    """Return the measurement of `make bench-victims`."""
    columns: Columns = {
        "victims": lambda row: f"{row['victims']:,} {row['contender']}",
        "others": lambda row: f"{row['bystanders']:,}",
        "hint p50 s": lambda row: _number(row["p50_seconds"]),
        "p99 s": lambda row: _number(row["p99_seconds"]),
        "whole s": lambda row: f"{row['whole_seconds']:.1f}",
        "× bare": lambda row: _number(row["ratio"]),
        "writes": lambda row: f"{row['mean_writes']:.1f}, ≤ {row['most_writes']}",
        "CPU s/1,000": lambda row: f"{row['cpu_seconds_per_thousand']:.1f}",
        "RSS MiB": lambda row: f"{row['rss_mib']:.0f}" if row["rss_mib"] else "",
    }
    names = {REPRIEVE: _OWN, NOTIFIER: NOTIFIER}
    return Measurement(
        _parameters(document, "nodes", "rounds", "workloads answer"),
        [_table("", columns, document["rows"])],
        [
            Plot(
                "From mark to hint, p99 in seconds",
                {
                    f"{row['victims']:,} victims, {row['bystanders']:,} others, {name}": row[
                        "p99_seconds"
                    ]
                    for row in document["rows"]
                    if (name := names.get(row["contender"])) is not None
                },
            )
        ],
    )


def of_extender(document: Document) -> Measurement:
    """Return the measurement of `make bench-extender`."""
    columns: Columns = {
        "call": lambda row: row["way"],
        "MiB": lambda row: f"{row['mebibytes']:.1f}",
        "p50 ms": lambda row: f"{nearest_rank(sorted(row['seconds']), 0.5) * 1000:,.0f}",
        "p99 ms": lambda row: f"{nearest_rank(sorted(row['seconds']), 0.99) * 1000:,.0f}",
        "CPU ms": lambda row: f"{_cpu_ms(row):,.0f}",
        "reviews meanwhile, p99 ms": lambda row: (
            f"{nearest_rank(sorted(row['probe_seconds']), 0.99) * 1000:.1f}"
        ),
    }
    rows = document["rows"]
    return Measurement(
        _parameters(document, "nodes", "pods", "calls", "RSS MiB"),
        [_table("", columns, rows)],
        [
            Plot(
                "Processor time of one call, in ms",
                {f"{_OWN}, {row['way']}": _cpu_ms(row) for row in rows},
            )
        ],
    )


def of_sizes(document: Document) -> Measurement:
    """Return the measurement of `make bench-extender SIZES=…`."""
    rows = [SizeRow(**row) for row in document["rows"]]
    table = Table("", list(rows[0].cells()), [list(row.cells().values()) for row in rows])
    ways: Mapping[str, Callable[[SizeRow], Sequence[float]]] = {
        "uids": lambda row: row.uids_cpu_ms,
        "whole pods": lambda row: row.whole_cpu_ms,
    }
    return Measurement(
        _parameters(document, "sizes", "calls"),
        [table],
        [
            Plot(
                "Processor time of one call about all nodes, p50 in ms",
                {
                    f"{_OWN}, {row.nodes:,} nodes, {way}": nearest_rank(sorted(of(row)), 0.5)
                    for row in rows
                    for way, of in ways.items()
                },
            ),
            Plot(
                "Resident memory with the extender, in MiB",
                {f"{_OWN}, {row.pods:,} pods": round(row.extender_mib) for row in rows},
            ),
        ],
    )


def of_preemption(document: Document) -> Measurement:
    """Return the measurement of `make bench-preemption`."""
    columns: Columns = {
        "contender": lambda row: row["contender"],
        "preemptors": lambda row: f"{row['preemptors']:,}",
        "start p50 s": lambda row: _number(nearest_rank(row["starts"], 0.5)),
        "p90": lambda row: _number(nearest_rank(row["starts"], 0.9)),
        "p99": lambda row: _number(nearest_rank(row["starts"], 0.99)),
        "victims": lambda row: f"{row['victims']:,}",
        "wasted pod-s": lambda row: f"{sum(row['wasted'].values()):,.0f}",
        "of all": lambda row: f"{sum(row['wasted'].values()) / row['occupied']:.1%}",
        "finished": lambda row: f"{row['finished'] / row['wanted']:.1%}",
    }
    rows = document["rows"]
    return Measurement(
        _parameters(document, "trace", "jobs", "nodes", "seeds"),
        [_table("All seeds together; a second stands for a minute", columns, rows)],
        [
            Plot(
                "Work of victims that was lost, in pod-seconds",
                {row["contender"]: float(sum(row["wasted"].values())) for row in rows},
            )
        ],
    )


def of_simulation(document: Document) -> Measurement:
    """Return the measurement of `make bench-simulate`."""
    own: dict[str, list[Document]] = {}
    for each in document["figures"]:
        own.setdefault(each["contender"], []).append(each)
    stock = {each["seed"]: each for each in own["stock"]}
    rows = [_simulated(key, found, stock) for key, found in own.items()]
    columns: Columns = {
        "contender": lambda row: row["title"],
        "wasted pod-h": lambda row: f"{row['wasted_pod_seconds'] / 60:,.1f}",
        "/ stock": lambda row: f"{row['pods_ratio']:.2f}",
        "device-h / stock": lambda row: f"{row['devices_ratio']:.2f}",
        "start p50 s": lambda row: _number(row["start_p50"]),
        "p99": lambda row: _number(row["start_p99"]),
        "urgent p99": lambda row: _number(row["urgent_start_p99"]),
        "victims": lambda row: f"{row['victims']:,.0f}",
        "jobs finished": lambda row: f"{row['finished_jobs']:,.0f}",
    }
    return Measurement(
        _parameters(document, "trace", "jobs", "nodes", "seeds"),
        [_table("Medians over the seeds; a second stands for a minute", columns, rows)],
        [
            Plot(
                "Work lost, if the stock scheduler loses 1",
                {row["title"]: row["pods_ratio"] for row in rows},
            )
        ],
    )


def _simulated(key: str, found: Sequence[Document], stock: Mapping[int, Document]) -> Document:
    """Return the medians of a contender."""
    names = [name for name, value in found[0].items() if isinstance(value, int | float)]

    def of_stock(name: str) -> float:
        return float(statistics.median(each[name] / stock[each["seed"]][name] for each in found))

    return {
        "title": SIMULATED[key].title,
        "pods_ratio": of_stock("wasted_pod_seconds"),
        "devices_ratio": of_stock("wasted_device_seconds"),
        **{name: statistics.median(each[name] for each in found) for name in names},
    }


def _table(title: str, columns: Columns, rows: Sequence[Document]) -> Table:
    return Table(title, list(columns), [[text(row) for text in columns.values()] for row in rows])


def _parameters(document: Document, *names: str) -> dict[str, str]:
    return {name: str(document["conditions"][name]) for name in names}


def _processor_seconds(row: Document) -> float:
    seconds: float = (
        row["server_cpu_seconds_per_thousand"] + row["added_api_server_cpu_seconds_per_thousand"]
    )
    return round(seconds, 3)


def _clients(number: str) -> str:
    return f"{number} client" if number == "1" else f"{number} clients"


def _cpu_ms(row: Document) -> float:
    milliseconds: float = row["cpu_seconds"] / len(row["seconds"]) * 1000
    return milliseconds


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    return "never" if math.isinf(value) else f"{value:.2f}"
