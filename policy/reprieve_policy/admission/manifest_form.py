"""The form of an object as it was written, before anything is decoded: what the API server would drop or refuse.

Admission never sees these slips. A field that the API server does not know, `annotation:` for `annotations:`, is pruned
before any webhook is asked (or refused, by a client that asks for strict validation); a class that is a number, not a
text, is refused as not decodable. So they are found where manifests are read, by the same words.
"""

from collections.abc import Iterator, Mapping, Sequence

from reprieve_policy.kube.template_kinds import find_templates
from reprieve_policy.kube.text import show
from reprieve_policy.verdict import Violation, ViolationKind, quote

RULE = "form"
"""The id under which these violations are told; no rule of admission has it."""

Document = Mapping[str, object]

_MAPS = ("labels", "annotations")
_MISSPELLED_FIELDS = {
    "label": "labels",
    "annotation": "annotations",
    "Labels": "labels",
    "Annotations": "annotations",
}


def check_form(document: Document, paths: Sequence[str]) -> tuple[Violation, ...]:
    """Return the slips in the metadata of an object and of the pod templates at `paths` in it."""
    found = metadata_in(document, paths)
    return tuple(
        violation for prefix, metadata in found for violation in _check_metadata(metadata, prefix)
    )


def metadata_in(
    document: Document, paths: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the metadata of an object and of the pod templates at `paths` in it, each with its prefix."""
    for prefix, holder in (("", document), *find_templates(document, paths)):
        metadata = holder.get("metadata")
        if isinstance(metadata, Mapping):
            yield prefix, metadata


def _check_metadata(metadata: Mapping[str, object], prefix: str) -> Iterator[Violation]:
    for name, value in metadata.items():
        path = f"{prefix}metadata.{name}"
        if name in _MISSPELLED_FIELDS:
            detail = f"the field is {_MISSPELLED_FIELDS[name]}: the API server drops one that it does not know"
            yield Violation(path, ViolationKind.FORBIDDEN, None, detail, RULE)
        elif name in _MAPS:
            yield from _check_map(value, path)


def _check_map(value: object, path: str) -> Iterator[Violation]:
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
            detail = (
                "must be a string"
                if isinstance(text, dict | list)
                else f"must be a string: {quote(shown)}"
            )
            yield Violation(f"{path}[{key}]", ViolationKind.INVALID, shown, detail, RULE)
