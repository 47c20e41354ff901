"""Which cluster a command is about: kubectl's own options, and one connection for as long as the command runs."""

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import click

from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.login import namespace_of_context

EXIT_FAILED = 2
"""The exit status of a command that could not do its work at all."""
_EXIT_SIGNAL_BASE = 128
"""What a shell adds to the number of the signal that ended a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """What kubectl's options say."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    """`None`: of all namespaces."""


def cluster_options(
    *, everywhere: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command kubectl's options for the cluster; it gets them as `target`.

    `everywhere`: all namespaces unless one is named; else the context's own.
    """
    usual = "all" if everywhere else "the context's"

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @_connection_options
        @click.option("-n", "--namespace", help=f"Namespace; {usual} by default.")
        @click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
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
                raise click.UsageError("-n and -A say different things: give one of them")
            try:
                is_all = all_namespaces or (everywhere and namespace is None)
                chosen = None if is_all else namespace or namespace_of_context(kubeconfig, context)
            except ApiError as error:
                fail(error.message)
            return command(
                *args,
                target=ClusterTarget(kubeconfig=kubeconfig, context=context, namespace=chosen),
                **kwargs,
            )

        return wrapped

    return decorate


def whole_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command about what is in no namespace kubectl's options for the cluster; it gets them as `target`."""

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
        "--context", help="Context of the kubeconfig; its current one by default."
    )(command)
    return click.option("--kubeconfig", type=path, help="Path of the kubeconfig file.")(
        with_context
    )


def run(target: ClusterTarget, work: Callable[[Api], Coroutine[Any, Any, int]]) -> NoReturn:
    """Connect, do the work, and exit with the status that it returns; Ctrl-C and SIGTERM end it in silence."""
    try:
        status = asyncio.run(_until_signalled(_connected(target, work)))
    except ApiError as error:
        fail(describe_error(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    raise SystemExit(status)


def fail(sentence: str) -> NoReturn:
    """End the command: it could not do its work."""
    click.echo(f"reprieve: {sentence}", err=True)
    raise SystemExit(EXIT_FAILED)


def describe_error(error: ApiError) -> str:
    """Return what the API server said, or that it said nothing."""
    return (
        error.message
        if error.status or error.reason == "NotConfigured"
        else f"no answer from the API server: {error.message}"
    )


async def _until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """Return what the work returns or, where a signal ended it, what a shell expects to see then."""
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
    api = await Api.connect(target.kubeconfig, context=target.context, user_agent=agent)
    try:
        return await work(api)
    finally:
        await api.close()
