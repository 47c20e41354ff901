"""A soft-eviction mark: the request that a pod leaves. A mark alone deletes nothing.

There are three dialects (document 000 and Koordinator's `apis/extension/descheduling.go`): our
label, `requested` or `evict`; Koordinator's annotation, JSON `{timestamp, deleteOptions, initiator,
reason}` or the bare `true` that its comment allows; and the label of the same key in its proposal.
Timestamps are information only. Notice always counts from when Reprieve sees the mark, so that a
date in the past shortens no notice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reprieve_policy.keys import KOORDINATOR_SOFT_EVICTION, SOFT_EVICTION
from reprieve_policy.kube.values import json_document, timestamp
from reprieve_policy.kube.values import text as texts
from reprieve_policy.kube.values.json_document import is_optional_text, is_whole_number
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path

REQUESTED = "requested"
"""The value of our label that a user sets."""

EVICT = "evict"
"""The value that the guard sets for an eviction. The pod is then evicted, because the requesting
client may evict it and perhaps not delete it."""

REQUESTING_VALUES = (REQUESTED, EVICT)
"""The values of our label that are a request by themselves."""

MARKED = "marked"
"""The value that Reprieve sets beside a mark in another dialect, so that the operator's watch
selects the pod. It is no request by itself. Without this, a mark that was removed before the
operator saw it would leave our label behind, and the pod would be evicted."""

GUARD_INITIATOR = "kube-scheduler"
RECLAIM_INITIATOR = "reprieve-reclaim"
"""Initiators of the marks that Reprieve itself sets in Koordinator's annotation: for a scheduler,
which sets none, and for the Namespace that owns a node."""

MAX_TEXT = 256
"""Bytes kept of an initiator or a reason, because the state must stay well below 4096 bytes."""

MAX_ANNOTATION = 16 * 1024
"""Characters of an annotation that are read; a longer one is not parsed."""

_EXPECTED = (
    'must be "true" or a JSON object '
    'like {"timestamp":"2006-01-02T15:04:05Z","initiator":"descheduler"}'
)
_NOT_A_MARK = ("", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Who asked, why and when, as far as the mark states it."""

    initiator: str = ""
    reason: str = ""
    requested_at: datetime | None = None
    grace_seconds: int | None = None
    """`deleteOptions.gracePeriodSeconds`: may shorten the pod's own grace period, never lengthen
    it."""
    victims: int | None = None
    """How many victims its preemptor has on the node, in a mark of the guard; `None`: unknown."""


def read(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mark | Violation | None:
    """Return the pod's mark, the most detailed one if there are several.

    A violation if that one is unreadable; `None` if there is no mark.
    """
    if annotations.get(KOORDINATOR_SOFT_EVICTION, "") not in _NOT_A_MARK:
        parsed = parse_annotation(
            annotations[KOORDINATOR_SOFT_EVICTION], annotation_path("", KOORDINATOR_SOFT_EVICTION)
        )
        # An unreadable annotation does not remove a mark that is also set as a label.
        if isinstance(parsed, Mark) or not _is_labelled(labels):
            return parsed
    return Mark(initiator=_label_initiator(labels)) if _is_labelled(labels) else None


def is_marked(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """True if any dialect asks for an eviction, readable or not."""
    is_annotated = annotations.get(KOORDINATOR_SOFT_EVICTION, "") not in _NOT_A_MARK
    return _is_labelled(labels) or is_annotated


def parse_annotation(text: str, path: str) -> Mark | Violation:
    """Read Koordinator's annotation. Unknown fields are ignored; wrong types are violations."""
    if text == "true":
        return Mark()
    if len(text) > MAX_ANNOTATION:
        return Violation(
            path, ViolationKind.INVALID, text, f"must be at most {MAX_ANNOTATION} characters"
        )
    document = json_document.read(text, MAX_ANNOTATION)
    if not isinstance(document, dict):
        return Violation(path, ViolationKind.INVALID, text, _EXPECTED)
    return _from_document(document, path)


def is_written_by_reprieve(annotations: Mapping[str, str]) -> bool:
    """True if Koordinator's annotation is there and Reprieve has set it."""
    parsed = parse_annotation(annotations.get(KOORDINATOR_SOFT_EVICTION, ""), "")
    return isinstance(parsed, Mark) and parsed.initiator in (GUARD_INITIATOR, RECLAIM_INITIATOR)


def render(mark: Mark) -> str:
    """Return a mark as Koordinator's annotation, without the fields that are not set."""
    options = None if mark.grace_seconds is None else {"gracePeriodSeconds": mark.grace_seconds}
    document = {
        "timestamp": None if mark.requested_at is None else timestamp.render(mark.requested_at),
        "deleteOptions": options,
        "initiator": mark.initiator or None,
        "reason": mark.reason or None,
        "victims": mark.victims,
    }
    present = {key: value for key, value in document.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), ensure_ascii=False)


def _from_document(document: dict[str, object], path: str) -> Mark | Violation:
    options = document.get("deleteOptions")
    options = {} if options is None else options
    grace = options.get("gracePeriodSeconds") if isinstance(options, dict) else options
    moment, victims = document.get("timestamp"), document.get("victims")
    checks = (
        (
            "timestamp",
            moment,
            moment is None or timestamp.parse(moment) is not None,
            "must be RFC 3339 or an epoch",
        ),
        (
            "initiator",
            document.get("initiator"),
            is_optional_text(document.get("initiator")),
            "must be a string",
        ),
        (
            "reason",
            document.get("reason"),
            is_optional_text(document.get("reason")),
            "must be a string",
        ),
        ("deleteOptions", options, isinstance(options, dict), "must be an object"),
        (
            "deleteOptions.gracePeriodSeconds",
            grace,
            grace is None or is_whole_number(grace, 0),
            "must be whole seconds, 0 or more",
        ),
    )
    for field, value, is_good, detail in checks:
        if not is_good:
            return Violation(f"{path}.{field}", ViolationKind.INVALID, texts.show(value), detail)
    return Mark(
        initiator=_text(document.get("initiator")),
        reason=_text(document.get("reason")),
        requested_at=timestamp.parse(moment),
        grace_seconds=grace if isinstance(grace, int) else None,
        # Of Reprieve alone: another program's field of this name is ignored, as any other.
        victims=victims if isinstance(victims, int) and is_whole_number(victims, 1) else None,
    )


def _is_labelled(labels: Mapping[str, str]) -> bool:
    return (
        labels.get(SOFT_EVICTION) in REQUESTING_VALUES
        or labels.get(KOORDINATOR_SOFT_EVICTION, "") not in _NOT_A_MARK
    )


def _label_initiator(labels: Mapping[str, str]) -> str:
    value = labels.get(KOORDINATOR_SOFT_EVICTION, "")
    return "" if value in (*_NOT_A_MARK, "true") else _text(value)


def _text(value: object) -> str:
    return texts.clip(value, MAX_TEXT) if isinstance(value, str) else ""
