"""The objects that `check` reads, each with its place in a file."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reprieve_cli.manifests import documents, manifest_objects, sources
from reprieve_cli.manifests.documents import Document
from reprieve_cli.manifests.manifest_objects import ManifestObject
from reprieve_cli.manifests.sources import SourceText, Unreadable
from reprieve_cli.output.finding import Finding, Level, ObjectName, Summary
from reprieve_policy.kube.objects import Resource, annotations_of

from .known_objects import POLICY_MAP, KnownObjects, namespace_policy

_POLICY_KINDS = ("PriorityClass", "Namespace", "ElasticQuota", "ConfigMap")


class ManifestItem(NamedTuple):
    """An object, and where it is written."""

    document: Document
    manifest_object: ManifestObject


Item = ManifestItem | Finding
"""A part of a file: an object, or the finding that it cannot be read."""


class InputReader:
    """Reads files and folders, each file once, and counts them."""

    def __init__(self, namespace: str, excluded: Sequence[str], summary: Summary) -> None:
        self._namespace = namespace
        self._excluded = excluded
        self._summary = summary
        self._seen: set[str] = set()

    def read(self, names: Iterable[str], *, recursive: bool) -> Iterator[Item]:
        """Yield the objects of files and folders."""
        for text in sources.read_all(names, recursive=recursive, excluded=self._excluded):
            path = os.path.realpath(text.file)
            if path not in self._seen:
                self._seen.add(path)
                self._summary.files += 1
                yield from self._items(text)

    def read_policy(self, folders: Iterable[str]) -> Iterator[Item]:
        """Yield the objects of folders that rules for other objects depend on."""
        for item in self.read(folders, recursive=True):
            if isinstance(item, Finding) or item.manifest_object.name.kind in _POLICY_KINDS:
                yield item

    def _items(self, text: SourceText) -> Iterator[Item]:
        if isinstance(text.content, Unreadable):
            yield _unreadable(text.file, text.content)
            return
        found = documents.read_unless_of_another_purpose(text, text.content)
        if found is None:
            self._summary.skipped += 1
            return
        for each in found:
            if isinstance(each, Unreadable):
                yield _unreadable(text.file, each)
            else:
                document, value = each
                built = manifest_objects.build(value, self._namespace, document.written)
                yield ManifestItem(document, built)


def collect(items: Iterable[Item], *, is_complete: bool) -> KnownObjects:
    """Return what the objects say about the cluster."""
    known_objects = KnownObjects(is_complete=is_complete)
    for item in items:
        if isinstance(item, ManifestItem):
            known_objects.add(item.manifest_object)
    return known_objects


def redefinitions(items: Sequence[Item]) -> Mapping[int, Finding]:
    """Return a warning for each object that differs from its first definition, by its position.

    Only for objects that rules for other objects depend on.
    """
    first: dict[ObjectName, ManifestItem] = {}
    found: dict[int, Finding] = {}
    for index, item in enumerate(items):
        if isinstance(item, Finding):
            continue
        name, meaning = item.manifest_object.name, _meaning(item.manifest_object)
        if meaning is None:
            continue
        before = first.setdefault(name, item)
        if meaning != _meaning(before.manifest_object):
            found[index] = _redefinition(item, before.document)
    return found


def _meaning(item: ManifestObject) -> object:
    """Return what rules for other objects read; `None` if they read nothing."""
    resource: Resource | None = item.resource
    if resource is None or resource.kind not in _POLICY_KINDS:
        return None
    if resource.kind == "Namespace":
        return namespace_policy(resource)
    if resource.kind == "ConfigMap":
        return resource.data if item.name == POLICY_MAP else None
    values = (resource.value, resource.globalDefault, resource.preemptionPolicy, resource.spec)
    return (annotations_of(resource.metadata), *values)


def _redefinition(item: ManifestItem, before: Document) -> Finding:
    is_namespace = item.manifest_object.name.kind == "Namespace"
    judged = "its objects must pass under both" if is_namespace else "the last definition counts"
    place = f"{before.file}:{before.line_of()}"
    return Finding(
        level=Level.WARNING, message=f"defined differently in {place}: {judged}"
    ).with_location(item.document.file, item.document.line_of(), item.manifest_object.name)


def _unreadable(file: str, error: Unreadable) -> Finding:
    return Finding(level=Level.UNREADABLE, file=file, line=error.line, message=error.reason)
