"""What the JobSet or PodGroup of a gang states for its pods, and which of them a new pod needs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from reprieve_policy import keys
from reprieve_policy.facts import GangStatement
from reprieve_policy.gangs import gang_objects
from reprieve_policy.kube.kinds import CUSTOM
from reprieve_policy.kube.objects import ObjectMeta, PodView, Resource, TemplatedResource, pod_views
from reprieve_testing.objects.builders import PodBuilder, a_pod

IN_A_JOBSET = a_pod().labelled(keys.JOBSET, "train")
IN_A_POD_GROUP = a_pod().in_gang("train")
JOBSET, POD_GROUP = ("jobsets", "train"), ("podgroups.scheduling.x-k8s.io", "train")


def view_of(pod: PodBuilder) -> PodView:
    (view,) = pod_views(pod.build())
    return view


def stating(pod: PodBuilder, mode: str) -> PodBuilder:
    return pod.annotated(keys.DISRUPTION_MODE, mode)


NAMED: dict[str, tuple[PodBuilder, Sequence[tuple[str, str]]]] = {
    "a pod in no gang names none": (a_pod(), ()),
    "a pod of a Job names none": (a_pod().labelled(keys.JOB, "train"), ()),
    "a JobSet's": (IN_A_JOBSET, (JOBSET,)),
    "a LeaderWorkerSet's": (
        a_pod().labelled(keys.LEADER_WORKER_SET, "llm").labelled(keys.LEADER_WORKER_GROUP, "0"),
        (("leaderworkersets", "llm"),),
    ),
    "a PodGroup's of scheduler-plugins": (IN_A_POD_GROUP, (POD_GROUP,)),
    "a PodGroup's of Koordinator": (
        a_pod().labelled(keys.KOORDINATOR_POD_GROUP, "train"),
        (("podgroups.scheduling.sigs.k8s.io", "train"),),
    ),
    "the PodGroup comes before the JobSet": (
        IN_A_JOBSET.in_gang("train"),
        (POD_GROUP, JOBSET),
    ),
    "of a native group, the native PodGroup counts": (IN_A_JOBSET.in_native_gang("train"), ()),
    "a JobSet's pod that states its mode needs none": (stating(IN_A_JOBSET, "gang"), ()),
    "a declared gang's pod that states its mode is compared": (
        stating(IN_A_POD_GROUP, "gang"),
        (POD_GROUP,),
    ),
}


@pytest.mark.parametrize(("pod", "objects"), NAMED.values(), ids=NAMED)
def test_the_objects_that_a_new_pod_names(
    pod: PodBuilder, objects: Sequence[tuple[str, str]]
) -> None:
    assert gang_objects.named_by(view_of(pod)) == objects


BY_POD, AS_A_UNIT = {keys.DISRUPTION_MODE: "pod"}, {keys.DISRUPTION_MODE: "gang"}
READ: dict[str, tuple[Sequence[tuple[Mapping[str, str], int | None]], GangStatement | None]] = {
    "no object": ((), None),
    "an object that states nothing": ((({}, None),), GangStatement()),
    "an object that states a mode": (((BY_POD, None),), GangStatement("pod")),
    "a PodGroup states how many pods it needs": (((BY_POD, 3),), GangStatement("pod", 3)),
    "a number that cannot be is none": (((BY_POD, 0), (BY_POD, -1)), GangStatement("pod")),
    "the first that states a mode counts": (
        (({}, 3), (AS_A_UNIT, None), (BY_POD, None)),
        GangStatement("gang", 3),
    ),
    "an unreadable mode counts as none": (
        (({keys.DISRUPTION_MODE: "single"}, None), (BY_POD, None)),
        GangStatement("pod"),
    ),
}


@pytest.mark.parametrize(("objects", "statement"), READ.values(), ids=READ)
def test_what_the_objects_of_a_gang_state(
    objects: Sequence[tuple[Mapping[str, str], int | None]], statement: GangStatement | None
) -> None:
    assert gang_objects.read(objects) == statement


IN_A_SIZED_GANG = IN_A_POD_GROUP.annotated(keys.KOORDINATOR_MIN_AVAILABLE, "2")
THREE = {keys.MIN_MEMBER: "3"}
INHERITED: dict[str, tuple[PodBuilder, GangStatement, Mapping[str, str]]] = {
    "the mode of its JobSet": (IN_A_JOBSET, GangStatement("pod"), BY_POD),
    "its own mode stays": (stating(IN_A_POD_GROUP, "gang"), GangStatement("pod", 3), {}),
    "nothing where nothing is stated": (IN_A_JOBSET, GangStatement(), {}),
    "the number that a gang needs": (IN_A_POD_GROUP, GangStatement("pod", 3), BY_POD | THREE),
    "the number also where the pod states its mode": (
        stating(IN_A_POD_GROUP, "pod"),
        GangStatement("", 3),
        THREE,
    ),
    "no number where the gang is evicted as a unit": (
        IN_A_POD_GROUP,
        GangStatement("gang", 3),
        AS_A_UNIT,
    ),
    "its own number stays": (IN_A_SIZED_GANG, GangStatement("pod", 3), BY_POD),
    "a number that was written before stays": (
        IN_A_POD_GROUP.annotated(keys.MIN_MEMBER, "2"),
        GangStatement("pod", 3),
        BY_POD,
    ),
    "no number without a gang": (a_pod(), GangStatement("pod", 3), BY_POD),
}


@pytest.mark.parametrize(("pod", "statement", "annotations"), INHERITED.values(), ids=INHERITED)
def test_what_a_new_pod_takes_over(
    pod: PodBuilder, statement: GangStatement, annotations: Mapping[str, str]
) -> None:
    assert gang_objects.inherited_annotations(view_of(pod), statement) == annotations


A_JOBSET = TemplatedResource(
    kind=CUSTOM,
    metadata=ObjectMeta(name="train", annotations=BY_POD),
    upstream_kind=("jobset.x-k8s.io", "JobSet"),
)
STATED = {
    "a JobSet": (A_JOBSET, "pod"),
    "a JobSet of another group": (replace(A_JOBSET, upstream_kind=("example.com", "JobSet")), ""),
    "a JobSet that states an unreadable mode": (
        replace(A_JOBSET, metadata=ObjectMeta(annotations={keys.DISRUPTION_MODE: "all"})),
        "",
    ),
    "a Deployment": (Resource(kind="Deployment", metadata=A_JOBSET.metadata), ""),
}


@pytest.mark.parametrize(("resource", "mode"), STATED.values(), ids=STATED)
def test_which_objects_state_a_mode_for_their_pods(resource: Resource, mode: str) -> None:
    assert gang_objects.stated_mode(resource) == mode
