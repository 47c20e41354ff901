"""The gate fails for what grew, for what is new, and for what is no longer measured."""

import json

from bench.cluster_gate import calibration, figures
from bench.cluster_gate.__main__ import FIGURES
from bench.cluster_gate.figures import GateFigure

KNOWN: dict[str, GateFigure] = {
    "calls": {"value": 4.0, "tolerance": 0.2},
    "CPU": {"value": 10.0, "tolerance": 3.5},
}


def verdicts(**measured: float) -> dict[str, str]:
    return {row.name: row.verdict for row in figures.compare(KNOWN, measured)}


def failed(**measured: float) -> list[str]:
    return [row.name for row in figures.compare(KNOWN, measured) if row.is_failure]


def test_what_is_within_its_tolerance_passes():
    assert verdicts(calls=4.2, CPU=13.5) == {"calls": "ok", "CPU": "ok"}
    assert failed(calls=3.8, CPU=6.5) == []


def test_what_grew_fails():
    assert verdicts(calls=4.21, CPU=10) == {"calls": "GREW", "CPU": "ok"}
    assert failed(calls=5, CPU=14) == ["CPU", "calls"]


def test_what_fell_passes_and_is_told():
    assert verdicts(calls=3, CPU=10)["calls"] == "fell"
    assert failed(calls=3, CPU=10) == []


def test_a_new_or_missing_figure_fails():
    assert verdicts(calls=4, other=1) == {
        "CPU": "not measured any more",
        "calls": "ok",
        "other": "new: not checked in",
    }
    assert failed(calls=4, other=1) == ["CPU", "other"]


def test_an_update_passes_what_was_measured():
    measured = {"calls a victim: get": 0.0, "writes": 10.0, "CPU of 100 victims, in loops": 2.0}
    known = figures.updated(measured)
    assert not any(row.is_failure for row in figures.compare(known, measured))
    assert {name: one["tolerance"] for name, one in known.items()} == {
        "calls a victim: get": 0.15,
        "writes": 0.5,
        "CPU of 100 victims, in loops": 0.7,
    }


def test_the_table_shows_the_limit():
    shown = figures.table(figures.compare(KNOWN, {"calls": 5.0, "other": 1.0}))
    assert "4.00          4.20      5.00                   GREW" in shown


def test_the_checked_in_figures_have_values_and_tolerances():
    known = json.loads(FIGURES.read_text())
    assert {frozenset(one) for one in known.values()} == {frozenset(("value", "tolerance"))}
    assert any(name.startswith(figures.CPU) for name in known)


def test_the_calibration_takes_time():
    assert calibration.seconds() > 0
