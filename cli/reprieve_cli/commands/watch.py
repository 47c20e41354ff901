"""`reprieve watch`: victims and their progress, as a live table or as a line for each change."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import click
from rich.console import Console
from rich.live import Live

from reprieve_cli.cluster import victims
from reprieve_cli.cluster.connection import ClusterTarget, cluster_options, describe_error, run
from reprieve_cli.cluster.victim_table import TableLayout, VictimRow, build_line, build_table
from reprieve_cli.cluster.victims import VictimStatus
from reprieve_cli.output.finding import printable
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import Api, ApiError

_REFRESH_SECONDS = 0.25
_LINGER = timedelta(seconds=10)
"""How long the table shows a finished victim: long enough to read it."""

Formatter = Callable[[VictimStatus, datetime], str]


@click.command(short_help="Show victims and their progress.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one object a line.",
)
@click.option("--once", is_flag=True, help="Show the current victims and exit.")
@cluster_options()
def command(target: ClusterTarget, *, output: str, once: bool) -> None:
    """Show each victim: its phase, the time to its deadline, the initiator, and the outcome.

    On a terminal, shows a table that updates itself; elsewhere, and on a terminal that cannot move
    its cursor (TERM=dumb), prints a line for each change.
    Ctrl-C ends it.
    """
    console = Console()
    if output == "text" and can_update(console) and not once:
        run(target, partial(_show_live_table, target=target, console=console))
    show = build_json if output == "json" else build_line
    run(target, partial(_print_changes, target=target, once=once, show=show))


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
    return json.dumps(
        {key: value for key, value in document.items() if value not in ("", None)},
        ensure_ascii=False,
    )


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


async def _print_changes(api: Api, *, target: ClusterTarget, once: bool, show: Formatter) -> int:
    count, interruption = 0, _Interruption()

    def report(error: ApiError | None) -> None:
        was_interrupted = interruption.describe() != ""
        interruption.note(error)
        if was_interrupted != (error is not None):
            click.echo(interruption.describe() or "the API server answers again", err=True)

    async for victim in victims.follow(api, target.namespace, once=once, report=report):
        click.echo(show(victim, datetime.now(UTC)))
        count += 1
    if not count:
        click.echo("no victims", err=True)
    return 0


async def _show_live_table(api: Api, *, target: ClusterTarget, console: Console) -> int:
    rows: dict[str, VictimRow] = {}
    interruption = _Interruption()

    async def collect() -> None:
        async for victim in victims.follow(api, target.namespace, report=interruption.note):
            rows[victim.uid] = VictimRow(victim, datetime.now(UTC))

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
                )
                live.update(build_table(rows.values(), now, layout), refresh=True)
                await asyncio.wait([collecting], timeout=_REFRESH_SECONDS)
    finally:
        collecting.cancel()
    # The task never ends by itself, so it has failed: this raises its error.
    await collecting
    return 0
