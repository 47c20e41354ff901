"""The priorities of an object, and its preemption priority classes: pods, templates, native groups.

No 1.37 type has a preemption priority (document 003 lists it as an extension): on every kind it is
the annotation `reprieve.dev/preemption-priority-class`, also on a PriorityClass.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reprieve_policy.keys import PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube.objects import (
    PodGroupTemplate,
    PodView,
    Resource,
    Spec,
    annotations_of,
    pod_views,
)
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path


class PriorityClaim(NamedTuple):
    """A priority, and the PriorityClass that sets its preemption priority."""

    preemption_priority_class: str | None
    path: str
    """The path of the annotation with the PriorityClass."""
    spec: Spec | PodGroupTemplate
    spec_path: str
    must_exist_now: bool
    missing_class_note: str = ""
    """What happens if the PriorityClass does not exist."""
    view: PodView | None = None
    """The pod or the template; `None` for a native group."""


def preemption_priority_class_of(resource: Resource) -> str | None:
    """Return the PriorityClass in the object's own annotation."""
    return annotations_of(resource.metadata).get(PREEMPTION_PRIORITY_CLASS)


def priority_claims(resource: Resource) -> Iterator[PriorityClaim]:
    """Yield every priority of an object; nothing for a kind without one."""
    key, spec = PREEMPTION_PRIORITY_CLASS, resource.spec or _NO_SPEC
    for view in pod_views(resource):
        unmet = "; pods are refused" if view.is_template else ""
        path, spec_path = annotation_path(view.prefix, key), f"{view.prefix}spec"
        yield PriorityClaim(
            view.annotations.get(key), path, view.spec, spec_path, not view.is_template, unmet, view
        )
    if resource.kind == "PodGroup":
        yield PriorityClaim(
            preemption_priority_class_of(resource),
            annotation_path("", key),
            spec,
            "spec",
            must_exist_now=True,
        )
    if resource.kind == "Workload":
        for where, template in _group_templates(spec, "spec"):
            yield PriorityClaim(
                preemption_priority_class_of(resource),
                annotation_path("", key),
                template,
                where,
                must_exist_now=False,
            )


def priority_class_names(resource: Resource) -> Iterator[str]:
    """Yield every PriorityClass that an object names, some of them more than once."""
    if resource.kind == "PriorityClass":
        name = preemption_priority_class_of(resource)
        if name and name != resource.metadata.name:
            yield name
    for claim in priority_claims(resource):
        if claim.spec.priorityClassName:
            yield claim.spec.priorityClassName
        if claim.preemption_priority_class:
            yield claim.preemption_priority_class


def nameless(path: str) -> Violation:
    """Return the violation of an annotation that is there and names no PriorityClass."""
    return Violation(path, ViolationKind.REQUIRED, None, "the name of a PriorityClass")


_NO_SPEC = Spec()


def _group_templates(
    holder: Spec | PodGroupTemplate, prefix: str
) -> Iterator[tuple[str, PodGroupTemplate]]:
    """Yield every group template; the API server has bounded their number and depth."""
    lists: dict[str, Sequence[PodGroupTemplate] | None] = {
        "podGroupTemplates": holder.podGroupTemplates,
        "compositePodGroupTemplates": holder.compositePodGroupTemplates,
    }
    for name, templates in lists.items():
        for index, template in enumerate(templates or ()):
            path = f"{prefix}.{name}[{index}]"
            yield path, template
            yield from _group_templates(template, path)
