"""Damaged reviews: as documents (a value, a field, a key), as texts (cut, flipped), or in size."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from reprieve_policy import keys

from . import corpus, values

MEBIBYTE = 1024 * 1024
_KEYS = sorted(
    {value for value in vars(keys).values() if isinstance(value, str) and "/" in value[:-1]}
)
_PREFIXES = (keys.TOLERATION_PREFIX, keys.OLD_TOLERATION_PREFIX)
_KEYS += [
    prefix + name
    for prefix in _PREFIXES
    for name in (keys.MINIMUM_PREEMPTABLE_PRIORITY, keys.TOLERATION_SECONDS)
]
_KINDS = {
    "Pod": "",
    "Namespace": "",
    "ConfigMap": "",
    "PriorityClass": "scheduling.k8s.io",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicaSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
    "Thing": "example.com",
}
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "create", "", "EXPLODE")

Document = dict[str, Any]


@dataclass(frozen=True)
class Body:
    """Bytes to send as a review, and a description of how they were made."""

    content: bytes
    description: str


def make(rng: Random, recorded: Sequence[str], uid: str) -> Body:
    """Return a recorded review with a uid of its own, unchanged or damaged."""
    document: Document = json.loads(rng.choice(recorded))
    document["request"]["uid"] = uid
    fate = rng.random()
    if fate < 0.0015:
        return _large(rng, document)
    changes = _pick(rng, _DOCUMENT_CHANGES, (0, 1, 1, 1, 2, 3, 6) if fate < 0.8 else (0,))
    for change in changes:
        change(rng, document)
    content, names = values.encode(document), [change.__name__ for change in changes]
    if fate >= 0.8:
        change_text = rng.choice(_TEXT_CHANGES)
        content, names = change_text(rng, content), [*names, change_text.__name__]
    return Body(
        content, ", ".join(name.strip("_").replace("_", " ") for name in names) or "as recorded"
    )


def _pick(
    rng: Random, changes: Sequence[Callable[[Random, Document], None]], counts: Sequence[int]
) -> list[Any]:
    return rng.choices(changes, k=rng.choice(counts))


def _replaced_value(rng: Random, document: Document) -> None:
    holder, key = _place(rng, document)
    holder[key] = values.hostile(rng)


def _removed_field(rng: Random, document: Document) -> None:
    holder, key = _place(rng, document)
    del holder[key]


def _null_everywhere(_: Random, document: Document) -> None:
    _set_leaves(_request(document).get("object"), None)


def _field_said_twice(rng: Random, document: Document) -> None:
    holder, key = _place(rng, document)
    if isinstance(holder, dict):
        holder[f"{key}{values.TWICE}"] = values.hostile(rng)


def _renamed_field(rng: Random, document: Document) -> None:
    holder, key = _place(rng, document)
    if isinstance(holder, dict):
        holder[rng.choice((str(key).upper(), f"{key} ", values.text(rng)))] = holder.pop(key)


def _wrapped_value(rng: Random, document: Document) -> None:
    holder, key = _place(rng, document)
    holder[key] = rng.choice(([holder[key]], {"": holder[key]}, str(holder[key])))


def _known_key(rng: Random, document: Document) -> None:
    """Set a strange value under a key that rules read: such reviews get furthest."""
    request = _request(document)
    for name in ("object", "oldObject") if rng.random() < 0.3 else ("object",):
        holder = request.get(name)
        if isinstance(holder, dict) and rng.random() < 0.3:
            holder = _opened(holder, "spec", "template")
        metadata = _opened(holder, "metadata", rng.choice(("labels", "annotations")))
        metadata[rng.choice(_KEYS)] = (
            values.text(rng) if rng.random() < 0.9 else values.hostile(rng)
        )


def _priority(rng: Random, document: Document) -> None:
    spec = _opened(_request(document).get("object"), "spec")
    spec["priorityClassName"] = rng.choice(corpus.PRIORITY_CLASSES)
    spec["priority"] = rng.choice((None, 0, 1000, -(2**31), 2**31 - 1, 2**31, 0.5))


def _namespace(rng: Random, document: Document) -> None:
    _request(document)["namespace"] = rng.choice(corpus.NAMESPACES)


def _kind(rng: Random, document: Document) -> None:
    kind = rng.choice(tuple(_KINDS))
    _request(document)["kind"] = {"group": _KINDS[kind], "version": "v1", "kind": kind}


def _operation(rng: Random, document: Document) -> None:
    _request(document)["operation"] = rng.choice(_OPERATIONS)


def _objects_exchanged(_: Random, document: Document) -> None:
    request = _request(document)
    request["object"], request["oldObject"] = request.get("oldObject"), request.get("object")


def _many_keys(rng: Random, document: Document) -> None:
    metadata = _opened(
        _request(document).get("object"), "metadata", rng.choice(("labels", "annotations"))
    )
    filling = "k" * rng.choice((0, 300))
    metadata |= {f"k{number}{filling}": "v" for number in range(rng.choice((100, 1000)))}


_DOCUMENT_CHANGES = (
    *(
        _replaced_value,
        _removed_field,
        _null_everywhere,
        _field_said_twice,
        _renamed_field,
        _wrapped_value,
    ),
    *(
        _known_key,
        _known_key,
        _known_key,
        _priority,
        _namespace,
        _kind,
        _operation,
        _objects_exchanged,
        _many_keys,
    ),
)


def _cut(rng: Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def _flipped_bits(rng: Random, content: bytes) -> bytes:
    flipped = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 20))):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _bytes_between(rng: Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    between = rng.choice(
        (
            b"\x00",
            b"\xff",
            b"\xed\xa0\x80",
            b'"',
            b"{",
            b"]",
            b",,",
            b"\\",
            b"NaN",
            rng.randbytes(50),
        )
    )
    return content[:at] + between + content[at:]


def _spliced(rng: Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))] + content[rng.randrange(len(content)) :]


def _said_again(rng: Random, content: bytes) -> bytes:
    return content + rng.choice((b"", b"\n", b",")) + content


def _in_other_letters(rng: Random, content: bytes) -> bytes:
    encoding = rng.choice(("utf-16", "utf-32-be", "utf-8-sig", "utf-7"))
    return content.decode(errors="replace").encode(encoding, errors="replace")


def _compressed(_: Random, content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=1)


def _something_else(rng: Random, _: bytes) -> bytes:
    others = (
        b"",
        b" ",
        b"null",
        b"[]",
        b"0",
        b'"',
        b"{}",
        b'{"request":{}}',
        b"\x00" * 100,
        b"<xml/>",
        b"[" * 50_000,
    )
    return rng.choice((*others, rng.randbytes(rng.choice((1, 100, 5000)))))


_TEXT_CHANGES = (
    *(_cut, _flipped_bits, _flipped_bits, _bytes_between, _spliced, _said_again),
    *(_in_other_letters, _compressed, _something_else),
)


def _large(rng: Random, document: Document) -> Body:
    """Return a review above what is read, above what is decoded (8 MiB), or just below that."""
    size = rng.choice((28, 10, 7)) * MEBIBYTE
    metadata = _opened(_request(document).get("object"), "metadata")
    form = rng.choice(("one value", "many labels", "blanks", "open brackets"))
    if form == "one value":
        metadata["annotations"] = {rng.choice(_KEYS): "9" * size}
    elif form == "many labels":
        metadata["labels"] = {f"label-{number:010}": "v" for number in range(size // 25)}
    elif form == "blanks":
        return Body(values.encode(document).ljust(size), f"{size} bytes of {form}")
    else:
        return Body(b"[" * size, f"{size} bytes of {form}")
    return Body(values.encode(document), f"some {size} bytes of {form}")


def _request(document: Document) -> Document:
    return _opened(document, "request")


def _place(rng: Random, document: Document) -> tuple[Any, Any]:
    """Return a random place in the document: its container, and its key or index there."""
    holder: Any = document or {"": None}
    while True:
        key: Any = (
            rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        )
        below = holder[key]
        if (
            not isinstance(below, dict | list)
            or not below
            or (holder is not document and rng.random() < 0.15)
        ):
            return holder, key
        holder = below


def _opened(holder: Any, *path: str) -> Document:
    """Return the map at a path; create it, or return an unattached one where it cannot exist."""
    here: Any = holder if isinstance(holder, dict) else {}
    for name in path:
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
    found: Document = here
    return found


def _set_leaves(holder: Any, value: Any) -> None:
    if not isinstance(holder, dict | list):
        return
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        if isinstance(holder[key], dict | list):
            _set_leaves(holder[key], value)
        else:
            holder[key] = value
