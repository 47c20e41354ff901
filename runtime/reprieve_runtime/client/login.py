"""The API server's address and credentials, read from a kubeconfig or a pod's own files."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config

from .api_error import ApiError

_MAX_CONNECTIONS = 200
"""More than a program has calls under way, each kind of which has a limit of its own, and watches.
Without this, calls would wait for a connection behind those of a Namespace that hang."""


async def connection_configuration(
    kubeconfig: Path | None, context: str | None = None, *, prefers_kubeconfig: bool = False
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
    if _is_pods_own(kubeconfig, context, prefers_kubeconfig=prefers_kubeconfig):
        with _readable("the ServiceAccount's files"):
            kubernetes_config.load_incluster_config(client_configuration=configuration)
        return configuration
    path = _path_of(kubeconfig)
    with _readable(path):
        await kubernetes_config.load_kube_config(path, context, client_configuration=configuration)
    return configuration


def namespace_of_context(kubeconfig: Path | None, context: str | None = None) -> str:
    """Return the Namespace that kubectl would use; raises `ApiError` if the context is missing.

    It is the pod's own where `connection_configuration` with `prefers_kubeconfig` uses the pod's
    account. Without this, the namespace and the connection could be of two clusters.
    """
    if _is_pods_own(kubeconfig, context, prefers_kubeconfig=True):
        return _namespace_of_pod()
    path = _path_of(kubeconfig)
    try:
        with _readable(path):
            contexts, current = kubernetes_config.list_kube_config_contexts(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    selected = next(
        (each for each in contexts if each["name"] == context),
        current if context is None else None,
    )
    if selected is None:
        raise ApiError(0, "NotConfigured", f"no context {context!r} in the kubeconfig")
    return str(selected["context"].get("namespace") or "default")


def _is_pods_own(kubeconfig: Path | None, context: str | None, *, prefers_kubeconfig: bool) -> bool:
    """True if the connection is that of the pod's own ServiceAccount."""
    if kubeconfig is not None or context is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return False
    return not (prefers_kubeconfig and _exists(_paths_of(None)))


def _namespace_of_pod() -> str:
    """Return the Namespace of the pod's own ServiceAccount."""
    # The kubelet writes both files.
    file = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _unreadable(f"no kubeconfig, and {file}", error) from error


def _path_of(kubeconfig: Path | None) -> str:
    """Return the kubeconfig's path, or the paths of the default; raises `ApiError` if none exists.

    Without this, the client prints a line of its own and then reports a missing current context.
    """
    paths = _paths_of(kubeconfig)
    if not _exists(paths):
        raise ApiError(
            0,
            "NotConfigured",
            f"no kubeconfig at {' or '.join(paths)}: pass --kubeconfig, or set KUBECONFIG",
        )
    return os.pathsep.join(paths)


def _paths_of(kubeconfig: Path | None) -> Sequence[str]:
    """Return the kubeconfig's path, or those of the default: several in $KUBECONFIG are merged."""
    # An empty $KUBECONFIG counts as none, as for kubectl.
    default = kubernetes_config.KUBE_CONFIG_DEFAULT_LOCATION or "~/.kube/config"
    paths = default if kubeconfig is None else str(kubeconfig)
    return [each for each in paths.split(os.pathsep) if each]


def _exists(paths: Sequence[str]) -> bool:
    """True if one of the files exists; raises `ApiError` if that cannot be known.

    kubectl fails there, too. Without this, a pod with a kubeconfig in a folder that it may not
    enter would be connected to another cluster.
    """
    for path in paths:
        try:
            Path(path).expanduser().stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(path, error) from error
        return True
    return False


def _unreadable(path: str, error: OSError) -> ApiError:
    return ApiError(0, "NotConfigured", f"{path}: {str(error.strerror).lower()}")


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
