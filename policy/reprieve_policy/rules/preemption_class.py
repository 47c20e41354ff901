"""`reprieve.dev/preemption-class` is 0 to 10, allowed in its Namespace, and never rises after creation.

Document 001: a value outside 0–10 is a 400 before it reaches the scheduler. In a `sensitive` Namespace only 10 may be
claimed. A Namespace without `allowed-preemption-classes` has 0–6.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy import preemption_class
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTION_CLASS
from reprieve_policy.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import SILENT, Kind, Verdict, Violation, label_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the class of the pod or of the template."""
    before = next(pod_views(old), None) if old else None
    found = [violation for view in pod_views(resource) for violation in _check_view(view, before, facts)]
    return Verdict(violations=tuple(found)) if found else SILENT


def _check_view(view: PodView, before: PodView | None, facts: Facts) -> Iterator[Violation]:
    text, path = view.labels.get(PREEMPTION_CLASS), label_path(view.prefix, PREEMPTION_CLASS)
    value = known.default_class(view, facts) if text is None else preemption_class.parse(text, path)
    if isinstance(value, Violation):
        yield value
        return
    if text is not None and value not in facts.namespace.allowed_classes:
        allowed = f"classes allowed in this namespace: {facts.namespace.allowed_classes}"
        yield Violation(path, Kind.UNSUPPORTED, text, allowed)
    if before is not None and not view.is_template and value > known.effective_class(before, facts):
        yield Violation(path, Kind.FORBIDDEN, None, "may only be lowered after creation")
