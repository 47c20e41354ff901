"""Marks of pods, as commands set them: one is shown as it is set, and what comes of all of them for who waits."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from reprieve_policy.gangs import disruption, membership
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube import duration
from reprieve_policy.kube.objects import PodView, Spec, annotations_of, labels_of
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

from . import victims
from .connection import describe_error
from .victim_table import build_line

_NOT_FOUND = 404
_SURVIVING_PHASES = (Phase.CANCELLED, Phase.SPARED)

MarkMetadata = Mapping[str, Mapping[str, str]]
"""Labels and annotations to set."""


class WaitOptions(NamedTuple):
    """Whether what comes of the marks is waited for, and for how long; `None`: for ever."""

    enabled: bool
    timeout_seconds: int | None


class DurationType(click.ParamType[int]):
    """A duration as the annotations have it: `90s`, `10m`."""

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
    """Give a command the options that say whether it waits; it gets them as `patience`."""

    @click.option(
        "--wait", is_flag=True, help="Wait until they are gone; status 1 where one is not."
    )
    @click.option(
        "--timeout", type=DurationType(), help="Wait so long at most, like 10m; it implies --wait."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, wait: bool, timeout: int | None, **kwargs: Any) -> Any:
        return command(*args, patience=WaitOptions(wait or timeout is not None, timeout), **kwargs)

    return wrapped


async def set_mark(
    api: Api, pod: PartialObjectMetadata, mark: MarkMetadata, name: str, *, is_dry_run: bool
) -> bool:
    """Mark a pod and say so, as `name`; false where that was refused."""
    path = object_path("pods", pod.metadata.namespace, pod.metadata.name)
    # Without the uid, a pod that took the name meanwhile would go.
    body = {"metadata": {"uid": pod.metadata.uid, **mark}}
    try:
        await api.patch(path, body, dict, params={"dryRun": "All"} if is_dry_run else None)
    except ApiError as error:
        if error.status == _NOT_FOUND:
            click.echo(f"{name} is gone already")
            return True
        click.echo(f"{name}: {describe_error(error)}", err=True)
        return False
    click.echo(
        f"{name} soft eviction requested{_gang_note(pod)}{' (dry run)' if is_dry_run else ''}"
    )
    return True


def _gang_note(pod: PartialObjectMetadata) -> str:
    """Say with whom the pod goes, as far as its metadata tells: a native group stands in its spec."""
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    found = membership.read(PodView("", labels, annotations, Spec(), is_template=False))
    if (
        found is None
        or disruption.disruption_mode_of(found, pod.metadata) is not DisruptionMode.ALL
    ):
        return ""
    return f', and of all of its gang "{disruption.identity_of(found)}"'


async def wait(
    api: Api, namespace: str | None, pods: Sequence[PartialObjectMetadata], patience: WaitOptions
) -> int:
    """Show what happens to the pods, which were marked, until nothing more does; return how many of them stay."""
    waiting = {pod.metadata.uid or "" for pod in pods}
    if not waiting:
        return 0
    stayed = 0
    try:
        async with asyncio.timeout(patience.timeout_seconds):
            async for victim in victims.follow(api, namespace, marked=pods):
                if victim.uid not in waiting:
                    continue
                click.echo(build_line(victim, datetime.now(UTC)))
                if victim.is_finished:
                    waiting.discard(victim.uid)
                    stayed += victim.phase in _SURVIVING_PHASES
                if not waiting:
                    break
    except TimeoutError:
        click.echo(f"reprieve: {len(waiting)} of {len(pods)} are still there", err=True)
    return stayed + len(waiting)
