"""`reprieve simulate`: whom a pod, or a gang, would preempt; decided by the functions that the scheduler's extender asks."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_cli.cluster.connection import (
    EXIT_FAILED,
    ClusterTarget,
    fail,
    run,
    whole_cluster_options,
)
from reprieve_cli.manifests.sources import Unreadable
from reprieve_cli.output.finding import printable
from reprieve_cli.output.progress import ProgressCounter
from reprieve_cli.simulation import dump, preemptor
from reprieve_cli.simulation.preemptor import PreemptorRequest
from reprieve_cli.simulation.result import Simulation, build_document, build_text
from reprieve_cli.simulation.snapshot_builder import OBJECT_KINDS, ObjectKind, SnapshotBuilder
from reprieve_policy.kube import timestamp
from reprieve_policy.preemption import selection
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.login import namespace_of_context


class _TimeType(click.ParamType[datetime]):
    """A point in time, as Kubernetes writes it."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the moment, aware UTC."""
        moment = timestamp.parse(str(value))
        if moment is None:
            self.fail("must be RFC 3339, like 2026-11-21T12:00:00Z", param, ctx)
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What is asked for."""

    file: str
    nodes: Sequence[str]
    is_json: bool


class _UnreadableReporter:
    """What could not be read, told as it is found."""

    def __init__(self) -> None:
        self.count = 0

    def report(self, reason: str) -> None:
        self.count += 1
        click.echo(f"unreadable: {printable(reason)}", err=True)


@click.command(short_help="Say whom a pod would preempt, and why not the others.")
@click.option(
    "--preemptor",
    "file",
    metavar="FILE",
    required=True,
    help="A Pod, a gang's pods, or what makes them.",
)
@click.option(
    "--from",
    "files",
    metavar="FILE",
    multiple=True,
    help="A dump of the cluster; may be given again.",
)
@click.option(
    "--node",
    "nodes",
    metavar="NODE",
    multiple=True,
    help="Look at this node only; may be given again.",
)
@click.option("--at", "now", type=_TimeType(), help="The moment to judge at; now by default.")
@click.option("-n", "--namespace", help="Namespace of a preemptor that names none.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@whole_cluster_options
def command(
    target: ClusterTarget,
    *,
    file: str,
    files: Sequence[str],
    nodes: Sequence[str],
    now: datetime | None,
    namespace: str | None,
    output: str,
) -> None:
    """Say which victims would make room for a pod, from which nodes and pods they are chosen, and why not the others.

    FILE is YAML or JSON, or - for standard input: a Pod, all pods of a gang, or a Job or another workload that makes them.
    The cluster is the live one; or, with --from, what kubectl wrote of it:

        kubectl get nodes,pods,poddisruptionbudgets,jobs,namespaces,priorityclasses,configmaps -A -o json > cluster.json

    Nothing is written. A scheduler that does not ask Reprieve chooses by priority alone. Reads with the rights of the
    ClusterRole reprieve:audit.

    Exits with 0 where the preemptor gets room, 1 where it does not, 2 where something could not be read.
    """
    order = SimulateOptions(file=file, nodes=nodes, is_json=output == "json")
    moment = now or datetime.now(UTC)
    if files:
        raise SystemExit(_simulate_dump(order, files, moment, namespace or "default"))
    if namespace is None:
        try:
            namespace = namespace_of_context(target.kubeconfig, target.context)
        except ApiError as error:
            fail(error.message)
    run(target, partial(_simulate_cluster, request=_read(file, namespace), order=order, now=moment))


def _simulate_dump(
    order: SimulateOptions, files: Sequence[str], now: datetime, namespace: str
) -> int:
    stage, unread = SnapshotBuilder(ClusterPolicy(), now), _UnreadableReporter()
    request = _read(order.file, namespace)
    _report_missing(dump.read(files, stage, unread.report), files)
    return _decide_and_print(stage, request, order, unread, files)


async def _simulate_cluster(
    api: Api, *, request: PreemptorRequest, order: SimulateOptions, now: datetime
) -> int:
    unread = _UnreadableReporter()
    reader = ClusterReader(api, "", unread.report)
    stage = SnapshotBuilder(await reader.read_policy(), now)
    with ProgressCounter("objects read") as counter:
        for role in OBJECT_KINDS:
            if role.path:
                await reader.read_each(
                    role.path, role.decode_as, _add_and_count(role, stage, counter)
                )
    return _decide_and_print(stage, request, order, unread)


def _report_missing(found: Iterable[dump.MissingKind], files: Sequence[str]) -> None:
    for missing in found:
        click.echo(f"no {missing.kind} in {', '.join(files)}: {missing.consequence}", err=True)


def _add_and_count(
    object_kind: ObjectKind, cluster_view: SnapshotBuilder, counter: ProgressCounter
) -> Callable[[Any], None]:
    def take(found: Any) -> None:
        object_kind.add(cluster_view, found)
        counter.count()

    return take


def _read(file: str, namespace: str) -> PreemptorRequest:
    try:
        return preemptor.read(file, namespace)
    except Unreadable as error:
        fail(f"{file}: {printable(error.reason)}")


def _decide_and_print(
    cluster_view: SnapshotBuilder,
    request: PreemptorRequest,
    order: SimulateOptions,
    unread: _UnreadableReporter,
    files: Sequence[str] = (),
) -> int:
    scene = cluster_view.build()
    if not scene.nodes:
        fail("no nodes: there is nothing to choose from")
    unknown = [node for node in order.nodes if node not in scene.nodes]
    if unknown:
        fail(f"node/{printable(unknown[0])}: not found")
    nodes = tuple(dict.fromkeys(order.nodes)) or tuple(sorted(scene.nodes))
    try:
        guest = preemptor.build_preemptor(request, cluster_view)
    except Unreadable as error:
        fail(f"{order.file}: {printable(error.reason)}")
    if files:
        _report_missing(dump.missing_references(cluster_view), files)
    misfit = preemptor.priority_mismatch(request, cluster_view)
    if misfit:
        click.echo(printable(misfit), err=True)
    decision = selection.decide(guest, scene, nodes)
    found = Simulation(preemptor=guest, snapshot=scene, nodes=nodes, decision=decision)
    if order.is_json:
        click.echo(json.dumps(build_document(found), ensure_ascii=False))
    else:
        click.echo("\n".join(build_text(found)))
    return EXIT_FAILED if unread.count else int(not found.has_room)
