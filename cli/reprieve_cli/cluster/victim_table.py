"""Victims as text: a row of the live table, or a line. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reprieve_cli.output.finding import printable
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.verdict import quote

from .steps import VictimStep
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
_FRAME_LINES = 8
"""Lines of a table that are not rows: titles, the caption, and room for totals and a notice."""


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


def build_step_line(step: VictimStep) -> str:
    """Return one step as one line, as of a change."""
    place = _plain(f"{step.namespace}/{step.name}")
    return f"{step.at:%H:%M:%S}  {place}  {_plain(step.reason)}  {_plain(step.note)}"


def build_timeline(
    victim: VictimStatus, steps: Sequence[VictimStep], now: datetime
) -> Iterator[str]:
    """Yield a victim with its steps and its deadline, as lines."""
    yield build_line(victim, now)
    before: datetime | None = None
    for step in steps:
        after = "" if before is None else f" (after {minutes_and_seconds(step.at - before)})"
        yield f"  {step.at:%H:%M:%S}{after}  {_plain(step.reason)}: {_plain(step.note)}"
        before = step.at
    span = _time_span(victim)
    if span is not None:
        yield f"  {span[1]:%H:%M:%S}  deadline"


def build_current(victim: VictimStatus, now: datetime) -> tuple[str, ...]:
    """Return the state of an eviction that has not ended, as lines."""
    state = victim.state
    if state is None:
        return (f"phase {victim.phase}: the operator has not acted on it yet",)
    left = _time_left(victim, now)
    lines = (
        f"phase {victim.phase}" + (f", {left}" if left else ""),
        f"requested at {timestamp.render(state.requested_at)} {_initiator(victim)}".rstrip(),
        f"reason: {_plain(state.reason)}" if state.reason else "",
        f"outcome: {_outcome(victim)}" if _outcome(victim) else "",
    )
    return tuple(line for line in lines if line)


def build_eviction(victim: VictimStatus) -> dict[str, object]:
    """Return the state of an eviction for programs, without empty fields; times are RFC 3339."""
    state = victim.state
    document = {"phase": victim.phase} | (
        {}
        if state is None
        else {
            "requestedAt": timestamp.render(state.requested_at),
            "deadline": None if state.deadline is None else timestamp.render(state.deadline),
            "initiator": state.initiator,
            "reason": state.reason,
        }
    )
    return {key: value for key, value in document.items() if value}


def _time_span(victim: VictimStatus) -> tuple[datetime, datetime] | None:
    state = victim.state
    if state is None or state.deadline is None or victim.is_finished:
        return None
    return state.hinted_at or state.requested_at, state.deadline


def _time_left(victim: VictimStatus, now: datetime) -> str:
    span = _time_span(victim)
    return "" if span is None else f"{minutes_and_seconds(span[1] - now)} left"


def minutes_and_seconds(time: timedelta) -> str:
    """Return a time as text, such as `2m05s`; none is shown as negative."""
    seconds = max(0, round(time.total_seconds()))
    return f"{seconds // 60}m{seconds % 60:02d}s"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table is built for: the size of the terminal, and what to say below the table."""

    width: int
    height: int
    in_all_namespaces: bool = True
    notice: str = ""
    totals: str = ""


class _Column(NamedTuple):
    title: str
    cell: Callable[[VictimStatus, datetime], str]


_NAMESPACE = _Column("NAMESPACE", lambda victim, _: victim.namespace)
_POD = _Column("POD", lambda victim, _: victim.name)
_CLASS = _Column("CLASS", lambda victim, _: victim.preemption_class)
_PHASE = _Column("PHASE", lambda victim, _: victim.phase)
_LEFT = _Column("TO DEADLINE", _time_left)
_BAR = _Column("", lambda *_: " " * _BAR_WIDTH)
_INITIATOR = _Column("INITIATOR", lambda victim, _: _initiator(victim))
_OUTCOME = _Column("OUTCOME", lambda victim, _: _outcome(victim))
_COLUMNS = (_NAMESPACE, _POD, _CLASS, _PHASE, _BAR, _LEFT, _INITIATOR, _OUTCOME)
_DROPPED_FIRST = (_BAR, _CLASS, _INITIATOR, _OUTCOME)
"""Columns that a narrow terminal does not show. The others are what a user watches for."""
_SHORTENED = (_NAMESPACE, _POD)
_SHORTEST = len("NAMESPACE")
_GAP = 2


def build_table(rows: Iterable[VictimRow], now: datetime, layout: TableLayout) -> Table:
    """Return a table of the victims with the nearest deadlines first, as many as fit.

    The phase and the time left are never shortened: on a narrow terminal, other columns are left
    out, then names are shortened.
    """
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    ordered = sorted((row.victim for row in rows), key=lambda victim: _urgency(victim, now))
    shown = ordered[: max(1, layout.height - _FRAME_LINES)]
    widths = _fit(shown, now, layout)
    for column, width in widths.items():
        table.add_column(column.title, no_wrap=True, width=width, overflow="ellipsis")
    for victim in shown:
        table.add_row(*(_cell(column, victim, now) for column in widths))
    captions = [text for text in (layout.totals, layout.notice) if text]
    if not ordered:
        captions.insert(0, "no victims")
    elif len(ordered) > len(shown):
        captions.insert(0, f"and {len(ordered) - len(shown)} more")
    # An error of the API server may hold square brackets, which `rich` reads as markup.
    table.caption = escape("\n".join(captions)) or None
    table.caption_justify = "left"
    return table


def _fit(victims: Sequence[VictimStatus], now: datetime, layout: TableLayout) -> dict[_Column, int]:
    """Return the columns that fit, with their widths."""
    columns = [each for each in _COLUMNS if layout.in_all_namespaces or each is not _NAMESPACE]
    widths = {
        column: max(len(column.title), *(len(_content(column, each, now)) for each in victims), 0)
        for column in columns
    }

    def excess() -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - layout.width

    for column in _DROPPED_FIRST:
        if excess() > 0:
            del widths[column]
    for column in _SHORTENED:
        if column in widths:
            widths[column] = max(min(_SHORTEST, widths[column]), widths[column] - max(0, excess()))
    return widths


def _cell(column: _Column, victim: VictimStatus, now: datetime) -> Text | ProgressBar | str:
    if column is _PHASE:
        is_known = victim.phase in tuple(Phase)
        colour = _COLOURS.get(Phase(victim.phase), "") if is_known else ""
        return Text(_content(column, victim, now), style=colour)
    return _bar(victim, now) if column is _BAR else Text(_content(column, victim, now))


def _content(column: _Column, victim: VictimStatus, now: datetime) -> str:
    """Return the text of a cell; `rich` prints most control characters as they are."""
    return printable(column.cell(victim, now))


def _bar(victim: VictimStatus, now: datetime) -> ProgressBar | str:
    span = _time_span(victim)
    if span is None:
        return ""
    begun, deadline = span
    total = max(1.0, (deadline - begun).total_seconds())
    return ProgressBar(
        total=total, completed=min(total, max(0.0, (now - begun).total_seconds())), width=_BAR_WIDTH
    )


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
