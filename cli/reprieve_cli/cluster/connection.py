"""The cluster of a command: kubectl's own options, and one connection while the command runs."""

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import click

from reprieve_cli.names import NamespaceNameType, namespace_violation
from reprieve_cli.output.terminal import echo, is_of_output
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.login import namespace_of_context

EXIT_FAILED = 2
"""The exit status of a command that failed."""
_EXIT_SIGNAL_BASE = 128
"""Shells report 128 plus the number of the signal that ended a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """The values of kubectl's options."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    """`None`: all namespaces."""


def cluster_options(
    *, everywhere: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add kubectl's options for the cluster to a command, which gets them as `target`.

    `everywhere`: without `-n`, the command covers all namespaces instead of the context's.
    """
    default = "all namespaces" if everywhere else "the namespace of the context"

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @_connection_options
        @click.option(
            "-n", "--namespace", type=NamespaceNameType(), help=f"Namespace; default: {default}."
        )
        @click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
        @functools.wraps(command)
        def wrapped(
            *args: Any,
            kubeconfig: Path | None,
            context: str | None,
            namespace: str | None,
            all_namespaces: bool,
            **kwargs: Any,
        ) -> Any:
            if all_namespaces and namespace is not None:
                raise click.UsageError("-n and -A cannot be used together")
            try:
                is_all = all_namespaces or (everywhere and namespace is None)
                chosen = None if is_all else namespace or namespace_of_context(kubeconfig, context)
            except ApiError as error:
                fail(error.message)
            if chosen and (violation := namespace_violation(chosen)):
                fail(f"the context of the kubeconfig: namespace: {violation}")
            return command(
                *args,
                target=ClusterTarget(kubeconfig=kubeconfig, context=context, namespace=chosen),
                **kwargs,
            )

        return wrapped

    return decorate


def whole_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add kubectl's options except the namespace to a command, which gets them as `target`."""

    @_connection_options
    @functools.wraps(command)
    def wrapped(*args: Any, kubeconfig: Path | None, context: str | None, **kwargs: Any) -> Any:
        return command(
            *args,
            target=ClusterTarget(kubeconfig=kubeconfig, context=context, namespace=None),
            **kwargs,
        )

    return wrapped


def _connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    path = click.Path(path_type=Path, exists=True, dir_okay=False)
    with_context = click.option(
        "--context", help="Context of the kubeconfig; default: its current context."
    )(command)
    return click.option("--kubeconfig", type=path, help="Path of the kubeconfig file.")(
        with_context
    )


def run(target: ClusterTarget, work: Callable[[Api], Coroutine[Any, Any, int]]) -> NoReturn:
    """Connect, do the work, and exit with its status; Ctrl-C and SIGTERM end it silently."""
    try:
        status = asyncio.run(_until_signalled(_connected(target, work)))
    except ApiError as error:
        fail(describe_error(error))
    except OSError as error:
        if is_of_output(error):  # `main` and click handle it, as for commands without a cluster.
            raise
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    raise SystemExit(status)


def fail(sentence: str) -> NoReturn:
    """Print the reason and exit with the status of a failure."""
    echo(f"reprieve: {sentence}", err=True)
    raise SystemExit(EXIT_FAILED)


def describe_error(error: ApiError) -> str:
    """Return the API server's message, or why there is none that can be used."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        return (
            "the API server refused your credentials (401 Unauthorized): they may have expired; "
            "log in again, or check the kubeconfig"
        )
    if error.is_unreadable:
        return f"the API server's answer cannot be read; is it behind a proxy? {error.message}"
    if error.is_unreachable and error.reason != "NotConfigured":
        return f"no answer from the API server: {error.message}"
    return error.message


async def _until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """Return the status of the work or, if a signal ended it, the status that a shell expects."""
    task = asyncio.ensure_future(work)
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not caught:
            raise
        return _EXIT_SIGNAL_BASE + caught[0]


async def _connected(target: ClusterTarget, work: Callable[[Api], Coroutine[Any, Any, int]]) -> int:
    agent = f"reprieve/{version('reprieve')}"
    api = await Api.connect(
        target.kubeconfig, context=target.context, user_agent=agent, prefers_kubeconfig=True
    )
    try:
        return await work(api)
    finally:
        await api.close()
