"""The API server's address and credentials, read from a kubeconfig or a pod's own files."""

import asyncio
import os
from pathlib import Path

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration

from .api_error import ApiError


async def connection_configuration(
    kubeconfig: Path | None, context: str | None = None
) -> Configuration:
    """Return the address and credentials as the official client reads them; see `Api.connect`.

    Raises `OSError` for an unreadable file, and `ApiError` for a file that names no API server.
    """
    configuration = Configuration()
    # Without this, a thread searches ~/.netrc for the API server in each call: 14 % of a busy
    # operator's time.
    configuration.client_session_kwargs = {"trust_env": False}
    if kubeconfig is not None:
        # Without this, the client reports a missing file as one without a current context.
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
    """Return the Namespace that kubectl would use; raises `ApiError` if the context is missing."""
    try:
        contexts, current = kubernetes_config.list_kube_config_contexts(
            None if kubeconfig is None else str(kubeconfig)
        )
    except kubernetes_config.ConfigException as error:
        raise ApiError(0, "NotConfigured", str(error)) from error
    selected = next(
        (each for each in contexts if each["name"] == context),
        current if context is None else None,
    )
    if selected is None:
        raise ApiError(0, "NotConfigured", f"no context {context!r} in the kubeconfig")
    return str(selected["context"].get("namespace") or "default")
