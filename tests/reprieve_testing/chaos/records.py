"""Independent records of a victim's life: the API server's audit log, and the workloads' records.

The operator's own account is not used, except for the states that it wrote, which are in the audit
log.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction

Json = Any

OPERATOR, WEBHOOKS = ":reprieve-operator", ":reprieve-webhooks"
"""The ends of the names of our programs' users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of the operator to a pod, as the API server received and answered it."""

    at: datetime
    """When the API server received it: no effect came before."""
    done: datetime
    verb: str
    subresource: str
    pod: str
    status: int
    """0: the API server was killed before it answered."""
    uid: str
    """The uid of the precondition; empty: no precondition."""
    version: str
    state: Eviction | None
    user: str = field(default="", compare=False)

    @property
    def has_succeeded(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_deletion(self) -> bool:
        """True for a DELETE, and for an eviction through the Eviction API."""
        return self.verb == "delete" or (self.verb, self.subresource) == ("create", "eviction")

    @property
    def what(self) -> str:
        """Its verb and subresource."""
        return f"{self.verb} {self.subresource}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A request for a checkpoint, as the workload received it."""

    uid: str
    eviction_id: str
    attempt: int
    at: datetime
    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadAnswer:
    """An answer that the workload gave."""

    uid: str
    at: datetime
    state: str


def read_writes(log: Path, namespace: str, user: str = OPERATOR) -> list[Write]:
    """Return the writes to pods of users whose name ends so, oldest first.

    Rotated log files are included. Only the operator's writes have a body.
    """
    files = [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]
    # Each write has two entries: received and answered. The second replaces the first.
    entries = {
        entry["auditID"]: entry for file in files for entry in _entries(file, namespace, user)
    }
    return sorted(map(write_of, entries.values()), key=lambda write: write.at)


def _entries(file: Path, namespace: str, user: str) -> Iterator[Json]:
    needles = (user.encode(), namespace.encode())
    with file.open("rb") as lines:
        # Most lines are about other things, and need not be decoded.
        entries = (_decoded(line) for line in lines if all(needle in line for needle in needles))
        yield from (
            entry for entry in entries if entry is not None and _is_write(entry, namespace, user)
        )


def write_of(entry: Json) -> Write:
    """Return one entry of the audit log as the write that it records."""
    reference, body = entry["objectRef"], entry.get("requestObject") or {}
    metadata = body.get("metadata") or {}
    text = (metadata.get("annotations") or {}).get(keys.EVICTION)
    return Write(
        at=moment(entry["requestReceivedTimestamp"]),
        done=moment(entry["stageTimestamp"]),
        verb=entry["verb"],
        subresource=reference.get("subresource", ""),
        pod=f"{reference['namespace']}/{reference.get('name', '')}",
        status=entry.get("responseStatus", {}).get("code", 0),
        uid=metadata.get("uid") or _precondition(body),
        version=metadata.get("resourceVersion", ""),
        state=None if text is None else eviction.parse(text),
        user=entry["user"]["username"],
    )


def moment(text: str) -> datetime:
    """Return the parsed moment of a text, which must be valid."""
    found = timestamp.parse(text)
    assert found is not None, text
    return found


def _decoded(line: bytes) -> Json | None:
    try:
        return json.loads(line)
    except ValueError:
        return None  # An API server that was killed leaves half a line.


def _is_write(entry: Mapping[str, Json], namespace: str, user: str) -> bool:
    """True for a write of these users to a pod of this namespace."""
    name, about = str(entry["user"]["username"]), entry["objectRef"]
    return name.endswith(user) and (about["resource"], about.get("namespace")) == (
        "pods",
        namespace,
    )


def _precondition(body: Json) -> str:
    """Return the uid in DeleteOptions, also in those within an Eviction."""
    options = body.get("deleteOptions") or body
    return str((options.get("preconditions") or {}).get("uid", ""))
