"""The documents of the contract "checkpoint now": requests, and the fields of an answer.

`docs/contract.md` describes them. No I/O here.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

MAX_REQUEST_BYTES = 16 * 1024
"""Bytes of a request that are read; Reprieve's are a few hundred."""
MAX_PATH_BYTES = 512
"""A longer path is left out of an answer by its reader, so it is not sent."""
MAX_MESSAGE_CHARACTERS = 500
"""An answer of more than 16 KiB is not read. In JSON, a character has up to 12 bytes."""

IDLE, ACCEPTED, SAVING, SAVED = "idle", "accepted", "saving", "saved"
DEFER, CANNOT = "defer", "cannot"
SETTLED = (SAVED, CANNOT)
"""The states after which nothing more is to be done for a request."""

Answer = dict[str, Any]


class Request(NamedTuple):
    """What Reprieve asks: save by the deadline. A request with `cancelled` takes it back."""

    id: str
    attempt: int = 1
    deadline: str = ""
    """In UTC, like `2026-11-21T12:10:00Z`."""
    reason: str = ""
    preemption_class: int | None = None
    may_extend: bool = False
    cancelled: bool = False


def parse_request(text: str | bytes) -> Request | None:
    """Read a request; `None` if this is none. Unknown fields are ignored."""
    if len(text) > MAX_REQUEST_BYTES:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        return None
    attempt, level = document.get("attempt"), document.get("preemptionClass")
    deadline, reason = document.get("deadline"), document.get("reason")
    return Request(
        id=document["id"],
        attempt=attempt if isinstance(attempt, int) else 1,
        # Not `str`: it fails for what is nested too deeply, and would end the thread that reads.
        deadline=deadline if isinstance(deadline, str) else "",
        reason=reason if isinstance(reason, str) else "",
        preemption_class=level if isinstance(level, int) else None,
        may_extend=document.get("mayExtend") is True,
        cancelled=document.get("cancelled") is True,
    )


def render_answer(answer: Answer) -> str:
    """Return an answer as compact JSON."""
    return json.dumps(answer, separators=(",", ":"))


def cut_message(message: str) -> str | None:
    """Return a message as an answer carries it; `None` without one."""
    return message[:MAX_MESSAGE_CHARACTERS] or None


def printable_path(path: object) -> str | None:
    """Return a path as an answer carries it; `None` without one, or where it cannot be sent."""
    if path is None:
        return None
    text = str(path)
    return text if text.isprintable() and 0 < len(text.encode()) <= MAX_PATH_BYTES else None
