"""Which pods get the PriorityClass of their class, and with it a priority."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import facts as known
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.keys import WORKLOAD_TYPE
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_policy.verdict import SpecChange
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_priority_class, class_priorities

ON = Facts(
    settings=PolicySettings(class_priorities="warn"),
    namespace=NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11)))),
    priority_classes=class_priorities(),
)
OFF = replace(ON, settings=PolicySettings())


def with_classes(*more: Resource, facts: Facts = ON) -> Facts:
    added = {str(found.metadata.name): found for found in more}
    return replace(facts, priority_classes={**facts.priority_classes, **added})


def with_namespace(policy: NamespacePolicy) -> Facts:
    return replace(ON, namespace=policy)


def resolved(builder: PodBuilder, priority: int = 0, name: str | None = None) -> Resource:
    """Return a pod as the API server sends it: with a priority, and the global default's name."""
    return builder.with_priority(priority, name).preempting("PreemptLowerPriority").build()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod and what is known of the cluster; the priority that it gets, with that class's name."""

    pod: Resource
    facts: Facts = field(default=ON)
    want: tuple[str, int, str] | None


def given(value: int, policy: str = "PreemptLowerPriority") -> tuple[str, int, str]:
    return f"reprieve-class-{value}", value * 1000, policy


GLOBAL = a_priority_class("standard").worth(500).for_all().build()

CASES = {
    "a pod that states its class": Case(pod=resolved(a_pod().in_class(9)), want=given(9)),
    "nothing where the setting is off": Case(
        pod=resolved(a_pod().in_class(9)), facts=OFF, want=None
    ),
    "nothing where enforcement is off": Case(
        pod=resolved(a_pod().in_class(9)),
        facts=with_namespace(NamespacePolicy(enforcement=namespace.OFF)),
        want=None,
    ),
    "also where enforcement only warns": Case(
        pod=resolved(a_pod().in_class(6)),
        facts=with_namespace(NamespacePolicy(enforcement=namespace.WARN)),
        want=given(6),
    ),
    "a pod that states a PriorityClass keeps it": Case(
        pod=resolved(a_pod().in_class(9), 500, "own"),
        facts=with_classes(a_priority_class("own").worth(500).build()),
        want=None,
    ),
    "one that does not exist, too": Case(pod=resolved(a_pod().in_class(9), 500, "own"), want=None),
    "a pod that was given its PriorityClass before": Case(
        pod=resolved(a_pod().in_class(9), 9000, "reprieve-class-9"), want=None
    ),
    "the global default is no statement: the API server has written it": Case(
        pod=resolved(a_pod().in_class(9), 500, "standard"),
        facts=with_classes(GLOBAL),
        want=given(9),
    ),
    "a class that is the global default itself": Case(
        pod=resolved(a_pod().in_class(4), 4000, "reprieve-class-4"),
        facts=with_classes(
            a_priority_class("reprieve-class-4").worth(4000).giving_class(4).for_all().build()
        ),
        want=None,
    ),
    "the Namespace's default class": Case(
        pod=resolved(a_pod()), facts=with_namespace(NamespacePolicy(default_class=2)), want=given(2)
    ),
    "the class of the workload type": Case(
        pod=resolved(a_pod()),
        facts=with_namespace(NamespacePolicy(workload_type="interactive")),
        want=given(3),
    ),
    "a sensitive Namespace": Case(
        pod=resolved(a_pod().in_class(3)),
        facts=with_namespace(namespace.read_leniently({}, {WORKLOAD_TYPE: "sensitive"})),
        want=given(10),
    ),
    "the cluster's default class": Case(pod=resolved(a_pod()), want=given(4)),
    "a label gives no more than its Namespace allows": Case(
        pod=resolved(a_pod().in_class(9)), facts=with_namespace(NamespacePolicy()), want=given(6)
    ),
    "an unreadable label counts as none": Case(pod=resolved(a_pod().in_class(11)), want=given(4)),
    "a PriorityClass that never preempts": Case(
        pod=resolved(a_pod().in_class(9)),
        facts=with_classes(
            a_priority_class("reprieve-class-9").worth(9000).never_preempting().build()
        ),
        want=given(9, "Never"),
    ),
    "a PriorityClass of value 0": Case(pod=resolved(a_pod().in_class(0), 7), want=given(0)),
    "a PriorityClass that does not exist": Case(
        pod=resolved(a_pod().in_class(9)),
        facts=replace(ON, priority_classes=class_priorities(8)),
        want=None,
    ),
    "a pod of a native group keeps the group's priority": Case(
        pod=resolved(a_pod().in_class(9).in_native_gang("group")), want=None
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_priority_that_a_new_pod_gets(case: Case) -> None:
    changes = {
        change.field: change.value
        for change in decide_defaults(case.pod, None, case.facts)
        if isinstance(change, SpecChange)
    }
    fields = ("priorityClassName", "priority", "preemptionPolicy")
    assert changes == ({} if case.want is None else dict(zip(fields, case.want, strict=True)))


def test_a_pod_that_exists_and_a_template_keep_their_priority() -> None:
    pod = resolved(a_pod().in_class(9))
    assert decide_defaults(pod, pod, ON) == ()
    assert decide_defaults(a_pod().in_class(9).in_template_of("Job"), None, ON) == ()


def test_a_template_is_judged_by_the_priority_that_its_pods_will_get() -> None:
    (view,) = pod_views(a_pod().in_class(9).in_template_of("Job"))
    priority_class = known.priority_class_of(view, ON)
    assert priority_class is not None
    assert priority_class.value == 9000
    assert known.priority_class_of(view, OFF) is None


def test_a_pod_that_has_its_priority_is_judged_by_that() -> None:
    (view,) = pod_views(resolved(a_pod().in_class(9)))
    assert known.priority_class_of(view, with_classes(GLOBAL)) == GLOBAL
