"""The contract "checkpoint now", version 1: Reprieve's request and a workload's answers.

One pair of JSON documents for every transport (HTTP body, annotation; for gRPC, `proto/` has the
same fields). `POST` is the request. `GET` on the same path asks for the progress, and must have no
effect. Success is never inferred: only `saved` means that the work is saved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from reprieve_policy.kube.values import json_document, timestamp
from reprieve_policy.kube.values import text as texts
from reprieve_policy.kube.values.json_document import is_optional_text, is_whole_number
from reprieve_policy.verdict import Violation, ViolationKind, unsupported

VERSION = 1
MAX_ANSWER = 16 * 1024
"""Characters of an answer that are read."""
_MAX_STEP = 2**53


class AnswerState(StrEnum):
    """What a workload may answer, and what may be answered for it.

    `idle`: it knows of no such request. `delivered`: the agent has passed the request on. The
    workload itself has not answered, so this has no consequence.
    """

    IDLE = "idle"
    DELIVERED = "delivered"
    ACCEPTED = "accepted"
    SAVING = "saving"
    SAVED = "saved"
    DEFER = "defer"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest:
    """Save your work, then wait for SIGTERM; the pod is deleted at the deadline at the latest."""

    eviction_id: str
    attempt: int
    deadline: datetime
    reason: str
    preemption_class: int
    may_extend: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAnswer:
    """How far the workload is. `step` and `path` belong to `saved`, `defer_seconds` to `defer`.

    A path that cannot be kept as it is (printable, at most 512 bytes) is left out, never cut. A
    replacement without a path looks for its checkpoint itself; a replacement with half a path
    fails.
    """

    state: AnswerState
    eviction_id: str | None = None
    step: int | None = None
    path: str | None = None
    progress: float | None = None
    defer_seconds: int | None = None
    message: str = ""

    def may_belong_to(self, eviction_id: str) -> bool:
        """True if the answer can belong to this eviction.

        An answer that names no eviction can (a plain HTTP handler's). Whether it does depends on
        which request its author got last, which the caller must know.
        """
        return self.eviction_id in (None, eviction_id)


ACCEPTED_WITHOUT_DOCUMENT = CheckpointAnswer(state=AnswerState.ACCEPTED)
"""A 2xx answer without a document: the workload is alive and has got the request, no more."""


def render_request(request: CheckpointRequest) -> str:
    """Return the request as compact JSON."""
    document = {
        "version": VERSION,
        "id": request.eviction_id,
        "attempt": request.attempt,
        "deadline": timestamp.render(request.deadline),
        "reason": request.reason,
        "preemptionClass": request.preemption_class,
        "mayExtend": request.may_extend,
    }
    return json.dumps(document, separators=(",", ":"))


def render_cancelled(eviction_id: str) -> str:
    """Return the document that replaces the request once the mark is removed."""
    return json.dumps(
        {"version": VERSION, "id": eviction_id, "cancelled": True}, separators=(",", ":")
    )


def parse_answer(text: str | bytes, path: str) -> CheckpointAnswer | Violation:
    """Read an answer; `path` is its origin, for messages."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    if len(text) > MAX_ANSWER:
        return Violation(
            path, ViolationKind.INVALID, shown, f"must be at most {MAX_ANSWER} characters"
        )
    try:
        document = json_document.parse(text, MAX_ANSWER)
    except ValueError:
        return Violation(path, ViolationKind.INVALID, shown, "must be JSON")
    if not isinstance(document, dict):
        return Violation(path, ViolationKind.INVALID, shown, "must be a JSON object")
    return read_answer(document, path)


def read_answer(document: Mapping[str, object], path: str) -> CheckpointAnswer | Violation:
    """Check an answer that a transport has decoded; its fields are those of the JSON document."""
    state = document.get("state")
    if not isinstance(state, str) or state not in tuple(AnswerState):
        return unsupported(f"{path}.state", texts.show(state), AnswerState)
    step, progress, seconds = (
        document.get("step"),
        document.get("progress"),
        document.get("deferSeconds"),
    )
    checks = (
        ("id", document.get("id"), is_optional_text(document.get("id")), "must be a string"),
        (
            "step",
            step,
            step is None or is_whole_number(step, 0, _MAX_STEP),
            "must be a whole number, 0 or more",
        ),
        ("path", document.get("path"), is_optional_text(document.get("path")), "must be a string"),
        ("progress", progress, progress is None or _is_share(progress), "must be between 0 and 1"),
        (
            "deferSeconds",
            seconds,
            seconds is None or is_whole_number(seconds, 0, _MAX_STEP),
            "must be a whole number, 0 or more",
        ),
        (
            "message",
            document.get("message"),
            is_optional_text(document.get("message")),
            "must be a string",
        ),
    )
    for field, value, is_good, detail in checks:
        if not is_good:
            return Violation(f"{path}.{field}", ViolationKind.INVALID, texts.show(value), detail)
    return CheckpointAnswer(
        state=AnswerState(state),
        eviction_id=_clipped(document.get("id")),
        step=step if isinstance(step, int) else None,
        path=_unchanged(document.get("path")),
        progress=float(progress) if isinstance(progress, int | float) else None,
        defer_seconds=seconds if isinstance(seconds, int) else None,
        message=_clipped(document.get("message")) or "",
    )


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _clipped(value: object) -> str | None:
    return texts.clip(value) if isinstance(value, str) else None


def _unchanged(value: object) -> str | None:
    return value if isinstance(value, str) and texts.is_clean(value) else None
