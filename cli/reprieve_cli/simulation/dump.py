"""Reads dumps of a cluster: files, possibly large, from `kubectl get … -o json` or `-o yaml`.

A list in JSON is split into its objects without decoding them. Each object is then decoded once,
only the fields that are needed, in the order that the snapshot builder needs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from reprieve_cli.manifests import documents, sources
from reprieve_cli.manifests.sources import SourceText, Unreadable
from reprieve_cli.output.finding import printable
from reprieve_cli.output.progress import ProgressCounter
from reprieve_policy.kube.objects import group_of
from reprieve_runtime import deep

from .snapshot_builder import BY_GROUP_KIND, OBJECT_KINDS, ObjectKind, SnapshotBuilder

_MIB = 1024 * 1024
MAX_BYTES = 1024 * _MIB
"""Limit of one file: 100,000 pods of 10 KB."""


class MissingKind(NamedTuple):
    """A kind of which a dump has no object, and what follows from that."""

    kind: str
    consequence: str


_REQUIRED_KINDS = (
    MissingKind("Namespace", "every namespace counts as one without annotations"),
    MissingKind(
        "PriorityClass",
        "no pod tolerates any preemptor, and the preemptor needs spec.priority",
    ),
)

_OPTIONAL_KINDS = {
    "ElasticQuota": "pods that name one are evaluated without it",
    "PodGroup": "pods that name one are evicted one by one, by their own priority",
}
"""Kinds that few clusters have: reported only if a pod names an object that the files lack."""


class _TypeMeta(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - the API's own name


class _TypedList(_TypeMeta):
    items: list[msgspec.Raw] | None = None


class _DumpItem(NamedTuple):
    """One object that is not decoded yet, its kind, and its location in the files."""

    object_kind: ObjectKind | None
    location: str
    content: msgspec.Raw | Mapping[str, Any]


def read(
    files: Iterable[str], builder: SnapshotBuilder, report: Callable[[str], None]
) -> list[MissingKind]:
    """Add the objects of the files to the builder; return the required kinds that the files lack.

    Reports what cannot be read.
    """
    items_by_kind: dict[ObjectKind, list[_DumpItem]] = defaultdict(list)
    with ProgressCounter("objects found") as counter:
        for text in sources.read_all(files, recursive=False, max_bytes=MAX_BYTES):
            for item in _items(text):
                if isinstance(item, str):
                    report(item)
                elif item.object_kind is not None:
                    items_by_kind[item.object_kind].append(item)
                counter.count()
    missing = [
        required
        for required in _REQUIRED_KINDS
        if not any(object_kind.kind == required.kind for object_kind in items_by_kind)
    ]
    with ProgressCounter("objects read") as counter:
        for object_kind in OBJECT_KINDS:
            # Each item is dropped once it is decoded: all decoded objects of a large cluster would
            # take several times the memory of the file.
            for item in _pop_each(items_by_kind[object_kind]):
                _add(item, object_kind, builder, report)
                counter.count()
    return missing


def missing_references(builder: SnapshotBuilder) -> list[MissingKind]:
    """Return what pods name and the files lack, once for each kind.

    To be called when the preemptor is built: its pods may name such objects too.
    """
    return [
        MissingKind(f"{kind} like {printable(name)}", _OPTIONAL_KINDS[kind])
        for kind, name in sorted(builder.missing_references.items())
    ]


def _pop_each(items: list[_DumpItem]) -> Iterator[_DumpItem]:
    items.reverse()
    while items:
        yield items.pop()


def _add(
    item: _DumpItem,
    object_kind: ObjectKind,
    builder: SnapshotBuilder,
    report: Callable[[str], None],
) -> None:
    try:
        if isinstance(item.content, msgspec.Raw):
            object_kind.add(builder, deep.decode(item.content, object_kind.decode_as))
        else:
            object_kind.add(builder, msgspec.convert(item.content, object_kind.decode_as))
    except msgspec.ValidationError as error:
        report(f"{item.location}: {object_kind.kind}: {error}")


def _items(text: SourceText) -> Iterator[_DumpItem | str]:
    """Yield the objects of a file, and messages about what cannot be read."""
    if isinstance(text.content, Unreadable):
        yield f"{text.file}: {text.content.reason}"
        return
    listed = _decode_list(text.content)
    if listed is not None:
        yield from _listed(text.file, listed, text.content)
        return
    if len(text.content) > sources.MAX_BYTES:
        limit = f"larger than {sources.MAX_BYTES // _MIB} MiB"
        yield f"{text.file}: {limit}, and not a single list in JSON: use kubectl's -o json"
        return
    for found in documents.read_unless_of_another_purpose(text, text.content) or ():
        if isinstance(found, Unreadable):
            yield f"{text.file}:{found.line}: {found.reason}"
        else:
            document, value = found
            location = f"{text.file}: {'.'.join(map(str, document.steps))}".removesuffix(": ")
            typed = _TypeMeta(value["kind"], value["apiVersion"])
            yield _DumpItem(_object_kind(typed), location, value)


def _decode_list(content: str) -> _TypedList | None:
    """Return the one list or object of a JSON text; `None` if it is anything else."""
    if content.lstrip()[:1] != "{":
        return None
    try:
        return deep.decode(content, _TypedList)
    except msgspec.DecodeError:
        return None


def _listed(file: str, listed: _TypedList, content: str) -> Iterator[_DumpItem | str]:
    if listed.items is None or not listed.kind.endswith("List"):
        yield _DumpItem(_object_kind(listed), file, msgspec.Raw(content.encode()))
        return
    inherited = _TypeMeta(listed.kind.removesuffix("List"), listed.apiVersion)
    for index, item in enumerate(listed.items):
        location = f"{file}: items.{index}"
        try:
            typed = deep.decode(item, _TypeMeta)
        except msgspec.ValidationError as error:
            yield f"{location}: {error}"
            continue
        yield _DumpItem(_object_kind(typed if typed.kind else inherited), location, item)


def _object_kind(typed: _TypeMeta) -> ObjectKind | None:
    return BY_GROUP_KIND.get((group_of(typed.apiVersion), typed.kind))
