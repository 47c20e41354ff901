"""A soft-eviction mark is readable, and is on a pod, never in a template.

Checked: Koordinator's annotation is `true` or its JSON, with readable times; no template has a mark
in any dialect.

Why: a mark in a template would evict every pod that it makes, for ever. Which users may set a mark
is not decided here but by the ValidatingAdmissionPolicy in the base, so that a webhook outage does
not permit it.

Source: document 000, soft eviction; Koordinator's own parser accepts only JSON, though its comment
allows `true`.

Setting: none.
"""

from reprieve_policy.facts import Facts
from reprieve_policy.keys import KOORDINATOR_SOFT_EVICTION, SOFT_EVICTION
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.lifecycle import mark
from reprieve_policy.verdict import (
    NO_FINDINGS,
    Verdict,
    Violation,
    ViolationKind,
    annotation_path,
    label_path,
)

_IN_TEMPLATE = "a mark in a template would evict every pod that it makes"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the mark of the pod, and that a template has none."""
    found: list[Violation] = []
    for view in pod_views(resource):
        found.extend(_check_template(view) if view.is_template else _check_pod(view))
    return Verdict(violations=tuple(found)) if found else NO_FINDINGS


def _check_pod(view: PodView) -> tuple[Violation, ...]:
    text = view.annotations.get(KOORDINATOR_SOFT_EVICTION)
    if text is None or not mark.is_marked({}, view.annotations):
        return ()
    parsed = mark.parse_annotation(text, annotation_path(view.prefix, KOORDINATOR_SOFT_EVICTION))
    return (parsed,) if isinstance(parsed, Violation) else ()


def _check_template(view: PodView) -> tuple[Violation, ...]:
    places = (
        (SOFT_EVICTION, view.labels, label_path),
        (KOORDINATOR_SOFT_EVICTION, view.labels, label_path),
        (KOORDINATOR_SOFT_EVICTION, view.annotations, annotation_path),
    )
    return tuple(
        Violation(path_of(view.prefix, key), ViolationKind.FORBIDDEN, None, _IN_TEMPLATE)
        for key, holder, path_of in places
        if key in holder
    )
