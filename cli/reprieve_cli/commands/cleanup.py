"""`reprieve cleanup`: before uninstalling, take away what would hold or mislead anybody once nobody looks after it.

Marks and states of victims, our finalizer, gang gates, and what is kept on owners; Jobs that we suspended run again. What a pod says of itself (its
class, its checkpoint annotations) is its author's, a mark that somebody else has set in Koordinator's dialect is theirs, and what a replacement was told
on its way is its own: all of that stays. Bare pods that wait to be made anew are somebody's work: they are named, and nothing of theirs is removed.
"""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import click
from rich.console import Console

from reprieve_cli.cluster.connection import (
    EXIT_FAILED,
    ClusterTarget,
    cluster_options,
    describe_error,
    run,
)
from reprieve_cli.cluster.suspended_jobs import SuspendedJob
from reprieve_cli.output.finding import printable
from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import ObjectMeta, annotations_of, labels_of
from reprieve_policy.kube.owners import LEDGER_KINDS
from reprieve_policy.lifecycle import mark
from reprieve_runtime.client.api import (
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Api,
    ApiError,
    PartialObjectMetadata,
)
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.lease import Lease

_NOT_FOUND = 404
_LABELS = (keys.SOFT_EVICTION, keys.GANG_GATE_LABEL)
_ANNOTATIONS = (
    keys.EVICTION,
    keys.EVICTION_REQUEST,
    keys.PREEMPTOR,
    keys.CHECKPOINT_REQUEST,
    keys.CHECKPOINT_ANSWER,
)
_OWNER_LABELS = (keys.LEDGER, keys.SUSPENDED)
_OWNER_ANNOTATIONS = (keys.LEDGER, keys.LAST_CHECKPOINT_AT, keys.SUSPENDED)
_JOB = "Job"
_CLOCK_SKEW = timedelta(seconds=30)
"""What this machine's clock may be off by from the operator's."""

Patch = dict[str, Any]


class _OperatorLocation(NamedTuple):
    """Where the operator runs, and its Lease there."""

    namespace: str
    lease: str


class _CleanupPatch(NamedTuple):
    """What is left on one object: where it is, what it is called, what takes it away."""

    path: str
    name: str
    patch: Patch
    content_type: str


@click.command(short_help="Remove every trace before uninstalling.")
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Say what would be removed, change nothing."
)
@click.option("--force", is_flag=True, help="Although the operator is running.")
@click.option(
    "--operator-namespace",
    default="reprieve-system",
    show_default=True,
    help="Where the operator runs.",
)
@click.option(
    "--lease", default="reprieve-operator", show_default=True, help="The operator's Lease."
)
@cluster_options(everywhere=True)
def command(
    target: ClusterTarget, *, is_dry_run: bool, force: bool, operator_namespace: str, lease: str
) -> None:
    """Remove marks, states, finalizers, gang gates, ledgers and times that Reprieve has left on pods and their owners.

    Stop the operator first, and remove the webhook configurations and policies afterwards (kubectl delete -k). A victim
    whose state is removed stays as it is. Pods that are still to be made anew are named: they are kept where the operator
    runs, and go with that namespace. Needs the rights to update pods and their owners, to list that namespace's
    controllerrevisions, and "cancel" and "report" on softevictions.reprieve.dev.
    """
    home = _OperatorLocation(operator_namespace, lease)
    run(target, partial(_cleanup, target=target, home=home, is_dry_run=is_dry_run, force=force))


def build_pod_patch(metadata: ObjectMeta) -> Patch | None:
    """Return what takes every trace from a pod, as a strategic merge patch; `None` where it has none."""
    is_marked_by_us = mark.is_written_by_reprieve(annotations_of(metadata))
    # Without this, an operator that is installed again would find the mark, and evict.
    ours = (*_ANNOTATIONS, keys.KOORDINATOR_SOFT_EVICTION) if is_marked_by_us else _ANNOTATIONS
    changes = _removals(metadata, _LABELS, ours)
    if keys.CLEANUP_FINALIZER in (metadata.finalizers or ()):
        changes["$deleteFromPrimitiveList/finalizers"] = [keys.CLEANUP_FINALIZER]
    if not changes:
        return None
    # Without the uid, a pod that took the name meanwhile would be patched.
    patch: Patch = {"metadata": {"uid": metadata.uid, **changes}}
    if keys.GANG_GATE_LABEL in labels_of(metadata):
        patch["spec"] = {"schedulingGates": [{"$patch": "delete", "name": keys.GANG_GATE}]}
    return patch


def build_owner_patch(metadata: ObjectMeta) -> Patch | None:
    """Return what takes every trace from an owner, as a merge patch; `None` where it has none."""
    changes = _removals(metadata, _OWNER_LABELS, _OWNER_ANNOTATIONS)
    return {"metadata": {"uid": metadata.uid, **changes}} if changes else None


def build_job_patch(job: SuspendedJob, now: datetime) -> Patch | None:
    """Return the same for a Job with our label: we have suspended it, and nobody else would resume it.

    As it was looked at. Without this, one that somebody suspends at this moment would run.
    """
    patch = build_owner_patch(job.metadata)
    if patch is not None and job.is_suspended_by_reprieve(now):
        patch["metadata"]["resourceVersion"] = job.metadata.resourceVersion
        patch["spec"] = {"suspend": False}
    return patch


def _removals(metadata: ObjectMeta, labels: Iterable[str], annotations: Iterable[str]) -> Patch:
    """Return what takes those of the labels and annotations away that are there."""
    found = {
        "labels": dict.fromkeys(key for key in labels if key in labels_of(metadata)),
        "annotations": dict.fromkeys(key for key in annotations if key in annotations_of(metadata)),
    }
    return {part: entries for part, entries in found.items() if entries}


async def _cleanup(
    api: Api, *, target: ClusterTarget, home: _OperatorLocation, is_dry_run: bool, force: bool
) -> int:
    holder = await _lease_holder(api, object_path("leases", *home))
    if holder and not force:
        click.echo(
            f"reprieve: the operator is running ({holder} holds its lease) and would go on: "
            "stop it first, or give --force",
            err=True,
        )
        return EXIT_FAILED
    failures = 0
    # Shown on a terminal only.
    with Console(stderr=True).status("looking at pods and their owners"):
        async for trace in _cleanup_patches(api, target.namespace):
            failures += not await _apply(api, trace, is_dry_run=is_dry_run)
    await _warn_of_pending_bare_pods(api, home.namespace, target.namespace)
    return int(failures > 0)


async def _warn_of_pending_bare_pods(api: Api, home: str, namespace: str | None) -> None:
    """Name the bare pods that are to be made anew: without this, their manifests would go with the operator's namespace unseen."""
    selector = keys.BARE_POD if namespace is None else f"{keys.BARE_POD}={namespace}"
    async for kept in _list_metadata(
        api, object_path("controllerrevisions", home), labelSelector=selector
    ):
        whose = (
            f"{labels_of(kept)[keys.BARE_POD]}/pod/{annotations_of(kept).get(keys.BARE_POD, '')}"
        )
        where = f"controllerrevision/{kept.name} in namespace {home}"
        click.echo(
            printable(f"{whose} waits to be made anew: its manifest is only in {where}"), err=True
        )


async def _lease_holder(api: Api, lease: str) -> str:
    """Return who leads now, empty where nobody does."""
    try:
        spec = (await api.get(lease, Lease)).spec
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        return ""
    renewed = timestamp.parse(spec.renewTime)
    if not spec.holderIdentity or renewed is None:
        return ""
    until = renewed + timedelta(seconds=spec.leaseDurationSeconds or 0) + _CLOCK_SKEW
    return spec.holderIdentity if datetime.now(UTC) < until else ""


async def _cleanup_patches(api: Api, namespace: str | None) -> AsyncIterator[_CleanupPatch]:
    async for pod in _list_metadata(api, object_path("pods", namespace)):
        patch = build_pod_patch(pod)
        if patch is not None:
            yield _cleanup_patch("pods", "pod", pod, patch)
    # All of them, not only those with a label of ours: that of a ledger goes with the ledger, and a time may be left.
    for kind, owner in LEDGER_KINDS.items():
        async for found in _list_metadata(api, object_path(owner.resource, namespace)):
            is_held = kind == _JOB and keys.SUSPENDED in labels_of(found)
            patch = await _read_job_patch(api, found) if is_held else build_owner_patch(found)
            if patch is not None:
                yield _cleanup_patch(owner.resource, kind, found, patch)


async def _read_job_patch(api: Api, metadata: ObjectMeta) -> Patch | None:
    """Return the patch for a Job with our label, as it is now; `None` where it is gone."""
    try:
        job = await api.get(object_path("jobs", metadata.namespace, metadata.name), SuspendedJob)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return build_job_patch(job, datetime.now(UTC))


async def _list_metadata(api: Api, path: str, **params: str) -> AsyncIterator[ObjectMeta]:
    """Yield the metadata of a collection; nothing of a kind that the cluster does not have."""
    try:
        async for page, _ in api.list_pages(
            path, PartialObjectMetadata, params=params, metadata_only=True
        ):
            for found in page:
                yield found.metadata
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise


async def _apply(api: Api, patch: _CleanupPatch, *, is_dry_run: bool) -> bool:
    try:
        params = {"dryRun": "All"} if is_dry_run else None
        await api.patch(
            patch.path, patch.patch, dict, content_type=patch.content_type, params=params
        )
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return True
        click.echo(f"{patch.name}: {describe_error(error)}", err=True)
        return False
    click.echo(f"{patch.name} cleaned{' (dry run)' if is_dry_run else ''}")
    return True


def _cleanup_patch(resource: str, kind: str, metadata: ObjectMeta, patch: Patch) -> _CleanupPatch:
    path = object_path(resource, metadata.namespace, metadata.name)
    # A custom resource takes no strategic merge patch, and an owner needs none.
    content_type = STRATEGIC_MERGE_PATCH if resource == "pods" else MERGE_PATCH
    return _CleanupPatch(
        path, f"{metadata.namespace}/{kind.lower()}/{metadata.name}", patch, content_type
    )
