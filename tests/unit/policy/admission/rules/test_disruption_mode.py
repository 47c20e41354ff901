"""The annotation `reprieve.dev/disruption-mode` is readable, and stands where it is read."""

from dataclasses import dataclass, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec, TemplatedResource
from reprieve_testing.objects.builders import PodBuilder, a_pod

PATH = f"metadata.annotations[{keys.DISRUPTION_MODE}]"
WHERE = "is not read here: set it in the metadata of"
ON_ITS_GROUP = "is not read here: set it on the PodGroup that spec.schedulingGroup names"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object; what is refused and what is warned of."""

    resource: Resource
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


def stating(value: str, pod: PodBuilder | None = None) -> PodBuilder:
    return (pod or a_pod().in_gang("train")).annotated(keys.DISRUPTION_MODE, value)


def an_object(kind: str, value: str, **spec: object) -> Resource:
    metadata = ObjectMeta(name="train", annotations={keys.DISRUPTION_MODE: value})
    return Resource(kind=kind, metadata=metadata, spec=Spec(**spec))  # type: ignore[arg-type]  # each case names its own


def on_another_projects(kind: str, value: str, pod: PodBuilder | None = None) -> Resource:
    """Return an object with the annotation in its own metadata; `kind`: `GROUP/KIND`."""
    group, _, name = kind.partition("/")
    made = a_pod().in_listed_kind() if pod is None else pod.in_listed_kind()
    assert isinstance(made, TemplatedResource)
    metadata = ObjectMeta(name="train", annotations={keys.DISRUPTION_MODE: value})
    return replace(made, metadata=metadata, upstream_kind=(group, name))


JOBSET, LEADER_WORKER_SET = "jobset.x-k8s.io/JobSet", "leaderworkerset.x-k8s.io/LeaderWorkerSet"

CASES = {
    "pod": Case(resource=stating("pod").build()),
    "gang": Case(resource=stating("gang").build()),
    "the field of KEP-5710 is none of the values": Case(
        resource=stating("all").build(),
        refused=(f'{PATH}: Unsupported value: "all": supported values: "pod", "gang"',),
    ),
    "a template": Case(
        resource=stating("each").in_template_of("Job"),
        refused=(
            f'spec.template.{PATH}: Unsupported value: "each": supported values: "pod", "gang"',
        ),
    ),
    "a Job is a gang by what its controller writes": Case(
        resource=stating("gang", a_pod()).in_template_of("Job")
    ),
    "so is a JobSet": Case(resource=stating("pod", a_pod()).in_listed_kind()),
    "a pod without a gang": Case(
        resource=stating("gang", a_pod()).build(),
        warned=(f"{PATH}: has no effect: the pod is in no gang",),
    ),
    "beside the template, where no pod gets it": Case(
        resource=an_object("Job", "pod"),
        refused=(f"{PATH}: Forbidden: {WHERE} the pod template",),
    ),
    "beside the templates of a RayCluster": Case(
        resource=on_another_projects("ray.io/RayCluster", "pod"),
        refused=(f"{PATH}: Forbidden: {WHERE} the pod template",),
    ),
    "a JobSet gives it to its pods": Case(resource=on_another_projects(JOBSET, "pod")),
    "a JobSet with an unreadable one": Case(
        resource=on_another_projects(JOBSET, "single"),
        refused=(f'{PATH}: Unsupported value: "single": supported values: "pod", "gang"',),
    ),
    "a JobSet whose pods are all in native PodGroups": Case(
        resource=on_another_projects(JOBSET, "pod", a_pod().in_native_gang("train")),
        refused=(f"{PATH}: Forbidden: {ON_ITS_GROUP}",),
    ),
    "a LeaderWorkerSet gives it to its pods": Case(
        resource=on_another_projects(LEADER_WORKER_SET, "gang")
    ),
    "a PodGroup of scheduler-plugins": Case(
        resource=on_another_projects("scheduling.x-k8s.io/PodGroup", "pod")
    ),
    "a PodGroup of Koordinator": Case(
        resource=on_another_projects("scheduling.sigs.k8s.io/PodGroup", "each"),
        refused=(f'{PATH}: Unsupported value: "each": supported values: "pod", "gang"',),
    ),
    "a Workload gives it to its PodGroups": Case(resource=an_object("Workload", "gang")),
    "a PodGroup": Case(resource=an_object("PodGroup", "gang")),
    "a PodGroup with an unreadable one": Case(
        resource=an_object("PodGroup", "whole"),
        refused=(f'{PATH}: Unsupported value: "whole": supported values: "pod", "gang"',),
    ),
    "a PodGroup that contradicts itself": Case(
        resource=an_object("PodGroup", "pod", disruptionMode={"all": {}}),
        refused=(f'{PATH}: Invalid value: "pod": must be "gang", as spec.disruptionMode is all',),
    ),
    "a PodGroup that adds to its default": Case(
        resource=an_object("PodGroup", "gang", disruptionMode={"single": {}})
    ),
    "a PodGroup without a spec": Case(resource=replace(an_object("PodGroup", "pod"), spec=None)),
    "a pod of a native PodGroup": Case(
        resource=stating("gang", a_pod().in_native_gang("train")).build(),
        refused=(f"{PATH}: Forbidden: {ON_ITS_GROUP}",),
    ),
}


CHANGED = f"{PATH}: a change counts for new pods only"
UPDATES: dict[str, tuple[Resource, Resource, tuple[str, ...]]] = {
    "of a JobSet": (
        on_another_projects(JOBSET, "gang"),
        on_another_projects(JOBSET, "pod"),
        (CHANGED,),
    ),
    "of a JobSet, to the same": (
        on_another_projects(JOBSET, "pod"),
        on_another_projects(JOBSET, "pod"),
        (),
    ),
    "of a native PodGroup, which is read with each decision": (
        an_object("PodGroup", "gang"),
        an_object("PodGroup", "pod"),
        (),
    ),
}


@pytest.mark.parametrize(("now", "old", "warned"), UPDATES.values(), ids=UPDATES)
def test_a_change_that_reaches_no_pod_that_exists_is_warned_of(
    now: Resource, old: Resource, warned: tuple[str, ...]
) -> None:
    assert decide_admission(now, old, Facts()).warnings == warned


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_the_disruption_mode_is_accepted(case: Case) -> None:
    verdict = decide_admission(case.resource, None, Facts())
    assert tuple(map(str, verdict.violations)) == case.refused
    assert verdict.warnings == case.warned
