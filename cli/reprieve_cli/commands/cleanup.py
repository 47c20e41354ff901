"""`reprieve cleanup`: remove what Reprieve wrote, before it is uninstalled.

Without this, finalizers and gates would block pods, and marks would mislead another reader. Removes
the marks and states of victims, our finalizer, gang gates and what is kept on owners, and resumes
the Jobs that Reprieve suspended.

These stay: what the author of a pod wrote (its class, its checkpoint annotations), a mark in
Koordinator's dialect that another writer set, and the annotations of replacements. Bare pods that
are still to be recreated are named, and their records stay: they are the only copy.
"""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
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
from reprieve_cli.cluster.installation import LEASE, NAMESPACE, leader_of
from reprieve_cli.names import NamespaceNameType, ObjectNameType
from reprieve_cli.output.terminal import echo
from reprieve_policy import keys
from reprieve_policy.kube.jobs import Job
from reprieve_policy.kube.objects import ObjectMeta, annotations_of, labels_of
from reprieve_policy.kube.owners import LEDGER_KINDS
from reprieve_policy.lifecycle import mark, suspension
from reprieve_policy.lifecycle.suspension import SuspendedJobAction
from reprieve_runtime.client.api import (
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Api,
    ApiError,
    PartialObjectMetadata,
)
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.lease import Lease

_LABELS = (keys.SOFT_EVICTION, keys.GANG_GATE_LABEL)
_ANNOTATIONS = (
    keys.EVICTION,
    keys.PREEMPTOR,
    keys.REFUSED_SINCE,
    keys.CHECKPOINT_REQUEST,
    keys.CHECKPOINT_ANSWER,
    keys.GANG_RELEASED_AT,
)
_OWNER_LABELS = (keys.LEDGER, keys.SUSPENDED)
_OWNER_ANNOTATIONS = (keys.LEDGER, keys.LAST_CHECKPOINT_AT, keys.SUSPENDED)
_POD = "Pod"
_JOB = "Job"

Patch = dict[str, Any]


class _OperatorLocation(NamedTuple):
    """The operator's namespace and its Lease."""

    namespace: str
    lease: str


@click.command(short_help="Remove all that Reprieve wrote, before you uninstall it.")
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Show what would be removed; change nothing."
)
@click.option("--force", is_flag=True, help="Clean up even if the operator is running.")
@click.option(
    "--operator-namespace",
    type=NamespaceNameType(),
    default=NAMESPACE,
    show_default=True,
    help="Namespace of the operator.",
)
@click.option(
    "--lease",
    type=ObjectNameType(),
    default=LEASE,
    show_default=True,
    help="Lease of the operator.",
)
@cluster_options(everywhere=True)
def command(
    target: ClusterTarget, *, is_dry_run: bool, force: bool, operator_namespace: str, lease: str
) -> None:
    """Remove all that Reprieve wrote to pods and their owners.

    That is: marks, states, finalizers, gang gates, ledgers and times.

    Stop the operator first; afterwards remove the webhook configurations and policies (kubectl
    delete -k). A victim whose state is removed stays as it is. Bare pods that are still to be
    recreated are listed: their manifests are in the operator's namespace and are deleted with it.
    Needs the rights to update pods and their owners, to get leases and list controllerrevisions in
    the operator's namespace, and "cancel" and "report" on softevictions.reprieve.dev. With --force,
    leases are not needed.

    Exit status: 0 all is removed; 1 something is left, which is named; 2 the command failed.
    """
    operator = _OperatorLocation(operator_namespace, lease)
    work = partial(_cleanup, target=target, operator=operator, is_dry_run=is_dry_run, force=force)
    run(target, work)


def build_pod_patch(metadata: ObjectMeta) -> Patch | None:
    """Return the strategic merge patch that cleans a pod; `None` if there is nothing to remove."""
    is_marked_by_us = mark.is_written_by_reprieve(annotations_of(metadata))
    # Without this, an operator that is installed again would find the mark and evict the pod.
    ours = (*_ANNOTATIONS, keys.KOORDINATOR_SOFT_EVICTION) if is_marked_by_us else _ANNOTATIONS
    changes = _removals(metadata, _LABELS, ours)
    if keys.CLEANUP_FINALIZER in (metadata.finalizers or ()):
        changes["$deleteFromPrimitiveList/finalizers"] = [keys.CLEANUP_FINALIZER]
    if not changes:
        return None
    # Without the uid, a new pod of the same name would be patched.
    patch: Patch = {"metadata": {"uid": metadata.uid, **changes}}
    if keys.GANG_GATE_LABEL in labels_of(metadata):
        patch["spec"] = {"schedulingGates": [{"$patch": "delete", "name": keys.GANG_GATE}]}
    return patch


def build_owner_patch(metadata: ObjectMeta) -> Patch | None:
    """Return the merge patch that cleans an owner; `None` if there is nothing to remove."""
    changes = _removals(metadata, _OWNER_LABELS, _OWNER_ANNOTATIONS)
    return {"metadata": {"uid": metadata.uid, **changes}} if changes else None


def build_job_patch(job: Job, now: datetime) -> Patch | None:
    """Return the merge patch for a Job with our label; it resumes the Job if Reprieve suspended it.

    The patch holds the resourceVersion that was read: without this, a Job that a user suspends at
    this moment would run.
    """
    patch = build_owner_patch(job.metadata)
    if patch is not None and _is_suspended_by_reprieve(job, now):
        patch["metadata"]["resourceVersion"] = job.metadata.resourceVersion
        patch["spec"] = {"suspend": False}
    return patch


def _is_suspended_by_reprieve(job: Job, now: datetime) -> bool:
    """True if no other client has resumed or suspended the Job since Reprieve suspended it."""
    return suspension.decide(job, now) in (SuspendedJobAction.KEEP, SuspendedJobAction.RESUME)


def _removals(metadata: ObjectMeta, labels: Iterable[str], annotations: Iterable[str]) -> Patch:
    """Return the patch that removes those of the labels and annotations that are set."""
    found = {
        "labels": dict.fromkeys(key for key in labels if key in labels_of(metadata)),
        "annotations": dict.fromkeys(key for key in annotations if key in annotations_of(metadata)),
    }
    return {part: entries for part, entries in found.items() if entries}


async def _cleanup(
    api: Api, *, target: ClusterTarget, operator: _OperatorLocation, is_dry_run: bool, force: bool
) -> int:
    holder = await _lease_holder(api, object_path("leases", *operator), force=force)
    if holder and not force:
        echo(
            f"reprieve: the operator is running ({holder} holds its lease) and would write again: "
            "stop it first, or pass --force",
            err=True,
        )
        if not is_dry_run:
            return EXIT_FAILED
    failures = 0
    # All owners, not only those with a label of ours: the label of a ledger is removed with the
    # ledger, and the time of the last checkpoint may be left.
    resources = {_POD: "pods", **{kind: owner.resource for kind, owner in LEDGER_KINDS.items()}}
    # The status line appears on a terminal only.
    with Console(stderr=True).status("reading pods and their owners"):
        for kind, resource in resources.items():
            failures += await _clean_kind(
                api, target.namespace, resource, kind, is_dry_run=is_dry_run
            )
    try:
        await _warn_of_pending_bare_pods(api, operator.namespace, target.namespace)
    except ApiError as error:
        echo(
            f"controllerrevisions in namespace {operator.namespace}: not all were read: "
            f"{describe_error(error)}",
            err=True,
        )
        failures += 1
    return int(failures > 0)


async def _warn_of_pending_bare_pods(
    api: Api, operator_namespace: str, namespace: str | None
) -> None:
    """Name the bare pods that are still to be recreated; raises `ApiError`.

    Without this, their manifests would be deleted unnoticed with the operator's namespace.
    """
    selector = keys.BARE_POD if namespace is None else f"{keys.BARE_POD}={namespace}"
    async for record in _list_metadata(
        api, object_path("controllerrevisions", operator_namespace), labelSelector=selector
    ):
        pod_name = annotations_of(record).get(keys.BARE_POD, "")
        pod = f"{labels_of(record)[keys.BARE_POD]}/pod/{pod_name}"
        location = f"controllerrevision/{record.name} in namespace {operator_namespace}"
        echo(
            f"{pod} is still to be recreated: its manifest is only in {location}",
            err=True,
        )


async def _lease_holder(api: Api, lease: str, *, force: bool) -> str:
    """Return the identity of the operator that holds the Lease; empty if none does.

    With `force`, also empty if the user may not read the Lease.
    """
    try:
        found = await api.get(lease, Lease)
    except ApiError as error:
        if error.is_not_found or (force and error.is_forbidden):
            return ""
        raise
    return leader_of(found, api.server_time.now()).holder


async def _clean_kind(
    api: Api, namespace: str | None, resource: str, kind: str, *, is_dry_run: bool
) -> int:
    """Clean all objects of a kind; return how many failed, a list that failed counting as one."""
    failures = 0
    try:
        async for found in _list_metadata(api, object_path(resource, namespace)):
            failures += not await _clean(api, resource, kind, found, is_dry_run=is_dry_run)
    except ApiError as error:
        echo(f"{resource}: not all were read, nor cleaned: {describe_error(error)}", err=True)
        failures += 1
    return failures


async def _list_metadata(api: Api, path: str, **params: str) -> AsyncIterator[ObjectMeta]:
    """Yield the metadata of a collection; nothing for a kind that the cluster does not serve."""
    try:
        async for page, _ in api.list_pages(
            path, PartialObjectMetadata, params=params, metadata_only=True
        ):
            for found in page:
                yield found.metadata
    except ApiError as error:
        if not error.is_not_found:
            raise


async def _clean(
    api: Api, resource: str, kind: str, metadata: ObjectMeta, *, is_dry_run: bool
) -> bool:
    """Clean an object; `False` if that failed."""
    name = f"{metadata.namespace}/{kind.lower()}/{metadata.name}"
    path = object_path(resource, metadata.namespace, metadata.name)
    # Custom resources do not support strategic merge patches, and an owner needs none.
    content_type = STRATEGIC_MERGE_PATCH if kind == _POD else MERGE_PATCH
    params = {"dryRun": "All"} if is_dry_run else None
    try:
        patch = await _build_patch(api, path, kind, metadata)
        if patch is None:
            return True
        await api.patch(path, patch, dict, content_type=content_type, params=params)
    except ApiError as error:
        if error.is_not_found:
            return True
        echo(f"{name}: {describe_error(error)}", err=True)
        return False
    echo(f"{name} cleaned{' (dry run)' if is_dry_run else ''}")
    return True


async def _build_patch(api: Api, path: str, kind: str, metadata: ObjectMeta) -> Patch | None:
    """Return the patch that cleans an object; `None` if there is nothing to remove."""
    if kind == _POD:
        return build_pod_patch(metadata)
    if kind == _JOB and keys.SUSPENDED in labels_of(metadata):
        job = await api.get(path, Job)
        return build_job_patch(job, api.server_time.now())
    return build_owner_patch(metadata)
