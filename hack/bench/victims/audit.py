"""What the API server wrote down of one namespace's pods: who changed which, when, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a pod; moments are seconds since the epoch, on the API server's clock."""

    user: str
    verb: str
    subresource: str
    pod: str
    status: int
    received_at: float
    answered_at: float


def read(log: Path, namespace: str) -> list[Entry]:
    """Return the changes of the pods of a namespace, as far back as the log and the one before it go."""
    # The one before it was renamed with the time at which it was full.
    files = [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]
    return [entry for file in files for entry in _of_file(file, f'"{namespace}"')]


def _of_file(file: Path, namespace: str) -> Iterator[Entry]:
    with file.open() as lines:
        for line in lines:
            # One whose client hung up has no status: nobody was answered, and its entry says nothing of what was done.
            if namespace in line and '"resource":"pods"' in line and '"responseStatus"' in line:
                yield _entry(json.loads(line))


def _entry(document: dict[str, object]) -> Entry:
    about, user, status = (document[key] for key in ("objectRef", "user", "responseStatus"))
    assert isinstance(about, dict)
    assert isinstance(user, dict)
    assert isinstance(status, dict)
    return Entry(
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
