"""A cluster as `kubectl get … -o json` or `-o yaml` wrote it down, in files that may be large.

A list in JSON is cut into its objects without decoding them; each is then decoded once, for the few fields that are read,
in the order in which a stage wants them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from reprieve_cli.manifests import documents, sources
from reprieve_cli.manifests.sources import SourceText, Unreadable
from reprieve_cli.output.finding import printable
from reprieve_cli.output.progress import ProgressCounter

from .snapshot_builder import BY_GROUP_KIND, OBJECT_KINDS, ObjectKind, SnapshotBuilder

_MIB = 1024 * 1024
MAX_BYTES = 1024 * _MIB
"""Of one file: 100,000 pods of 10 KB."""


class MissingKind(NamedTuple):
    """A kind of which a dump has no object, and what that means for who reads on."""

    kind: str
    consequence: str


_REQUIRED_KINDS = (
    MissingKind("Namespace", "every namespace counts as one that says nothing"),
    MissingKind(
        "PriorityClass",
        "nobody tolerates anybody, and a preemptor's priority must stand in its pod",
    ),
)

_OPTIONAL_KINDS = {
    "ElasticQuota": "pods that name one are judged without it",
    "PodGroup": "pods that name one go one by one, by their own priority",
}
"""Kinds that few clusters have: they are missing where a pod names one that is not there."""


class _TypeMeta(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - the API's own name


class _TypedList(_TypeMeta):
    items: list[msgspec.Raw] | None = None


class _Item(NamedTuple):
    """One object that is not decoded yet, what it is, and where it stands."""

    object_kind: ObjectKind | None
    location: str
    content: msgspec.Raw | Mapping[str, Any]


def read(
    files: Iterable[str], cluster_view: SnapshotBuilder, report: Callable[[str], None]
) -> list[MissingKind]:
    """Have the stage take in what the files have, and return what they have nothing of; what cannot be read is told."""
    found: dict[ObjectKind, list[_Item]] = defaultdict(list)
    with ProgressCounter("objects found") as counter:
        for text in sources.read_all(files, recursive=False, max_bytes=MAX_BYTES):
            for item in _items(text):
                if isinstance(item, str):
                    report(item)
                elif item.object_kind is not None:
                    found[item.object_kind].append(item)
                counter.count()
    missing = [
        wanted for wanted in _REQUIRED_KINDS if not any(role.kind == wanted.kind for role in found)
    ]
    with ProgressCounter("objects read") as counter:
        for role in OBJECT_KINDS:
            # Forgotten one by one: all objects of a large cluster, decoded, would take several times the file's room.
            for item in _pop_each(found[role]):
                _add(item, role, cluster_view, report)
                counter.count()
    return missing


def missing_references(cluster_view: SnapshotBuilder) -> list[MissingKind]:
    """Return what pods name and the files have not, once of each kind; asked when the preemptor is known too."""
    return [
        MissingKind(f"{kind} like {printable(name)}", _OPTIONAL_KINDS[kind])
        for kind, name in sorted(cluster_view.missing_references.items())
    ]


def _pop_each(items: list[_Item]) -> Iterator[_Item]:
    items.reverse()
    while items:
        yield items.pop()


def _add(
    item: _Item,
    object_kind: ObjectKind,
    cluster_view: SnapshotBuilder,
    report: Callable[[str], None],
) -> None:
    try:
        if isinstance(item.content, msgspec.Raw):
            object_kind.add(
                cluster_view, msgspec.json.decode(item.content, type=object_kind.decode_as)
            )
        else:
            object_kind.add(cluster_view, msgspec.convert(item.content, object_kind.decode_as))
    except msgspec.ValidationError as error:
        report(f"{item.location}: {object_kind.kind}: {error}")


def _items(text: SourceText) -> Iterator[_Item | str]:
    """Yield the objects of a file, or sentences about what cannot be read."""
    if isinstance(text.content, Unreadable):
        yield f"{text.file}: {text.content.reason}"
        return
    listed = _decode_list(text.content)
    if listed is not None:
        yield from _listed(text.file, listed, text.content)
        return
    if len(text.content) > sources.MAX_BYTES:
        yield f"{text.file}: larger than {sources.MAX_BYTES // _MIB} MiB, and not one list in JSON: use kubectl's -o json"
        return
    for found in documents.read(text.file, text.content):
        if isinstance(found, Unreadable):
            yield f"{text.file}:{found.line}: {found.reason}"
        else:
            document, value = found
            place = f"{text.file}: {'.'.join(map(str, document.steps))}".removesuffix(": ")
            yield _Item(_object_kind(_TypeMeta(value["kind"], value["apiVersion"])), place, value)


def _decode_list(content: str) -> _TypedList | None:
    """Return a list or an object in JSON; `None` where it is neither, or more than one."""
    if content.lstrip()[:1] != "{":
        return None
    try:
        return msgspec.json.decode(content, type=_TypedList)
    except msgspec.DecodeError:
        return None


def _listed(file: str, listed: _TypedList, content: str) -> Iterator[_Item | str]:
    if listed.items is None or not listed.kind.endswith("List"):
        yield _Item(_object_kind(listed), file, msgspec.Raw(content.encode()))
        return
    inherited = _TypeMeta(listed.kind.removesuffix("List"), listed.apiVersion)
    for index, item in enumerate(listed.items):
        place = f"{file}: items.{index}"
        try:
            typed = msgspec.json.decode(item, type=_TypeMeta)
        except msgspec.ValidationError as error:
            yield f"{place}: {error}"
            continue
        yield _Item(_object_kind(typed if typed.kind else inherited), place, item)


def _object_kind(typed: _TypeMeta) -> ObjectKind | None:
    return BY_GROUP_KIND.get((typed.apiVersion.rpartition("/")[0], typed.kind))
