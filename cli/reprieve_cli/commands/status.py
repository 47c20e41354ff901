"""`reprieve status`: whether Reprieve is installed and works, and what to do where it does not."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from reprieve_cli.cluster import installation
from reprieve_cli.cluster.cluster_policy import POLICY_NAME
from reprieve_cli.cluster.connection import EXIT_FAILED, ClusterTarget, run, whole_cluster_options
from reprieve_cli.cluster.health import ClusterState, Deployment, Health, StatusRow, build_rows
from reprieve_cli.cluster.installation import LEASE, WEBHOOKS, Absence, read_if_allowed
from reprieve_cli.output.finding import printable
from reprieve_cli.output.terminal import echo, echo_styled, to_json
from reprieve_policy import keys
from reprieve_policy.config.namespace import UNTOUCHED
from reprieve_policy.kube.webhook_configurations import WebhookConfiguration
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.policy_config_map import ConfigMap

_EXIT_PROBLEM = 1
_COLOURS = {Health.OK: "green", Health.PROBLEM: "red", Health.UNKNOWN: "yellow"}


@click.command(short_help="Show whether Reprieve works in a cluster, and what to do if not.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@whole_cluster_options
def command(target: ClusterTarget, *, output: str) -> None:
    """Show whether Reprieve works in a cluster, and what to do where it does not.

    Shows whether it is installed, its version, the operator's leader and its Lease, the webhooks
    and their CA, the guard, whether the policy can be read, the victims by phase, those that should
    be gone by now, and pods of kube-system that an earlier version left a finalizer on. Writes
    nothing. Needs the rights of the ClusterRole reprieve:status.

    Exit status: 0 all is well; 1 there is a problem; 2 something could not be read.
    """

    async def show(api: Api) -> int:
        return await _show(api, is_json=output == "json")

    run(target, show)


async def _show(api: Api, *, is_json: bool) -> int:
    state = await _read(api)
    rows = build_rows(state, api.server_time.now())
    if is_json:
        echo(to_json([asdict(row) for row in rows]))
    else:
        echo_styled(build_text(rows))
    found = {row.health for row in rows}
    if Health.PROBLEM in found:
        return _EXIT_PROBLEM
    return EXIT_FAILED if Health.UNKNOWN in found else 0


def build_text(rows: Sequence[StatusRow]) -> list[str]:
    """Return a line a row, and below it what to do."""
    lines = []
    for row in rows:
        health = click.style(f"{row.health:8}", fg=_COLOURS[row.health])
        lines.append(f"{row.subject:13} {health} {printable(row.detail)}")
        if row.advice:
            lines.append(f"{'':22} -> {printable(row.advice)}")
    return lines


async def _read(api: Api) -> ClusterState:
    found = await installation.read(api)
    path = object_path("validatingwebhookconfigurations", None, WEBHOOKS)
    return ClusterState(
        installation=found,
        validating=await read_if_allowed(api, path, WebhookConfiguration),
        operator=await _deployment(api, found.namespace, LEASE),
        webhooks=await _deployment(api, found.namespace, WEBHOOKS),
        policy=await read_if_allowed(
            api, object_path("configmaps", found.namespace, POLICY_NAME), ConfigMap
        ),
        victims=await _pods(api, None, labelSelector=keys.SOFT_EVICTION),
        untouched=await _pods(api, UNTOUCHED),
    )


async def _deployment(api: Api, namespace: str, name: str) -> Deployment | Absence:
    return await read_if_allowed(api, object_path("deployments", namespace, name), Deployment)


async def _pods(
    api: Api, namespace: str | None, **params: str
) -> Sequence[PartialObjectMetadata] | Absence:
    pods: list[PartialObjectMetadata] = []
    try:
        async for page, _ in api.list_pages(
            object_path("pods", namespace),
            PartialObjectMetadata,
            params=params,
            metadata_only=True,
        ):
            pods += page
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return Absence.FORBIDDEN
    return pods
