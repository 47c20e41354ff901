"""`reprieve cancel`: take soft evictions back.

It removes the marks of all dialects. The operator sees that, and tells the workload.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from reprieve_cli.cluster import victims
from reprieve_cli.cluster.connection import (
    EXIT_FAILED,
    ClusterTarget,
    cluster_options,
    describe_error,
    run,
)
from reprieve_cli.cluster.named_pods import NotFound, find_pods, names_of_pods
from reprieve_cli.cluster.victim_table import build_line
from reprieve_cli.names import LabelSelectorType, PodSubjectType
from reprieve_cli.output.terminal import echo
from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta, annotations_of, labels_of
from reprieve_policy.kube.pods import Pod
from reprieve_policy.lifecycle import mark
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_LABELS = (keys.SOFT_EVICTION, keys.KOORDINATOR_SOFT_EVICTION)
_ANNOTATIONS = (keys.KOORDINATOR_SOFT_EVICTION,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOptions:
    """The options of the command line; click fills them by these names."""

    subjects: tuple[str, ...]
    selector: str | None
    is_dry_run: bool


@click.command(short_help="Cancel soft evictions: the pods stay.")
@click.argument("subjects", type=PodSubjectType(), nargs=-1, metavar="[POD | KIND/NAME]...")
@click.option("-l", "--selector", type=LabelSelectorType(), help="Label selector of the pods.")
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Let the API server check it; change nothing."
)
@cluster_options()
def command(target: ClusterTarget, **arguments: object) -> None:
    """Cancel soft evictions: removes the marks of the pods, and the workloads learn that they stay.

    POD is the name of a pod. KIND/NAME is pod/NAME, or all victims that job/NAME, statefulset/NAME,
    replicaset/NAME or deployment/NAME controls. A pod that is already being deleted cannot be kept.
    Of a gang that is evicted as a unit, cancelling one pod cancels all, until the last has
    answered. A scheduler or a descheduler may mark the pod again.

    Needs the right to patch the pods, the verb cancel on softevictions.reprieve.dev (ClusterRole
    reprieve:cancel-soft-evictions), and for a Deployment the right to list replicasets.

    Exit status: 0 every victim stays, also if the selector or the workload has none; 1 a pod that
    you named is no victim, or a victim is already being deleted, or its mark could not be removed;
    2 the command failed.
    """
    options = CancelOptions(**arguments)  # type: ignore[arg-type]  # click's names are its fields
    if bool(options.subjects) == (options.selector is not None):
        raise click.UsageError("pass either pods or a selector (-l)")
    if target.namespace is None and options.subjects:
        raise click.UsageError("-A needs a selector (-l)")
    run(target, partial(_cancel, target=target, options=options))


async def _cancel(api: Api, *, target: ClusterTarget, options: CancelOptions) -> int:
    try:
        pods = await find_pods(api, target.namespace, options.subjects, options.selector)
    except NotFound as error:
        echo(f"reprieve: {error}", err=True)
        return EXIT_FAILED
    # A workload or a selector also matches pods that are no victims: leave them out silently.
    named = names_of_pods(options.subjects)
    pods = [pod for pod in pods if pod.metadata.name in named or _is_victim(pod.metadata)]
    if not pods:
        echo("no victims match", err=True)
        return 0
    results = [await _cancel_one(api, pod, is_dry_run=options.is_dry_run) for pod in pods]
    return int(not all(results))


def build_patch(metadata: ObjectMeta) -> dict[str, Any]:
    """Return the merge patch that removes the marks of a pod."""
    found = {
        "labels": dict.fromkeys(key for key in _LABELS if key in labels_of(metadata)),
        "annotations": dict.fromkeys(
            key for key in _ANNOTATIONS if key in annotations_of(metadata)
        ),
    }
    # Without the uid, a new pod of the same name would be patched.
    removals = {part: entries for part, entries in found.items() if entries}
    return {"metadata": {"uid": metadata.uid, **removals}}


def _is_victim(metadata: ObjectMeta) -> bool:
    victim = victims.read(PartialObjectMetadata(metadata=metadata))
    is_labelled = keys.SOFT_EVICTION in labels_of(metadata) and not victim.is_finished
    return is_labelled or mark.is_marked(labels_of(metadata), annotations_of(metadata))


async def _cancel_one(api: Api, pod: Pod, *, is_dry_run: bool) -> bool:
    metadata = pod.metadata
    name = f"pod/{metadata.name}"
    if metadata.deletionTimestamp is not None:
        echo(f"{name} is already being deleted: it cannot be kept", err=True)
        return False
    if not _is_victim(metadata):
        echo(f"{name} is no victim: nothing to cancel", err=True)
        return False
    path = object_path("pods", metadata.namespace, metadata.name)
    try:
        params = {"dryRun": "All"} if is_dry_run else None
        await api.patch(path, build_patch(metadata), dict, params=params)
    except ApiError as error:
        echo(f"{name}: {describe_error(error)}", err=True)
        return False
    victim = victims.read(PartialObjectMetadata(metadata=metadata))
    note = " (dry run)" if is_dry_run else ""
    was = build_line(victim, datetime.now(UTC)).split("  ", 2)[-1]
    echo(f"{name} soft eviction cancelled{note}; it was: {was}")
    return True
