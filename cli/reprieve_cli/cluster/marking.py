"""Sets the marks of soft evictions, and waits for their outcome."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from reprieve_cli.output.terminal import echo
from reprieve_policy import keys
from reprieve_policy.gangs import disruption, membership
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.objects import (
    PodView,
    Spec,
    VersionedMeta,
    annotations_of,
    labels_of,
)
from reprieve_policy.kube.values import duration
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.lifecycle.mark import REQUESTED
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_runtime.client.api import METADATA_ONLY, Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

from . import victims
from .connection import describe_error
from .victim_table import build_line
from .victims import VictimStatus

_ATTEMPTS = 3
"""A kubelet's update of the status between the read and the mark is no reason to give up."""
_GONE = "is already gone"
_SURVIVING_PHASES = (Phase.CANCELLED, Phase.SPARED)

MarkMetadata = Mapping[str, Mapping[str, str]]
"""Labels and annotations to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionedPod:
    metadata: VersionedMeta


class WaitOptions(NamedTuple):
    """Whether to wait for the outcome, and how long; `None`: without a limit."""

    enabled: bool
    timeout_seconds: int | None


class DurationType(click.ParamType[int]):
    """A duration in the format of the annotations: `90s`, `10m`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return whole seconds."""
        seconds = duration.parse(str(value))
        if not seconds:
            self.fail(duration.EXPECTED if seconds is None else duration.TOO_SHORT, param, ctx)
        return seconds


def wait_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--wait` and `--timeout` to a command, which gets them as `wait_options`."""

    @click.option(
        "--wait", is_flag=True, help="Wait until the pods are gone; status 1 if a pod stays."
    )
    @click.option(
        "--timeout", type=DurationType(), help="Longest time to wait, like 10m; implies --wait."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, wait: bool, timeout: int | None, **kwargs: Any) -> Any:
        options = WaitOptions(wait or timeout is not None, timeout)
        return command(*args, wait_options=options, **kwargs)

    return wrapped


def _is_being_evicted(found: VersionedMeta, victim: VictimStatus, mark: MarkMetadata) -> bool:
    """True if an eviction is in progress that the mark would not change.

    A user may still evict a pod that is only reprieved. And a user's request replaces a request of
    a scheduler or a drain, after which the pod may stay.
    """
    state = victim.state
    # Without its label, the eviction in progress is cancelled.
    if state is None or state.phase in (*TERMINAL, Phase.REPRIEVED) or victim.is_finished:
        return False
    is_request = mark.get("labels", {}).get(keys.SOFT_EVICTION) == REQUESTED
    is_kept = found.deletionTimestamp is None and termination.may_stay(state)
    return not (is_request and is_kept)


async def set_mark(
    api: Api, pod: PartialObjectMetadata, mark: MarkMetadata, name: str, *, is_dry_run: bool
) -> bool:
    """Mark a pod and print the result; return false if the mark was refused."""
    try:
        result = await _mark_unless_begun(api, pod, mark, is_dry_run=is_dry_run)
    except ApiError as error:
        if not error.is_not_found:
            echo(f"{name}: {describe_error(error)}", err=True)
            return False
        result = _GONE
    echo(f"{name} {result}")
    return True


async def _mark_unless_begun(
    api: Api, pod: PartialObjectMetadata, mark: MarkMetadata, *, is_dry_run: bool
) -> str:
    """Mark a pod that is not being evicted; return what to print. Raises `ApiError`.

    Once one pod of a gang is marked, the operator evicts the others too. A mark that is set on them
    after that would hide in which phase they are.
    """
    path = object_path("pods", pod.metadata.namespace, pod.metadata.name)
    params = {"dryRun": "All"} if is_dry_run else None
    for attempt in range(1, _ATTEMPTS + 1):
        found = (await api.get(path, _VersionedPod, accept=METADATA_ONLY)).metadata
        if found.uid != pod.metadata.uid:
            # Without this, a new pod of the same name would be evicted.
            return _GONE
        victim = victims.read(PartialObjectMetadata(metadata=found))
        if _is_being_evicted(found, victim, mark):
            return f"is already being evicted ({build_line(victim, datetime.now(UTC))})"
        body = {"metadata": {"uid": found.uid, **mark}}
        if attempt < _ATTEMPTS:
            # Not the last time: an owner that writes to the pod all the time would keep the mark
            # off.
            body["metadata"]["resourceVersion"] = found.resourceVersion
        try:
            await api.patch(path, body, dict, params=params)
        except ApiError as error:
            if not error.is_conflict or attempt == _ATTEMPTS:
                raise
        else:
            break
    return f"soft eviction requested{_gang_note(pod)}{' (dry run)' if is_dry_run else ''}"


def _gang_note(pod: PartialObjectMetadata) -> str:
    """Return a note if the pod's whole gang is evicted with it.

    Only metadata was read, so a native group, which is named in the spec, is not known.
    """
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    found = membership.read(PodView("", labels, annotations, Spec(), is_template=False))
    if (
        found is None
        or disruption.disruption_mode_of(found, pod.metadata) is not DisruptionMode.ALL
    ):
        return ""
    return f', with all pods of its gang "{disruption.identity_of(found)}"'


async def wait(
    api: Api, namespace: str | None, pods: Sequence[PartialObjectMetadata], options: WaitOptions
) -> int:
    """Print the progress of marked pods until all are finished; return the number that stay."""
    waiting = {pod.metadata.uid or "" for pod in pods}
    if not waiting:
        return 0
    stayed = 0
    try:
        async with asyncio.timeout(options.timeout_seconds):
            async for victim in victims.follow(api, namespace, marked=pods):
                if victim.uid not in waiting:
                    continue
                echo(build_line(victim, datetime.now(UTC)))
                if victim.is_finished:
                    waiting.discard(victim.uid)
                    stayed += victim.phase in _SURVIVING_PHASES
                if not waiting:
                    break
    except TimeoutError:
        echo(f"reprieve: timed out: {len(waiting)} of {len(pods)} pods remain", err=True)
    return stayed + len(waiting)
