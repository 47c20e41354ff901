"""`reprieve cleanup`: before uninstalling, take away what would hold or mislead anybody once nobody looks after it.

Marks and states of victims, our finalizer, gang gates, and the ledgers on owners; Jobs that we suspended run again. What a pod says of itself (its class,
its checkpoint annotations) is its author's, and what a replacement was told on its way is its own: both stay.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import click
from rich.console import Console

from reprieve_policy import keys, timestamp
from reprieve_policy.objects import ObjectMeta, annotations_of, labels_of
from reprieve_policy.owners import OWNERS
from reprieve_runtime.api import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Api, ApiError, PartialObject
from reprieve_runtime.lease import Lease
from reprieve_runtime.paths import object_path

from .connection import CANNOT, Target, cluster_options, describe, run

_NOT_FOUND = 404
_LABELS = (keys.SOFT_EVICTION, keys.GANG_GATE_LABEL)
_ANNOTATIONS = (keys.EVICTION, keys.EVICTION_REQUEST, keys.PREEMPTOR, keys.CHECKPOINT_REQUEST, keys.CHECKPOINT_ANSWER)
_SKEW = timedelta(seconds=30)
"""What this machine's clock may be off by from the operator's."""

Patch = dict[str, Any]


class _Trace(NamedTuple):
    """What is left on one object: where it is, what it is called, what takes it away."""

    path: str
    name: str
    patch: Patch
    content_type: str


@click.command(short_help="Remove every trace before uninstalling.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be removed, change nothing.")
@click.option("--force", is_flag=True, help="Although the operator is running.")
@click.option("--operator-namespace", default="reprieve-system", show_default=True, help="Where the operator runs.")
@click.option("--lease", default="reprieve-operator", show_default=True, help="The operator's Lease.")
@cluster_options(everywhere=True)
def command(target: Target, *, is_dry_run: bool, force: bool, operator_namespace: str, lease: str) -> None:
    """Remove marks, states, finalizers, gang gates and ledgers that Reprieve has left on pods and their owners.

    Stop the operator first, and remove the webhook configurations and policies afterwards (kubectl delete -k). A victim
    whose state is removed stays as it is. Needs the rights to update pods and their owners, and "cancel" and "report" on
    softevictions.reprieve.dev.
    """
    path = object_path("leases", operator_namespace, lease)
    run(target, partial(_clean, target=target, lease=path, is_dry_run=is_dry_run, force=force))


def build_pod_patch(metadata: ObjectMeta) -> Patch | None:
    """Return what takes every trace from a pod, as a strategic merge patch; `None` where it has none."""
    labels = [key for key in _LABELS if key in labels_of(metadata)]
    annotations = [key for key in _ANNOTATIONS if key in annotations_of(metadata)]
    changes: Patch = {}
    if labels:
        changes["labels"] = dict.fromkeys(labels)
    if annotations:
        changes["annotations"] = dict.fromkeys(annotations)
    if keys.CLEANUP_FINALIZER in (metadata.finalizers or ()):
        changes["$deleteFromPrimitiveList/finalizers"] = [keys.CLEANUP_FINALIZER]
    if not changes:
        return None
    # Without the uid, a pod that took the name meanwhile would be patched.
    patch: Patch = {"metadata": {"uid": metadata.uid, **changes}}
    if keys.GANG_GATE_LABEL in labels:
        patch["spec"] = {"schedulingGates": [{"$patch": "delete", "name": keys.GANG_GATE}]}
    return patch


def build_owner_patch(metadata: ObjectMeta) -> Patch:
    """Return what takes the ledger from an owner."""
    return {"metadata": {"uid": metadata.uid, "labels": {keys.LEDGER: None}, "annotations": {keys.LEDGER: None}}}


def build_job_patch(metadata: ObjectMeta) -> Patch:
    """Return what resumes a Job that Reprieve has suspended: nobody else would."""
    traces = {"labels": {keys.SUSPENDED: None}, "annotations": {keys.SUSPENDED: None}}
    return {"metadata": {"uid": metadata.uid, **traces}, "spec": {"suspend": False}}


async def _clean(api: Api, *, target: Target, lease: str, is_dry_run: bool, force: bool) -> int:
    holder = await _holder(api, lease)
    if holder and not force:
        click.echo(
            f"reprieve: the operator is running ({holder} holds its lease) and would go on: "
            "stop it first, or give --force",
            err=True,
        )
        return CANNOT
    failures = 0
    # Shown on a terminal only.
    with Console(stderr=True).status("looking at pods and their owners"):
        async for trace in _traces(api, target.namespace):
            failures += not await _remove(api, trace, is_dry_run=is_dry_run)
    return int(failures > 0)


async def _holder(api: Api, lease: str) -> str:
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
    until = renewed + timedelta(seconds=spec.leaseDurationSeconds or 0) + _SKEW
    return spec.holderIdentity if datetime.now(UTC) < until else ""


async def _traces(api: Api, namespace: str | None) -> AsyncIterator[_Trace]:
    async for page, _ in api.pages(object_path("pods", namespace), PartialObject, metadata_only=True):
        for pod in page:
            patch = build_pod_patch(pod.metadata)
            if patch is not None:
                yield _trace("pods", "pod", pod.metadata, patch)
    for kind, owner in OWNERS.items():
        async for found in _labelled(api, object_path(owner.resource, namespace), keys.LEDGER):
            yield _trace(owner.resource, kind, found.metadata, build_owner_patch(found.metadata))
    async for found in _labelled(api, object_path("jobs", namespace), keys.SUSPENDED):
        yield _trace("jobs", "Job", found.metadata, build_job_patch(found.metadata))


async def _labelled(api: Api, path: str, label: str) -> AsyncIterator[PartialObject]:
    """Yield those with our label; none of a kind that the cluster does not have."""
    try:
        async for page, _ in api.pages(path, PartialObject, params={"labelSelector": label}, metadata_only=True):
            for found in page:
                yield found
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise


async def _remove(api: Api, trace: _Trace, *, is_dry_run: bool) -> bool:
    try:
        params = {"dryRun": "All"} if is_dry_run else None
        await api.patch(trace.path, trace.patch, dict, content_type=trace.content_type, params=params)
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return True
        click.echo(f"{trace.name}: {describe(error)}", err=True)
        return False
    click.echo(f"{trace.name} cleaned{' (dry run)' if is_dry_run else ''}")
    return True


def _trace(resource: str, kind: str, metadata: ObjectMeta, patch: Patch) -> _Trace:
    path = object_path(resource, metadata.namespace, metadata.name)
    # A custom resource takes no strategic merge patch, and an owner needs none.
    content_type = STRATEGIC_MERGE_PATCH if resource == "pods" else MERGE_PATCH
    return _Trace(path, f"{metadata.namespace}/{kind.lower()}/{metadata.name}", patch, content_type)
