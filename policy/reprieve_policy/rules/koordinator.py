"""Koordinator's `preemptible` and `can-preempt` labels say `"true"` or `"false"`, and protection never rises.

Document 000; Koordinator compares texts, so any other value would silently mean the default. A pod that could be
preempted when it was admitted stays preemptible.
"""

from reprieve_policy import koordinator
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTIBLE
from reprieve_policy.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import SILENT, Kind, Verdict, Violation, label_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check both labels of the pod or of the template."""
    before = next(pod_views(old), None) if old else None
    found: list[Violation] = []
    for view in pod_views(resource):
        found.extend(koordinator.check_labels(view.labels, view.prefix))
        if before is not None and not view.is_template and _is_raised(view, before, facts):
            path = label_path(view.prefix, PREEMPTIBLE)
            found.append(Violation(path, Kind.FORBIDDEN, None, "a preemptible pod stays preemptible after creation"))
    return Verdict(violations=tuple(found)) if found else SILENT


def _is_raised(view: PodView, before: PodView, facts: Facts) -> bool:
    return _is_preemptible(before, facts) and not _is_preemptible(view, facts)


def _is_preemptible(view: PodView, facts: Facts) -> bool:
    disabled = facts.settings.default_preemptible is False
    return koordinator.is_preemptible(view.labels, disable_default_preemptiable=disabled)
