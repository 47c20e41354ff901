"""`reprieve evict`: ask that pods go, with notice. It sets the mark that any scheduler may set, and needs the same right."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import click

from reprieve_cli.cluster import marking, victims
from reprieve_cli.cluster.connection import EXIT_FAILED, ClusterTarget, cluster_options, run
from reprieve_cli.cluster.named_pods import NotFound, find_pods
from reprieve_cli.cluster.victim_table import build_line
from reprieve_policy import keys
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_runtime.client.api import Api, PartialObjectMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictOptions:
    """What is asked for."""

    subjects: tuple[str, ...]
    selector: str | None
    patience: marking.WaitOptions
    is_dry_run: bool


@click.command(short_help="Ask pods to save their work and go.")
@click.argument("subjects", nargs=-1, metavar="[POD | KIND/NAME]...")
@click.option("-l", "--selector", help="Label selector of the pods.")
@marking.wait_options
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Have the API server check it, change nothing."
)
@cluster_options()
def command(target: ClusterTarget, **options: object) -> None:
    """Mark pods for a soft eviction: each is told, given time to save a checkpoint, and deleted.

    POD is a pod's name; KIND/NAME is pod/NAME, or all pods of job/NAME, statefulset/NAME, replicaset/NAME or
    deployment/NAME. Needs the right to delete the pods, as any mark does. To take it back, remove the label
    reprieve.dev/soft-eviction.
    """
    order = EvictOptions(**options)  # type: ignore[arg-type]  # click fills it by these names
    if bool(order.subjects) == bool(order.selector):
        raise click.UsageError("name pods or give a selector, one of both")
    if target.namespace is None and order.subjects:
        raise click.UsageError("-A goes with a selector only")
    run(target, partial(_evict, target=target, order=order))


async def _evict(api: Api, *, target: ClusterTarget, order: EvictOptions) -> int:
    try:
        pods = await find_pods(api, target.namespace, order.subjects, order.selector)
    except NotFound as error:
        click.echo(f"reprieve: {error}", err=True)
        return EXIT_FAILED
    if not pods:
        click.echo("no such pods", err=True)
        return 0
    marked = [pod for pod in pods if await _mark(api, pod, is_dry_run=order.is_dry_run)]
    remaining = len(pods) - len(marked)
    if order.patience.enabled and not order.is_dry_run:
        remaining += await marking.wait(api, target.namespace, marked, order.patience)
    return int(remaining > 0)


async def _mark(api: Api, pod: PartialObjectMetadata, *, is_dry_run: bool) -> bool:
    victim = victims.read(pod)
    name = f"pod/{victim.name}"
    # One that was reprieved was refused to a scheduler, not to a person.
    is_reprieved = victim.phase == Phase.REPRIEVED
    if victim.state is not None and not victim.is_finished and not is_reprieved:
        click.echo(f"{name} is already on its way ({build_line(victim, datetime.now(UTC))})")
        return True
    labels = {keys.SOFT_EVICTION: mark.REQUESTED}
    return await marking.set_mark(api, pod, {"labels": labels}, name, is_dry_run=is_dry_run)
