"""`reprieve evict`: evict pods with notice.

It sets the mark that schedulers set, and needs the same right.
"""

from dataclasses import dataclass
from functools import partial

import click

from reprieve_cli.cluster import installation, marking
from reprieve_cli.cluster.connection import EXIT_FAILED, ClusterTarget, cluster_options, run
from reprieve_cli.cluster.named_pods import NotFound, find_pods
from reprieve_cli.names import LabelSelectorType, PodSubjectType
from reprieve_cli.output.terminal import echo
from reprieve_policy import keys
from reprieve_policy.kube.pods import Pod, has_ended
from reprieve_policy.lifecycle import mark
from reprieve_runtime.client.api import Api, PartialObjectMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictOptions:
    """The options of the command line; click fills them by these names."""

    subjects: tuple[str, ...]
    selector: str | None
    wait_options: marking.WaitOptions
    is_dry_run: bool


@click.command(short_help="Evict pods softly: they may save a checkpoint first.")
@click.argument("subjects", type=PodSubjectType(), nargs=-1, metavar="[POD | KIND/NAME]...")
@click.option("-l", "--selector", type=LabelSelectorType(), help="Label selector of the pods.")
@marking.wait_options
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Let the API server check it; change nothing."
)
@cluster_options()
def command(target: ClusterTarget, **arguments: object) -> None:
    """Evict pods softly: each is notified, gets time to save a checkpoint, and is then deleted.

    POD is the name of a pod. KIND/NAME is pod/NAME, or all pods that job/NAME, statefulset/NAME,
    replicaset/NAME or deployment/NAME controls. Needs the right to delete the pods, and for a
    Deployment to list replicasets. To cancel, use reprieve cancel.

    Exit status: 0 the pods are marked (with --wait: gone); 1 a pod is not, or has already ended; 2
    the command failed.
    """
    options = EvictOptions(**arguments)  # type: ignore[arg-type]  # click's names are its fields
    if bool(options.subjects) == (options.selector is not None):
        raise click.UsageError("pass either pods or a selector (-l)")
    if target.namespace is None and options.subjects:
        raise click.UsageError("-A needs a selector (-l)")
    run(target, partial(_evict, target=target, options=options))


async def _evict(api: Api, *, target: ClusterTarget, options: EvictOptions) -> int:
    try:
        pods = await find_pods(api, target.namespace, options.subjects, options.selector)
    except NotFound as error:
        echo(f"reprieve: {error}", err=True)
        return EXIT_FAILED
    if not pods:
        echo("no pods match", err=True)
        return 0
    found = await installation.read(api)
    if found.is_absent:
        echo(
            "reprieve: Reprieve is not installed in this cluster, or under other names: no pod is "
            "marked, because no operator would act on it",
            err=True,
        )
        return EXIT_FAILED
    marked = [each for pod in pods if (each := await _mark(api, pod, options)) is not None]
    remaining = len(pods) - len(marked)
    if options.wait_options.enabled and not options.is_dry_run:
        if found.has_no_leader:
            echo(
                "no operator is running: the pods are evicted when one starts "
                f"(kubectl get pods -n {found.namespace})",
                err=True,
            )
        remaining += await marking.wait(api, target.namespace, marked, options.wait_options)
    return int(remaining > 0)


async def _mark(api: Api, found: Pod, options: EvictOptions) -> PartialObjectMetadata | None:
    """Mark a pod, and return it if it is a victim now."""
    pod = PartialObjectMetadata(metadata=found.metadata)
    name = f"pod/{found.metadata.name}"
    if has_ended(found):
        echo(f"{name} has already ended ({found.status.phase}): not evicted", err=True)
        return None
    wanted = {"labels": {keys.SOFT_EVICTION: mark.REQUESTED}}
    is_set = await marking.set_mark(api, pod, wanted, name, is_dry_run=options.is_dry_run)
    return pod if is_set else None
