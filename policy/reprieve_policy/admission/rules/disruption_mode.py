"""The annotation `reprieve.dev/disruption-mode` is `pod` or `gang`, and stands where it is read.

Checked: the value; that it stands on pods, in the metadata of a pod template, or on an object that
states it for the pods of a gang: a JobSet, a LeaderWorkerSet, a PodGroup of any project, a native
Workload. In the metadata of any other workload (a Job, a RayCluster) no pod would have it, and of a
pod that names a native PodGroup only the group is read: both are refused. `pod` is refused on a
native PodGroup whose `spec.disruptionMode` is `all`, because kube-scheduler evicts that as a unit.
Warned of: a pod or template that is in no gang; a change on a JobSet and similar objects, because
their pods get the annotation when they are created.

Why: a gang is evicted as a unit by default, because the rest of it does no work. Where that is not
so, a preemption that needs one pod would take them all.

Source: document 003, "Disruption mode" (KEP-5710), whose default is the pod; document 004
(`min-available`), below which a gang never falls.
"""

from collections.abc import Iterator

from reprieve_policy.facts import Facts
from reprieve_policy.gangs import disruption, gang_objects, membership
from reprieve_policy.keys import DISRUPTION_MODE
from reprieve_policy.kube.objects import (
    PodView,
    Resource,
    TemplatedResource,
    annotations_of,
    pod_views,
)
from reprieve_policy.verdict import (
    NO_FINDINGS,
    Verdict,
    Violation,
    ViolationKind,
    annotation_path,
)

_GROUPS = frozenset({"PodGroup", "Workload"})
"""Native ones. Those of other projects are of the kind `custom`."""
_MAKES_GANGS = frozenset({"Job", "CronJob"})
"""The pods of these, and of kinds of other projects, are gangs by what their controllers write."""

_IN_TEMPLATE = "is not read here: set it in the metadata of the pod template"
_ON_GROUP = "is not read here: set it on the PodGroup that spec.schedulingGroup names"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the annotation of the object itself, and of its pod or templates."""
    found = [*_check_own(resource)]
    warnings = [*_warn_of_change(resource, old)]
    for view in pod_views(resource):
        if DISRUPTION_MODE in view.annotations:
            found.extend(_check_view(view))
            warnings.extend(_warn(view, resource))
    if not found and not warnings:
        return NO_FINDINGS
    return Verdict(violations=tuple(found), warnings=tuple(warnings))


def _check_own(resource: Resource) -> Iterator[Violation]:
    text = annotations_of(resource.metadata).get(DISRUPTION_MODE)
    if text is None or resource.kind == "Pod":
        return
    path = annotation_path("", DISRUPTION_MODE)
    if resource.kind not in _GROUPS and not gang_objects.is_gang_object(resource):
        yield Violation(path, ViolationKind.FORBIDDEN, None, _IN_TEMPLATE)
        return
    bad = disruption.STATED_MODE.check(text, path)
    mode = None if resource.spec is None else resource.spec.disruptionMode
    if bad is not None:
        yield bad
    elif _has_only_native_pods(resource):
        yield Violation(path, ViolationKind.FORBIDDEN, None, _ON_GROUP)
    elif text == disruption.POD and disruption.is_evicted_whole(mode):
        detail = 'must be "gang", as spec.disruptionMode is all'
        yield Violation(path, ViolationKind.INVALID, text, detail)


def _has_only_native_pods(resource: Resource) -> bool:
    """True for an object that makes pods, all of them in native PodGroups."""
    gangs = [membership.read(view) for view in pod_views(resource)]
    return bool(gangs) and all(gang is not None and gang.is_native for gang in gangs)


def _warn_of_change(resource: Resource, old: Resource | None) -> Iterator[str]:
    if old is None or not gang_objects.is_gang_object(resource):
        return
    before, now = (annotations_of(one.metadata).get(DISRUPTION_MODE) for one in (old, resource))
    if before != now:
        path = annotation_path("", DISRUPTION_MODE)
        yield f"{path}: a change counts for new pods only"


def _check_view(view: PodView) -> Iterator[Violation]:
    path = annotation_path(view.prefix, DISRUPTION_MODE)
    bad = disruption.STATED_MODE.check(view.annotations[DISRUPTION_MODE], path)
    gang = membership.read(view)
    if bad is not None:
        yield bad
    elif gang is not None and gang.is_native:
        yield Violation(path, ViolationKind.FORBIDDEN, None, _ON_GROUP)


def _warn(view: PodView, resource: Resource) -> Iterator[str]:
    is_made_a_gang = isinstance(resource, TemplatedResource) or resource.kind in _MAKES_GANGS
    if membership.read(view) is None and not is_made_a_gang:
        path = annotation_path(view.prefix, DISRUPTION_MODE)
        yield f"{path}: has no effect: the pod is in no gang"
