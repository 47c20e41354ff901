"""`reprieve watch`: victims and their progress, as a live table or as a line for each change.

With their steps, it shows what the page `/ui` shows of each victim, on a terminal; with `--ui`, all
of the page.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from reprieve_cli.cluster import operator_page, steps, victims
from reprieve_cli.cluster.connection import (
    ClusterTarget,
    cluster_options,
    describe_error,
    fail,
    run,
)
from reprieve_cli.cluster.operator_page import PageError
from reprieve_cli.cluster.steps import VictimStep
from reprieve_cli.cluster.totals import Totals, WorkTimes
from reprieve_cli.cluster.victim_table import (
    TableLayout,
    VictimRow,
    build_line,
    build_step_line,
    build_table,
    build_timeline,
)
from reprieve_cli.cluster.victims import VictimStatus
from reprieve_cli.output.finding import printable
from reprieve_cli.output.terminal import echo, echo_part, to_json
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import Api, ApiError

_REFRESH_SECONDS = 0.25
_PAGE_SECONDS = 5.0
_INTERRUPTED = 130
_LINGER = timedelta(seconds=10)
"""How long the table shows a finished victim: long enough to read it."""


class Form(NamedTuple):
    """How victims and steps are printed."""

    change: Callable[[VictimStatus, datetime], str]
    step: Callable[[VictimStep], str]
    timeline: Callable[[VictimStatus, Sequence[VictimStep], datetime], Iterable[str]]
    has_totals: bool


@click.command(short_help="Show victims and their progress.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one object a line.",
)
@click.option("--once", is_flag=True, help="Show the current victims and exit.")
@click.option(
    "--steps",
    "with_steps",
    is_flag=True,
    help="Show each step of the victims, from Events: what was asked and answered.",
)
@click.option(
    "--ui",
    "ui_url",
    metavar="URL",
    help="Show what the page /ui shows: also gangs, the queue and the last 24 hours. "
    "URL: the leader's port, forwarded to this machine, like https://localhost:8081.",
)
@click.option(
    "--ui-token",
    envvar="REPRIEVE_UI_TOKEN",
    show_envvar=True,
    help="The token for --ui; better in the variable, where other users cannot see it.",
)
@cluster_options()
def command(
    target: ClusterTarget,
    *,
    output: str,
    once: bool,
    with_steps: bool,
    ui_url: str | None,
    ui_token: str | None,
) -> None:
    """Show each victim: its phase, the time to its deadline, the initiator, and the outcome.

    On a terminal, shows a table that updates itself, with the totals of what was saved and lost
    meanwhile; elsewhere, with --steps, and on a terminal that cannot move its cursor (TERM=dumb),
    prints a line for each change, and the totals at the end.
    Ctrl-C ends it.
    """
    console = Console()
    if ui_url is not None:
        if not operator_page.is_forwarded(ui_url):
            raise click.UsageError(
                f"--ui={ui_url}: forward the leader's port and give its address on this machine, "
                "like https://localhost:8081"
            )
        if not ui_token or not (ui_token.isascii() and ui_token.isprintable()):
            raise click.UsageError("--ui needs a token, in the variable REPRIEVE_UI_TOKEN")
        page = _PageRequest(ui_url, ui_token, target.namespace, with_steps, output == "json")
        _show_page(page, console, once=once)
        return
    if output == "text" and can_update(console) and not once and not with_steps:
        run(target, partial(_show_live_table, target=target, console=console))
    form = JSON if output == "json" else TEXT
    if once:
        run(target, partial(_print_current, target=target, form=form, with_steps=with_steps))
    run(target, partial(_print_changes, target=target, form=form, with_steps=with_steps))


def can_update(console: Console) -> bool:
    """True for a terminal that can move its cursor: on another, a live table shows nothing."""
    return console.is_terminal and not console.is_dumb_terminal


def build_json(victim: VictimStatus, now: datetime) -> str:
    """Return one change as one line of JSON, without empty fields; times are RFC 3339."""
    state = victim.state
    document = {
        "at": timestamp.render(now),
        "namespace": victim.namespace,
        "pod": victim.name,
        "uid": victim.uid,
        "phase": victim.phase,
        "preemptionClass": victim.preemption_class,
        **({} if state is None else _state_fields(state)),
    }
    return to_json({key: value for key, value in document.items() if value not in ("", None)})


def build_json_step(step: VictimStep) -> str:
    """Return one step as one line of JSON."""
    document = {
        "at": timestamp.render(step.at),
        "namespace": step.namespace,
        "pod": step.name,
        "uid": step.uid,
        "step": step.reason,
        "note": step.note,
    }
    return to_json(document)


def build_json_timeline(
    victim: VictimStatus, steps: Sequence[VictimStep], now: datetime
) -> Iterator[str]:
    """Yield a victim, then its steps, each as one line of JSON."""
    yield build_json(victim, now)
    yield from map(build_json_step, steps)


TEXT = Form(build_line, build_step_line, build_timeline, has_totals=True)
JSON = Form(build_json, build_json_step, build_json_timeline, has_totals=False)


def _state_fields(state: Eviction) -> dict[str, object]:
    saved = state.checkpoint
    checkpoint = (
        None
        if saved is None
        else {"at": timestamp.render(saved.saved_at), "step": saved.step, "path": saved.path}
    )
    return {
        "evictionId": state.eviction_id,
        "requestedAt": timestamp.render(state.requested_at),
        "deadline": None if state.deadline is None else timestamp.render(state.deadline),
        "attempt": state.attempt or None,
        "initiator": state.initiator,
        "reason": state.reason,
        "cause": state.cause,
        "cost": state.cost and {"hours": state.cost.hours, "device": state.cost.device},
        "refusedOn": state.refused_on,
        "outcome": state.outcome,
        "checkpoint": checkpoint
        and {key: value for key, value in checkpoint.items() if value is not None},
    }


class _Interruption:
    """The time since which the API server has not answered, and why."""

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._reason = ""

    def note(self, error: ApiError | None) -> None:
        """Take an error, or `None` for an answer."""
        if error is None:
            self._since = None
        else:
            self._since = self._since or datetime.now(UTC)
            self._reason = printable(describe_error(error))

    def describe(self) -> str:
        """Return a sentence for users; empty while the API server answers."""
        if self._since is None:
            return ""
        return f"out of date since {self._since:%H:%M:%S}, retrying: {self._reason}"


async def _print_current(api: Api, *, target: ClusterTarget, form: Form, with_steps: bool) -> int:
    found = [victim async for victim in victims.follow(api, target.namespace, once=True)]
    made = await steps.list_steps(api, target.namespace) if found and with_steps else {}
    now = datetime.now(UTC)
    for victim in found:
        timeline = form.timeline(victim, made.get(victim.uid, ()), now)
        for line in timeline if with_steps else [form.change(victim, now)]:
            echo(line)
    if not found:
        echo("no victims", err=True)
    return 0


async def _print_changes(
    api: Api, *, target: ClusterTarget, form: Form, with_steps: bool = False
) -> int:
    interruption, totals = _Interruption(), Totals(datetime.now(UTC))
    times = WorkTimes(api)

    def report(error: ApiError | None) -> None:
        was_interrupted = interruption.describe() != ""
        interruption.note(error)
        if was_interrupted != (error is not None):
            echo(interruption.describe() or "the API server answers again", err=True)

    made = dict(await steps.list_steps(api, target.namespace)) if with_steps else {}

    async def print_victims() -> None:
        earlier = dict(made)
        async for victim in victims.follow(api, target.namespace, report=report):
            now = datetime.now(UTC)
            totals.see(victim, times.since, now)
            times.see(victim)
            for step in earlier.pop(victim.uid, ()):
                echo(form.step(step))
            echo(form.change(victim, now))

    async def print_steps() -> None:
        async for step in steps.follow(api, target.namespace, made):
            echo(form.step(step))

    following = [print_victims(), *([print_steps()] if with_steps else [])]
    tasks = [asyncio.create_task(each) for each in following]
    try:
        # None ends by itself: the first that fails raises its error.
        await asyncio.gather(*tasks)
    finally:
        times.close()
        for task in tasks:
            task.cancel()
        if form.has_totals and totals.ended:
            echo(totals.describe(), err=True)
    return 0


async def _show_live_table(api: Api, *, target: ClusterTarget, console: Console) -> int:
    rows: dict[str, VictimRow] = {}
    interruption, totals = _Interruption(), Totals(datetime.now(UTC))
    times = WorkTimes(api)

    async def collect() -> None:
        async for victim in victims.follow(api, target.namespace, report=interruption.note):
            now = datetime.now(UTC)
            totals.see(victim, times.since, now)
            times.see(victim)
            rows[victim.uid] = VictimRow(victim, now)

    collecting = asyncio.create_task(collect())
    try:
        with Live(console=console, auto_refresh=False) as live:
            while not collecting.done():
                now = datetime.now(UTC)
                for uid, row in tuple(rows.items()):
                    if row.victim.is_finished and now - row.changed_at > _LINGER:
                        del rows[uid]
                layout = TableLayout(
                    console.width,
                    console.height,
                    in_all_namespaces=target.namespace is None,
                    notice=interruption.describe(),
                    totals=totals.describe(),
                )
                live.update(build_table(rows.values(), now, layout), refresh=True)
                await asyncio.wait([collecting], timeout=_REFRESH_SECONDS)
    finally:
        times.close()
        collecting.cancel()
    # The task never ends by itself, so it has failed: this raises its error.
    await collecting
    return 0


class _PageRequest(NamedTuple):
    """The operator's page, and how it is shown."""

    url: str
    token: str
    namespace: str | None
    with_steps: bool
    is_json: bool

    def read(self) -> str:
        """Return what to show: lines of text, or one of JSON."""
        document = operator_page.read(self.url, self.token)
        if self.is_json:
            return to_json(document)
        lines = operator_page.build_lines(document, self.namespace, with_steps=self.with_steps)
        return "\n".join(map(printable, lines))

    def show(self) -> None:
        echo_part(f"{self.read()}\n")


def _show_page(page: _PageRequest, console: Console, *, once: bool) -> None:
    """Print the page once, or again and again; on a terminal in the same place."""
    try:
        if once:
            page.show()
        elif can_update(console) and not page.is_json:
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(Text(page.read()), refresh=True)
                    time.sleep(_PAGE_SECONDS)
        else:
            while True:
                page.show()
                time.sleep(_PAGE_SECONDS)
    except PageError as error:
        fail(str(error))
    except (KeyError, TypeError):
        fail(f"{page.url}: the page lacks what is shown: is the operator of another version?")
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
