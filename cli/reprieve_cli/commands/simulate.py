"""`reprieve simulate`: whom a pod, or a gang, would preempt; decided by the functions that the scheduler's extender asks."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.cluster_policy import Known
from reprieve_cli.cluster.connection import CANNOT, Target, fail, run, whole_cluster_options
from reprieve_cli.manifests.unreadable import Unreadable
from reprieve_cli.output.finding import printable
from reprieve_cli.output.progress import Counter
from reprieve_cli.simulation import dump, preemptor
from reprieve_cli.simulation.object_kinds import ROLES, Role
from reprieve_cli.simulation.preemptor import Request
from reprieve_cli.simulation.report import Simulation, build_document, build_text
from reprieve_cli.simulation.snapshot_builder import Stage
from reprieve_policy.kube import timestamp
from reprieve_policy.preemption import selection
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.login import namespace_of_context


class _Moment(click.ParamType[datetime]):
    """A point in time, as Kubernetes writes it."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the moment, aware UTC."""
        moment = timestamp.parse(str(value))
        if moment is None:
            self.fail("must be RFC 3339, like 2026-11-21T12:00:00Z", param, ctx)
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked for."""

    file: str
    nodes: Sequence[str]
    is_json: bool


class _Unread:
    """What could not be read, told as it is found."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, reason: str) -> None:
        self.count += 1
        click.echo(f"unreadable: {printable(reason)}", err=True)


@click.command(short_help="Say whom a pod would preempt, and why not the others.")
@click.option("--preemptor", "file", metavar="FILE", required=True, help="A Pod, a gang's pods, or what makes them.")
@click.option("--from", "files", metavar="FILE", multiple=True, help="A dump of the cluster; may be given again.")
@click.option("--node", "nodes", metavar="NODE", multiple=True, help="Look at this node only; may be given again.")
@click.option("--at", "now", type=_Moment(), help="The moment to judge at; now by default.")
@click.option("-n", "--namespace", help="Namespace of a preemptor that names none.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@whole_cluster_options
def command(
    target: Target,
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
    order = Order(file=file, nodes=nodes, is_json=output == "json")
    moment = now or datetime.now(UTC)
    if files:
        raise SystemExit(_simulate_dump(order, files, moment, namespace or "default"))
    if namespace is None:
        try:
            namespace = namespace_of_context(target.kubeconfig, target.context)
        except ApiError as error:
            fail(error.message)
    run(target, partial(_simulate_cluster, request=_read(file, namespace), order=order, now=moment))


def _simulate_dump(order: Order, files: Sequence[str], now: datetime, namespace: str) -> int:
    stage, unread = Stage(Known(), now), _Unread()
    request = _read(order.file, namespace)
    _tell_missing(dump.read(files, stage, unread.tell), files)
    return _finish(stage, request, order, unread, files)


async def _simulate_cluster(api: Api, *, request: Request, order: Order, now: datetime) -> int:
    unread = _Unread()
    reader = ClusterReader(api, "", unread.tell)
    stage = Stage(await reader.known(), now)
    with Counter("objects read") as counter:
        for role in ROLES:
            if role.path:
                await reader.take_all(role.path, role.decode_as, _taking(role, stage, counter))
    return _finish(stage, request, order, unread)


def _tell_missing(found: Iterable[dump.Missing], files: Sequence[str]) -> None:
    for missing in found:
        click.echo(f"no {missing.kind} in {', '.join(files)}: {missing.consequence}", err=True)


def _taking(role: Role, stage: Stage, counter: Counter) -> Callable[[Any], None]:
    def take(found: Any) -> None:
        role.take(stage, found)
        counter.count()

    return take


def _read(file: str, namespace: str) -> Request:
    try:
        return preemptor.read(file, namespace)
    except Unreadable as error:
        fail(f"{file}: {printable(error.reason)}")


def _finish(stage: Stage, request: Request, order: Order, unread: _Unread, files: Sequence[str] = ()) -> int:
    scene = stage.build()
    if not scene.rooms:
        fail("no nodes: there is nothing to choose from")
    unknown = [node for node in order.nodes if node not in scene.rooms]
    if unknown:
        fail(f"node/{printable(unknown[0])}: not found")
    nodes = tuple(dict.fromkeys(order.nodes)) or tuple(sorted(scene.rooms))
    try:
        guest = preemptor.place(request, stage)
    except Unreadable as error:
        fail(f"{order.file}: {printable(error.reason)}")
    if files:
        _tell_missing(dump.unknown(stage), files)
    misfit = preemptor.misfit(request, stage)
    if misfit:
        click.echo(printable(misfit), err=True)
    decision = selection.decide(guest, scene, nodes)
    found = Simulation(preemptor=guest, scene=scene, nodes=nodes, decision=decision)
    if order.is_json:
        click.echo(json.dumps(build_document(found), ensure_ascii=False))
    else:
        click.echo("\n".join(build_text(found)))
    return CANNOT if unread.count else int(not found.is_of_use)
