"""A mapping from a file as what rules judge: a `Resource`, and what is wrong with its form."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from reprieve_cli.output.finding import ObjectName, printable
from reprieve_policy.admission import manifest_form
from reprieve_policy.kube import kinds
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.kube.text import show
from reprieve_policy.verdict import Kind, Violation
from reprieve_runtime import templates

_AT = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


class Subject(NamedTuple):
    """One object. `resource` is `None` for a kind without rules, and where the form cannot be read."""

    name: ObjectName
    resource: Resource | None = None
    violations: tuple[Violation, ...] = ()
    """Of its form."""
    foreign: dict[str, Any] | None = None
    """A kind that is not built in, as it was written: the policy, once it is known, may list it (`templateKinds`)."""


def build(document: dict[str, Any], namespace: str = "") -> Subject:
    """Return the subject that an object is; `namespace` is where it goes if it names none."""
    name = _name_of(document, namespace)
    metadata = document.get("metadata")
    if name.namespace and isinstance(metadata, dict):
        metadata.setdefault("namespace", name.namespace)
    row = kinds.KINDS.get(name.kind)
    if row is None or row.group != _group_of(document):
        return Subject(name, foreign=document)
    violations = _mend(document, (row.template.removesuffix("."),) if row.template else ())
    try:
        return Subject(name, _converted(document), violations)
    except msgspec.ValidationError as error:
        return Subject(name, violations=(*violations, _violation(str(error))))


def resolve(subject: Subject, listed: TemplateKinds) -> Subject:
    """Return the subject; of a kind of another project that is listed, with its pod templates for rules to judge."""
    document = subject.foreign
    paths = listed.paths_of(_group_of(document), subject.name.kind) if document is not None else ()
    if document is None or not paths:
        return subject
    violations = _mend(document, paths)
    return Subject(subject.name, templates.read(document, paths), violations)


def _mend(document: dict[str, Any], paths: Sequence[str]) -> tuple[Violation, ...]:
    """Make texts of what is none where a text must be, and return what was wrong: the rest is then judged too."""
    violations = manifest_form.check_form(document, paths)
    for _, metadata in manifest_form.metadata_in(document, paths):
        _make_texts(metadata)
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


def _make_texts(metadata: Any) -> None:
    for field in ("labels", "annotations"):
        held = metadata.get(field)
        if isinstance(held, dict):
            # Go reads `null` as an empty text.
            metadata[field] = {key: "" if text is None else show(text) for key, text in held.items()}
        elif held is not None:
            del metadata[field]


def _converted(document: dict[str, Any]) -> Resource:
    try:
        return msgspec.convert(document, Resource)
    except msgspec.ValidationError:
        # Go reads `null` as absent, anywhere; looking for it in every object would cost more than all its rules.
        return msgspec.convert(without_nulls(document), Resource)


def without_nulls(value: Any) -> Any:
    """Return a document as if nobody had written `null` anywhere."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _violation(text: str) -> Violation:
    match = _AT.fullmatch(text)
    assert match is not None
    expected = _EXPECTED.search(match[1])
    wanted, got = (_WORDS.get(word, word) for word in expected.groups()) if expected else (match[1], "something else")
    return Violation(
        (match[2] or "").replace("[...]", ""), Kind.INVALID, None, f"must be {wanted}, not {got}", manifest_form.RULE
    )
