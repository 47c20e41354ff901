"""`reprieve reclaim`: return a lent node to its home (document 001, "Elastic Reclamation").

It marks pods, as a scheduler does; the operator does the rest. It does not cordon the node: that
would keep out the pods of the home namespace too.
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
from reprieve_cli.names import ObjectNameType
from reprieve_cli.output.terminal import echo, echo_styled
from reprieve_cli.simulation.reclaim_plan import PlanRow, build_plan, decide_rows
from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta, labels_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.preemption import reclaim
from reprieve_policy.preemption.reclaim import ReclaimAction
from reprieve_policy.verdict import Violation
from reprieve_runtime.client.api import JSON_PATCH, Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_EXIT_DECLINED = 1
_TAINT_EFFECT = "NoSchedule"
"""Pods that already run on the node may stay until they have saved a checkpoint."""

_Taint = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaintedNodeSpec:
    taints: Sequence[_Taint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaintedNode:
    """A node. Its taints stay raw documents, because a patch replaces all of them."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _TaintedNodeSpec = field(default_factory=_TaintedNodeSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimOptions:
    """The options of the command line; click fills them by these names."""

    closes: bool
    wait_options: marking.WaitOptions
    is_dry_run: bool
    is_confirmed: bool


class _CannotReclaim(Exception):  # noqa: N818 - a refusal, not a fault
    """This node cannot be reclaimed, or what decides about it could not be read."""


@click.command(short_help="Evict the pods of other namespaces from a lent node.")
@click.argument("node", type=ObjectNameType(prefix="node/"))
@click.option(
    "--close",
    "closes",
    is_flag=True,
    help="Also taint the node, so that only pods of its home namespace are placed on it.",
)
@marking.wait_options
@click.option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    help="Show the plan and let the API server check it; change nothing.",
)
@click.option("-y", "--yes", "is_confirmed", is_flag=True, help="Do not ask for confirmation.")
@whole_cluster_options
def command(target: ClusterTarget, *, node: str, **arguments: object) -> None:
    """Return NODE to its home, the namespace that its label reprieve.dev/home-namespace names.

    Lists the pods of other namespaces that the policy allows to preempt. After you confirm, they
    are evicted softly: they may save a checkpoint first. Non-preemptible pods stay, and pods that
    are nearly complete may finish. To cancel the eviction of a pod, use reprieve
    cancel.

    Replacements of the evicted pods may be placed on the node again. To prevent that, --close adds
    the taint reprieve.dev/home-namespace=HOME:NoSchedule, which pods of the home namespace must
    tolerate. The node is not cordoned: that would keep out the pods of the home namespace too.
    """
    options = ReclaimOptions(**arguments)  # type: ignore[arg-type]  # click's names are its fields
    run(target, partial(_reclaim, name=node, options=options))


async def _reclaim(api: Api, *, name: str, options: ReclaimOptions) -> int:
    now = datetime.now(UTC)
    try:
        node, home, rows = await _plan(api, name, now)
    except _CannotReclaim as refusal:
        echo(f"reprieve: node/{name}: {refusal}", err=True)
        return EXIT_FAILED
    echo_styled(build_plan(name, home, rows))
    to_evict = [row for row in rows if row.decision.action is ReclaimAction.EVICT]
    if not to_evict and not options.closes:
        return 0
    if not (options.is_confirmed or options.is_dry_run):
        # Only now: without this, a wrong name of a node would be reported as a lack of a terminal.
        if not sys.stdin.isatty():
            raise click.UsageError("stdin is not a terminal: pass --yes or --dry-run")
        if not click.confirm(_question(len(to_evict), closes=options.closes)):
            return _EXIT_DECLINED
    if options.closes:
        await _taint(api, node, home, is_dry_run=options.is_dry_run)
    return await _mark_all(api, to_evict, options, now)


async def _plan(api: Api, name: str, now: datetime) -> tuple[_TaintedNode, str, list[PlanRow]]:
    """Return the node, its home namespace, and the decision about each pod on it."""
    unreadable = list[str]()
    node = await _read_node(api, name)
    policy = await ClusterReader(api, "", unreadable.append).read_policy()
    candidates = await read_candidates(api, PodContext(api, unreadable.append), name, now)
    if unreadable:
        # Without this, a namespace whose policy cannot be read would count as one that protects
        # no pod.
        raise _CannotReclaim("cannot decide which pods may be evicted: " + "; ".join(unreadable))
    home = _home_of(node, policy)
    return node, home, decide_rows(candidates, home, policy, now)


async def _read_node(api: Api, name: str) -> _TaintedNode:
    try:
        return await api.get(object_path("nodes", None, name), _TaintedNode)
    except ApiError as error:
        if not error.is_not_found:
            raise
        raise _CannotReclaim("not found") from error


def _home_of(node: _TaintedNode, policy: ClusterPolicy) -> str:
    taints = [(taint["key"], taint.get("value", "")) for taint in node.spec.taints or ()]
    home = reclaim.home_namespace_of(labels_of(node.metadata), taints)
    if isinstance(home, Violation):
        raise _CannotReclaim(str(home))
    if home not in policy.namespaces:
        # Without this, a typing error in the label would empty the node.
        raise _CannotReclaim(f'its home namespace "{home}" does not exist, or you may not read it')
    return home


def _question(count: int, *, closes: bool) -> str:
    pods = f"{count} pod" if count == 1 else f"{count} pods"
    steps = [f"evict {pods}"] if count else []
    return " and ".join([*steps, *(["taint the node"] if closes else [])]).capitalize() + "?"


async def _taint(api: Api, node: _TaintedNode, home: str, *, is_dry_run: bool) -> None:
    """Taint the node before any pod is evicted; raises `ApiError`.

    Without this, a replacement could be placed on the node before the taint.
    """
    before, name = node.spec.taints, node.metadata.name
    others = [
        taint
        for taint in before or ()
        if (taint["key"], taint["effect"]) != (keys.HOME_NAMESPACE, _TAINT_EFFECT)
    ]
    taints = [*others, {"key": keys.HOME_NAMESPACE, "value": home, "effect": _TAINT_EFFECT}]
    # The patch replaces the list of taints: without the test, it would drop a taint that another
    # client has added meanwhile.
    patch = [
        {"op": op, "path": "/spec/taints", "value": value}
        for op, value in (("test", before), ("add", taints))
    ]
    params = {"dryRun": "All"} if is_dry_run else None
    await api.patch(
        object_path("nodes", None, name), patch, dict, content_type=JSON_PATCH, params=params
    )
    note = " (dry run)" if is_dry_run else ""
    echo(f"node/{name} tainted {keys.HOME_NAMESPACE}={home}:{_TAINT_EFFECT}{note}")


async def _mark_all(
    api: Api, rows: Sequence[PlanRow], options: ReclaimOptions, now: datetime
) -> int:
    pods = [PartialObjectMetadata(metadata=row.candidate.pod.metadata) for row in rows]
    marked = []
    for pod in pods:
        name = f"pod/{pod.metadata.name} in namespace {pod.metadata.namespace}"
        if await marking.set_mark(api, pod, _mark(now), name, is_dry_run=options.is_dry_run):
            marked.append(pod)
    remaining = len(pods) - len(marked)
    if options.wait_options.enabled and not options.is_dry_run:
        remaining += await marking.wait(api, None, marked, options.wait_options)
    return int(remaining > 0)


def _mark(now: datetime) -> Mapping[str, Mapping[str, str]]:
    """Return the mark of a preemption, and the label that the operator's watch selects."""
    return {
        "labels": {keys.SOFT_EVICTION: mark.MARKED},
        "annotations": {keys.KOORDINATOR_SOFT_EVICTION: reclaim.build_mark(now)},
    }
