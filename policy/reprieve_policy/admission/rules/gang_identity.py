"""A pod is in one gang, with a valid name.

Checked: all names that a pod or a template gives its gang, in any dialect, are the same, and those
in annotations are names. Warned of: keys that schedulers no longer read. These do not count as a
second gang: that of a JobSet, LeaderWorkerSet or Job whose pods declare one; a name that a
controller wrote, such as Kueue's for a workload that it suspends, or Volcano's or the native one of
a pod that has a controller.

Why: each scheduler would hold the pod back, and preempt it, with different members.

Source: documents 000, 003 and 004, each with its own keys; `gangs.dialects` names those of all
other projects. Koordinator still reads `pod-group.scheduling.sigs.k8s.io` (000): that one is not
old.
"""

from collections.abc import Iterator

from reprieve_policy.facts import Facts
from reprieve_policy.gangs import membership
from reprieve_policy.gangs.dialects import GangDialect
from reprieve_policy.gangs.membership import GangName
from reprieve_policy.kube.objects import PodView, Resource, controller_of, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind

_DETAIL = "must be a name of at most 253 letters, digits, '-', '_' and '.'"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the gang that the pod or the template names."""
    views = [view for view in pod_views(resource) if membership.mentions_gang(view)]
    if not views:
        return NO_FINDINGS
    is_controlled = resource.kind == "Pod" and controller_of(resource.metadata) is not None
    violations = [
        found for view in views for found in _check_view(view, is_controlled=is_controlled)
    ]
    warnings = [text for view in views for text in _warn(view)]
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


def _check_view(view: PodView, *, is_controlled: bool) -> Iterator[Violation]:
    for dialect in membership.dialects_in(view):
        name = dialect.name.read(view)
        if name and not membership.is_name(name):
            yield Violation(dialect.name.path(view.prefix), ViolationKind.INVALID, name, _DETAIL)
    chosen = [
        stated
        for stated in membership.gang_names(view)
        if _is_chosen(stated.dialect, view, is_controlled=is_controlled)
    ]
    for stated in chosen[1:]:
        if stated.name != chosen[0].name:
            yield _another(stated, chosen[0])


def _is_chosen(dialect: GangDialect, view: PodView, *, is_controlled: bool) -> bool:
    if not dialect.is_declared or (dialect.may_be_generated and is_controlled):
        return False
    return not membership.is_generated(dialect, view)


def _another(stated: GangName, first: GangName) -> Violation:
    detail = f'must be "{first.name}", as in {first.path}: a pod is in one gang'
    return Violation(stated.path, ViolationKind.INVALID, stated.name, detail)


def _warn(view: PodView) -> Iterator[str]:
    for stated in membership.gang_names(view):
        if stated.dialect.replacement_key:
            yield f"{stated.path}: use {stated.dialect.replacement_key}"
