"""The min of an ElasticQuota against its max."""

from dataclasses import dataclass

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube import kinds
from reprieve_policy.kube.objects import ObjectMeta, Quantities, Resource, Spec


@dataclass(frozen=True, kw_only=True)
class Case:
    """A quota, what it was before, and what is refused."""

    least: Quantities | None = None
    most: Quantities | None = None
    before: Resource | None = None
    refused: tuple[str, ...] = ()


def a_quota(least: Quantities | None = None, most: Quantities | None = None) -> Resource:
    return Resource(
        kind="ElasticQuota", metadata=ObjectMeta(name="gpu"), spec=Spec(min=least, max=most)
    )


EXPECTED = 'must be a quantity, like "2", "500m" or "1.5Gi"'
CASES = {
    "a quota without min and max is admitted": Case(),
    "a min below its max is admitted": Case(least={"cpu": "4"}, most={"cpu": "8"}),
    "a min at its max is admitted, however both are written": Case(
        least={"cpu": "4000m", "memory": "1Gi"}, most={"cpu": 4, "memory": "1024Mi"}
    ),
    "a min without a max is admitted: nothing is above it": Case(
        least={"cpu": "4"}, most={"memory": "1Gi"}
    ),
    "a max without a min is admitted": Case(most={"cpu": "4"}),
    "a min above its max is refused": Case(
        least={"memory": "2Gi"},
        most={"memory": "2047Mi"},
        refused=('spec.min[memory]: Invalid value: "2Gi": must be at most 2047Mi, its max',),
    ),
    "every resource whose min exceeds its max is named": Case(
        least={"cpu": "5", "memory": "1", "nvidia.com/gpu": 9},
        most={"cpu": "4", "memory": "1", "nvidia.com/gpu": 8},
        refused=(
            'spec.min[cpu]: Invalid value: "5": must be at most 4, its max',
            'spec.min[nvidia.com/gpu]: Invalid value: "9": must be at most 8, its max',
        ),
    ),
    "a negative amount is refused, in both": Case(
        least={"cpu": "-1"},
        most={"cpu": -2},
        refused=(
            'spec.min[cpu]: Invalid value: "-1": must not be negative',
            'spec.max[cpu]: Invalid value: "-2": must not be negative',
        ),
    ),
    "a value that is not a quantity is refused": Case(
        least={"cpu": "many"},
        most={"cpu": "4"},
        refused=(f'spec.min[cpu]: Invalid value: "many": {EXPECTED}',),
    ),
    "a resource of any name stays in one line": Case(
        least={"a\nb": "x"}, refused=(f'spec.min["a\\nb"]: Invalid value: "x": {EXPECTED}',)
    ),
    "a resource of any length is shortened": Case(
        least={"x" * 10_000: "x"},
        refused=(f'spec.min["{"x" * 64}…"]: Invalid value: "x": {EXPECTED}',),
    ),
    "a max that falls below the min is refused": Case(
        least={"cpu": "4"},
        most={"cpu": "3"},
        before=a_quota({"cpu": "4"}, {"cpu": "4"}),
        refused=('spec.min[cpu]: Invalid value: "4": must be at most 3, its max',),
    ),
    "a quota that was wrong already may be labelled": Case(
        least={"cpu": "4"}, most={"cpu": "3"}, before=a_quota({"cpu": "4"}, {"cpu": "3"})
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_min_of_a_quota_does_not_exceed_its_max(case: Case) -> None:
    verdict = decide_admission(a_quota(case.least, case.most), case.before, Facts())
    assert tuple(str(violation) for violation in verdict.violations) == case.refused
    assert {violation.rule for violation in verdict.violations} <= {"elastic-quota"}


def test_a_quota_without_a_spec_is_admitted() -> None:
    assert decide_admission(Resource(kind="ElasticQuota"), None, Facts()).is_empty


@pytest.mark.parametrize("group", ["scheduling.sigs.k8s.io", "scheduling.x-k8s.io"])
def test_quotas_of_both_projects_are_checked(group: str) -> None:
    assert kinds.is_served_as("ElasticQuota", group)
    assert not kinds.is_served_as("ElasticQuota", f"{group}.example.com")
