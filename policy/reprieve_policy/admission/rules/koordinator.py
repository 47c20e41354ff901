"""`preemptible` and `can-preempt` are `"true"` or `"false"`, and protection never rises.

Checked: both labels are values that Koordinator understands; a pod that was preemptible when it was
admitted stays preemptible. Warned of: `can-preempt: "true"` if the pod's or its PriorityClass's
`preemptionPolicy` is `Never`.

Why: Koordinator compares texts, so any other value would silently mean the default; and a scheduler
lets a pod that never preempts take no victims, whatever its label says.

Source: document 000, "API".

Setting: `disableDefaultPreemptiable` and `disableDefaultTriggerPreemption` set the defaults for a
pod without the labels. The guard applies Koordinator's third, `podShouldBeDeletedWhenPreempted`:
with "true" a scheduler deletes a preemptible pod at once.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy.config import koordinator
from reprieve_policy.facts import Facts
from reprieve_policy.keys import CAN_PREEMPT, PREEMPTIBLE
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, label_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check both labels of the pod or of the template."""
    before = next(pod_views(old), None) if old else None
    found: list[Violation] = []
    warnings: list[str] = []
    for view in pod_views(resource):
        found.extend(koordinator.check_labels(view.labels, view.prefix))
        if before is not None and not view.is_template and _is_raised(view, before, facts):
            path = label_path(view.prefix, PREEMPTIBLE)
            found.append(
                Violation(
                    path,
                    ViolationKind.FORBIDDEN,
                    None,
                    "a preemptible pod stays preemptible after creation",
                )
            )
        warnings.extend(_warn(view, facts))
    if not found and not warnings:
        return NO_FINDINGS
    return Verdict(violations=tuple(found), warnings=tuple(warnings))


def _warn(view: PodView, facts: Facts) -> Iterator[str]:
    if view.labels.get(CAN_PREEMPT) == "true" and known.preemption_policy(view, facts) == "Never":
        yield f"{label_path(view.prefix, CAN_PREEMPT)}: preemptionPolicy is Never"


def _is_raised(view: PodView, before: PodView, facts: Facts) -> bool:
    return _is_preemptible(before, facts) and not _is_preemptible(view, facts)


def _is_preemptible(view: PodView, facts: Facts) -> bool:
    disabled = facts.settings.default_preemptible is False
    return koordinator.is_preemptible(view.labels, disable_default_preemptiable=disabled)
