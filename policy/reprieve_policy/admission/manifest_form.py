"""The form of a written object, before it is decoded: what the API server would drop or refuse.

Admission never sees these mistakes. The API server prunes an unknown field, such as `annotation:`
for `annotations:`, before any webhook is called, or refuses it for a client with strict validation;
it refuses a class that is a number, not a string, as not decodable. So manifests are checked when
they are read, with the same messages.
"""

from collections.abc import Iterator, Mapping, Sequence

from reprieve_policy.kube.template_kinds import find_templates
from reprieve_policy.kube.values.text import show
from reprieve_policy.verdict import Violation, ViolationKind, quote

RULE = "form"
"""The id of these violations; no admission rule has it."""

Document = Mapping[str, object]

STRING = "must be a string"
"""The message for any other value, before a suggestion."""

_MAPS = ("labels", "annotations")
_MISSPELLED_FIELDS = {
    "label": "labels",
    "annotation": "annotations",
    "Labels": "labels",
    "Annotations": "annotations",
}


def check_form(document: Document, paths: Sequence[str]) -> tuple[Violation, ...]:
    """Return the mistakes in the metadata of an object and of the pod templates at `paths`."""
    found = metadata_in(document, paths)
    return tuple(
        violation for prefix, metadata in found for violation in _check_metadata(metadata, prefix)
    )


def metadata_in(
    document: Document, paths: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the metadata of an object and of its pod templates at `paths`, each with its prefix."""
    for prefix, holder in (("", document), *find_templates(document, paths)):
        metadata = holder.get("metadata")
        if isinstance(metadata, Mapping):
            yield prefix, metadata


def _check_metadata(metadata: Mapping[str, object], prefix: str) -> Iterator[Violation]:
    for name, value in metadata.items():
        path = f"{prefix}metadata.{name}"
        if name in _MISSPELLED_FIELDS:
            known_field = _MISSPELLED_FIELDS[name]
            detail = f"the field is {known_field}: the API server drops one that it does not know"
            yield Violation(path, ViolationKind.FORBIDDEN, None, detail, RULE)
        elif name in _MAPS:
            yield from check_strings(value, path)


def check_strings(value: object, path: str) -> Iterator[Violation]:
    """Yield a violation for each value of a mapping that is not a string."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield Violation(
            path, ViolationKind.INVALID, show(value), "must be a mapping of keys to strings", RULE
        )
        return
    for key, text in value.items():
        if text is not None and not isinstance(text, str):
            shown = show(text)
            detail = STRING if isinstance(text, dict | list) else f"{STRING}: {quote(shown)}"
            yield Violation(f"{path}[{key}]", ViolationKind.INVALID, shown, detail, RULE)
