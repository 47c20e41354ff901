"""`reprieve explain`: what would happen to a pod that had to go. It reads, and decides with the functions that decide then."""

import json
from datetime import UTC, datetime
from functools import partial

import click

from reprieve_cli.cluster import victims
from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.connection import CANNOT, Target, cluster_options, run
from reprieve_cli.cluster.node_pods import living
from reprieve_cli.cluster.pods import PodContext, Timed
from reprieve_cli.cluster.victim_table import build_line
from reprieve_cli.output.explanation import build_document, build_text
from reprieve_cli.output.finding import printable
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import membership
from reprieve_policy.kube.quota import Quotas
from reprieve_policy.preemption.eviction_preview import Subject, foresee
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Node
from reprieve_policy.preemption.selection.explain import Prospect, foretell
from reprieve_policy.preemption.selection.snapshot import Scene, Tenant
from reprieve_runtime.client.api import Api, ApiError, PartialObject
from reprieve_runtime.client.paths import object_path

_NOT_FOUND = 404


@click.command(short_help="Say what would happen to a pod that had to go.")
@click.argument("pod")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster_options()
def command(target: Target, *, pod: str, output: str) -> None:
    """Say who may preempt a pod, from when, what it would cost, and what would happen, step by step.

    It says what the policy is. A scheduler that does not ask proposes victims by their priority alone.
    """
    if target.namespace is None:
        raise click.UsageError("a pod is in one namespace: -A does not go with it")
    run(target, partial(_explain, namespace=target.namespace, name=pod.removeprefix("pod/"), is_json=output == "json"))


async def _explain(api: Api, *, namespace: str, name: str, is_json: bool) -> int:
    path = object_path("pods", namespace, name)
    try:
        pod = await api.get(path, Timed)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        click.echo(f"reprieve: pod/{name}: not found in namespace {namespace}", err=True)
        return CANNOT
    reader, context, now = ClusterReader(api, namespace, _tell), PodContext(api, _tell), datetime.now(UTC)
    known = await reader.known()
    facts = known.facts_in(namespace, Quotas())
    outlook = foresee(await _subject(context, pod, now), facts, now)
    prospect = await _prospect(api, context, pod, facts, now)
    if is_json:
        click.echo(json.dumps(build_document(prospect, outlook), ensure_ascii=False))
        return 0
    victim = victims.read(PartialObject(metadata=pod.metadata))
    current = "" if victim.state is None or victim.is_over else f"it is a victim now: {build_line(victim, now)}"
    click.echo("\n".join(build_text(f"pod/{name} in namespace {namespace}", prospect, outlook, current)))
    return 0


async def _subject(context: PodContext, pod: Timed, now: datetime) -> Subject:
    found = membership.read(pod.view)
    return Subject(
        view=pod.view,
        metadata=pod.metadata,
        has_started=pod.status.phase != "Pending",
        work=pod.work(await context.walltime_of(pod, now)),
        disruption=await context.mode_of(pod, found),
        native_group=await context.native_group_of(pod, found),
    )


async def _prospect(api: Api, context: PodContext, pod: Timed, facts: Facts, now: datetime) -> Prospect:
    """Return who may preempt the pod: judged with its node, and with its gang wherever that runs."""
    own = await _tenant(context, pod, facts, now)
    node = await context.look(object_path("nodes", None, own.node), Node) if own.node else None
    tenants = [own]
    if own.group is not None:
        others = living(api, own.namespace, {})
        mates = [await _tenant(context, other, facts, now) async for other in others if other.has_room]
        tenants += [mate for mate in mates if mate.group == own.group and mate.uid != own.uid]
    rooms = {} if node is None else {own.node: snapshot_builder.room_of(node)}
    scene = Scene(now=now, rooms=rooms, groups=snapshot_builder.groups_of(tenants), settings=facts.settings)
    return foretell(own, scene)


async def _tenant(context: PodContext, pod: Timed, facts: Facts, now: datetime) -> Tenant:
    native = await context.native_group_of(pod, membership.read(pod.view))
    return snapshot_builder.tenant_of(pod, facts, native=native, job=await context.walltime_of(pod, now), now=now)


def _tell(reason: str) -> None:
    click.echo(f"unreadable: {printable(reason)}", err=True)
