"""Turns a mapping from a file into the `Resource` that rules check; finds errors of its form."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reprieve_cli.output.finding import ObjectName, printable
from reprieve_policy.admission import manifest_form
from reprieve_policy.kube import kinds
from reprieve_policy.kube.objects import Resource, group_of
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.kube.values.text import show
from reprieve_policy.verdict import Violation
from reprieve_runtime import templates

from . import decoding
from .decoding import Written


class ManifestObject(NamedTuple):
    """One object. `resource` is `None` for a kind without rules, and if it cannot be decoded."""

    name: ObjectName
    resource: Resource | None = None
    violations: tuple[Violation, ...] = ()
    """Violations of its form."""
    custom_document: dict[str, Any] | None = None
    """The document of a kind that is not built in; the policy's `templateKinds` may list it."""
    lacks_fields: bool = False
    """True if fields of `resource` could not be decoded: what it says as a whole is unknown."""


def _unknown(path: str) -> None:
    """Return no text: the source of the document is unknown."""


def build(
    document: dict[str, Any], namespace: str = "", written: Written = _unknown
) -> ManifestObject:
    """Return the object of a document; `namespace` applies if the document names none."""
    name = _name_of(document, namespace)
    metadata = document.get("metadata")
    if name.namespace and isinstance(metadata, dict):
        metadata.setdefault("namespace", name.namespace)
    row = kinds.KINDS.get(name.kind)
    if row is None or row.group != _group_of(document):
        return ManifestObject(name, custom_document=document)
    violations = _repair_metadata(
        document, (row.template.removesuffix("."),) if row.template else (), written
    )
    if row.kind == "ConfigMap":
        violations += _repair_data(document, written)
    decoded = decoding.decode(document, written)
    return ManifestObject(
        name,
        decoded.resource,
        violations + decoded.violations,
        lacks_fields=bool(decoded.violations),
    )


def with_pod_templates(
    item: ManifestObject, listed: TemplateKinds, written: Written
) -> ManifestObject:
    """Return the object; if the policy lists its kind, with its pod templates as the resource."""
    document = item.custom_document
    if document is None:
        return item
    paths = listed.paths_of(_group_of(document), item.name.kind)
    violations = _repair_metadata(document, paths or (), written)
    if paths is None:
        return ManifestObject(item.name, violations=violations)
    return ManifestObject(item.name, templates.read(document, paths), violations)


def _repair_metadata(
    document: dict[str, Any], paths: Sequence[str], written: Written
) -> tuple[Violation, ...]:
    """Turn labels and annotations that are not strings into strings, and return the violations.

    Without this, one wrong value would hide the findings about the rest of the object.
    """
    violations = _as_written(manifest_form.check_form(document, paths), written)
    for prefix, metadata in manifest_form.metadata_in(document, paths):
        for field in ("labels", "annotations"):
            _stringify_values(metadata, field, f"{prefix}metadata.{field}", violations)
    return violations


def _repair_data(document: dict[str, Any], written: Written) -> tuple[Violation, ...]:
    """Do the same for the values of a ConfigMap."""
    found = tuple(manifest_form.check_strings(document.get("data"), "data"))
    violations = _as_written(found, written)
    _stringify_values(document, "data", "data", violations)
    return violations


def _as_written(violations: Sequence[Violation], written: Written) -> tuple[Violation, ...]:
    return tuple(
        decoding.as_written(each, written) if each.path.endswith("]") else each
        for each in violations
    )


def _group_of(document: dict[str, Any]) -> str:
    return group_of(str(document["apiVersion"]))


def _name_of(document: dict[str, Any], namespace: str) -> ObjectName:
    kind, metadata = document["kind"], document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    row = kinds.KINDS.get(kind)
    place = metadata.get("namespace") or (namespace if row is None or row.is_namespaced else "")
    name = metadata.get("name") or metadata.get("generateName") or ""
    return ObjectName(*(printable(show(text)) for text in (kind, place, name)))


def _stringify_values(holder: Any, field: str, path: str, violations: Sequence[Violation]) -> None:
    """Replace the values of a mapping by texts: where one is in a violation, by that."""
    values = holder.get(field)
    texts: Mapping[str, str | None] = {each.path: each.value for each in violations}
    if isinstance(values, dict):
        # Go reads `null` as an empty string.
        holder[field] = {
            key: "" if value is None else texts.get(f"{path}[{key}]") or show(value)
            for key, value in values.items()
        }
    elif values is not None:
        del holder[field]
