"""Which priorities an object has, and which PriorityClass it is defended with: on pods, templates and native groups.

No 1.37 type has a preemption priority (document 003 lists it as an extension): everywhere it is the annotation
`reprieve.dev/preemption-priority-class`, on a PriorityClass too.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reprieve_policy.keys import PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube.objects import GroupTemplate, Resource, Spec, annotations_of, pod_views
from reprieve_policy.verdict import annotation_path


class Claim(NamedTuple):
    """A priority, and the PriorityClass that it is to be defended with."""

    defence: str | None
    path: str
    """Of the annotation that names the defence."""
    spec: Spec | GroupTemplate
    spec_path: str
    is_needed_now: bool
    unmet: str = ""
    """What becomes of a name that does not exist."""


def named_by(resource: Resource) -> str | None:
    """Return the PriorityClass that the object itself names to be defended with."""
    return annotations_of(resource.metadata).get(PREEMPTION_PRIORITY_CLASS)


def claims(resource: Resource) -> Iterator[Claim]:
    """Yield every priority of an object; nothing for a kind that has none, or is one."""
    key, spec = PREEMPTION_PRIORITY_CLASS, resource.spec or _NO_SPEC
    for view in pod_views(resource):
        unmet = "; pods are refused" if view.is_template else ""
        path, spec_path = annotation_path(view.prefix, key), f"{view.prefix}spec"
        yield Claim(view.annotations.get(key), path, view.spec, spec_path, not view.is_template, unmet)
    if resource.kind == "PodGroup":
        yield Claim(named_by(resource), annotation_path("", key), spec, "spec", is_needed_now=True)
    if resource.kind == "Workload":
        for where, template in _group_templates(spec, "spec"):
            yield Claim(named_by(resource), annotation_path("", key), template, where, is_needed_now=False)


def priority_class_names(resource: Resource) -> Iterator[str]:
    """Yield every PriorityClass that an object names, some of them more than once."""
    if resource.kind == "PriorityClass":
        name = named_by(resource)
        if name is not None and name != resource.metadata.name:
            yield name
    for claim in claims(resource):
        if claim.spec.priorityClassName:
            yield claim.spec.priorityClassName
        if claim.defence is not None:
            yield claim.defence


_NO_SPEC = Spec()


def _group_templates(holder: Spec | GroupTemplate, prefix: str) -> Iterator[tuple[str, GroupTemplate]]:
    """Yield every group template; the API server has bounded their number and depth before."""
    lists: dict[str, Sequence[GroupTemplate] | None] = {
        "podGroupTemplates": holder.podGroupTemplates,
        "compositePodGroupTemplates": holder.compositePodGroupTemplates,
    }
    for name, templates in lists.items():
        for index, template in enumerate(templates or ()):
            path = f"{prefix}.{name}[{index}]"
            yield path, template
            yield from _group_templates(template, path)
