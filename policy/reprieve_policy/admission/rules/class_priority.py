"""Where classes give priorities, a pod's PriorityClass agrees with its class.

Checked only where `classPriorities` is on. A pod or template that names a PriorityClass, and its
class: the priority is above those of the lower classes and below those of the higher ones, which
are the values of the PriorityClasses `reprieve-class-0` to `reprieve-class-10`. A template without
the label of a class is not checked. Never refused, but warned of: a pod whose class is the one that
it has without a label; a class that is lowered after creation, when the priority is fixed. Not
checked: system-critical pods. Warned of as well: a pod that names no PriorityClass and gets none,
because that of its class does not exist.

Why: a scheduler goes by priority. Where a lower class has the higher priority, the higher class
takes no room from it.

Source: document 001, "Preemption Classes": an allocation of class N may preempt the classes below.

Setting: `classPriorities`: `off` (the default), `warn` or `refuse`.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy.config import preemption_class
from reprieve_policy.config.settings import REFUSE
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTION_CLASS
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Compare each pod's or template's priority with its class."""
    if not facts.settings.classes_give_priorities:
        return NO_FINDINGS
    found = [
        finding
        for view in pod_views(resource)
        if not view.is_template or PREEMPTION_CLASS in view.labels
        for finding in _check_view(view, facts, is_new=old is None)
    ]
    if not found:
        return NO_FINDINGS
    return Verdict(
        violations=tuple(each for each in found if isinstance(each, Violation)),
        warnings=tuple(each for each in found if isinstance(each, str)),
    )


def _check_view(view: PodView, facts: Facts, *, is_new: bool) -> Iterator[Violation | str]:
    path, name = f"{view.prefix}spec.priorityClassName", view.spec.priorityClassName
    value = known.effective_class(view, facts)
    if known.gets_class_priority(view, facts):
        if (is_new or view.is_template) and known.class_priority_class(view, facts) is None:
            missing = preemption_class.priority_class_name(value)
            yield f"{path}: no PriorityClass {missing}: the class gives no priority"
        return
    priority = _stated_priority(view, facts)
    bounds = None if priority is None else _bounds_broken_by(priority, value, facts)
    if bounds is None:
        return
    if facts.settings.class_priorities == REFUSE and _is_answerable(view, facts, is_new=is_new):
        detail = f"its value {priority} does not fit class {value}: must be {bounds}, or unset"
        yield Violation(path, ViolationKind.INVALID, name, detail)
    else:
        yield f"{path}: {priority} does not fit class {value}: must be {bounds}"


def _is_answerable(view: PodView, facts: Facts, *, is_new: bool) -> bool:
    """True if the author chose the class and can still choose the priority.

    A pod's label may have been written by the defaults: then it has the default's value.
    """
    return view.is_template or (
        is_new and known.effective_class(view, facts) != known.default_class(view, facts)
    )


def _stated_priority(view: PodView, facts: Facts) -> int | None:
    """Return the priority of the PriorityClass that is named; `None` if none is, or it is unknown.

    Also `None` for a system-critical one, which no class ranks.
    """
    if not view.spec.priorityClassName:
        return None
    named = facts.priority_classes.get(view.spec.priorityClassName)
    given = None if named is None else named.value or 0
    priority = given if view.spec.priority is None else view.spec.priority
    return None if priority is None or priority > known.HIGHEST_USER_PRIORITY else priority


def _bounds_broken_by(priority: int, own: int, facts: Facts) -> str | None:
    """Return which priorities a pod of class `own` may have, if `priority` is not one of them."""
    values = {
        value: given.value or 0
        for value in range(preemption_class.LOWEST, preemption_class.HIGHEST + 1)
        if (given := facts.priority_classes.get(preemption_class.priority_class_name(value)))
    }
    if values.get(own) == priority:
        return None
    lower = max((values[value] for value in values if value < own), default=None)
    higher = min((values[value] for value in values if value > own), default=None)
    if (lower is None or lower < priority) and (higher is None or priority < higher):
        return None
    bounds = (
        *(() if lower is None else (f"above {lower}",)),
        *(() if higher is None else (f"below {higher}",)),
    )
    return " and ".join(bounds)
