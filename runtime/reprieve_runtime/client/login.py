"""The API server's address and credentials, read from a kubeconfig or a pod's own files."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration

from .api_error import ApiError

_MAX_CONNECTIONS = 200
"""More than a program has calls under way, each kind of which has a limit of its own, and watches.
Without this, calls would wait for a connection behind those of a Namespace that hang."""


async def connection_configuration(
    kubeconfig: Path | None, context: str | None = None
) -> Configuration:
    """Return the address and credentials as the official client reads them; see `Api.connect`.

    Raises `OSError` for an unreadable file, and `ApiError` for a file that is missing, is not a
    kubeconfig, or names no API server.
    """
    configuration = Configuration(connection_pool_maxsize=_MAX_CONNECTIONS)
    # Without this, a thread searches ~/.netrc for the API server in each call: 14 % of a busy
    # operator's time.
    configuration.client_session_kwargs = {"trust_env": False}
    if kubeconfig is not None:
        # Without this, the client reports a missing file as one without a current context.
        await asyncio.to_thread(kubeconfig.read_bytes)
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        with _readable("the ServiceAccount's files"):
            kubernetes_config.load_incluster_config(client_configuration=configuration)
        return configuration
    path = _path_of(kubeconfig)
    with _readable(path):
        await kubernetes_config.load_kube_config(path, context, client_configuration=configuration)
    return configuration


def namespace_of_context(kubeconfig: Path | None, context: str | None = None) -> str:
    """Return the Namespace that kubectl would use; raises `ApiError` if the context is missing."""
    path = _path_of(kubeconfig)
    with _readable(path):
        contexts, current = kubernetes_config.list_kube_config_contexts(path)
    selected = next(
        (each for each in contexts if each["name"] == context),
        current if context is None else None,
    )
    if selected is None:
        raise ApiError(0, "NotConfigured", f"no context {context!r} in the kubeconfig")
    return str(selected["context"].get("namespace") or "default")


def _path_of(kubeconfig: Path | None) -> str:
    """Return the kubeconfig's path, or the paths of the default; raises `ApiError` if none exists.

    Without this, the client prints a line of its own and then reports a missing current context.
    """
    paths = kubernetes_config.KUBE_CONFIG_DEFAULT_LOCATION if kubeconfig is None else kubeconfig
    parts = [each for each in str(paths).split(os.pathsep) if each]
    if not any(Path(each).expanduser().exists() for each in parts):
        raise ApiError(
            0,
            "NotConfigured",
            f"no kubeconfig at {' or '.join(parts)}: pass --kubeconfig, or set KUBECONFIG",
        )
    return str(paths)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raise `ApiError` for a file that the client cannot read as what it should be."""
    try:
        yield
    except kubernetes_config.ConfigException as error:
        raise ApiError(0, "NotConfigured", f"{path}: {error}") from error
    except OSError:
        raise
    except Exception as error:
        # The client lets the errors of its YAML parser through, and a TypeError, KeyError or
        # AttributeError for a document of another form.
        raise ApiError(0, "NotConfigured", f"{path}: is not a kubeconfig") from error
