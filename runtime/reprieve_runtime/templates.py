"""Decodes an object of another project's kind by the paths of its pod templates.

Such a kind may have any schema, also one that clashes with the fields of built-in kinds. So it is
decoded twice: first as plain JSON, then the parts that rules check. A part that does not decode is
left out: the pods that are made from it are checked as pods.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from reprieve_policy.kube import kinds, template_kinds
from reprieve_policy.kube.objects import (
    ObjectMeta,
    PodTemplate,
    Spec,
    TemplatedResource,
    group_of,
)

T = TypeVar("T")


def read(document: Any, paths: Sequence[str]) -> TemplatedResource:
    """Return the object with the templates at `paths`."""
    document = document if isinstance(document, dict) else {}
    metadata = _convert(document.get("metadata"), ObjectMeta)
    templates = tuple(
        (
            prefix,
            PodTemplate(
                metadata=_convert(template.get("metadata"), ObjectMeta),
                spec=_convert(template.get("spec"), Spec),
            ),
        )
        for prefix, template in template_kinds.find_templates(document, paths)
    )
    return TemplatedResource(
        kind=kinds.CUSTOM,
        metadata=metadata or ObjectMeta(),
        templates=templates,
        upstream_kind=(group_of(str(document.get("apiVersion"))), str(document.get("kind"))),
    )


def _convert(value: Any, type_: type[T]) -> T | None:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return None
