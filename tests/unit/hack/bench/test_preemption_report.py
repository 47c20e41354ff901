"""A turn is measured once, and reported beside the stock scheduler, the simulator and the bound."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.preemption import __main__ as command
from bench.preemption import comparison, contenders, objects, trace
from bench.preemption.comparison import Comparison
from bench.preemption.figures import PreemptionTurn
from bench.preemption.records import Record
from bench.preemption.simulator import contenders as simulated
from bench.preemption.simulator.figures import Figures
from bench.preemption.turns import Setting, TurnFiles, draw
from realcluster.progress import Progress
from reprieve_policy.config import settings

SETTING = Setting(trace="synthetic", jobs=20, nodes=2)
RECORD = Record(
    job="job-0",
    index=0,
    tier="urgent",
    kind="hinted",
    cpus=4,
    is_urgent=True,
    created_at=1.0,
    nominated_at=None,
    started_at=1.25,
    hinted_at=5.0,
    terminated_at=7.0,
    ended_at=8.0,
    end="preempted",
    occupied=6.75,
    kept=3.75,
    wasted=3.0,
    restarting=0.0,
)
TURN = PreemptionTurn(
    contender="stock scheduler",
    seed=1,
    records=[RECORD],
    wanted={"urgent": 1},
    seconds=60.0,
    horizon_seconds=67.5,
    late_seconds=0.001,
    deletions=3,
    refusals=2,
    counted={"guard allowed": 1},
)
FIGURES = Figures(
    contender="stock",
    seed=1,
    wasted_pod_seconds=600.0,
    wasted_device_seconds=1200.0,
    start_p50=0.25,
    start_p90=1.0,
    start_p99=2.0,
    urgent_start_p99=1.5,
    victims=10,
    finished_jobs=20,
    finished_pods=30,
    deletions=8,
    refusals=0,
    notices=0,
    reprieves=0,
)


def rows_of(*compared: Comparison) -> dict[str, str]:
    """Return the first row of each block, by the block's name."""
    lines = comparison.table(compared).splitlines()
    header = 1 + len(compared)
    return {
        lines[number].split("  ")[0]: " ".join(lines[number + 1].split())
        for number in range(0, len(lines), header)
    }


def options(*arguments: str) -> Any:
    return command._parse(["--jobs", "20", "--nodes", "2", *arguments])


# --- turns


def test_a_turn_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = TurnFiles(tmp_path)
    files.write("stock", replace(TURN, seed=2))
    files.write("stock", TURN)
    files.write("guard", replace(TURN, contender="Reprieve (guard)"))

    assert files.read("stock") == [TURN, replace(TURN, seed=2)]
    assert files.read("extender") == []
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({}, "synthetic-20-jobs-2-nodes"),
        ({"trace": "philly"}, "philly-20-jobs-2-nodes"),
        ({"window_seconds": 90.0}, "synthetic-20-jobs-2-nodes-90-seconds"),
        ({"publishes": False}, "synthetic-20-jobs-2-nodes-unpublished"),
    ],
)
def test_each_setting_has_a_folder_of_its_own(other: dict[str, Any], name: str) -> None:
    assert replace(SETTING, **other).name == name


def test_what_was_measured_is_not_measured_again_unless_asked_to(tmp_path: Path) -> None:
    measured: list[tuple[str, int]] = []

    def turn(contender: contenders.Contender, seed: int) -> PreemptionTurn:
        measured.append((contender.key, seed))
        return replace(TURN, seed=seed)

    def run(*arguments: str) -> str:
        said = io.StringIO()
        measured.clear()
        wanted = options("--contenders", "stock,guard", "-o", str(tmp_path), *arguments)
        command._measure(TurnFiles(wanted.folder), wanted, Progress(said), turn)
        return said.getvalue()

    assert run() == ""
    assert measured == [("stock", 1), ("guard", 1)]
    assert "stock scheduler, seed 1: is in " in run("--seeds", "1,2")
    assert measured == [("stock", 2), ("guard", 2)]
    assert run("--again") == ""
    assert measured == [("stock", 1), ("guard", 1)]
    run("--no-publish")
    assert measured == [("stock", 1), ("guard", 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--contenders", "stok"], "--contenders: stok: must be some of stock"),
        (["--seeds", "1,x"], "--seeds: 1,x: must be whole numbers, like 1,2"),
    ],
)
def test_what_cannot_be_read_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(*arguments)
    assert message in capsys.readouterr().err


def test_a_published_trace_has_a_size_of_its_own() -> None:
    assert command._parse(["--trace", "openb"]).setting == Setting(
        trace="openb", jobs=1200, nodes=20
    )


# --- contenders


def test_each_contender_is_simulated_by_one_that_exists() -> None:
    keys = {each.simulated for each in contenders.CONTENDERS if each.simulated}

    assert keys <= set(simulated.BY_KEY)


def test_without_notice_the_policy_differs_in_one_setting() -> None:
    same = settings.parse(objects.POLICY)
    found = settings.parse({**objects.POLICY, **contenders.NO_NOTICE.policy})

    assert isinstance(same, settings.PolicySettings)
    assert found == replace(same, deletes_preempted=True)


def test_with_the_policy_only_victims_are_chosen_by_priority_as_well() -> None:
    same = settings.parse(objects.POLICY)
    found = settings.parse({**objects.POLICY, **contenders.POLICY_ONLY.policy})

    assert isinstance(same, settings.PolicySettings)
    assert found == replace(same, deletes_preempted=True, victim_order=settings.PRIORITY)


# --- the comparison


def test_a_turn_counts_as_the_simulator_counts() -> None:
    drawn = replace(draw(SETTING, 1), jobs=draw(SETTING, 1).jobs[:1])
    (job,) = drawn.jobs
    records = [
        RECORD,
        replace(RECORD, job="job-1", tier="batch", is_urgent=False, started_at=None, end=None),
        replace(RECORD, job="job-2", terminated_at=None, started_at=None, end=None),
        *(
            replace(RECORD, job=job.name, index=index, end="finished", restarting=1.0)
            for index in range(job.pods)
        ),
    ]
    found = comparison.figures_of(replace(TURN, records=records), drawn)

    # A restart counts also where the pod finished.
    assert found.wasted_pod_seconds == 3.0 + 3.0 + job.pods
    assert found.wasted_device_seconds == 4 * found.wasted_pod_seconds
    assert (found.start_p50, found.urgent_start_p99) == (0.25, math.inf)
    assert (found.finished_jobs, found.deletions, found.refusals) == (1, 5, 2)


def test_a_figure_is_shown_beside_stock_the_simulator_and_the_bound() -> None:
    own = [
        replace(FIGURES, wasted_pod_seconds=300.0),
        replace(FIGURES, seed=2, wasted_pod_seconds=900.0),
        replace(FIGURES, seed=3, wasted_pod_seconds=600.0),
    ]
    cells = rows_of(
        Comparison(
            title="ours",
            measured=own,
            stock=[FIGURES, replace(FIGURES, seed=2, wasted_pod_seconds=1200.0)],
            without_notice=[replace(FIGURES, wasted_pod_seconds=750.0)],
            policy_only=[replace(FIGURES, wasted_pod_seconds=1500.0)],
            simulated=[replace(FIGURES, wasted_pod_seconds=270.0)],
            bound=[replace(FIGURES, wasted_pod_seconds=120.0)],
        )
    )

    # The third seed has no turn of the stock scheduler.
    assert cells["wasted pod-hours"] == (
        "ours 3 10.0 5.0 to 15.0 0.62 0.50 to 0.75 0.40 0.20 4.5 -10% 2.0"
    )
    assert list(cells) == [measure.name for measure in comparison.MEASURES]


def test_a_pod_that_never_starts_makes_a_percentile_infinite() -> None:
    own = replace(FIGURES, start_p99=math.inf)
    cells = rows_of(Comparison(title="ours", measured=[own], stock=[FIGURES]))

    assert cells["start p99, s"] == "ours 1 never never to never never never to never"


def test_without_the_stock_scheduler_there_is_no_ratio() -> None:
    cells = rows_of(Comparison(title="ours", measured=[FIGURES]))

    assert cells["jobs finished"] == "ours 1 20 20 to 20"


def test_the_simulator_gets_the_same_trace_and_knows_no_more_than_was_published() -> None:
    setting = replace(SETTING, jobs=100, nodes=10)
    published = command._simulated("redesign", setting, 1)
    unpublished = command._simulated("redesign", replace(setting, publishes=False), 1)

    assert published.seed == unpublished.seed == 1
    assert published != unpublished
    assert command._simulated("stock", setting, 1) == command._simulated(
        "stock", replace(setting, publishes=False), 1
    )
    assert draw(setting, 1) == trace.generate(1, 100, 10)


def test_all_turns_are_compared() -> None:
    by_contender = {
        "stock": [TURN, replace(TURN, seed=2)],
        "upstream": [replace(TURN, contender="PreemptionToleration")],
    }
    stock, upstream = command._compare(by_contender, SETTING, Progress(io.StringIO()))

    assert [each.seed for each in stock.measured] == [1, 2]
    assert [each.seed for each in stock.simulated] == [1, 2]
    assert upstream.title == "PreemptionToleration"
    assert (upstream.stock, upstream.simulated) == (stock.measured, [])
    assert [each.contender for each in upstream.bound] == ["bound"]
