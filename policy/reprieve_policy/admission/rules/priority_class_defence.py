"""The preemption priority of a PriorityClass is not below its value.

Checked: the annotation `reprieve.dev/preemption-priority-class` names a PriorityClass, whose value
is not below this class's own. Warned of: it does not exist (yet); until then this class is defended
with its own value.

Why: two workloads whose preemption priority is below their priority preempt each other for ever.

Source: document 003, "Workload priorities": `priority <= preemptionPriority`.

Setting: none. Only admins write PriorityClasses, so `maxPreemptionPriorityLift` does not bound
their lift.
"""

from reprieve_policy.admission import preemption_priority
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube.objects import Resource, annotations_of
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the value of the PriorityClass in the annotation."""
    name = annotations_of(resource.metadata).get(PREEMPTION_PRIORITY_CLASS)
    if name is None or name == resource.metadata.name:
        return NO_FINDINGS
    path, value = annotation_path("", PREEMPTION_PRIORITY_CLASS), resource.value or 0
    if not name:
        return Verdict(violations=(preemption_priority.nameless(path),))
    named = facts.priority_classes.get(name)
    if named is None:
        return Verdict(warnings=(f"{path}: no such PriorityClass yet; defended with {value}",))
    defence = named.value or 0
    if defence >= value:
        return NO_FINDINGS
    detail = f"its value {defence} is below this class's value {value}: must be {value} or higher"
    return Verdict(violations=(Violation(path, ViolationKind.INVALID, name, detail),))
