"""Which permissions an object needs, and the refusal without them."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission import permissions
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE, CLAIM_SENSITIVE
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import ViolationKind
from reprieve_testing.objects.builders import a_pod, a_quota

PATH = "metadata.labels[quota.scheduling.koordinator.sh/preemptible]"
NEEDS = (
    'Forbidden: needs an ElasticQuota with a min, or verb "claim" on '
    "nonpreemptiblepods.reprieve.dev, cluster-wide"
)
CLASS = "metadata.labels[reprieve.dev/preemption-class]"
OF_TEN = 'class 10 needs verb "claim-sensitive" on preemptionclasses.reprieve.dev, cluster-wide'
CLAIMING, MODEST = (
    a_pod().labelled(keys.PREEMPTIBLE, "false"),
    a_pod().labelled(keys.PREEMPTIBLE, "true"),
)
BOUNDED = Facts(quotas=Quotas([replace(a_quota("team", "team"), min_amounts={"cpu": 1})]))
UNBOUNDED = Facts(quotas=Quotas([replace(a_quota("team", "team"), max_amounts={"cpu": 1})]))


@dataclass(frozen=True, kw_only=True)
class Case:
    """An object, what it was, what is known; and whether it needs the right."""

    resource: Resource
    old: Resource | None = None
    facts: Facts = field(default_factory=Facts)
    needs: bool = False


CASES = {
    "a pod without preemption keys needs no permission": Case(resource=a_pod().build()),
    "a preemptible pod needs none": Case(resource=MODEST.build()),
    "a pod that is not preemptible needs it": Case(resource=CLAIMING.build(), needs=True),
    "a template too": Case(resource=CLAIMING.in_template_of("Deployment"), needs=True),
    "a quota with a min is instead of it": Case(resource=CLAIMING.build(), facts=BOUNDED),
    "a quota without a min bounds nothing": Case(
        resource=CLAIMING.build(), facts=UNBOUNDED, needs=True
    ),
    "a quota that does not exist": Case(
        resource=CLAIMING.labelled(keys.QUOTA_NAME, "imagined").build(), facts=BOUNDED, needs=True
    ),
    "an update of a pod that claimed it before needs none": Case(
        resource=CLAIMING.annotated("colour", "red").build(), old=CLAIMING.build()
    ),
    "an update of a template that claims it newly needs it": Case(
        resource=CLAIMING.in_template_of("Job"), old=MODEST.in_template_of("Job"), needs=True
    ),
    "a template that leaves its quota needs it": Case(
        resource=CLAIMING.labelled(keys.QUOTA_NAME, "imagined").in_template_of("Job"),
        old=replace(CLAIMING.in_template_of("Job")),
        facts=Facts(
            quotas=Quotas([replace(a_quota("all", "admin", "team"), min_amounts={"cpu": 1})])
        ),
        needs=True,
    ),
    "a default of the admin needs no permission": Case(
        resource=CLAIMING.build(), facts=Facts(settings=PolicySettings(default_preemptible=False))
    ),
    "a pod that is being deleted needs none": Case(resource=CLAIMING.being_deleted().build()),
    "without enforcement no permission is needed": Case(
        resource=CLAIMING.build(), facts=Facts(namespace=NamespacePolicy(enforcement="off"))
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_only_a_new_claim_needs_the_permission(case: Case) -> None:
    want = {CLAIM_NON_PREEMPTIBLE} if case.needs else set()
    assert permissions.required_permissions(case.resource, case.old, case.facts) == want


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_user_without_the_permission_is_refused_if_it_is_needed(case: Case) -> None:
    lacking = replace(
        case.facts,
        missing_permissions=permissions.required_permissions(case.resource, case.old, case.facts),
    )
    verdict = decide_admission(case.resource, case.old, lacking)
    prefix = "" if case.resource.kind == "Pod" else "spec.template."
    assert [str(violation) for violation in verdict.violations] == (
        [f"{prefix}{PATH}: {NEEDS}"] if case.needs else []
    )
    assert verdict.status == (403 if case.needs else 200)


def test_a_user_with_the_permission_is_not_refused() -> None:
    assert decide_admission(CLAIMING.build(), None, Facts()).is_empty


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_offline_a_needed_permission_is_a_warning(case: Case) -> None:
    verdict = decide_admission(case.resource, case.old, replace(case.facts, is_offline=True))
    prefix = "" if case.resource.kind == "Pod" else "spec.template."
    assert verdict.warnings == (
        (f"{prefix}{PATH}: needs a quota or a right",) if case.needs else ()
    )
    assert verdict.is_allowed


def test_the_offline_warning_fits_into_a_line() -> None:
    (warning,) = decide_admission(
        CLAIMING.in_template_of("CronJob"), None, Facts(is_offline=True)
    ).warnings
    assert len(warning) < 120


TEN, NINE = a_pod().in_class(10).in_listed_kind(), a_pod().in_class(9).in_listed_kind()
SENSITIVE = NamespacePolicy(workload_type="sensitive", allowed_classes=ClassSet(frozenset({10})))
GIVING_TEN = NamespacePolicy(default_class=10, allowed_classes=ClassSet(frozenset({10})))
CLAIMS_OF_TEN = {
    "class 10 in a template that the guard does not find": (TEN, None, NamespacePolicy(), True),
    "class 9 in a template that the guard does not find": (NINE, None, NamespacePolicy(), False),
    "class 10 newly": (TEN, NINE, NamespacePolicy(), True),
    "class 10, unchanged": (TEN, TEN, NamespacePolicy(), False),
    "class 10 where workloads are sensitive": (TEN, None, SENSITIVE, False),
    "class 10 as the Namespace's default": (TEN, None, GIVING_TEN, False),
    "class 10 of a pod, which the guard checks": (
        a_pod().in_class(10).build(),
        None,
        NamespacePolicy(),
        False,
    ),
}


@pytest.mark.parametrize(
    ("resource", "old", "policy", "needs"), CLAIMS_OF_TEN.values(), ids=CLAIMS_OF_TEN
)
def test_a_user_without_the_permission_may_not_claim_class_10(
    resource: Resource, old: Resource | None, policy: NamespacePolicy, *, needs: bool
) -> None:
    facts = Facts(namespace=policy)
    needed = permissions.required_permissions(resource, old, facts)
    assert needed == ({CLAIM_SENSITIVE} if needs else set())
    verdict = decide_admission(resource, old, replace(facts, missing_permissions=needed))
    said = [
        str(violation)
        for violation in verdict.violations
        if violation.kind is ViolationKind.FORBIDDEN
    ]
    assert said == ([f"spec.jobs[0].template.{CLASS}: Forbidden: {OF_TEN}"] if needs else [])
