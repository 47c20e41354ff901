"""An object of another project's kind, decoded by where its pod templates stand, not by its form.

Such a kind may have any form, also one that clashes with the few fields that are read of built-in kinds. So it is read
twice: as plain JSON, and from that the parts that rules judge. A part that is no such thing is left out: what is made of it
is checked as a pod.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from reprieve_policy.kube import kinds, template_kinds
from reprieve_policy.kube.objects import ObjectMeta, PodTemplate, Spec, TemplatedResource

T = TypeVar("T")


def read(document: Any, paths: Sequence[str]) -> TemplatedResource:
    """Return the object, with the templates that stand at `paths`."""
    metadata = _convert(
        document.get("metadata") if isinstance(document, dict) else None, ObjectMeta
    )
    templates = tuple(
        (
            prefix,
            PodTemplate(
                metadata=_convert(found.get("metadata"), ObjectMeta),
                spec=_convert(found.get("spec"), Spec),
            ),
        )
        for prefix, found in template_kinds.find_templates(document, paths)
    )
    return TemplatedResource(
        kind=kinds.CUSTOM, metadata=metadata or ObjectMeta(), templates=templates
    )


def _convert(value: Any, type_: type[T]) -> T | None:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return None
