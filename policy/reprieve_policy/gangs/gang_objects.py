"""Objects of other projects that state something for all pods of a gang: its disruption mode.

A pod names such an object by the label that puts it in the gang. What the object states is copied
to the pod when it is created, so that the pod itself carries all that a decision needs. What the
pod states itself stays. Native PodGroups are not here: they are read with each decision
(`pod_group`).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.facts import GangStatement
from reprieve_policy.keys import DISRUPTION_MODE, MIN_MEMBER
from reprieve_policy.kube.objects import PodView, Resource, TemplatedResource, annotations_of

from . import disruption, membership


class GangObjectKind(NamedTuple):
    """A kind of such objects, and the label by which a pod names one."""

    group: str
    kind: str
    resource: str
    """With its group where Kubernetes serves another resource of that name."""
    label: str


KINDS: tuple[GangObjectKind, ...] = (
    GangObjectKind(
        "scheduling.x-k8s.io", "PodGroup", "podgroups.scheduling.x-k8s.io", keys.POD_GROUP
    ),
    GangObjectKind(
        "scheduling.sigs.k8s.io",
        "PodGroup",
        "podgroups.scheduling.sigs.k8s.io",
        keys.KOORDINATOR_POD_GROUP,
    ),
    GangObjectKind("jobset.x-k8s.io", "JobSet", "jobsets", keys.JOBSET),
    GangObjectKind(
        "leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", keys.LEADER_WORKER_SET
    ),
)
"""The PodGroups of scheduler-plugins and of Koordinator come first: a declared gang is that of its
PodGroup, whatever made its pods."""


class NamedObject(NamedTuple):
    """An object that a pod names."""

    resource: str
    name: str


def is_gang_object(resource: Resource) -> bool:
    """True for an object of one of these kinds: its own annotation is read."""
    return isinstance(resource, TemplatedResource) and any(
        (row.group, row.kind) == resource.upstream_kind for row in KINDS
    )


def stated_mode(resource: Resource) -> str:
    """Return the disruption mode that the object states for pods that name it; empty: none."""
    own = annotations_of(resource.metadata)
    return disruption.stated_mode(own) if is_gang_object(resource) else ""


def named_by(view: PodView) -> tuple[NamedObject, ...]:
    """Return the objects to read for a new pod, the first one to count first.

    None for a pod that states its mode itself, unless its gang is declared: its PodGroup also says
    how many pods the gang needs, and the pods of a declared gang are compared with each other.
    """
    gang = membership.read(view)
    if (
        gang is None
        or gang.is_native
        or (not gang.is_declared and DISRUPTION_MODE in view.annotations)
    ):
        return ()
    return tuple(
        NamedObject(row.resource, view.labels[row.label])
        for row in KINDS
        if row.label in view.labels
    )


def read(objects: Iterable[tuple[Mapping[str, str], int | None]]) -> GangStatement | None:
    """Return what the objects of a gang state, by their annotations and `minMember`.

    The first that states a thing counts; unreadable values count as absent. `None`: there is no
    object.
    """
    found = list(objects)
    if not found:
        return None
    modes = (disruption.stated_mode(annotations) for annotations, _ in found)
    numbers = (number for _, number in found if number is not None and number > 0)
    return GangStatement(next(filter(None, modes), ""), next(numbers, None))


def inherited_annotations(view: PodView, statement: GangStatement) -> Mapping[str, str]:
    """Return what a new pod takes over from the objects of its gang.

    The number of pods that a PodGroup needs counts only for a gang that is evicted pod by pod, and
    only where its pods do not state one.
    """
    gang, mode = membership.read(view), statement.disruption_mode
    states_minimum = gang is None or gang.min_available is not None
    is_pod_by_pod = view.annotations.get(DISRUPTION_MODE, mode) == disruption.POD
    minimum = statement.min_member if is_pod_by_pod and not states_minimum else None
    found = {DISRUPTION_MODE: mode, MIN_MEMBER: str(minimum or "")}
    return {key: value for key, value in found.items() if value and key not in view.annotations}
