"""The live table of `reprieve watch` on terminals of different widths."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from reprieve_cli.cluster.victim_table import TableLayout, VictimRow, build_table
from reprieve_cli.cluster.victims import VictimStatus
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def a_row() -> VictimRow:
    state = eviction.Eviction(
        eviction_id="e1",
        phase=Phase.CHECKPOINTING,
        requested_at=NOW,
        deadline=NOW + timedelta(minutes=59, seconds=30),
        initiator="system:serviceaccount:kube-system:descheduler",
    )
    victim = VictimStatus(
        namespace="research-team-a",
        name="a-very-long-training-job-name-worker-0-of-128-x7k2p",
        uid="u",
        phase="checkpointing",
        preemption_class="3",
        state=state,
    )
    return VictimRow(victim, NOW)


def shown(layout: TableLayout, *rows: VictimRow) -> str:
    console = Console(file=io.StringIO(), width=layout.width, force_terminal=False)
    console.print(build_table(rows, NOW, layout))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("in_all_namespaces", [True, False])
def test_the_phase_and_the_time_left_are_never_shortened(
    width: int, *, in_all_namespaces: bool
) -> None:
    text = shown(TableLayout(width, 24, in_all_namespaces=in_all_namespaces), a_row())
    titles, row = text.splitlines()
    assert "checkpointing" in row
    assert "59m30s left" in row
    assert "a-very" in row
    assert ("NAMESPACE" in titles) is in_all_namespaces
    assert max(map(len, text.splitlines())) <= width


def test_a_wide_terminal_shows_every_column_in_full() -> None:
    text = shown(TableLayout(200, 24), a_row())
    assert text.splitlines()[0].split() == [
        "NAMESPACE", "POD", "CLASS", "PHASE", "TO", "DEADLINE", "INITIATOR", "OUTCOME",
    ]  # fmt: skip
    assert a_row().victim.name in text
    assert "by system:serviceaccount:kube-system:descheduler" in text


def test_a_notice_and_the_number_of_hidden_victims_are_below_the_table() -> None:
    text = shown(TableLayout(80, 7, notice="out of date since 12:00:00"), a_row(), a_row())
    assert [line.strip() for line in text.splitlines()[-2:]] == [
        "and 1 more",
        "out of date since 12:00:00",
    ]
    assert "no victims" in shown(TableLayout(80, 24))


def test_no_text_drives_the_terminal_or_is_markup() -> None:
    hostile = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e"
    row = a_row()
    row = replace(row, victim=replace(row.victim, name=hostile, phase=hostile))
    notice = "[/nonsense] [red]"
    lines = shown(TableLayout(200, 24, notice=notice), row).splitlines()
    assert "pwned" in lines[1]
    assert all(line.isprintable() for line in lines)
    assert lines[-1].strip() == notice
