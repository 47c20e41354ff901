"""The state that Reprieve writes on a victim is in no template, and in no manifest of a pod.

Checked: no template has `reprieve.dev/eviction`, `reprieve.dev/preemptor`,
`reprieve.dev/refused-since`, `reprieve.dev/checkpoint-request`, `reprieve.dev/eviction-request`,
`reprieve.dev/gang-released-at`, the label `reprieve.dev/gang-gate` with the value `released`, or
the finalizer `reprieve.dev/cleanup`. Offline, no pod has one of them, nor another value of
`reprieve.dev/soft-eviction` than `requested`. No pod ever gets a value there that Reprieve does not
write either, such as `true`.

Why: a policy in the API server (the base) lets only Reprieve write this state. It would refuse
every pod of such a template, long after the template was accepted. For live pods that policy
decides, not this rule. A mark of another value would ask for nothing.

Source: document 000, soft eviction; the ValidatingAdmissionPolicy `reprieve-soft-evictions`.

Setting: none.
"""

from collections.abc import Iterator

from reprieve_policy.facts import Facts
from reprieve_policy.gangs.gate import RELEASED
from reprieve_policy.keys import (
    CHECKPOINT_REQUEST,
    CLEANUP_FINALIZER,
    EVICTION,
    EVICTION_REQUEST,
    GANG_GATE_LABEL,
    GANG_RELEASED_AT,
    PREEMPTOR,
    REFUSED_SINCE,
    SOFT_EVICTION,
)
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.lifecycle.mark import MARKED, REQUESTED, REQUESTING_VALUES
from reprieve_policy.verdict import (
    NO_FINDINGS,
    Verdict,
    Violation,
    ViolationKind,
    annotation_path,
    label_path,
    unsupported,
)

ANNOTATIONS = (
    EVICTION,
    PREEMPTOR,
    REFUSED_SINCE,
    CHECKPOINT_REQUEST,
    EVICTION_REQUEST,
    GANG_RELEASED_AT,
)
_VALUES = frozenset({*REQUESTING_VALUES, MARKED, *Phase})
"""The values of our label that mean something."""
_WRITTEN_BY_REPRIEVE = "written by Reprieve only"
_IN_TEMPLATE = "written by Reprieve only: every pod of the template would be refused"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the templates; offline, also the pod."""
    found: list[Violation] = []
    for view in pod_views(resource):
        if view.is_template or facts.is_offline:
            found.extend(_check_view(view))
        value = view.labels.get(SOFT_EVICTION, REQUESTED)
        if not view.is_template and value not in _VALUES:
            found.append(unsupported(label_path(view.prefix, SOFT_EVICTION), value, [REQUESTED]))
    return Verdict(violations=tuple(found)) if found else NO_FINDINGS


def _check_view(view: PodView) -> Iterator[Violation]:
    detail = _IN_TEMPLATE if view.is_template else _WRITTEN_BY_REPRIEVE
    paths = [annotation_path(view.prefix, key) for key in ANNOTATIONS if key in view.annotations]
    if view.labels.get(GANG_GATE_LABEL) == RELEASED:
        paths.append(label_path(view.prefix, GANG_GATE_LABEL))
    if CLEANUP_FINALIZER in view.finalizers:
        paths.append(f"{view.prefix}metadata.finalizers[{CLEANUP_FINALIZER}]")
    # A mark in a template is refused by another rule, whatever its value.
    if not view.is_template and view.labels.get(SOFT_EVICTION, REQUESTED) in _VALUES - {REQUESTED}:
        paths.append(label_path(view.prefix, SOFT_EVICTION))
    yield from (Violation(path, ViolationKind.FORBIDDEN, None, detail) for path in paths)
