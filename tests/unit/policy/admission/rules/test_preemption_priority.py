"""The preemption priority of workloads: bounds, native groups, unknown names.

`../test_review.py` has the cases of pods.
"""

from dataclasses import dataclass, field

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodGroupTemplate, Resource
from reprieve_testing.objects.builders import a_pod, a_pod_group, a_priority_class, a_workload

DEFENCE = "metadata.annotations[reprieve.dev/preemption-priority-class]"
FIXED = f"{DEFENCE}: Forbidden: may not be changed after creation"

LOW, HIGH = a_priority_class("low").worth(100).build(), a_priority_class("high").worth(9000).build()
DEFENDED = a_priority_class("defended").worth(100).defended_as("high").build()
FOR_ALL = a_priority_class("for-all").worth(500).for_all().build()
VALUELESS = Resource(kind="PriorityClass", metadata=a_priority_class("valueless").build().metadata)


def knowing(*priority_classes: Resource, **settings: object) -> Facts:
    known = {
        found.metadata.name or "": found
        for found in (LOW, HIGH, DEFENDED, VALUELESS, *priority_classes)
    }
    return Facts(settings=PolicySettings(**settings), priority_classes=known)  # type: ignore[arg-type]


KNOWN = knowing()
LIFTING_BATCH = knowing(
    max_preemption_priority_lift=8900, liftable_priority_classes=frozenset({"batch", "low"})
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object, what it was before, what is known of the cluster; what is refused and what is
    warned of.
    """

    resource: Resource
    old: Resource | None = None
    facts: Facts = field(default=KNOWN)
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


NESTED = (
    PodGroupTemplate(
        podGroupTemplates=(PodGroupTemplate(priorityClassName="high"),), priorityClassName="low"
    ),
)

CASES = {
    "a pod of a class that may be lifted is": Case(
        resource=a_pod().with_priority(100, "low").defended_as("high").build(), facts=LIFTING_BATCH
    ),
    "a pod of another class is not": Case(
        resource=a_pod().with_priority(100, "defended").defended_as("higher").build(),
        facts=knowing(
            a_priority_class("higher").worth(9500).build(),
            max_preemption_priority_lift=8900,
            liftable_priority_classes=frozenset({"low"}),
        ),
        refused=(
            (
                f"{DEFENCE}: Forbidden: its value 9500 is above 9000, the highest "
                f"allowed for its PriorityClass"
            ),
        ),
    ),
    "a preemption priority of the PriorityClass itself is not a raise": Case(
        resource=a_pod().with_priority(100, "defended").defended_as("high").build(),
        facts=LIFTING_BATCH,
    ),
    "a pod of no class may not be lifted where classes are named": Case(
        resource=a_pod().with_priority(0).defended_as("low").build(),
        facts=LIFTING_BATCH,
        refused=(
            (
                f"{DEFENCE}: Forbidden: its value 100 is above 0, the highest allowed "
                f"for its PriorityClass"
            ),
        ),
    ),
    "a PriorityClass without a value is worth 0": Case(
        resource=a_pod()
        .in_priority_class("valueless")
        .defended_as("valueless")
        .in_template_of("Job")
    ),
    (
        "a template of an unknown PriorityClass gets a warning, and its priority is not guessed"
    ): Case(
        resource=a_pod().in_priority_class("gold").defended_as("high").in_template_of("Job"),
        warned=(
            "spec.template.spec.priorityClassName: no such PriorityClass yet; pods are refused",
        ),
    ),
    "a pod whose PriorityClass has gone keeps its priority": Case(
        resource=a_pod().with_priority(100, "gone").defended_as("low").build()
    ),
    "a group without a preemption priority is admitted": Case(
        resource=a_pod_group().in_priority_class("low", 100).build()
    ),
    "a group defended with its own PriorityClass is admitted": Case(
        resource=a_pod_group().in_priority_class("low", 100).defended_as("low").build()
    ),
    "a group defended lower than it is scheduled is refused": Case(
        resource=a_pod_group().in_priority_class("high", 9000).defended_as("low").build(),
        refused=(
            (
                f'{DEFENCE}: Invalid value: "low": its value 100 is below the priority '
                f"9000: must be 9000 or higher"
            ),
        ),
    ),
    "a group defended higher is forbidden": Case(
        resource=a_pod_group().in_priority_class("low", 100).defended_as("high").build(),
        refused=(f"{DEFENCE}: Forbidden: its value 9000 is above 100, the highest allowed here",),
    ),
    "a group without a priority has that of the global default": Case(
        resource=a_pod_group().defended_as("low").build(),
        facts=knowing(FOR_ALL),
        refused=(
            (
                f'{DEFENCE}: Invalid value: "low": its value 100 is below the priority '
                f"500: must be 500 or higher"
            ),
        ),
    ),
    "a group defended with an unknown PriorityClass is refused: its pods need it now": Case(
        resource=a_pod_group().in_priority_class("low", 100).defended_as("gold").build(),
        refused=(f'{DEFENCE}: Not found: "gold"',),
    ),
    "an annotation without a name is refused, also in a template": Case(
        resource=a_pod().defended_as("").in_template_of("Job"),
        refused=(f"spec.template.{DEFENCE}: Required value: the name of a PriorityClass",),
    ),
    "a group's defence does not change": Case(
        resource=a_pod_group().in_priority_class("low", 100).defended_as("low").build(),
        old=a_pod_group().in_priority_class("low", 100).build(),
        refused=(FIXED,),
    ),
    "a workload defended with the PriorityClass of all its groups is admitted": Case(
        resource=a_workload().with_templates("low", "low").defended_as("low").build()
    ),
    "a workload defended lower than one of its groups is refused": Case(
        resource=a_workload().with_templates("low", "high").defended_as("low").build(),
        refused=(
            (
                f'{DEFENCE}: Invalid value: "low": its value 100 is below the priority '
                f"9000: must be 9000 or higher"
            ),
        ),
    ),
    "a group inside a group counts too": Case(
        resource=a_workload().with_templates(inside=NESTED).defended_as("low").build(),
        refused=(
            (
                f'{DEFENCE}: Invalid value: "low": its value 100 is below the priority '
                f"9000: must be 9000 or higher"
            ),
        ),
    ),
    "the same violation of several groups is reported once": Case(
        resource=a_workload().with_templates("low", "low").defended_as("high").build(),
        refused=(f"{DEFENCE}: Forbidden: its value 9000 is above 100, the highest allowed here",),
    ),
    "a workload defended with an unknown PriorityClass gets a warning": Case(
        resource=a_workload().with_templates("low").defended_as("gold").build(),
        warned=(f"{DEFENCE}: no such PriorityClass yet",),
    ),
    "a workload of an unknown PriorityClass is warned": Case(
        resource=a_workload().with_templates("gold").defended_as("high").build(),
        warned=("spec.podGroupTemplates[0].priorityClassName: no such PriorityClass yet",),
    ),
    "a workload's defence does not change": Case(
        resource=a_workload().with_templates("low").build(),
        old=a_workload().with_templates("low").defended_as("low").build(),
        refused=(FIXED,),
    ),
    "a Workload without a spec is the API server's to refuse": Case(
        resource=Resource(kind="Workload")
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_preemption_priority_of_a_workload(case: Case) -> None:
    verdict = decide_admission(case.resource, case.old, case.facts)
    assert tuple(str(violation) for violation in verdict.violations) == case.refused
    assert verdict.warnings == case.warned
