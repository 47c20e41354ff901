"""`reprieve reclaim`: begin to give a lent node back to the namespace that it belongs to (document 001, "Elastic Reclamation").

It marks, as a scheduler does, and the operator does the rest. The node is not cordoned: that would keep out whom it is for.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import click

from reprieve_cli.cluster import marking
from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_cli.cluster.connection import EXIT_FAILED, ClusterTarget, run, whole_cluster_options
from reprieve_cli.cluster.node_pods import read_candidates
from reprieve_cli.cluster.pods import PodContext
from reprieve_cli.output.finding import printable
from reprieve_cli.simulation.reclaim_plan import PlanRow, build_plan, decide_rows
from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta, labels_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.preemption import reclaim
from reprieve_policy.preemption.reclaim import ReclaimAction
from reprieve_policy.verdict import Violation
from reprieve_runtime.client.api import JSON_PATCH, Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_NOT_FOUND = 404
_EXIT_DECLINED = 1
_TAINT_EFFECT = "NoSchedule"
"""Of the taint: who is there already may stay until it has saved."""


_Taint = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaintedNodeSpec:
    taints: Sequence[_Taint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaintedNode:
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _TaintedNodeSpec = field(default_factory=_TaintedNodeSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimOptions:
    """What is asked for."""

    closes: bool
    patience: marking.WaitOptions
    is_dry_run: bool
    is_confirmed: bool


class _CannotReclaim(Exception):  # noqa: N818 - it reads as what it is
    """This node cannot be given back, or nobody can tell."""


@click.command(short_help="Begin to give a lent node back.")
@click.argument("node")
@click.option(
    "--close",
    "closes",
    is_flag=True,
    help="Taint the node too, so that only its home's pods come back.",
)
@marking.wait_options
@click.option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    help="Show it, have the API server check it, change nothing.",
)
@click.option("-y", "--yes", "is_confirmed", is_flag=True, help="Do not ask.")
@whole_cluster_options
def command(target: ClusterTarget, *, node: str, **options: object) -> None:
    """Begin to give NODE back to its home, the namespace that its label reprieve.dev/home-namespace names.

    Pods of other namespaces that policy lets go are shown and, once you agree, asked to save their work and go. It is a
    preemption: what is non-preemptible stays, what is nearly complete is let finish. To take it back, remove the label
    reprieve.dev/soft-eviction from a pod.

    The node stays open: what replaces those that go may come back to it, unless --close adds the taint
    reprieve.dev/home-namespace=HOME:NoSchedule, which pods of the home must tolerate. It is not cordoned: that would
    keep out whom it is for.
    """
    order = ReclaimOptions(**options)  # type: ignore[arg-type]  # click fills it by these names
    if not (order.is_confirmed or order.is_dry_run or sys.stdin.isatty()):
        raise click.UsageError(
            "nobody can be asked here: give --yes, or --dry-run to see what would happen"
        )
    run(target, partial(_reclaim, name=node.removeprefix("node/"), order=order))


async def _reclaim(api: Api, *, name: str, order: ReclaimOptions) -> int:
    now = datetime.now(UTC)
    try:
        node, home, rows = await _plan(api, name, now)
    except _CannotReclaim as refusal:
        click.echo(f"reprieve: node/{name}: {refusal}", err=True)
        return EXIT_FAILED
    click.echo("\n".join(build_plan(name, home, rows)))
    going = [row for row in rows if row.decision.action is ReclaimAction.GOES]
    if not going and not order.closes:
        return 0
    if not (
        order.is_confirmed
        or order.is_dry_run
        or click.confirm(_question(len(going), closes=order.closes))
    ):
        return _EXIT_DECLINED
    if order.closes:
        await _taint(api, node, home, is_dry_run=order.is_dry_run)
    return await _mark_all(api, going, order, now)


async def _plan(api: Api, name: str, now: datetime) -> tuple[_TaintedNode, str, list[PlanRow]]:
    """Return the node, whose it is, and what becomes of each pod on it."""
    unread = list[str]()
    node = await _read_node(api, name)
    known = await ClusterReader(api, "", unread.append).read_policy()
    parties = await read_candidates(api, PodContext(api, unread.append), name, now)
    if unread:
        # Without this, a namespace whose policy cannot be read would count as one that protects nobody.
        raise _CannotReclaim(
            "not all that decides who may go could be read: " + "; ".join(map(printable, unread))
        )
    home = _home_of(node, known)
    return node, home, decide_rows(parties, home, known, now)


async def _read_node(api: Api, name: str) -> _TaintedNode:
    try:
        return await api.get(object_path("nodes", None, name), _TaintedNode)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        raise _CannotReclaim("not found") from error


def _home_of(node: _TaintedNode, known: ClusterPolicy) -> str:
    taints = [(taint["key"], taint.get("value", "")) for taint in node.spec.taints or ()]
    home = reclaim.home_namespace_of(labels_of(node.metadata), taints)
    if isinstance(home, Violation):
        raise _CannotReclaim(str(home))
    if home not in known.namespaces:
        # A slip of the pen must not empty the node.
        raise _CannotReclaim(
            f'it belongs to namespace "{printable(home)}", which is not there, or may not be read'
        )
    return home


def _question(count: int, *, closes: bool) -> str:
    pods = f"{count} pod" if count == 1 else f"{count} pods"
    asks = [f"ask {pods} to go"] if count else []
    return " and ".join([*asks, *(["taint the node"] if closes else [])]).capitalize() + "?"


async def _taint(api: Api, node: _TaintedNode, home: str, *, is_dry_run: bool) -> None:
    """Taint the node, before anybody goes: without this, a replacement could be faster. Raises `ApiError`."""
    before, name = node.spec.taints, node.metadata.name
    others = [
        taint
        for taint in before or ()
        if (taint["key"], taint["effect"]) != (keys.HOME_NAMESPACE, _TAINT_EFFECT)
    ]
    taints = [*others, {"key": keys.HOME_NAMESPACE, "value": home, "effect": _TAINT_EFFECT}]
    # A list of taints is written whole: without the test, one that somebody else has added meanwhile would be lost.
    patch = [
        {"op": op, "path": "/spec/taints", "value": value}
        for op, value in (("test", before), ("add", taints))
    ]
    params = {"dryRun": "All"} if is_dry_run else None
    await api.patch(
        object_path("nodes", None, name), patch, dict, content_type=JSON_PATCH, params=params
    )
    click.echo(
        f"node/{name} tainted {keys.HOME_NAMESPACE}={home}:{_TAINT_EFFECT}{' (dry run)' if is_dry_run else ''}"
    )


async def _mark_all(
    api: Api, going: Sequence[PlanRow], order: ReclaimOptions, now: datetime
) -> int:
    pods = [PartialObjectMetadata(metadata=row.candidate.pod.metadata) for row in going]
    marked = []
    for pod in pods:
        name = f"pod/{pod.metadata.name} in namespace {pod.metadata.namespace}"
        if await marking.set_mark(api, pod, _mark(now), name, is_dry_run=order.is_dry_run):
            marked.append(pod)
    remaining = len(pods) - len(marked)
    if order.patience.enabled and not order.is_dry_run:
        remaining += await marking.wait(api, None, marked, order.patience)
    return int(remaining > 0)


def _mark(now: datetime) -> Mapping[str, Mapping[str, str]]:
    """Return the mark of a preemption, and the label by which the operator sees it at once."""
    return {
        "labels": {keys.SOFT_EVICTION: mark.MARKED},
        "annotations": {keys.KOORDINATOR_SOFT_EVICTION: reclaim.build_mark(now)},
    }
