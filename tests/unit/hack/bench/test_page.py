"""`make bench` runs each benchmark once, goes on after a failure, and writes what it found."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.added import AdmissionRow
from bench.cel.table import KINDS, CelRow
from bench.checks import CheckResult
from bench.extender import ExtenderResult
from bench.figures import WebhooksRow
from bench.memory import SizeRow
from bench.page import __main__ as page
from bench.page import markdown, parts, readers, results, svg
from bench.page.parts import PARTS, Part
from bench.page.results import Measurement, Plot, Result, Table
from bench.preemption.figures import PreemptionRow
from bench.preemption.simulator.figures import Figures
from bench.victims.figures import VictimsRow
from reprieve_testing import manifests

CHECK = {
    "conditions": {"documents": 10},
    "rows": [{"name": "one file", **asdict(CheckResult(2.0, 1.5, 80.0, 0))}],
}
MEASUREMENT = readers.of_check(CHECK)
CONDITIONS = {"on": "2026-11-26", "Reprieve": "0.1.0 (abc)", "machine": "2 cores"}


def test_the_page_is_what_the_results_say():
    """After a change of a result: make bench-page."""
    for name, text in page.rendered().items():
        assert (manifests.ROOT / name).read_text(encoding="utf-8") == text, name


def test_no_drawing_is_left_over():
    drawings = {str(path.relative_to(manifests.ROOT)) for path in _drawings(manifests.ROOT)}
    assert drawings == page.rendered().keys() - {markdown.PAGE}


def _drawings(root: Path) -> list[Path]:
    return [*(root / markdown.DRAWINGS).iterdir()]


def test_checked_in_results_are_as_they_are_written(tmp_path: Path):
    files = sorted(results.FOLDER.glob("*.json"))
    assert {file.stem for file in files} <= {part.key for part in PARTS}
    for file in files:
        result = results.read(file)
        assert result is not None
        results.write(tmp_path / file.name, result)
        assert (tmp_path / file.name).read_text("utf-8") == file.read_text("utf-8")
        assert {"on", "Reprieve", "machine"} <= result.conditions.keys()
        assert result.measurement.plots


def test_each_benchmark_has_a_target_and_a_section():
    makefile = (manifests.ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (manifests.ROOT / "hack" / "bench" / "README.md").read_text(encoding="utf-8")
    for part in PARTS:
        assert f"{part.repeat[0].removeprefix('make ').split()[0]}:" in makefile
        assert f"## {part.anchor.replace('-', ' ', 1)}\n" in readme


def test_a_benchmark_without_a_result_is_said_to_be_unmeasured():
    shown = markdown.page({})
    assert shown.count("**Not measured yet**: `make bench ONLY=") == len(PARTS)
    assert "| not measured yet |" in shown


def test_a_result_is_shown_with_its_conditions_and_remarks():
    shown = markdown.page({"check": Result(CONDITIONS, MEASUREMENT, ["It was a quiet day."])})
    for text in (
        "**Measured on 2026-11-26**: Reprieve 0.1.0 (abc); machine 2 cores.",
        "| one file | 2.00 | 1.50 | 80 |",
        "![Processor time of reprieve check, in seconds](benchmarks/check-1.svg)",
        "- It was a quiet day.",
        "**Parameters**: documents 10.",
    ):
        assert text in shown


def test_bars_are_as_long_as_their_values():
    drawn = ET.fromstring(svg.draw(Plot("A & B", {"Reprieve": 2.0, "other <1>": 1.0, "no": 0.0})))
    space = "{http://www.w3.org/2000/svg}"
    bars = drawn.findall(f"{space}rect")
    widths = [int(bar.attrib["width"]) for bar in bars]
    assert widths == [370, 185, 1]
    assert [bar.attrib["class"] for bar in bars] == ["own", "other", "other"]
    texts = [text.text for text in drawn.findall(f"{space}text")]
    assert texts == ["A & B", "Reprieve", "2", "other <1>", "1", "no", "0"]


def test_a_drawing_loads_nothing():
    drawn = svg.draw(Plot("title", {"a": 1.0})).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in drawn
    assert "url(" not in drawn


SERVER_ROW = asdict(
    WebhooksRow(
        server="Reprieve, all rules",
        requests_per_second=7260.4,
        p50_ms=0.98,
        p99_ms=1.99,
        cpu_seconds_per_thousand=0.138,
        rss_mib=77.2,
        ratio=1.66,
    )
)
ADMISSION_ROW = asdict(
    AdmissionRow(
        contender="Reprieve, both",
        p50_ms=4.19,
        p99_ms=9.65,
        added_p50_ms=2.04,
        added_p99_ms=4.83,
        server_cpu_seconds_per_thousand=0.937,
        added_api_server_cpu_seconds_per_thousand=1.567,
    )
)
CEL_ROW = asdict(
    CelRow(
        contender="overlay",
        pods="a class",
        microseconds=dict(zip(KINDS, (2.4, 12.4, 60.0, 25.2), strict=True)),
        all_microseconds=100.0,
        ratio=1.244,
        allocations=1775,
        bytes=57_958,
    )
)
VICTIMS_ROW = asdict(
    VictimsRow(
        contender="Reprieve",
        victims=1000,
        bystanders=50_000,
        p50_seconds=1.17,
        p99_seconds=2.45,
        whole_seconds=16.9,
        ratio=float("nan"),
        mean_writes=3.0,
        most_writes=4,
        cpu_seconds_per_thousand=11.0,
        api_server_cpu_seconds_per_thousand=20.0,
        rss_mib=93.0,
    )
)
PREEMPTION_ROW = asdict(
    PreemptionRow(
        contender="stock scheduler",
        preemptors=2,
        placed=2,
        starts=[1.0, 2.0],
        urgent_starts=[],
        urgent_unplaced=0,
        victims=3,
        wasted={"never": 4.0, "periodically": 6.0},
        victims_by_kind={},
        occupied=100.0,
        wanted=10,
        finished=9,
    )
)
SIMULATED = asdict(
    Figures(
        contender="stock",
        seed=1,
        wasted_pod_seconds=60.0,
        wasted_device_seconds=60.0,
        start_p50=0.1,
        start_p90=0.1,
        start_p99=float("inf"),
        urgent_start_p99=1.0,
        victims=5,
        finished_jobs=7,
        finished_pods=7,
        deletions=0,
        refusals=0,
        notices=0,
        reprieves=0,
    )
)
SETTING = {"trace": "synthetic", "jobs": 1, "nodes": 1, "seeds": "1"}
READ: dict[str, tuple[Callable[..., Measurement], dict[str, object], list[str], dict[str, float]]]
READ = {
    "webhooks": (
        readers.of_webhooks,
        {
            "conditions": {"connections": 8, "rounds": 5, "seconds": 3.0},
            "reference": "controller-runtime",
            "rows": {"4096": [SERVER_ROW]},
        },
        ["Reprieve, all rules", "7,260", "0.98", "1.99", "0.138", "77", "1.66"],
        {"Reprieve, all rules": 1.66},
    ),
    "admission": (
        readers.of_admission,
        {
            "conditions": {"rounds": 5, "seconds": 3.0},
            "reference": "no policy",
            "rows": {"1": [ADMISSION_ROW | {"contender": "no policy"}, ADMISSION_ROW]},
        },
        ["Reprieve, both", "4.19", "9.65", "+2.04", "+4.83", "0.937", "+1.567"],
        {"Reprieve, both": 2.04},
    ),
    "cel": (
        readers.of_cel,
        {"conditions": {"rounds": 7, "creations": 1000}, "rows": [CEL_ROW]},
        ["overlay", "2", "12", "60", "25", "100", "1.24", "1,775"],
        {"overlay": 1.24},
    ),
    "victims": (
        readers.of_victims,
        {
            "conditions": {"nodes": 1, "rounds": "3", "workloads answer": "saving"},
            "rows": [VICTIMS_ROW],
        },
        ["1,000 Reprieve", "50,000", "1.17", "2.45", "16.9", "", "3.0, ≤ 4", "11.0", "93"],
        {"1,000 victims, 50,000 others, Reprieve": 2.45},
    ),
    "preemption": (
        readers.of_preemption,
        {"conditions": SETTING, "rows": [PREEMPTION_ROW]},
        ["stock scheduler", "2", "1.00", "2.00", "2.00", "3", "10", "10.0%", "90.0%"],
        {"stock scheduler": 10.0},
    ),
    "simulate": (
        readers.of_simulation,
        {
            "conditions": SETTING,
            "figures": [
                SIMULATED,
                SIMULATED | {"contender": "redesign", "wasted_pod_seconds": 15.0},
            ],
        },
        [
            "redesign: least loss, held, notice",
            "0.2",
            "0.25",
            "1.00",
            "0.10",
            "never",
            "1.00",
            "5",
            "7",
        ],
        {"stock scheduler": 1.0, "redesign: least loss, held, notice": 0.25},
    ),
    "sizes": (
        readers.of_sizes,
        {
            "conditions": {"sizes": "100:3000", "calls": 2},
            "rows": [
                asdict(
                    SizeRow(
                        nodes=100,
                        pods=3000,
                        guard_mib=84,
                        extender_mib=90,
                        peak_mib=91,
                        cpu_seconds_until_listed=3.2,
                        whole_call_mib=0.7,
                        uids_cpu_ms=[10.0, 8.0],
                        whole_cpu_ms=[12.0, 15.0],
                    )
                )
            ],
        },
        ["100", "3,000", "84", "90", "91", "2,097", "3.2", "8", "10", "0.7", "12", "15"],
        {"Reprieve, 100 nodes, uids": 8.0, "Reprieve, 100 nodes, whole pods": 12.0},
    ),
    "extender": (
        readers.of_extender,
        {
            "conditions": {"nodes": 5000, "pods": 50_000, "calls": 2, "RSS MiB": 286},
            "rows": [
                asdict(
                    ExtenderResult(
                        way="uids",
                        mebibytes=0.9,
                        seconds=[1.1, 2.0],
                        cpu_seconds=0.94,
                        probe_seconds=[0.082],
                    )
                )
            ],
        },
        ["uids", "0.9", "1,100", "2,000", "470", "82.0"],
        {"Reprieve, uids": 470.0},
    ),
    "check": (readers.of_check, CHECK, ["one file", "2.00", "1.50", "80"], {"one file": 1.5}),
}
"""What a benchmark writes; the last row of the first table, and the bars of the first plot."""


def test_each_benchmark_has_a_reader():
    assert {part.key: part.read for part in PARTS} == {key: of[0] for key, of in READ.items()}


@pytest.mark.parametrize(("read", "document", "row", "bars"), READ.values(), ids=READ)
def test_the_page_shows_what_a_benchmark_writes(
    read: Callable[..., Measurement],
    document: dict[str, object],
    row: list[str],
    bars: dict[str, float],
):
    found = read(document)
    assert found.tables[0].rows[-1] == row
    assert len(found.tables[0].columns) == len(row)
    assert found.plots[0].bars == pytest.approx(bars)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one benchmark that writes `CHECK`, and of one that fails."""
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "RAW", tmp_path / "build")
    monkeypatch.setattr(page, "_commit", lambda: "abc")
    monkeypatch.setattr(page, "_conditions", lambda: CONDITIONS)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "measured")
    (tmp_path / "measured").mkdir()

    def command(self: Part, output: Path) -> list[str]:
        if self.key == "webhooks":
            return [sys.executable, "-c", "raise SystemExit(3)"]
        program = f"open({str(output)!r}, 'w').write({json.dumps(CHECK)!r})"
        return [sys.executable, "-c", program]

    monkeypatch.setattr(parts.Part, "command", command)
    return tmp_path


def test_what_is_measured_is_checked_in_and_shown(root: Path):
    assert page.main(["--only", "check"]) == 0
    assert results.read(root / "measured/check.json") == Result(CONDITIONS, MEASUREMENT, [])
    assert "| one file | 2.00 | 1.50 | 80 |" in (root / markdown.PAGE).read_text("utf-8")
    assert (root / markdown.DRAWINGS / "check-1.svg").exists()


def test_a_stopped_run_continues(root: Path, capsys: pytest.CaptureFixture[str]):
    assert page.main(["--only", "check"]) == 0
    (root / "measured/check.json").unlink()
    assert page.main(["--only", "check"]) == 0
    assert "1 of 1: check: is measured already" in capsys.readouterr().err
    assert not (root / "measured/check.json").exists()
    assert page.main(["--only", "check", "--again"]) == 0
    assert (root / "measured/check.json").exists()


def test_one_that_fails_does_not_stop_the_others(root: Path, capsys: pytest.CaptureFixture[str]):
    assert page.main(["--only", "webhooks,check"]) == 1
    said = capsys.readouterr().err
    assert "1 of 2: webhooks: ended with status 3" in said
    assert "bench: failed: webhooks" in said
    assert (root / "measured/check.json").exists()
    assert page.main(["--only", "webhooks,check"]) == 1
    assert "2 of 2: check: is measured already" in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        page.main(["--only", "speed"])
    assert "--only: speed: must be some of webhooks, admission" in capsys.readouterr().err


def test_figures_below_a_folder_are_read(root: Path, monkeypatch: pytest.MonkeyPatch):
    def command(_: Part, output: Path) -> list[str]:
        document = {"conditions": SETTING, "rows": [PREEMPTION_ROW]}
        program = (
            f"import pathlib; path = pathlib.Path({str(output)!r}, 'setting'); "
            f"path.mkdir(parents=True); (path / 'figures.json').write_text("
            f"{json.dumps(document)!r})"
        )
        return [sys.executable, "-c", program]

    monkeypatch.setattr(parts.Part, "command", command)
    assert page.main(["--only", "preemption"]) == 0
    found = results.read(root / "measured/preemption.json")
    assert found is not None
    assert isinstance(found.measurement.tables[0], Table)
    assert found.measurement.tables[0].rows[0][0] == "stock scheduler"


def test_results_do_not_make_it_another_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without this, a run that was stopped would begin anew: it had written results."""
    monkeypatch.setattr(page, "ROOT", tmp_path)

    def git(*words: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(("git", *author, *words), cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "--message=first")
    first = page._commit()
    (tmp_path / "hack/bench/measured").mkdir(parents=True)
    (tmp_path / "hack/bench/measured/check.json").write_text("{}")
    (tmp_path / "docs").mkdir()
    (tmp_path / markdown.PAGE).write_text("page")
    assert page._commit() == first
    (tmp_path / "hack/bench/checks.py").write_text("changed")
    assert page._commit() == f"{first}-changed"


def test_the_conditions_name_versions_and_no_path():
    said = page._conditions()
    assert {"on", "Reprieve", "Python", "Kubernetes", "Go", "machine"} <= said.keys()
    assert not any(str(Path.home()) in value for value in said.values())
