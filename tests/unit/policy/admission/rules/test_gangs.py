"""A pod is in one gang, of a size that can be reached."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.settings import REFUSE, PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import JobTemplate, Resource, Spec
from reprieve_testing.objects.builders import PodBuilder, a_pod

GANG = f"metadata.annotations[{keys.KOORDINATOR_GANG}]"
MINIMUM = f"metadata.annotations[{keys.KOORDINATOR_MIN_AVAILABLE}]"
TOTAL = f"metadata.annotations[{keys.KOORDINATOR_TOTAL}]"
MODE = f"metadata.annotations[{keys.KOORDINATOR_MODE}]"
POD_GROUP = f"metadata.labels[{keys.POD_GROUP}]"
OLD_MINIMUM = f"metadata.labels[{keys.OLD_MIN_AVAILABLE}]"
KUEUE = f"metadata.labels[{keys.KUEUE_GROUP}]"
NATIVE = "spec.schedulingGroup.podGroupName"
OLD_NAME_WARNING = f"metadata.labels[{keys.OLD_POD_GROUP}]: use {keys.POD_GROUP}"
IN_ONE = "a pod is in one gang"
NO_MORE = "the StatefulSet runs no more pods at once"
A_NUMBER = "must be a whole number between 1 and 2147483647"
UNREACHABLE_IS_REFUSED = Facts(settings=PolicySettings(unreachable_min_available=REFUSE))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod or workload; what is refused and what is warned of."""

    resource: Resource
    facts: Facts = field(default_factory=Facts)
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


def a_workload(kind: str, minimum: int, **spec: int | None) -> Resource:
    made = a_pod().in_koordinators_gang("a", minimum).in_template_of(kind)
    assert made.spec is not None
    if made.spec.jobTemplate is not None:
        inner = replace(made.spec.jobTemplate.spec or Spec(), **spec)  # type: ignore[arg-type]  # numbers only
        return replace(made, spec=Spec(jobTemplate=JobTemplate(spec=inner)))
    return replace(made, spec=replace(made.spec, **spec))  # type: ignore[arg-type]  # the same


def never_reached(most: int, prefix: str = "spec.template.") -> tuple[str]:
    return (f"{prefix}{MINIMUM}: only {most} run at once",)


BOTH = a_pod().in_gang("a").in_koordinators_gang("b")
TWO_OF_A_CONTROLLERS = a_pod().owned_by("Job").in_native_gang("train-pg-0").in_gang("a")
LIGHTWEIGHT = a_pod().labelled(keys.OLD_POD_GROUP, "a")
OF_KUEUE = a_pod().labelled(keys.KUEUE_GROUP, "b")

IDENTITY = {
    "two dialects that name the same gang are one gang": Case(
        resource=a_pod().in_gang("a").in_koordinators_gang("a").build()
    ),
    "two dialects that name different gangs are refused": Case(
        resource=BOTH.build(),
        refused=(f'{GANG}: Invalid value: "b": must be "a", as in {POD_GROUP}: {IN_ONE}',),
    ),
    "two dialects that name different gangs are refused in a template": Case(
        resource=BOTH.in_template_of("Deployment"),
        refused=(
            (
                f'spec.template.{GANG}: Invalid value: "b": must be "a", as in '
                f"spec.template.{POD_GROUP}: {IN_ONE}"
            ),
        ),
    ),
    "two dialects that name different gangs are refused on a controller's pod": Case(
        resource=BOTH.owned_by("PyTorchJob").build(),
        refused=(f'{GANG}: Invalid value: "b": must be "a", as in {POD_GROUP}: {IN_ONE}',),
    ),
    "a native group that a controller made for its Job is no second gang": Case(
        resource=TWO_OF_A_CONTROLLERS.build()
    ),
    "a native group of a pod without a controller is a second gang": Case(
        resource=a_pod().in_native_gang("b").in_gang("a").build(),
        refused=(f'{POD_GROUP}: Invalid value: "a": must be "b", as in {NATIVE}: {IN_ONE}',),
    ),
    "a JobSet's name is no second gang": Case(
        resource=a_pod().labelled(keys.JOBSET, "set").in_gang("a").build()
    ),
    "a name that Kueue chose is no second gang": Case(
        resource=OF_KUEUE.annotated(keys.KUEUE_PARENT, "leaderworkerset").in_gang("a").build()
    ),
    "a name for Kueue that a user chose is a second gang": Case(
        resource=OF_KUEUE.in_gang("a").build(),
        refused=(f'{KUEUE}: Invalid value: "b": must be "a", as in {POD_GROUP}: {IN_ONE}',),
    ),
    "an annotation that is no name is refused": Case(
        resource=a_pod().in_koordinators_gang("a b").build(),
        refused=(
            (
                f'{GANG}: Invalid value: "a b": must be a name of at most 253 letters, '
                f"digits, '-', '_' and '.'"
            ),
        ),
    ),
    "the lightweight key is old": Case(resource=LIGHTWEIGHT.build(), warned=(OLD_NAME_WARNING,)),
    "document 004's key is old": Case(
        resource=a_pod().labelled(keys.DRAFT_POD_GROUP, "a").build(),
        warned=(f"metadata.labels[{keys.DRAFT_POD_GROUP}]: use {keys.POD_GROUP}",),
    ),
    "document 000's key is the one that Koordinator reads today": Case(
        resource=a_pod().labelled(keys.KOORDINATOR_POD_GROUP, "a").build()
    ),
}

SIZES = {
    "a minimum as large as the gang is admitted": Case(
        resource=a_pod().in_koordinators_gang("a", 3, 3).build()
    ),
    "a smaller minimum gives a warning: the gang is evicted as a unit": Case(
        resource=a_pod().in_koordinators_gang("a", 2, 3).build(),
        warned=(f"{MINIMUM}: below the total 3",),
    ),
    "a minimum above the gang's size is refused": Case(
        resource=a_pod().in_koordinators_gang("a", 4, 3).build(),
        refused=(
            (
                f'{MINIMUM}: Invalid value: "4": must be at most 3, as in {TOTAL}: the '
                f"gang has no more pods"
            ),
        ),
    ),
    "a minimum that is a word is refused": Case(
        resource=LIGHTWEIGHT.labelled(keys.OLD_MIN_AVAILABLE, "all").build(),
        refused=(f'{OLD_MINIMUM}: Invalid value: "all": {A_NUMBER}',),
        warned=(OLD_NAME_WARNING,),
    ),
    "a minimum of 0 is refused": Case(
        resource=a_pod().in_koordinators_gang("a", 0).build(),
        refused=(f'{MINIMUM}: Invalid value: "0": {A_NUMBER}',),
    ),
    "a negative minimum is refused": Case(
        resource=a_pod().in_koordinators_gang("a", -1).build(),
        refused=(f'{MINIMUM}: Invalid value: "-1": {A_NUMBER}',),
    ),
    "a minimum beyond upstream's int32 is refused": Case(
        resource=a_pod().in_koordinators_gang("a", 2**31).build(),
        refused=(f'{MINIMUM}: Invalid value: "2147483648": {A_NUMBER}',),
    ),
    "minimum and total are both checked": Case(
        resource=a_pod().in_koordinators_gang("a", "x", "y").build(),
        refused=(
            f'{MINIMUM}: Invalid value: "x": {A_NUMBER}',
            f'{TOTAL}: Invalid value: "y": {A_NUMBER}',
        ),
    ),
    "two minimums that differ are refused": Case(
        resource=LIGHTWEIGHT.labelled(keys.OLD_MIN_AVAILABLE, "2")
        .in_koordinators_gang("a", 3)
        .build(),
        refused=(f'{OLD_MINIMUM}: Invalid value: "2": must be "3", as in {MINIMUM}',),
        warned=(OLD_NAME_WARNING,),
    ),
    "two equal minimums count as one": Case(
        resource=LIGHTWEIGHT.labelled(keys.OLD_MIN_AVAILABLE, "3")
        .in_koordinators_gang("a", 3)
        .build(),
        warned=(OLD_NAME_WARNING,),
    ),
    "a minimum of no gang is refused": Case(
        resource=a_pod().annotated(keys.KOORDINATOR_MIN_AVAILABLE, "2").build(),
        refused=(f"{GANG}: Required value: the name of the gang",),
    ),
    "a mode that Koordinator would not read is refused": Case(
        resource=a_pod()
        .in_koordinators_gang("a")
        .annotated(keys.KOORDINATOR_MODE, "strict")
        .build(),
        refused=(f'{MODE}: Unsupported value: "strict": supported values: "Strict", "NonStrict"',),
    ),
    "a mode that it reads is admitted": Case(
        resource=a_pod()
        .in_koordinators_gang("a")
        .annotated(keys.KOORDINATOR_MODE, "NonStrict")
        .build()
    ),
}

WORKLOADS = {
    "a Job of as many pods at once": Case(
        resource=a_workload("Job", 4, parallelism=4, completions=4)
    ),
    "a Job of fewer at once": Case(
        resource=a_workload("Job", 4, parallelism=2, completions=4),
        warned=never_reached(2),
    ),
    "a Job that ends after fewer": Case(
        resource=a_workload("Job", 4, parallelism=8, completions=3),
        warned=never_reached(3),
    ),
    "a Job without parallelism and completions runs one pod": Case(
        resource=a_workload("Job", 2), warned=never_reached(1)
    ),
    "a Job that is paused may be large later": Case(resource=a_workload("Job", 4, parallelism=0)),
    "a CronJob's Job": Case(
        resource=a_workload("CronJob", 4, parallelism=2),
        warned=never_reached(2, "spec.jobTemplate.spec.template."),
    ),
    "a StatefulSet": Case(
        resource=a_workload("StatefulSet", 4, replicas=3), warned=never_reached(3)
    ),
    "a StatefulSet that is large enough": Case(resource=a_workload("StatefulSet", 4, replicas=4)),
    "a Deployment without replicas runs one pod": Case(
        resource=a_workload("Deployment", 2), warned=never_reached(1)
    ),
    "a DaemonSet is as large as the cluster": Case(resource=a_workload("DaemonSet", 99)),
    "a minimum that is never reached is refused if the policy says so": Case(
        resource=a_workload("StatefulSet", 4, replicas=3),
        facts=UNREACHABLE_IS_REFUSED,
        refused=(f'spec.template.{MINIMUM}: Invalid value: "4": must be at most 3: {NO_MORE}',),
    ),
    "a minimum that cannot be read is not compared": Case(
        resource=a_pod().in_koordinators_gang("a", "x").in_template_of("Job"),
        facts=UNREACHABLE_IS_REFUSED,
        refused=(f'spec.template.{MINIMUM}: Invalid value: "x": {A_NUMBER}',),
    ),
}
CASES = IDENTITY | SIZES | WORKLOADS


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_fields_of_a_gang_are_checked(case: Case) -> None:
    verdict = decide_admission(case.resource, None, case.facts)
    assert tuple(str(violation) for violation in verdict.violations) == case.refused
    assert verdict.warnings == case.warned


def test_warnings_fit_into_a_line() -> None:
    deepest = a_workload("CronJob", 100, parallelism=99)
    old = a_pod().labelled(keys.OLD_POD_GROUP, "a").in_template_of("CronJob")
    smaller = a_pod().in_koordinators_gang("a", 2, 3).in_template_of("CronJob")
    warnings = [
        text
        for resource in (deepest, old, smaller)
        for text in decide_admission(resource, None, Facts()).warnings
    ]
    assert all(len(text) <= 120 for text in warnings)
    assert all(text.startswith("spec.jobTemplate.spec.template.metadata.") for text in warnings)


def a_cronjob_without_a_job() -> Resource:
    made: PodBuilder = a_pod()
    return replace(made.in_template_of("CronJob"), spec=Spec(jobTemplate=JobTemplate(spec=None)))


def test_a_workload_without_a_template_has_no_gang() -> None:
    assert decide_admission(a_cronjob_without_a_job(), None, Facts()).is_empty
