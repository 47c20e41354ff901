"""Which way of being asked a hint names. The value is that of the pod's annotation."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from reprieve_client.exchange import Exchange

_log = logging.getLogger(__name__)
AGENT_REQUEST = Path("/run/reprieve/request")
"""Where the agent writes requests, unless a `file:` hint names another file."""


class Hint(Protocol):
    """A way of being asked. It works in threads of its own and changes nothing but the exchange."""

    def open(self) -> None:
        """Begin to receive requests."""
        ...

    def close(self) -> None:
        """Stop; return soon."""
        ...

    def note_save(self) -> None:
        """Tell Reprieve that the workload has saved just now, where this hint can."""
        ...


class NoHint:
    """For programs outside of a cluster, and for `sigterm:`."""

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def note_save(self) -> None:
        """Do nothing."""


def choose(
    hint: str | None, exchange: Exchange, *, address: str, annotation_file: str, pod_name: str
) -> Hint:
    """Return the way of being asked; `ValueError` for a hint that this library does not serve.

    A hint that needs the agent, where the agent's folder is missing, is logged: the program runs,
    and is never asked. It may have been created while Reprieve was away.

    Args:
        hint: The value of `reprieve.dev/checkpoint-hint`. Without one, requests come from the
            agent's file, where the agent runs.
        exchange: Receives the requests.
        address: The address of the pod that an HTTP server listens on; empty for all.
        annotation_file: The file in which the downward API shows the request.
        pod_name: The pod to annotate with answers.
    """
    # Modules are imported where they are needed: a server is not, where a file is read.
    if not hint:
        if not AGENT_REQUEST.parent.is_dir():
            return NoHint()
        hint = AGENT_REQUEST.as_uri()
    parts = urlsplit(hint)
    if parts.scheme == "http" and parts.port is not None and not parts.hostname:
        from .http import HttpHint  # noqa: PLC0415

        # As the operator sends it: with the query, and without the "?" of an empty one.
        query = f"?{parts.query}" if parts.query else ""
        return HttpHint(exchange, address, parts.port, (parts.path or "/") + query)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        from .file import FileHint  # noqa: PLC0415

        _warn_without_folder(Path(parts.path), hint)
        return FileHint(exchange, Path(parts.path))
    if parts.scheme == "signal":
        from .file import SignalHint  # noqa: PLC0415

        number = _signal(parts.netloc, hint)
        _warn_without_folder(AGENT_REQUEST, hint)
        return SignalHint(exchange, AGENT_REQUEST, number)
    if parts.scheme == "annotation":
        from .annotation import AnnotationHint  # noqa: PLC0415

        return AnnotationHint(exchange, Path(annotation_file), pod_name)
    if parts.scheme == "sigterm":
        return NoHint()
    raise ValueError(
        f"hint: {hint!r}: must be like http://:8080/checkpoint, file:///run/reprieve/request, "
        "signal://USR1, annotation: or sigterm:"
    )


def _warn_without_folder(request: Path, hint: str) -> None:
    """Warn where the folder of a request is missing, which the agent brings as a volume."""
    if not request.parent.is_dir():
        _log.warning(
            "hint: %r: needs the agent, but its folder %s is missing, so that no request will be "
            "seen: the pod must have the annotation reprieve.dev/agent: enabled when it is created",
            hint,
            request.parent,
        )


def _signal(name: str, hint: str) -> signal.Signals:
    try:
        return signal.Signals[f"SIG{name}"]
    except KeyError:
        raise ValueError(f"hint: {hint!r}: must name a signal, like signal://USR1") from None
