"""What is kept of the labels and annotations of a large pod: few KiB, and all that is read of them.

Sizes are those in memory: a text with one emoji takes four bytes for each of its characters.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping

from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.gangs import dialects
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.mark import Mark

ENTRY_BYTES = 100
"""Counted for each entry besides its texts: its place in a table."""
_MAX_BYTES = 8 * 1024
"""Of the labels and annotations of one large pod together."""
_MAX_VALUE_BYTES = sys.getsizeof("x" * 1024)
"""Of an annotation; a longer one is left out, unless it is one of `_READERS`."""
_SHOWN_CHARACTERS = 64
_POLICY_KEYS = {key: key for key in keys.every_key()}
"""The text of a key is shared by all pods. Without this, their keys would take 8 KiB of each."""
_FIRST_KEYS = (
    keys.EVICTION,
    keys.KOORDINATOR_SOFT_EVICTION,
    keys.SOFT_EVICTION,
    keys.PREEMPTOR,
    keys.REFUSED_SINCE,
    keys.CHECKPOINT_REQUEST,
    keys.CHECKPOINT_ANSWER,
    keys.GANG_GATE_LABEL,
)
"""What the programs write, and what an eviction in progress depends on. After these, those of gangs
and then the shortest are kept: a pod that uses each key as it is meant has none too many."""
_GANG_KEYS = {keys.DISRUPTION_MODE, keys.KOORDINATOR_MODE} | {
    place.key for dialect in dialects.DIALECTS for place in dialects.fields_read_of(dialect)
}
"""A pod that loses its gang would be evicted alone, and the rest of it told nothing."""


def size_of(texts: Iterable[str]) -> int:
    """Return the bytes of memory that texts take."""
    return sum(map(sys.getsizeof, texts))


def size_of_entries(entries: Mapping[str, object]) -> int:
    """Return the bytes of memory that labels, annotations or amounts take."""
    values = sum(map(sys.getsizeof, entries.values()))
    return size_of(entries.keys()) + values + ENTRY_BYTES * len(entries)


def of_large_pod(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that are read, as far as they are kept."""
    found = [(_POLICY_KEYS[key], text, True) for key, text in labels.items() if key in _POLICY_KEYS]
    found += [(_POLICY_KEYS[key], text, False) for key, text in _shortened(annotations).items()]
    found.sort(key=lambda entry: _rank(*entry[:2]))
    left, kept_labels, kept_annotations = _MAX_BYTES, dict[str, str](), dict[str, str]()
    for key, text, is_label in found:
        size = sys.getsizeof(text) + ENTRY_BYTES
        if size <= left:
            left -= size
            (kept_labels if is_label else kept_annotations)[key] = text
    return kept_labels, kept_annotations


def _rank(key: str, text: str) -> tuple[int, bool, int]:
    first = _FIRST_KEYS.index(key) if key in _FIRST_KEYS else len(_FIRST_KEYS)
    return first, key not in _GANG_KEYS, sys.getsizeof(text)


def _shortened(annotations: Mapping[str, str]) -> dict[str, str]:
    known = {key: text for key, text in annotations.items() if key in _POLICY_KEYS}
    return {
        key: _READERS[key](text) if key in _READERS else text
        for key, text in known.items()
        if key in _READERS or sys.getsizeof(text) <= _MAX_VALUE_BYTES
    }


def _state(text: str) -> str:
    read = eviction.parse(text)
    return (
        _unreadable(text)
        if read is None
        else _escaped(eviction.render(read), eviction.MAX_ANNOTATION)
    )


def _escaped(document: str, most: int) -> str:
    """Return a JSON document in ASCII, unless it is longer than is read then.

    Without this, one emoji has a state of 2,000 characters take 8 KiB.
    """
    escaped = json.dumps(json.loads(document), separators=(",", ":"))
    return escaped if len(escaped) <= most else document


def _mark(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    read = mark.parse_annotation(text, "")
    if not isinstance(read, Mark):
        return _unreadable(text)
    return _escaped(mark.render(read), mark.MAX_ANNOTATION)


def _answer(text: str) -> str:
    read = contract.parse_answer(text, "")
    return _render_answer(read) if isinstance(read, CheckpointAnswer) else _unreadable(text)


def _render_answer(answer: CheckpointAnswer) -> str:
    document = {
        "state": answer.state,
        "id": answer.eviction_id,
        "step": answer.step,
        "path": answer.path,
        "progress": answer.progress,
        "deferSeconds": answer.defer_seconds,
        "message": answer.message,
    }
    present = {key: value for key, value in document.items() if value is not None}
    return json.dumps(present, separators=(",", ":"))


def _unreadable(text: str) -> str:
    """Return the beginning of a text that cannot be read, as one that cannot be read either.

    Without this, its author could take back an eviction by a longer mark, or have one begin again
    whose state is half.
    """
    return "..." + text[:_SHOWN_CHARACTERS]


_READERS: Mapping[str, Callable[[str], str]] = {
    keys.EVICTION: _state,
    keys.KOORDINATOR_SOFT_EVICTION: _mark,
    keys.CHECKPOINT_ANSWER: _answer,
    # Only whether it is there is read.
    keys.CHECKPOINT_REQUEST: lambda text: text[:_SHOWN_CHARACTERS],
}
