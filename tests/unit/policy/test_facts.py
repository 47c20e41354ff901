"""What a rule knows besides the object: a pod's class and its preemption priority."""

from dataclasses import dataclass, field

import pytest

from reprieve_policy import facts as known
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_priority_class

TEN = ClassSet(frozenset({10}))
SENSITIVE = NamespacePolicy(workload_type="sensitive", allowed_classes=TEN)


def view_of(pod: PodBuilder) -> PodView:
    return next(pod_views(pod.build()))


GIVES_2 = a_priority_class("gives-2").giving_class(2).build()
GIVES_9 = a_priority_class("gives-9").giving_class(9).build()
GIVES_NONSENSE = a_priority_class("gives-nonsense").giving_class("high").build()
GLOBAL_GIVES_1 = a_priority_class("global").giving_class(1).for_all().build()
CLASSES = {found.metadata.name or "": found for found in (GIVES_2, GIVES_9, GIVES_NONSENSE)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod of PriorityClass `gives-2`; defaults of the Namespace 3, its type 6, the cluster 1."""

    priority_class: str | None = "gives-2"
    priority_classes: dict[str, Resource] = field(default_factory=lambda: CLASSES)
    namespace: NamespacePolicy = NamespacePolicy(default_class=3, workload_type="service")  # noqa: RUF009 - frozen
    cluster: int = 1
    want: int


CASES = {
    "the PriorityClass comes first": Case(want=2),
    "without a PriorityClass, the Namespace's default counts": Case(priority_class=None, want=3),
    "without a Namespace's default, its workload type counts": Case(
        priority_class=None, namespace=NamespacePolicy(workload_type="service"), want=6
    ),
    "without any of these, the cluster's default counts": Case(
        priority_class=None, namespace=NamespacePolicy(), want=1
    ),
    "a pod without a PriorityClass has the global default's": Case(
        priority_class=None, priority_classes={"global": GLOBAL_GIVES_1}, want=1
    ),
    "an unknown PriorityClass is ignored": Case(priority_class="unknown", want=3),
    "an unreadable PriorityClass is ignored": Case(priority_class="gives-nonsense", want=3),
    "a class that the Namespace does not allow is passed over": Case(
        priority_class="gives-9", want=3
    ),
    "if no default is allowed, the highest allowed class": Case(
        priority_class=None,
        namespace=NamespacePolicy(allowed_classes=ClassSet(frozenset({0, 2}))),
        cluster=4,
        want=2,
    ),
    "a sensitive Namespace overrides all": Case(
        namespace=NamespacePolicy(workload_type="sensitive", allowed_classes=TEN), want=10
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_class_of_a_pod_that_names_none(case: Case) -> None:
    pod = a_pod() if case.priority_class is None else a_pod().in_priority_class(case.priority_class)
    facts = Facts(
        settings=PolicySettings(default_class=case.cluster),
        namespace=case.namespace,
        priority_classes=case.priority_classes,
    )
    assert known.default_class(view_of(pod), facts) == case.want


def test_every_workload_type_gives_its_class() -> None:
    given = {
        name: known.default_class(
            view_of(a_pod()), Facts(namespace=NamespacePolicy(workload_type=name))
        )
        for name in ("hpc-batch", "ml-training", "service", "interactive", "sensitive")
    }
    assert given == {
        "hpc-batch": 4,
        "ml-training": 5,
        "service": 6,
        "interactive": 3,
        "sensitive": 10,
    }


@pytest.mark.parametrize(("label", "want"), [("3", 3), ("10", 10), ("11", 4), ("", 4)])
def test_a_readable_label_is_the_class_and_an_unreadable_one_counts_as_absent(
    label: str, want: int
) -> None:
    assert known.effective_class(view_of(a_pod().in_class(label)), Facts()) == want


EFFECTIVE = {
    "a class that is not allowed protects no better than the highest allowed one": (
        NamespacePolicy(),
        9,
        6,
    ),
    "a class below the allowed ones stays as it is": (
        NamespacePolicy(allowed_classes=ClassSet(frozenset({5}))),
        3,
        3,
    ),
    "a class above the allowed ones counts as the highest of them": (
        NamespacePolicy(allowed_classes=ClassSet(frozenset({0, 5}))),
        10,
        5,
    ),
    "class 10 without a list of classes has passed the guard": (NamespacePolicy(), 10, 10),
    "a sensitive workload is of class 10, whatever its label": (SENSITIVE, 3, 10),
}


@pytest.mark.parametrize(("policy", "label", "want"), EFFECTIVE.values(), ids=EFFECTIVE)
def test_an_unreviewed_label_protects_no_more_than_its_namespace_allows(
    policy: NamespacePolicy, label: int, want: int
) -> None:
    assert known.effective_class(view_of(a_pod().in_class(label)), Facts(namespace=policy)) == want


def test_of_several_global_defaults_the_lowest_counts() -> None:
    defaults = {
        name: a_priority_class(name).worth(value).for_all().build()
        for name, value in (("b", 7), ("a", 3))
    }
    found = known.priority_class_named(None, Facts(priority_classes=defaults))
    assert found is defaults["a"]


DEFENDED = a_priority_class("low").worth(100).defended_as("high").build()
HIGH = a_priority_class("high").worth(9000).build()


def test_a_pods_preemption_priority_is_what_its_priority_class_names() -> None:
    assert (
        known.class_preemption_priority(100, DEFENDED, Facts(priority_classes={"high": HIGH}))
        == 9000
    )


@pytest.mark.parametrize("named", [None, HIGH, DEFENDED])
def test_without_a_known_preemption_priority_the_priority_applies(
    named: Resource | None,
) -> None:
    assert known.class_preemption_priority(100, named, Facts()) == 100


def test_a_preemption_priority_without_a_value_is_none() -> None:
    valueless = Resource(kind="PriorityClass")
    assert (
        known.class_preemption_priority(100, DEFENDED, Facts(priority_classes={"high": valueless}))
        == 100
    )


HIGHEST = {
    "no more than the pod's own": (PolicySettings(), "low", 100),
    "what its PriorityClass gives it": (PolicySettings(), "defended", 9000),
    "as much more as an admin allows": (
        PolicySettings(max_preemption_priority_lift=50),
        "low",
        150,
    ),
    "nothing more for another PriorityClass": (
        PolicySettings(
            max_preemption_priority_lift=50, liftable_priority_classes=frozenset({"batch"})
        ),
        "low",
        100,
    ),
}


@pytest.mark.parametrize(("settings", "of", "want"), HIGHEST.values(), ids=HIGHEST)
def test_an_unreviewed_annotation_protects_no_more_than_is_allowed(
    settings: PolicySettings, of: str, want: int
) -> None:
    classes = {
        "high": HIGH,
        "highest": a_priority_class("highest").worth(2_000_000_000).build(),
        "low": a_priority_class("low").worth(100).build(),
        "defended": a_priority_class("defended").worth(100).defended_as("high").build(),
    }
    pod = view_of(a_pod().in_priority_class(of).defended_as("highest"))
    facts = Facts(settings=settings, priority_classes=classes)
    assert known.preemption_priority_of(pod, 100, facts) == want
