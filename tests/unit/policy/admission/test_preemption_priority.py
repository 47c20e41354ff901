"""Which PriorityClasses an object names: they are read before it is judged."""

import pytest

from reprieve_policy.admission import preemption_priority
from reprieve_policy.kube.objects import Resource
from reprieve_testing.objects.builders import (
    a_namespace,
    a_pod,
    a_pod_group,
    a_priority_class,
    a_workload,
)

POD = a_pod().in_priority_class("own").defended_as("other")

NAMES = {
    "a pod names its own and that of its defence": (POD.build(), ["own", "other"]),
    "a template names its own and that of its defence": (
        POD.in_template_of("CronJob"),
        ["own", "other"],
    ),
    "a template of a listed kind names both its PriorityClasses": (
        POD.in_listed_kind(),
        ["own", "other"],
    ),
    "a native group names its own and that of its defence": (
        a_pod_group().in_priority_class("own").defended_as("other").build(),
        ["own", "other"],
    ),
    "a native workload names those of its groups": (
        a_workload().with_templates("one", None, "two").build(),
        ["one", "two"],
    ),
    "a PriorityClass names its defence": (
        a_priority_class("own").defended_as("other").build(),
        ["other"],
    ),
    "a PriorityClass that is its own defence names none": (
        a_priority_class("own").defended_as("own").build(),
        [],
    ),
    "a PriorityClass without a defence names none": (a_priority_class("own").build(), []),
    "a pod without a PriorityClass names none": (a_pod().build(), []),
    "another object names no PriorityClass": (a_namespace().build(), []),
}


@pytest.mark.parametrize(("resource", "names"), NAMES.values(), ids=NAMES)
def test_the_priority_classes_that_an_object_names(resource: Resource, names: list[str]) -> None:
    assert list(preemption_priority.priority_class_names(resource)) == names
