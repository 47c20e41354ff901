"""The changes of one pod, from the API server's audit log."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PAUSE_SECONDS = 0.05
_ANSWER_SECONDS = 5.0
"""How long to wait for the entry of an answer; an API server that was killed writes none."""


READ_VERBS = ("get", "list", "watch")
"""In the log only where a run collects which rights the programs use."""


@dataclass(frozen=True)
class AuditEntry:
    """One change of a pod in the API server's audit log."""

    at: str
    verb: str
    subresource: str
    user: str
    status: int

    @property
    def what(self) -> str:
        """`patch`, `patch status`, `delete`, …"""
        return f"{self.verb} {self.subresource}".strip()


def changes_of_a_pod(log: Path, namespace: str, name: str, user: str) -> list[AuditEntry]:
    """Return the answered changes of a pod by users whose name ends with `user`, oldest first.

    A change is visible in the cluster shortly before its answer is in the log. So this waits for
    the answer to each of the operator's requests that the log says were received.
    """
    give_up_at = time.monotonic() + _ANSWER_SECONDS
    while True:
        entries = list(_entries_about(log, namespace, name, user))
        if not _are_under_way(entries) or time.monotonic() > give_up_at:
            return [_change(entry) for entry in entries if entry["stage"] == "ResponseComplete"]
        time.sleep(_PAUSE_SECONDS)


def _are_under_way(entries: Sequence[dict[str, Any]]) -> bool:
    stages = ("RequestReceived", "ResponseComplete", "Panic")
    received, complete, failed = (
        {entry["auditID"] for entry in entries if entry["stage"] == stage} for stage in stages
    )
    return bool(received - complete - failed)


def _entries_about(log: Path, namespace: str, name: str, user: str) -> Iterator[dict[str, Any]]:
    text = log.read_text() if log.exists() else ""
    for line in text.split("\n")[:-1]:  # the API server may be writing the last line
        if name in line and namespace in line:
            entry = json.loads(line)
            target = entry["objectRef"]
            found = (target["resource"], target.get("namespace"), target.get("name"))
            is_change = entry["verb"] not in READ_VERBS
            is_by_user = entry["user"]["username"].endswith(user)
            if found == ("pods", namespace, name) and is_change and is_by_user:
                yield entry


def _change(entry: dict[str, Any]) -> AuditEntry:
    return AuditEntry(
        entry["requestReceivedTimestamp"],
        entry["verb"],
        entry["objectRef"].get("subresource", ""),
        entry["user"]["username"],
        entry["responseStatus"]["code"],
    )
