"""The annotation `reprieve.dev/disruption-mode` is readable, and stands where it is read."""

from dataclasses import dataclass, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec
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


ON_A_JOBSET = replace(
    a_pod().in_listed_kind(),
    metadata=ObjectMeta(name="train", annotations={keys.DISRUPTION_MODE: "pod"}),
)

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
    "beside the templates of a JobSet": Case(
        resource=ON_A_JOBSET, refused=(f"{PATH}: Forbidden: {WHERE} the pod template",)
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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_the_disruption_mode_is_accepted(case: Case) -> None:
    verdict = decide_admission(case.resource, None, Facts())
    assert tuple(map(str, verdict.violations)) == case.refused
    assert verdict.warnings == case.warned
