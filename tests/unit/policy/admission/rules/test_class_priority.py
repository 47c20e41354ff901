"""`class-priority`: a PriorityClass that contradicts the pod's class."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_priority_class, class_priorities

PATH = "spec.priorityClassName"


def facts(setting: str = "refuse", *classes: int) -> Facts:
    """Return facts with PriorityClasses of the classes, and `own-N` of value N beside them."""
    own = {
        name: a_priority_class(name).worth(value).build()
        for value in (-1, 0, 10, 1500, 3999, 9000, 9001, 99000)
        for name in (f"own-{value}",)
    }
    critical = a_priority_class("critical").worth(2_000_000_000).build()
    return Facts(
        settings=PolicySettings(class_priorities=setting),
        namespace=NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11)))),
        priority_classes={**class_priorities(*classes), **own, "critical": critical},
    )


def in_own(preemption_class: int | None, value: int) -> PodBuilder:
    pod = a_pod() if preemption_class is None else a_pod().in_class(preemption_class)
    return pod.with_priority(value, f"own-{value}")


def refusal(value: int, preemption_class: int, bounds: str, prefix: str = "") -> str:
    return (
        f'{prefix}{PATH}: Invalid value: "own-{value}": its value {value} does not fit class '
        f"{preemption_class}: must be {bounds}, or unset"
    )


def warning(value: int, preemption_class: int, bounds: str, prefix: str = "") -> str:
    return f"{prefix}{PATH}: {value} does not fit class {preemption_class}: must be {bounds}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object, its predecessor and the facts; what is refused and what is warned of."""

    resource: Resource
    old: Resource | None = None
    facts: Facts = field(default_factory=facts)
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


IN_A_JOB = "spec.template."
WITHOUT_9 = facts("warn", 0, 4)

CASES = {
    "a priority between those of the neighbours": Case(resource=in_own(3, 3999).build()),
    "a high class of low priority": Case(
        resource=in_own(9, 10).build(), refused=(refusal(10, 9, "above 8000 and below 10000"),)
    ),
    "a low class of high priority": Case(
        resource=in_own(2, 9000).build(), refused=(refusal(9000, 2, "above 1000 and below 3000"),)
    ),
    "the priority of the next lower class is too low": Case(
        resource=in_own(10, 9000).build(), refused=(refusal(9000, 10, "above 9000"),)
    ),
    "the highest class has no upper bound": Case(resource=in_own(10, 99000).build()),
    "the lowest class has no lower bound": Case(resource=in_own(0, -1).build()),
    "the lowest class of a high priority": Case(
        resource=in_own(0, 1500).build(), refused=(refusal(1500, 0, "below 1000"),)
    ),
    "where contradictions are warned of": Case(
        resource=in_own(9, 10).build(),
        facts=facts("warn"),
        warned=(warning(10, 9, "above 8000 and below 10000"),),
    ),
    "where the setting is off": Case(resource=in_own(9, 10).build(), facts=facts("off")),
    "the class that a pod has without a label is only warned of": Case(
        resource=in_own(4, 10).build(),
        warned=(warning(10, 4, "above 3000 and below 5000"),),
    ),
    "a template states its class itself": Case(
        resource=in_own(4, 10).in_template_of("Job"),
        refused=(refusal(10, 4, "above 3000 and below 5000", IN_A_JOB),),
    ),
    "a template without a class states none": Case(resource=in_own(None, 10).in_template_of("Job")),
    "a template where contradictions are warned of": Case(
        resource=in_own(9, 10).in_template_of("Job"),
        facts=facts("warn"),
        warned=(warning(10, 9, "above 8000 and below 10000", IN_A_JOB),),
    ),
    "a class that is lowered when the priority is fixed is only warned of": Case(
        resource=in_own(2, 9001).build(),
        old=in_own(9, 9001).build(),
        warned=(warning(9001, 2, "above 1000 and below 3000"),),
    ),
    "a template that changes for the worse": Case(
        resource=in_own(2, 9001).in_template_of("Deployment"),
        old=in_own(9, 9001).in_template_of("Deployment"),
        refused=(refusal(9001, 2, "above 1000 and below 3000", IN_A_JOB),),
    ),
    "a template that was so before": Case(
        resource=in_own(2, 9001).annotated("example.com/new", "").in_template_of("Deployment"),
        old=in_own(2, 9001).in_template_of("Deployment"),
    ),
    "a system-critical pod has no rank among the classes": Case(
        resource=a_pod().in_class(2).with_priority(2_000_000_000, "critical").build()
    ),
    "a PriorityClass that does not exist": Case(
        resource=a_pod().in_class(2).in_priority_class("unknown").in_template_of("Job"),
        warned=(f"{IN_A_JOB}{PATH}: no such PriorityClass yet; pods are refused",),
    ),
    "what admission wrote itself agrees, whatever the order of the values": Case(
        resource=a_pod().in_class(9).with_priority(9000, "reprieve-class-9").build(),
        facts=replace(
            facts(),
            priority_classes={
                **class_priorities(),
                "reprieve-class-8": a_priority_class("reprieve-class-8").worth(99000).build(),
            },
        ),
    ),
    "a pod that will get its PriorityClass": Case(
        resource=a_pod().in_class(9).in_template_of("Job")
    ),
    "a pod whose class has no PriorityClass": Case(
        resource=a_pod().in_class(9).with_priority(0).build(),
        facts=WITHOUT_9,
        warned=(f"{PATH}: no PriorityClass reprieve-class-9: the class gives no priority",),
    ),
    "a template whose class has no PriorityClass": Case(
        resource=a_pod().in_class(9).in_template_of("Job"),
        facts=WITHOUT_9,
        warned=(
            f"{IN_A_JOB}{PATH}: no PriorityClass reprieve-class-9: the class gives no priority",
        ),
    ),
    "a pod that exists gets none anyway": Case(
        resource=a_pod().in_class(9).with_priority(0).build(),
        old=a_pod().in_class(9).with_priority(0).build(),
        facts=WITHOUT_9,
    ),
    "the classes that exist are the bounds": Case(
        resource=in_own(9, -1).build(), facts=WITHOUT_9, warned=(warning(-1, 9, "above 4000"),)
    ),
    "no PriorityClass of a class": Case(
        resource=in_own(9, 10).build(),
        facts=replace(facts(), priority_classes={}),
    ),
    "a pod of a native group has the group's priority": Case(
        resource=a_pod().in_class(9).with_priority(0).in_native_gang("group").build()
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_class_and_priority(case: Case) -> None:
    verdict = decide_admission(case.resource, case.old, case.facts)
    assert tuple(map(str, verdict.violations)) == case.refused
    about_it = tuple(text for text in verdict.warnings if PATH in text)
    assert about_it == case.warned


def test_a_defence_is_compared_with_the_priority_that_the_pods_will_get() -> None:
    template = a_pod().in_class(9).defended_as("own-10").in_template_of("Job")
    (found,) = decide_admission(template, None, facts()).violations
    assert found.detail == "its value 10 is below the priority 9000: must be 9000 or higher"
