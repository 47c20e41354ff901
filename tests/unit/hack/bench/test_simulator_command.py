"""`make bench-simulate`: published traces, options and the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.preemption import trace
from bench.preemption.simulator import __main__ as command
from bench.preemption.simulator import published
from bench.preemption.simulator.scheduler import DecisionTimes
from bench.preemption.sources import SOURCES, TraceSource


@pytest.mark.parametrize("generate", [published.philly, published.openb])
def test_a_published_trace_is_drawn_from_its_seed_and_loads_the_nodes(generate: Any) -> None:
    drawn = generate(3, 300, 8)
    requested = sum(job.pods * job.cpus * job.seconds for job in drawn.jobs)

    assert drawn == generate(3, 300, 8)
    assert drawn != generate(4, 300, 8)
    assert requested == pytest.approx(trace.LOAD * 8 * trace.NODE_CPUS * drawn.window_seconds)
    for job in drawn.jobs:
        assert 1.0 <= job.seconds <= published.LONGEST_SECONDS
        assert 0.0 <= job.arrives_at <= drawn.window_seconds
        if job.checkpoints:
            assert 30.0 <= job.checkpoints.interval_seconds <= 120.0
            assert 1.0 <= job.checkpoints.save_seconds <= 10.0


@pytest.mark.parametrize(
    ("generate", "nodes"), [(published.philly, 40), (published.openb, 10)], ids=["philly", "openb"]
)
def test_a_shortened_trace_asks_for_the_load_with_the_work_that_fits_into_the_run(
    generate: Any, nodes: int
) -> None:
    drawn = generate(3, 300, nodes)
    short = published.shortened(drawn)
    horizon = short.horizon_seconds
    work = sum(
        job.pods * job.cpus * min(job.seconds, horizon - job.arrives_at) for job in short.jobs
    )

    assert short.window_seconds < drawn.window_seconds
    assert work / (nodes * trace.NODE_CPUS * short.window_seconds) == pytest.approx(
        trace.LOAD, rel=1e-3
    )
    assert [replace(job, arrives_at=0.0) for job in short.jobs] == [
        replace(job, arrives_at=0.0) for job in drawn.jobs
    ]
    assert published.shortened(drawn, 60.0).window_seconds == 60.0


def test_too_few_jobs_arrive_within_the_shortest_window() -> None:
    assert published.shortened(published.openb(3, 300, 40)).window_seconds == pytest.approx(
        45.0, abs=0.1
    )


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_replayed_trace_takes_about_six_minutes_by_default(source: TraceSource) -> None:
    size = source.short_size
    windows = [
        source.generate_short(seed, size.jobs, size.nodes, None).window_seconds for seed in (1, 2)
    ]

    assert all(180.0 <= window <= 420.0 for window in windows)


def test_philly_jobs_are_longer_than_synthetic_ones() -> None:
    jobs = published.philly(1, 2000, 40).jobs
    long = [job.seconds for job in jobs if job.seconds > 130.0]

    assert 0.10 < len(long) / len(jobs) < 0.20
    assert sum(long) > 0.8 * sum(job.seconds for job in jobs)


def test_openb_pods_have_the_sizes_and_the_qos_of_the_publication() -> None:
    jobs = published.openb(1, 4000, 16).jobs
    urgent = sum(job.tier.is_urgent for job in jobs) / len(jobs)

    # Of 7,064 pods with GPUs, 4,011 are latency-sensitive, and 6,989 have one GPU.
    assert urgent == pytest.approx(4011 / 7064, abs=0.03)
    assert sum(job.cpus == 1 for job in jobs) / len(jobs) == pytest.approx(0.989, abs=0.01)
    assert {job.cpus for job in jobs} <= {1, 2, 4, 8}


@pytest.mark.parametrize("name", ["philly", "openb"])
def test_the_data_names_its_source_its_licence_and_how_it_was_sampled(name: str) -> None:
    document = json.loads((Path(published.__file__).parent / "traces" / f"{name}.json").read_text())

    assert all(document[key] for key in ("source", "publication", "file", "licence", "sampling"))
    assert document["unit"] == "seconds"


def test_the_command_prints_a_row_for_each_contender(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written = tmp_path / "figures.json"
    size = ["--jobs", "60", "--nodes", "6", "--seeds", "1,2", "--workers", "1"]
    assert command.main([*size, "--only", "stock,redesign", "--json", str(written)]) == 0
    printed = capsys.readouterr()
    header, stock, redesign = printed.out.splitlines()[:3]

    assert "start p50" in header
    assert stock.startswith("stock scheduler")
    assert redesign.startswith("redesign")
    assert "4 of 4: redesign, seed 2" in printed.err
    document = json.loads(written.read_text())
    assert [each["seed"] for each in document["figures"]] == [1, 2, 1, 2]
    assert document["conditions"]["nodes"] == 6


def test_a_scheduler_that_needs_time_starts_pods_later() -> None:
    at_once, slow = (
        command.simulate(command.SimulationTask("synthetic", "redesign", 1, 60, 6, None, times))
        for times in (DecisionTimes(), DecisionTimes(attempt_seconds=0.1, call_seconds=0.5))
    )
    assert slow.start_p90 > at_once.start_p90 + 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "stok"], "--only: stok: must be some of stock"),
        (["--seeds", "1,x"], "--seeds: 1,x: must be whole numbers, like 1,2"),
        (["--attempt-seconds", "-1"], "--attempt-seconds: -1: must be 0 or more"),
        (["--call-seconds", "nan"], "--call-seconds: nan: must be 0 or more"),
    ],
)
def test_what_cannot_be_read_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert message in capsys.readouterr().err
