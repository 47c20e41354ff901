"""`reprieve evict`: evict pods with notice.

It sets the mark that schedulers set, and needs the same right.
"""

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
    """The options of the command line; click fills them by these names."""

    subjects: tuple[str, ...]
    selector: str | None
    wait_options: marking.WaitOptions
    is_dry_run: bool


@click.command(short_help="Evict pods softly: they may save a checkpoint first.")
@click.argument("subjects", nargs=-1, metavar="[POD | KIND/NAME]...")
@click.option("-l", "--selector", help="Label selector of the pods.")
@marking.wait_options
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Let the API server check it; change nothing."
)
@cluster_options()
def command(target: ClusterTarget, **arguments: object) -> None:
    """Evict pods softly: each is notified, gets time to save a checkpoint, and is then deleted.

    POD is the name of a pod. KIND/NAME is pod/NAME, or all pods of job/NAME, statefulset/NAME,
    replicaset/NAME or deployment/NAME. Needs the right to delete the pods. To cancel, remove the
    label reprieve.dev/soft-eviction.
    """
    options = EvictOptions(**arguments)  # type: ignore[arg-type]  # click's names are its fields
    if bool(options.subjects) == bool(options.selector):
        raise click.UsageError("pass either pods or a selector (-l)")
    if target.namespace is None and options.subjects:
        raise click.UsageError("-A needs a selector (-l)")
    run(target, partial(_evict, target=target, options=options))


async def _evict(api: Api, *, target: ClusterTarget, options: EvictOptions) -> int:
    try:
        pods = await find_pods(api, target.namespace, options.subjects, options.selector)
    except NotFound as error:
        click.echo(f"reprieve: {error}", err=True)
        return EXIT_FAILED
    if not pods:
        click.echo("no pods match", err=True)
        return 0
    marked = [pod for pod in pods if await _mark(api, pod, is_dry_run=options.is_dry_run)]
    remaining = len(pods) - len(marked)
    if options.wait_options.enabled and not options.is_dry_run:
        remaining += await marking.wait(api, target.namespace, marked, options.wait_options)
    return int(remaining > 0)


async def _mark(api: Api, pod: PartialObjectMetadata, *, is_dry_run: bool) -> bool:
    victim = victims.read(pod)
    name = f"pod/{victim.name}"
    # A reprieve refuses a scheduler's request; a user may still evict the pod.
    is_reprieved = victim.phase == Phase.REPRIEVED
    if victim.state is not None and not victim.is_finished and not is_reprieved:
        click.echo(f"{name} is already being evicted ({build_line(victim, datetime.now(UTC))})")
        return True
    labels = {keys.SOFT_EVICTION: mark.REQUESTED}
    return await marking.set_mark(api, pod, {"labels": labels}, name, is_dry_run=is_dry_run)
