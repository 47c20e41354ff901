"""`priority <= preemptionPriority`: a workload's priority is never above its preemption priority.

Checked: the PriorityClass in the annotation `reprieve.dev/preemption-priority-class`, on a pod, a
template, a native Workload or a native PodGroup. It is not below the priority there (of a Workload:
of each of its group templates), and not above the limit: the preemption priority of the own
PriorityClass, plus the lift that an admin allows. What got in unchecked protects up to that limit.
A priority is that of the named PriorityClass, else of the global default, else 0. A PriorityClass
that does not exist is refused on a pod or PodGroup, which needs it now, and warned of in what makes
them. The annotation does not change after creation.

Why: two workloads whose preemption priority is below their priority preempt each other for ever. A
workload with a low priority and a high preemption priority takes no room from others and cannot be
preempted: that needs an admin's permission.

Source: document 003, "Workload priorities", and "Risks and Mitigations" (blocking preemptions) for
both bounds. No 1.37 type has the field that it lists as an extension; here it is an annotation.

Setting: `maxPreemptionPriorityLift` bounds the lift, `liftablePriorityClasses` lists the
PriorityClasses whose workloads may be lifted; neither applies to a PriorityClass's own annotation.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy.admission import preemption_priority
from reprieve_policy.admission.preemption_priority import PriorityClaim
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube.objects import PodGroupTemplate, Resource, Spec
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the annotation against every priority that it is for."""
    if (
        resource.kind == "Pod"
        and preemption_priority.preemption_priority_class_of(resource) is None
        and (old is None or preemption_priority.preemption_priority_class_of(old) is None)
    ):
        return NO_FINDINGS  # Nearly every pod; the API server has checked its PriorityClass.
    found = [
        finding
        for claim in preemption_priority.priority_claims(resource)
        for finding in _check_claim(claim, facts)
    ]
    if (
        old is not None
        and resource.kind in _FIXED
        and preemption_priority.preemption_priority_class_of(resource)
        != preemption_priority.preemption_priority_class_of(old)
    ):
        path = annotation_path("", PREEMPTION_PRIORITY_CLASS)
        found.insert(
            0, Violation(path, ViolationKind.FORBIDDEN, None, "may not be changed after creation")
        )
    if not found:
        return NO_FINDINGS
    # The group templates of one Workload share a priority (1.37 refuses others), and so its
    # violations.
    unique = dict.fromkeys(found)
    violations = tuple(finding for finding in unique if isinstance(finding, Violation))
    return Verdict(
        violations=violations,
        warnings=tuple(finding for finding in unique if isinstance(finding, str)),
    )


_FIXED = frozenset({"Pod", "PodGroup", "Workload"})


def _check_claim(claim: PriorityClaim, facts: Facts) -> Iterator[Violation | str]:
    own_class = (
        known.priority_class_named(claim.spec.priorityClassName, facts)
        if claim.view is None
        else known.priority_class_of(claim.view, facts)
    )
    priority = _priority(claim.spec, own_class)
    if priority is None:
        path = f"{claim.spec_path}.priorityClassName"
        yield f"{path}: no such PriorityClass yet{claim.missing_class_note}"
    if claim.preemption_priority_class is None:
        return
    if not claim.preemption_priority_class:
        yield preemption_priority.nameless(claim.path)
        return
    named = facts.priority_classes.get(claim.preemption_priority_class)
    if named is None and claim.must_exist_now:
        yield Violation(claim.path, ViolationKind.NOT_FOUND, claim.preemption_priority_class, "")
    elif named is None:
        yield f"{claim.path}: no such PriorityClass yet"
    elif priority is not None:
        yield from _check_bounds(claim, priority, own_class, named, facts)


def _check_bounds(
    claim: PriorityClaim, priority: int, own_class: Resource | None, named: Resource, facts: Facts
) -> Iterator[Violation]:
    value, highest = (
        named.value or 0,
        known.highest_preemption_priority(priority, own_class, facts),
    )
    if value < priority:
        detail = f"its value {value} is below the priority {priority}: must be {priority} or higher"
        yield Violation(claim.path, ViolationKind.INVALID, claim.preemption_priority_class, detail)
    elif value > highest:
        where = "here" if known.may_be_lifted(own_class, facts) else "for its PriorityClass"
        detail = f"its value {value} is above {highest}, the highest allowed {where}"
        yield Violation(claim.path, ViolationKind.FORBIDDEN, None, detail)


def _priority(spec: Spec | PodGroupTemplate, own_class: Resource | None) -> int | None:
    """Return the resolved priority, in a template by its PriorityClass; `None` if it is unknown."""
    if spec.priority is not None:
        return spec.priority
    if own_class is not None:
        return own_class.value or 0
    return None if spec.priorityClassName else 0
