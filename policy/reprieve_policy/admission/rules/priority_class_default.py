"""The preemption class that a PriorityClass gives its pods by default is between 0 and 10.

Checked: the annotation `reprieve.dev/default-preemption-class` of a PriorityClass. If the Namespace
of a pod does not allow that class, the next default applies: the Namespace's, its workload type's,
the cluster's.

Why: an unreadable default would silently be ignored.

Source: document 001, "Preemption Classes".

Setting: `defaultPreemptionClass` applies if no other default is set.
"""

from reprieve_policy.config import preemption_class
from reprieve_policy.facts import Facts
from reprieve_policy.keys import DEFAULT_PREEMPTION_CLASS
from reprieve_policy.kube.objects import Resource, annotations_of
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the annotation's range."""
    text = annotations_of(resource.metadata).get(DEFAULT_PREEMPTION_CLASS)
    parsed = (
        None
        if text is None
        else preemption_class.parse(text, annotation_path("", DEFAULT_PREEMPTION_CLASS))
    )
    return Verdict(violations=(parsed,)) if isinstance(parsed, Violation) else NO_FINDINGS
