"""`reprieve simulate`: which pods a pod or a gang would preempt.

The scheduler extender decides with the same functions.
"""

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
from reprieve_cli.names import NamespaceNameType, refuse_empty
from reprieve_cli.output.progress import ProgressCounter
from reprieve_cli.output.terminal import echo, echo_styled, to_json
from reprieve_cli.simulation import dump, preemptor
from reprieve_cli.simulation.preemptor import PreemptorRequest
from reprieve_cli.simulation.result import Simulation, build_document, build_text
from reprieve_cli.simulation.snapshot_builder import OBJECT_KINDS, ObjectKind, SnapshotBuilder
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import selection
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.login import namespace_of_context


class _TimeType(click.ParamType[datetime]):
    """A point in time in the format of Kubernetes (RFC 3339)."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the time, aware UTC."""
        moment = timestamp.parse(str(value))
        if moment is None:
            self.fail("must be RFC 3339, like 2026-11-21T12:00:00Z", param, ctx)
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of the command line."""

    file: str
    nodes: Sequence[str]
    is_json: bool


class _UnreadableReporter:
    """Prints what could not be read as soon as it is found, and counts it."""

    def __init__(self) -> None:
        self.count = 0

    def report(self, reason: str) -> None:
        self.count += 1
        echo(f"unreadable: {reason}", err=True)


@click.command(short_help="Show which pods a pod would preempt, and why not others.")
@click.option(
    "--preemptor",
    "file",
    metavar="FILE",
    required=True,
    help="A Pod, the pods of a gang, or a workload that makes pods.",
)
@click.option(
    "--from",
    "files",
    metavar="FILE",
    multiple=True,
    callback=refuse_empty,
    help="A dump of the cluster; repeatable.",
)
@click.option(
    "--node",
    "nodes",
    metavar="NODE",
    multiple=True,
    help="Evaluate only this node; repeatable.",
)
@click.option("--at", "now", type=_TimeType(), help="Time of the evaluation; default: now.")
@click.option(
    "-n", "--namespace", type=NamespaceNameType(), help="Namespace of a preemptor that names none."
)
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
    """Show which pods a pod would preempt, on which node, and why not other pods and nodes.

    FILE is YAML or JSON, or - for standard input: a Pod, all pods of a gang, or a Job or another
    workload that makes pods. The command reads the live cluster or, with --from, a dump that
    kubectl wrote:

    \b
        kubectl get nodes,pods,pdb,jobs,ns,pc,cm -A -o json > cluster.json

    It writes nothing. A scheduler that does not call Reprieve chooses victims by priority alone.
    Needs the rights of the ClusterRole reprieve:audit.

    Exit status: 0 the preemptor gets room; 1 it does not; 2 something could not be read.
    """  # noqa: D301 - click does not wrap the paragraph after \b
    options = SimulateOptions(file=file, nodes=nodes, is_json=output == "json")
    moment = now or datetime.now(UTC)
    if files:
        raise SystemExit(_simulate_dump(options, files, moment, namespace or "default"))
    if namespace is None:
        try:
            namespace = namespace_of_context(target.kubeconfig, target.context)
        except ApiError as error:
            fail(error.message)
    run(
        target,
        partial(_simulate_cluster, request=_read(file, namespace), options=options, now=moment),
    )


def _simulate_dump(
    options: SimulateOptions, files: Sequence[str], now: datetime, namespace: str
) -> int:
    builder, unreadable = SnapshotBuilder(ClusterPolicy(), now), _UnreadableReporter()
    request = _read(options.file, namespace)
    _report_missing(dump.read(files, builder, unreadable.report), files)
    return _decide_and_print(builder, request, options, unreadable, files)


async def _simulate_cluster(
    api: Api, *, request: PreemptorRequest, options: SimulateOptions, now: datetime
) -> int:
    unreadable = _UnreadableReporter()
    reader = ClusterReader(api, "", unreadable.report)
    builder = SnapshotBuilder(await reader.read_policy(), now)
    with ProgressCounter("objects read") as counter:
        for object_kind in OBJECT_KINDS:
            if object_kind.path:
                await reader.read_each(
                    object_kind.path,
                    object_kind.decode_as,
                    _add_and_count(object_kind, builder, counter),
                )
    return _decide_and_print(builder, request, options, unreadable)


def _report_missing(kinds: Iterable[dump.MissingKind], files: Sequence[str]) -> None:
    for missing in kinds:
        echo(f"no {missing.kind} in {', '.join(files)}: {missing.consequence}", err=True)


def _add_and_count(
    object_kind: ObjectKind, builder: SnapshotBuilder, counter: ProgressCounter
) -> Callable[[Any], None]:
    def add(decoded: Any) -> None:
        object_kind.add(builder, decoded)
        counter.count()

    return add


def _read(file: str, namespace: str) -> PreemptorRequest:
    try:
        return preemptor.read(file, namespace)
    except Unreadable as error:
        fail(f"{file}: {error.reason}")


def _decide_and_print(
    builder: SnapshotBuilder,
    request: PreemptorRequest,
    options: SimulateOptions,
    unreadable: _UnreadableReporter,
    files: Sequence[str] = (),
) -> int:
    snapshot = builder.build()
    if not snapshot.nodes:
        fail("no nodes: the cluster or the dump has none, or they could not be read")
    unknown = [node for node in options.nodes if node not in snapshot.nodes]
    if unknown:
        fail(f"node/{unknown[0]}: not found")
    nodes = tuple(dict.fromkeys(options.nodes)) or tuple(sorted(snapshot.nodes))
    try:
        pod = preemptor.build_preemptor(request, builder)
    except Unreadable as error:
        fail(f"{options.file}: {error.reason}")
    if files:
        _report_missing(dump.missing_references(builder), files)
    mismatch = preemptor.priority_mismatch(request, builder)
    if mismatch:
        echo(mismatch, err=True)
    decision = selection.decide(pod, snapshot, nodes)
    simulation = Simulation(preemptor=pod, snapshot=snapshot, nodes=nodes, decision=decision)
    if options.is_json:
        echo(to_json(build_document(simulation)))
    else:
        echo_styled(build_text(simulation))
    return EXIT_FAILED if unreadable.count else int(not simulation.has_room)
