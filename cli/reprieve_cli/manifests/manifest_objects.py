"""Turns a mapping from a file into the `Resource` that rules check; finds errors of its form."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from reprieve_cli.output.finding import ObjectName, printable
from reprieve_policy.admission import manifest_form
from reprieve_policy.kube import kinds
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.kube.values.text import show
from reprieve_policy.verdict import Violation, ViolationKind
from reprieve_runtime import templates

_ERROR_PATH = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_ERROR_TYPES = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


class ManifestObject(NamedTuple):
    """One object. `resource` is `None` for a kind without rules, and if the form is unreadable."""

    name: ObjectName
    resource: Resource | None = None
    violations: tuple[Violation, ...] = ()
    """Violations of its form."""
    custom_document: dict[str, Any] | None = None
    """The document of a kind that is not built in; the policy's `templateKinds` may list it."""


def build(document: dict[str, Any], namespace: str = "") -> ManifestObject:
    """Return the object of a document; `namespace` applies if the document names none."""
    name = _name_of(document, namespace)
    metadata = document.get("metadata")
    if name.namespace and isinstance(metadata, dict):
        metadata.setdefault("namespace", name.namespace)
    row = kinds.KINDS.get(name.kind)
    if row is None or row.group != _group_of(document):
        return ManifestObject(name, custom_document=document)
    violations = _repair_metadata(
        document, (row.template.removesuffix("."),) if row.template else ()
    )
    try:
        return ManifestObject(name, _converted(document), violations)
    except msgspec.ValidationError as error:
        return ManifestObject(name, violations=(*violations, _violation(str(error))))


def with_pod_templates(item: ManifestObject, listed: TemplateKinds) -> ManifestObject:
    """Return the object; if the policy lists its kind, with its pod templates as the resource."""
    document = item.custom_document
    paths = listed.paths_of(_group_of(document), item.name.kind) if document is not None else ()
    if document is None or not paths:
        return item
    violations = _repair_metadata(document, paths)
    return ManifestObject(item.name, templates.read(document, paths), violations)


def _repair_metadata(document: dict[str, Any], paths: Sequence[str]) -> tuple[Violation, ...]:
    """Turn labels and annotations that are not strings into strings, and return the violations.

    Without this, one wrong value would hide the findings about the rest of the object.
    """
    violations = manifest_form.check_form(document, paths)
    for _, metadata in manifest_form.metadata_in(document, paths):
        _stringify_values(metadata)
    return violations


def _group_of(document: dict[str, Any]) -> str:
    return str(document["apiVersion"]).rpartition("/")[0]


def _name_of(document: dict[str, Any], namespace: str) -> ObjectName:
    kind, metadata = document["kind"], document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    row = kinds.KINDS.get(kind)
    place = metadata.get("namespace") or (namespace if row is None or row.is_namespaced else "")
    name = metadata.get("name") or metadata.get("generateName") or ""
    return ObjectName(*(printable(show(text)) for text in (kind, place, name)))


def _stringify_values(metadata: Any) -> None:
    for field in ("labels", "annotations"):
        values = metadata.get(field)
        if isinstance(values, dict):
            # Go reads `null` as an empty string.
            metadata[field] = {
                key: "" if value is None else show(value) for key, value in values.items()
            }
        elif values is not None:
            del metadata[field]


def _converted(document: dict[str, Any]) -> Resource:
    try:
        return msgspec.convert(document, Resource)
    except msgspec.ValidationError:
        # Go reads `null` as absent everywhere. To remove it from every object first would cost
        # more than all rules.
        return msgspec.convert(without_nulls(document), Resource)


def without_nulls(value: Any) -> Any:
    """Return a document without the fields that are `null`."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _violation(text: str) -> Violation:
    match = _ERROR_PATH.fullmatch(text)
    assert match is not None
    expected = _ERROR_TYPES.search(match[1])
    wanted, got = (
        (_TYPE_NAMES.get(word, word) for word in expected.groups())
        if expected
        else (match[1], "something else")
    )
    return Violation(
        (match[2] or "").replace("[...]", ""),
        ViolationKind.INVALID,
        None,
        f"must be {wanted}, not {got}",
        manifest_form.RULE,
    )
