"""Where the API server is and who calls it: what the official client reads from a kubeconfig or a pod's own files."""

import asyncio
import os
from pathlib import Path

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration

from .api_error import ApiError


async def connection_configuration(
    kubeconfig: Path | None, context: str | None = None
) -> Configuration:
    """Return where the API server is and how to log in, as the official client reads it; see `Api.connect`.

    Raises `OSError` for a file that cannot be read and `ApiError` for one that names no API server.
    """
    configuration = Configuration()
    # Without this, each call has a thread look for the API server in ~/.netrc: 14 % of a busy operator's time.
    configuration.client_session_kwargs = {"trust_env": False}
    if kubeconfig is not None:
        # Without this, the client says of a file that is not there that it has no current context.
        await asyncio.to_thread(kubeconfig.read_bytes)
    try:
        if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            kubernetes_config.load_incluster_config(client_configuration=configuration)
        else:
            path = None if kubeconfig is None else str(kubeconfig)
            await kubernetes_config.load_kube_config(
                path, context, client_configuration=configuration
            )
    except kubernetes_config.ConfigException as error:
        raise ApiError(0, "NotConfigured", str(error)) from error
    return configuration


def namespace_of_context(kubeconfig: Path | None, context: str | None = None) -> str:
    """Return the Namespace that kubectl would use; raises `ApiError` where there is no such context."""
    try:
        contexts, current = kubernetes_config.list_kube_config_contexts(
            None if kubeconfig is None else str(kubeconfig)
        )
    except kubernetes_config.ConfigException as error:
        raise ApiError(0, "NotConfigured", str(error)) from error
    named = next(
        (found for found in contexts if found["name"] == context),
        current if context is None else None,
    )
    if named is None:
        raise ApiError(0, "NotConfigured", f"no context {context!r} in the kubeconfig")
    return str(named["context"].get("namespace") or "default")
