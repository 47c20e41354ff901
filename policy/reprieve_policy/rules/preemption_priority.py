"""`priority <= preemptionPriority`: what a workload is scheduled with is never above what it is defended with.

No 1.37 type has the field (document 003 lists it as an extension); here it is the value of the PriorityClass that the
annotation `reprieve.dev/preemption-priority-class` names, on the pod or on its PriorityClass, else the priority itself.
Defended higher than scheduled is a right: an admin gives it through the PriorityClass, or as `maxPreemptionPriorityLift`.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTION_PRIORITY_CLASS
from reprieve_policy.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import SILENT, Kind, Verdict, Violation, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the annotation of the pod or of the template."""
    before = next(pod_views(old), None) if old else None
    violations: list[Violation] = []
    warnings: list[str] = []
    for view in pod_views(resource):
        name, path = view.annotations.get(PREEMPTION_PRIORITY_CLASS), annotation_path(view.prefix, _KEY)
        if before is not None and not view.is_template and before.annotations.get(_KEY) != name:
            violations.append(Violation(path, Kind.FORBIDDEN, None, "may not be changed after creation"))
        if name is None:
            continue
        named = facts.priority_classes.get(name)
        if named is None and view.is_template:
            warnings.append(f"{path}: no such PriorityClass yet; pods are refused")
        elif named is None:
            violations.append(Violation(path, Kind.NOT_FOUND, name, ""))
        else:
            violations.extend(_check_bounds(view, named, path, facts))
    if not violations and not warnings:
        return SILENT
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


_KEY = PREEMPTION_PRIORITY_CLASS


def _check_bounds(view: PodView, named: Resource, path: str, facts: Facts) -> Iterator[Violation]:
    own_class = known.priority_class_of(view, facts)
    priority, defence = _priority(view, own_class), named.value or 0
    given = max(priority, known.preemption_priority(priority, own_class, facts))
    highest = given + facts.settings.max_preemption_priority_lift
    name = named.metadata.name
    if defence < priority:
        detail = f"its value {defence} is below the priority {priority}: must be {priority} or higher"
        yield Violation(path, Kind.INVALID, name, detail)
    elif defence > highest:
        yield Violation(path, Kind.FORBIDDEN, None, f"its value {defence} is above {highest}, the highest allowed here")


def _priority(view: PodView, own_class: Resource | None) -> int:
    """The pod's resolved priority; a template has none yet, so what its PriorityClass will give it."""
    if view.spec.priority is not None:
        return view.spec.priority
    return 0 if own_class is None or own_class.value is None else own_class.value
