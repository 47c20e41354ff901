"""`reprieve explain`: what would happen to a pod that had to go. It reads, and decides with the functions that decide then."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import click

from reprieve_policy import disruption, gang, keys, native_group, timestamp, walltime
from reprieve_policy.cost import Work
from reprieve_policy.disruption import Mode
from reprieve_policy.gang import Gang
from reprieve_policy.native_group import Group, NativeGroup
from reprieve_policy.objects import ObjectMeta, PodView, Spec, annotations_of, controller_of, labels_of
from reprieve_policy.outlook import Subject, foresee
from reprieve_policy.walltime import Walltime
from reprieve_runtime.api import Api, ApiError, PartialObject
from reprieve_runtime.paths import object_path

from . import victims
from .cluster import ClusterReader
from .connection import CANNOT, Target, cluster_options, run
from .explanation import build_document, build_text
from .finding import printable
from .table import build_line

_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None  # noqa: N815 - the API's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    phase: str = ""
    startTime: str | None = None  # noqa: N815
    conditions: Sequence[_Condition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodSpec(Spec):
    activeDeadlineSeconds: int | None = None  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """A pod or a Job."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _PodSpec = field(default_factory=_PodSpec)
    status: _Status = field(default_factory=_Status)

    @property
    def walltime(self) -> Walltime | None:
        """How long it may run."""
        return walltime.read(self.status.startTime, self.spec.activeDeadlineSeconds)


T = TypeVar("T")


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
        pod = await api.get(path, _Timed)
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


async def _subject(api: Api, pod: _Timed, now: datetime) -> Subject:
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    view = PodView("", labels, annotations, pod.spec, is_template=False)
    work = Work(
        started_at=timestamp.parse(pod.status.startTime),
        saved_at=timestamp.parse(annotations.get(keys.LAST_CHECKPOINT_AT)),
        walltime=walltime.tightest([pod.walltime, await _job_walltime(api, pod)], now),
    )
    found = gang.read(view)
    group = await _native_group(api, found, pod.metadata)
    return Subject(
        view=view,
        metadata=pod.metadata,
        has_started=pod.status.phase != "Pending",
        scheduled_at=_scheduled_at(pod),
        work=work,
        disruption=_disruption(found, pod.metadata, group),
        native_group=group,
    )


def _scheduled_at(pod: _Timed) -> datetime | None:
    conditions = pod.status.conditions or ()
    scheduled = [found for found in conditions if (found.type, found.status) == ("PodScheduled", "True")]
    return timestamp.parse(scheduled[0].lastTransitionTime) if scheduled else None


async def _job_walltime(api: Api, pod: _Timed) -> Walltime | None:
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind != "Job":
        return None
    job = await _look(api, object_path("jobs", pod.metadata.namespace, owner.name), _Timed)
    return None if job is None else job.walltime


async def _native_group(api: Api, found: Gang | None, metadata: ObjectMeta) -> NativeGroup | None:
    """Return the native PodGroup that the pod names, as far as there is one."""
    if found is None or not found.is_native:
        return None
    group = await _look(api, object_path("podgroups", metadata.namespace, found.name), Group)
    return None if group is None else native_group.read(group)


def _disruption(found: Gang | None, metadata: ObjectMeta, group: NativeGroup | None) -> Mode:
    """Return how the pod's gang goes; a native PodGroup says it itself."""
    mode = Mode.SINGLE if found is None else disruption.mode_of(found, metadata)
    if mode is not Mode.AS_ITS_GROUP_SAYS:
        return mode
    return Mode.SINGLE if group is None else group.mode


async def _look(api: Api, path: str, decode_as: type[T]) -> T | None:
    """Return what can be read; what cannot is told, and the rest is explained without it."""
    try:
        return await api.get(path, decode_as)
    except ApiError as error:
        if not error.status:
            raise
        if error.status != _NOT_FOUND:
            _tell(f"{path}: {error.message}")
        return None


def _tell(reason: str) -> None:
    click.echo(f"unreadable: {printable(reason)}", err=True)
