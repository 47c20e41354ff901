"""Which PriorityClasses an object names: they are read before it is judged."""

import pytest

from reprieve_policy.admission import preemption_priority
from reprieve_policy.kube.objects import Resource
from reprieve_testing.builders import a_namespace, a_pod, a_pod_group, a_priority_class, a_workload

POD = a_pod().in_priority_class("own").defended_as("other")

NAMES = {
    "a pod names its own and that of its defence": (POD.build(), ["own", "other"]),
    "so does a template": (POD.in_template_of("CronJob"), ["own", "other"]),
    "and the template of a listed kind": (POD.in_listed_kind(), ["own", "other"]),
    "and a native group": (
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
    "not itself": (a_priority_class("own").defended_as("own").build(), []),
    "and mostly none": (a_priority_class("own").build(), []),
    "a pod that says nothing names none": (a_pod().build(), []),
    "another object names none": (a_namespace().build(), []),
}


@pytest.mark.parametrize(("resource", "names"), NAMES.values(), ids=NAMES)
def test_the_priority_classes_that_an_object_names(resource: Resource, names: list[str]) -> None:
    assert list(preemption_priority.priority_class_names(resource)) == names
