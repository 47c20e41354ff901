"""The audit log's entries about one namespace's pods.

Who changed which pod, when, and the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PodChange:
    """One change of a pod; times are seconds since the epoch, on the API server's clock."""

    user: str
    verb: str
    subresource: str
    pod: str
    status: int
    received_at: float
    answered_at: float


def read(log: Path, namespace: str) -> list[PodChange]:
    """Return the changes of a namespace's pods, from the log and its predecessor."""
    # The predecessor was renamed with the time at which it was full.
    files = [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]
    return [entry for file in files for entry in _of_file(file, f'"{namespace}"')]


def _of_file(file: Path, namespace: str) -> Iterator[PodChange]:
    with file.open() as lines:
        for line in lines:
            # An entry whose client disconnected has no status: it does not say whether the request
            # succeeded.
            if namespace in line and '"resource":"pods"' in line and '"responseStatus"' in line:
                yield _entry(json.loads(line))


def _entry(document: dict[str, object]) -> PodChange:
    about, user, status = (document[key] for key in ("objectRef", "user", "responseStatus"))
    assert isinstance(about, dict)
    assert isinstance(user, dict)
    assert isinstance(status, dict)
    return PodChange(
        user=user["username"],
        verb=str(document["verb"]),
        subresource=about.get("subresource", ""),
        pod=about.get("name", ""),
        status=status["code"],
        received_at=_seconds(document["requestReceivedTimestamp"]),
        answered_at=_seconds(document["stageTimestamp"]),
    )


def _seconds(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()
