"""`reprieve explain`: what would happen to a pod that had to go. It reads, and decides with the functions that decide then."""

import json
from datetime import UTC, datetime
from functools import partial

import click

from reprieve_policy import gang
from reprieve_policy.outlook import Subject, foresee
from reprieve_runtime.api import Api, ApiError, PartialObject
from reprieve_runtime.paths import object_path

from . import victims
from .cluster import ClusterReader
from .connection import CANNOT, Target, cluster_options, run
from .explanation import build_document, build_text
from .finding import printable
from .pods import PodContext, Timed
from .table import build_line

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
    reader, now = ClusterReader(api, namespace, _tell), datetime.now(UTC)
    facts = (await reader.known()).facts_for(namespace)
    outlook = foresee(await _subject(api, pod, now), facts, now)
    if is_json:
        click.echo(json.dumps(build_document(outlook), ensure_ascii=False))
        return 0
    victim = victims.read(PartialObject(metadata=pod.metadata))
    current = "" if victim.state is None or victim.is_over else f"it is a victim now: {build_line(victim, now)}"
    click.echo("\n".join(build_text(f"pod/{name} in namespace {namespace}", outlook, current)))
    return 0


async def _subject(api: Api, pod: Timed, now: datetime) -> Subject:
    context = PodContext(api, _tell)
    found = gang.read(pod.view)
    return Subject(
        view=pod.view,
        metadata=pod.metadata,
        has_started=pod.status.phase != "Pending",
        scheduled_at=pod.scheduled_at,
        work=pod.work(await context.walltime_of(pod, now)),
        disruption=await context.mode_of(pod, found),
        native_group=await context.native_group_of(pod, found),
    )


def _tell(reason: str) -> None:
    click.echo(f"unreadable: {printable(reason)}", err=True)
