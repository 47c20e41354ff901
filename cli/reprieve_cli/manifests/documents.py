"""Splits a file's text into Kubernetes objects, also those in lists, with their fields' lines."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from reprieve_policy.kube.kinds import KINDS

from . import field_paths, json_lines, yaml_lines
from .field_paths import PathStep
from .sources import SourceText, Unreadable

_TYPE_FIELDS = ("apiVersion", "kind")
_MENTIONS_TYPE = re.compile(rf"\b(?:{'|'.join(_TYPE_FIELDS)})[\"']?\s*:")
HELM_ACTION = re.compile(r"(?<!\$)\{\{")
"""What `helm template` replaces; with `$` before it, it is an expression of a workflow."""
HELM_HINT = "; is it a template of Helm? helm template . | reprieve check -"
_RENDERED_BY = {
    "kustomization.yaml": "kubectl kustomize {folder} | reprieve check -",
    "kustomization.yml": "kubectl kustomize {folder} | reprieve check -",
    "Chart.yaml": "helm template {folder} | reprieve check -",
}
"""The command that makes objects of a file that is none."""


class NotAnObject(Unreadable):
    """A document without the fields of a Kubernetes object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The source of one object: enough to find a field's line without keeping every parsed tree."""

    file: str
    first_line: int
    text: str
    syntax: ModuleType
    steps: tuple[PathStep, ...] = ()
    """The object's path in the text, like `("items", 3)` in a list."""

    def line_of(self, path: str = "") -> int:
        """Return the line of a field, or of the longest part of its path that exists; from 1."""
        found: int = self.syntax.line_of(self.text, (*self.steps, *field_paths.parse(path)))
        return self.first_line + found

    def written(self, path: str) -> str | None:
        """Return a scalar without quotes as the file has it; `None` if there is none."""
        text: str | None = self.syntax.scalar_at(self.text, (*self.steps, *field_paths.parse(path)))
        return text


Found = tuple[Document, Any] | Unreadable
"""What one document is: an object as a mapping, or why it cannot be read, with the file's line."""


def read_unless_of_another_purpose(text: SourceText, content: str) -> Iterator[Found] | None:
    """Return what `read` yields; `None` for a file from a folder that holds no object.

    It reads up to the first object, and the rest as it is asked for: all parsed trees of a large
    file at once take many times its size.
    """
    found = read(text.file, content)
    first = list(_up_to_first_object(found))
    has_object = any(not isinstance(each, NotAnObject) for each in first)
    return chain(first, found) if text.is_named or has_object or not first else None


def _up_to_first_object(found: Iterator[Found]) -> Iterator[Found]:
    for each in found:
        yield each
        if not isinstance(each, NotAnObject):
            return


def read(file: str, text: str) -> Iterator[Found]:
    """Yield each object as a mapping, or why it cannot be read with the file's line, from 1."""
    try:
        syntax, parts = _split(file, text)
    except Unreadable as error:
        yield _syntax_error(error.reason, error.line + 1, text)
        return
    for first_line, part in parts:
        document = Document(file=file, first_line=first_line, text=part, syntax=syntax)
        try:
            yield from _objects(document, syntax.read(part))
        except Unreadable as error:
            yield _syntax_error(error.reason, first_line + error.line, part)


def _syntax_error(reason: str, line: int, text: str) -> Unreadable:
    if HELM_ACTION.search(text):
        reason += HELM_HINT
    return (Unreadable if _MENTIONS_TYPE.search(text) else NotAnObject)(reason, line)


def _split(file: str, text: str) -> tuple[ModuleType, Iterable[tuple[int, str]]]:
    """Return the syntax and the documents.

    A text that begins like JSON but is not is read as YAML, unless the file's name ends in `.json`.
    """
    if file.endswith(".json"):
        return json_lines, tuple(json_lines.split(text))
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json_lines, tuple(json_lines.split(text))
        except Unreadable:
            pass
    return yaml_lines, yaml_lines.split(text)


def _objects(
    document: Document, value: Any, inherited: dict[str, Any] | None = None
) -> Iterator[Found]:
    if value is None:
        return
    if isinstance(value, dict):
        value = {**(inherited or {}), **value}
    lacking = _lacking(value)
    if lacking:
        yield _not_an_object(document, value, lacking)
    elif not _is_list(value):
        yield document, value
    elif isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            yield from _objects(_item(document, index), item, _type_of_items(value))
    elif value.get("items") is not None:
        yield Unreadable("items must be a list", document.line_of("items"))


def _lacking(value: Any) -> Sequence[str]:
    """Return the fields that the value needs to be a Kubernetes object."""
    if not isinstance(value, dict):
        return _TYPE_FIELDS
    return [name for name in _TYPE_FIELDS if not _is_text(value.get(name))]


def _not_an_object(document: Document, value: Any, lacking: Sequence[str]) -> Unreadable:
    """Return the error about a document that lacks fields.

    With metadata and one of the fields, or in a list, it is an object with a mistake.
    """
    is_object = bool(document.steps) or (
        isinstance(value, dict) and "metadata" in value and len(lacking) < len(_TYPE_FIELDS)
    )
    reason = f"not a Kubernetes object: needs {' and '.join(lacking)}"
    file = Path(document.file)
    if file.name in _RENDERED_BY:
        reason += f"; try {_RENDERED_BY[file.name].format(folder=file.parent)}"
    return (Unreadable if is_object else NotAnObject)(reason, document.line_of())


def _is_list(value: dict[str, Any]) -> bool:
    """Return whether the value is a list: by its kind, or by having items like one."""
    kind: str = value["kind"]
    of_kind = kind.removesuffix("List")
    return of_kind != kind and (
        not of_kind or of_kind in KINDS or isinstance(value.get("items"), list)
    )


def _item(document: Document, index: int) -> Document:
    return Document(
        file=document.file,
        first_line=document.first_line,
        text=document.text,
        syntax=document.syntax,
        steps=(*document.steps, "items", index),
    )


def _type_of_items(value: dict[str, Any]) -> dict[str, Any]:
    """Return the kind and apiVersion that items of a typed list may omit; empty for a `List`."""
    kind = value["kind"].removesuffix("List")
    return {"kind": kind, "apiVersion": value["apiVersion"]} if kind else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
