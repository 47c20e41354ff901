"""Views that are cached between two rules never belong to another object."""

from dataclasses import replace

from reprieve_policy.keys import PREEMPTION_CLASS
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_testing.objects.builders import a_pod


def class_of(resource: Resource) -> list[str | None]:
    return [view.labels.get(PREEMPTION_CLASS) for view in pod_views(resource)]


def test_views_belong_to_the_given_object_in_any_order():
    first, second = a_pod().in_class(1).build(), a_pod().in_class(2).build()

    assert [class_of(resource) for resource in (first, second, second, first)] == [
        ["1"],
        ["2"],
        ["2"],
        ["1"],
    ]


def test_two_iterators_of_views_are_independent():
    resource = a_pod().in_class(3).in_template_of("Deployment")

    assert [
        first.prefix == second.prefix
        for first, second in zip(pod_views(resource), pod_views(resource), strict=True)
    ]
    assert class_of(resource) == ["3"]


def test_a_changed_copy_has_views_of_its_own():
    pod = a_pod().in_class(1).build()

    assert class_of(pod) == ["1"]
    assert class_of(replace(pod, kind="Namespace")) == []
