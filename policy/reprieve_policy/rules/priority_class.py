"""PriorityClasses: tolerations that schedulers can read, a defence not below the value, a default class in range.

Upstream ignores a toleration that it cannot parse (document 002): the admin believes in a protection that is not
there. Here it is refused.
"""

from reprieve_policy import preemption_class, toleration
from reprieve_policy.facts import Facts
from reprieve_policy.keys import DEFAULT_PREEMPTION_CLASS, PREEMPTION_PRIORITY_CLASS, TOLERATION_PREFIX
from reprieve_policy.objects import Resource, annotations_of
from reprieve_policy.toleration import Toleration
from reprieve_policy.verdict import Kind, Verdict, Violation, annotation_path


def check_toleration(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - one form
    """Both annotations are numbers in range, and the minimum is not below the class's own value."""
    annotations, value = annotations_of(resource.metadata), resource.value or 0
    violations, warnings = toleration.check_prefixes(annotations)
    parsed = toleration.parse(annotations, value)
    if not isinstance(parsed, Toleration):
        return Verdict(violations=parsed + violations, warnings=warnings)
    minimum, path = parsed.minimum_preemptable_priority, annotation_path("", _MINIMUM)
    if minimum < value:
        detail = f"must not be below the class's own value {value}: only a higher priority preempts it"
        violations = (Violation(path, Kind.INVALID, str(minimum), detail), *violations)
    elif _MINIMUM in annotations and minimum <= value + 1 and parsed.seconds != 0:
        warnings = (*warnings, f"{path}: tolerates no preemptor")
    return Verdict(violations=violations, warnings=warnings)


def check_defence(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - one form
    """The PriorityClass that it names to be defended with is not below its own value."""
    name = annotations_of(resource.metadata).get(PREEMPTION_PRIORITY_CLASS)
    if name is None or name == resource.metadata.name:
        return Verdict()
    path, value = annotation_path("", PREEMPTION_PRIORITY_CLASS), resource.value or 0
    named = facts.priority_classes.get(name)
    if named is None:
        return Verdict(warnings=(f"{path}: no such PriorityClass yet; defended with {value}",))
    defence = named.value or 0
    if defence >= value:
        return Verdict()
    detail = f"its value {defence} is below this class's value {value}: must be {value} or higher"
    return Verdict(violations=(Violation(path, Kind.INVALID, name, detail),))


def check_default_class(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - one form
    """The class that its pods get by default is between 0 and 10."""
    text = annotations_of(resource.metadata).get(DEFAULT_PREEMPTION_CLASS)
    parsed = None if text is None else preemption_class.parse(text, annotation_path("", DEFAULT_PREEMPTION_CLASS))
    return Verdict(violations=(parsed,)) if isinstance(parsed, Violation) else Verdict()


_MINIMUM, _ = toleration.annotation_keys(TOLERATION_PREFIX)
