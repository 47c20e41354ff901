"""Victims as text: a row of the live table, or a line. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.verdict import quote

from .victims import VictimStatus

_COLOURS = {
    Phase.SAVED: "green",
    Phase.FINISHED: "green",
    Phase.CANCELLED: "cyan",
    Phase.REPRIEVED: "cyan",
    Phase.SPARED: "cyan",
    Phase.EXTENDED: "yellow",
    Phase.DEFERRED: "yellow",
    Phase.TERMINATING: "red",
}
_BAR_WIDTH = 16
_FRAME_LINES = 6
"""Lines of a table that are not rows, with the caption that counts the rows not shown."""


@dataclass(frozen=True, slots=True)
class VictimRow:
    """A victim and the time of its last observed change."""

    victim: VictimStatus
    changed_at: datetime


def build_line(victim: VictimStatus, now: datetime) -> str:
    """Return one change as one line."""
    parts = [f"{now:%H:%M:%S}", f"{victim.namespace}/{victim.name}", victim.phase]
    if victim.state is not None:
        parts += [_time_left(victim, now), _initiator(victim), _outcome(victim)]
    return "  ".join(part for part in parts if part)


def build_table(rows: Iterable[VictimRow], now: datetime, height: int) -> Table:
    """Return a table of the victims with the nearest deadlines first, as many as fit."""
    table = Table(box=None, pad_edge=False)
    for title in ("NAMESPACE", "POD", "CLASS", "PHASE", "TO DEADLINE", "", "INITIATOR", "OUTCOME"):
        table.add_column(title, no_wrap=True)
    ordered = sorted((row.victim for row in rows), key=lambda victim: _urgency(victim, now))
    shown = ordered[: max(1, height - _FRAME_LINES)]
    for victim in shown:
        table.add_row(
            victim.namespace,
            victim.name,
            victim.preemption_class,
            Text(
                victim.phase,
                style=_COLOURS.get(Phase(victim.phase), "") if victim.phase in tuple(Phase) else "",
            ),
            _bar(victim, now),
            _time_left(victim, now),
            _initiator(victim),
            _outcome(victim),
        )
    if not ordered:
        table.add_row(Text("no victims", style="dim"))
    elif len(ordered) > len(shown):
        table.caption = f"and {len(ordered) - len(shown)} more"
    return table


def _bar(victim: VictimStatus, now: datetime) -> ProgressBar | str:
    span = _time_span(victim)
    if span is None:
        return ""
    begun, deadline = span
    total = max(1.0, (deadline - begun).total_seconds())
    return ProgressBar(
        total=total, completed=min(total, max(0.0, (now - begun).total_seconds())), width=_BAR_WIDTH
    )


def _time_span(victim: VictimStatus) -> tuple[datetime, datetime] | None:
    state = victim.state
    if state is None or state.deadline is None or victim.is_finished:
        return None
    return state.hinted_at or state.requested_at, state.deadline


def _time_left(victim: VictimStatus, now: datetime) -> str:
    span = _time_span(victim)
    if span is None:
        return ""
    seconds = max(0, round((span[1] - now).total_seconds()))
    return f"{seconds // 60}m{seconds % 60:02d}s left"


def _initiator(victim: VictimStatus) -> str:
    return (
        ""
        if victim.state is None or not victim.state.initiator
        else f"by {_plain(victim.state.initiator)}"
    )


def _outcome(victim: VictimStatus) -> str:
    state = victim.state
    if (
        state is not None
        and state.refused_on is not None
        and victim.phase in (Phase.REPRIEVED, Phase.SPARED)
    ):
        return state.refused_on
    if state is None or state.outcome is None:
        return ""
    step = (
        ""
        if state.checkpoint is None or state.checkpoint.step is None
        else f" at step {state.checkpoint.step}"
    )
    return f"{state.outcome}{step}"


def _urgency(victim: VictimStatus, now: datetime) -> tuple[bool, datetime, str, str]:
    span = _time_span(victim)
    return victim.is_finished, now if span is None else span[1], victim.namespace, victim.name


def _plain(text: str) -> str:
    """Return a user's text as one line without control characters, which affect the terminal."""
    return quote(text)[1:-1]
