"""A PriorityClass's toleration of preemption can be read, and protects from somebody.

Checked: both annotations are whole numbers in range, under either prefix; the minimum priority is not below the class's
own value; the older prefix does not contradict the newer. Warned of: a minimum that no preemptor is below, because only
a priority above the class's own preempts it; the older prefix.

Why: the scheduler's plugin ignores what it cannot parse, so that an admin believes in a protection that is not there.

Source: document 002, and scheduler-plugins `pkg/preemptiontoleration` where it differs from it.

Setting: none; what the annotations say is the admin's policy.
"""

from reprieve_policy import toleration
from reprieve_policy.facts import Facts
from reprieve_policy.keys import TOLERATION_PREFIX
from reprieve_policy.objects import Resource, annotations_of
from reprieve_policy.toleration import Toleration
from reprieve_policy.verdict import Kind, Verdict, Violation, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check both annotations under both prefixes."""
    annotations, value = annotations_of(resource.metadata), resource.value or 0
    violations, warnings = toleration.check_prefixes(annotations)
    parsed = toleration.parse(annotations, value)
    if not isinstance(parsed, Toleration):
        return Verdict(violations=parsed + violations, warnings=warnings)
    minimum, path = parsed.minimum_preemptable_priority, annotation_path("", _MINIMUM)
    if minimum < value:
        detail = f"must not be below the class's own value {value}: only a higher priority preempts it"
        violations = (Violation(path, Kind.INVALID, str(minimum), detail), *violations)
    elif _MINIMUM in annotations and minimum <= value + (parsed.seconds != 0):
        # The value + 1 without seconds is what upstream assumes of a class that says nothing.
        warnings = (*warnings, f"{path}: tolerates no preemptor")
    return Verdict(violations=violations, warnings=warnings)


_MINIMUM, _ = toleration.annotation_keys(TOLERATION_PREFIX)
