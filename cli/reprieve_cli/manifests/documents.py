"""Splits a file's text into Kubernetes objects, also those in lists, with their fields' lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import field_paths, json_lines, yaml_lines
from .field_paths import PathStep
from .sources import Unreadable


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


def read(file: str, text: str) -> Iterator[tuple[Document, Any] | Unreadable]:
    """Yield each object as a mapping, or why it cannot be read with the file's line, from 1."""
    try:
        syntax, parts = _split(file, text)
    except Unreadable as error:
        yield Unreadable(error.reason, error.line + 1)
        return
    for first_line, part in parts:
        document = Document(file=file, first_line=first_line, text=part, syntax=syntax)
        try:
            yield from _objects(document, syntax.read(part))
        except Unreadable as error:
            yield Unreadable(error.reason, first_line + error.line)


def _split(file: str, text: str) -> tuple[ModuleType, Sequence[tuple[int, str]]]:
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
    return yaml_lines, tuple(yaml_lines.split(text))


def _objects(
    document: Document, value: Any, inherited: dict[str, Any] | None = None
) -> Iterator[tuple[Document, Any] | Unreadable]:
    if value is None:
        return
    if isinstance(value, dict):
        value = {**(inherited or {}), **value}
    if (
        not isinstance(value, dict)
        or not _is_text(value.get("kind"))
        or not _is_text(value.get("apiVersion"))
    ):
        yield Unreadable("not a Kubernetes object: needs apiVersion and kind", document.line_of())
    elif value["kind"].endswith("List") and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            yield from _objects(_item(document, index), item, _type_of_items(value))
    else:
        yield document, value


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
