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
from reprieve_policy.kube.limits.quota import (
    DEFAULT,
    MAX_ENTRIES,
    Amounts,
    Quota,
    Quotas,
    read_amounts,
)
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import ViolationKind
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_quota, being_deleted

PATH = "metadata.labels[quota.scheduling.koordinator.sh/preemptible]"
NEEDS = (
    "Forbidden: needs an ElasticQuota of this namespace whose min names all requested resources "
    'and has room, or verb "claim" on nonpreemptiblepods.reprieve.dev, cluster-wide'
)
CLASS = "metadata.labels[reprieve.dev/preemption-class]"
OF_TEN = 'class 10 needs verb "claim-sensitive" on preemptionclasses.reprieve.dev, cluster-wide'
CLAIMING, MODEST = (
    a_pod().asking(cpu="4").labelled(keys.PREEMPTIBLE, "false"),
    a_pod().asking(cpu="4").labelled(keys.PREEMPTIBLE, "true"),
)
OF_OTHERS = CLAIMING.labelled(keys.QUOTA_NAME, "others")


def known(*quotas: Quota) -> Facts:
    return Facts(quotas=Quotas(quotas))


def cpus(amount: str) -> Amounts:
    return read_amounts({"cpu": amount})


def bounding(
    name: str = "team", namespace: str = "team", *used_by: str, least: str = "8", **amounts: str
) -> Quota:
    """Return a quota whose `min` is 8 CPUs."""
    quota = replace(a_quota(name, namespace, *used_by), min_amounts=cpus(least))
    return replace(quota, **{field: cpus(amount) for field, amount in amounts.items()})  # type: ignore[arg-type]


def pods(number: int, pod: PodBuilder = CLAIMING, kind: str = "Job") -> Resource:
    """Return a workload of so many pods."""
    made = pod.in_template_of(kind)
    field = "parallelism" if kind == "Job" else "replicas"
    return replace(made, spec=replace(made.spec, **{field: number}))  # type: ignore[type-var]


def with_very_many_resources(pod: PodBuilder) -> Resource:
    """Return a pod whose request of memory comes after a thousand of nothing."""
    nothing = {f"example.com/{number}": "0" for number in range(MAX_ENTRIES - 1)}
    return pod.asking(cpu="1", **nothing, memory="1Ti").build()


BOUNDED = known(bounding())
UNBOUNDED = known(replace(a_quota("team", "team"), max_amounts=cpus("8")))


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
    "a quota of another namespace": Case(
        resource=OF_OTHERS.build(), facts=known(bounding(), bounding("others", "b")), needs=True
    ),
    "a quota that lists the namespace": Case(
        resource=OF_OTHERS.build(), facts=known(bounding("others", "admin", "team"))
    ),
    "another quota in the namespace": Case(
        resource=OF_OTHERS.build(), facts=known(bounding("others", "team"))
    ),
    "a quota with the name of the namespace, elsewhere": Case(
        resource=CLAIMING.labelled(keys.QUOTA_NAME, "team").build(),
        facts=known(bounding("team", "admin")),
        needs=True,
    ),
    "the quota of all that name none": Case(
        resource=CLAIMING.build(), facts=known(bounding(DEFAULT, "admin")), needs=True
    ),
    "a resource that the min does not name": Case(
        resource=CLAIMING.asking(cpu="1", memory="1Gi").build(), facts=BOUNDED, needs=True
    ),
    "a resource that is written after very many others": Case(
        resource=with_very_many_resources(CLAIMING), facts=BOUNDED, needs=True
    ),
    "devices of a ResourceClaim": Case(
        resource=CLAIMING.claiming("gpus").build(), facts=BOUNDED, needs=True
    ),
    "a pod that requests nothing": Case(
        resource=a_pod().labelled(keys.PREEMPTIBLE, "false").build(), facts=BOUNDED, needs=True
    ),
    "all that the min has": Case(resource=CLAIMING.asking(cpu="8").build(), facts=BOUNDED),
    "more than the min": Case(resource=CLAIMING.asking(cpu="9").build(), facts=BOUNDED, needs=True),
    "more than others leave": Case(
        resource=CLAIMING.build(), facts=known(bounding(non_preemptible_used="5")), needs=True
    ),
    "what others leave": Case(
        resource=CLAIMING.build(), facts=known(bounding(non_preemptible_used="4", used="20"))
    ),
    "more than pods leave that wait for a node": Case(
        resource=CLAIMING.build(), facts=known(bounding(non_preemptible_request="5")), needs=True
    ),
    "more than all pods leave, where nothing is known of the non-preemptible ones": Case(
        resource=CLAIMING.build(),
        facts=known(replace(bounding(used="5"), tells_non_preemptible=False)),
        needs=True,
    ),
    "all pods of a template count": Case(resource=pods(2), facts=BOUNDED),
    "all pods of a template are too many": Case(resource=pods(3), facts=BOUNDED, needs=True),
    "a DaemonSet has any number of pods": Case(
        resource=CLAIMING.in_template_of("DaemonSet"), facts=BOUNDED, needs=True
    ),
    "a kind of another project": Case(resource=CLAIMING.in_listed_kind(), facts=BOUNDED),
    "an update of a pod that claimed it before needs none": Case(
        resource=CLAIMING.annotated("colour", "red").build(), old=CLAIMING.build()
    ),
    "an update of a pod whose quota is full, by itself too": Case(
        resource=CLAIMING.annotated("colour", "red").build(),
        old=CLAIMING.build(),
        facts=known(bounding(non_preemptible_used="8")),
    ),
    "a template that grows within the min": Case(
        resource=pods(2, kind="Deployment"),
        old=pods(1, kind="Deployment"),
        facts=known(bounding(non_preemptible_used="4")),
    ),
    "a template that grows beyond the min": Case(
        resource=pods(3, kind="Deployment"),
        old=pods(1, kind="Deployment"),
        facts=known(bounding(non_preemptible_used="4")),
        needs=True,
    ),
    "a template that grows beyond a min that its own pods fill": Case(
        resource=pods(1000, kind="Deployment"),
        old=pods(2, kind="Deployment"),
        facts=known(bounding(non_preemptible_used="8")),
        needs=True,
    ),
    "a template that requests another resource": Case(
        resource=pods(1, CLAIMING.asking(cpu="4", memory="1Gi")),
        old=pods(1),
        facts=BOUNDED,
        needs=True,
    ),
    "a template that requests another resource, in a full quota": Case(
        resource=pods(1, CLAIMING.asking(cpu="4", memory="1Gi")),
        old=pods(1),
        facts=known(bounding(non_preemptible_used="8")),
        needs=True,
    ),
    "an update of a template that claims it newly needs it": Case(
        resource=CLAIMING.in_template_of("Job"), old=MODEST.in_template_of("Job"), needs=True
    ),
    "a template that claims it newly, beside what it used preemptibly": Case(
        resource=CLAIMING.in_template_of("Job"),
        old=MODEST.in_template_of("Job"),
        facts=known(bounding(used="4", non_preemptible_used="5")),
        needs=True,
    ),
    "a pod that moves to the quota of another namespace": Case(
        resource=OF_OTHERS.build(),
        old=CLAIMING.build(),
        facts=known(bounding(), bounding("others", "b")),
        needs=True,
    ),
    "a template that leaves its quota needs it": Case(
        resource=CLAIMING.labelled(keys.QUOTA_NAME, "imagined").in_template_of("Job"),
        old=CLAIMING.in_template_of("Job"),
        facts=known(bounding("all", "admin", "team")),
        needs=True,
    ),
    "a template that leaves a full quota needs it": Case(
        resource=CLAIMING.labelled(keys.QUOTA_NAME, "imagined").in_template_of("Job"),
        old=CLAIMING.in_template_of("Job"),
        facts=known(bounding("all", "admin", "team", non_preemptible_used="8")),
        needs=True,
    ),
    "a pod that leaves a full quota needs it": Case(
        resource=CLAIMING.labelled(keys.QUOTA_NAME, "imagined").build(),
        old=CLAIMING.build(),
        facts=known(bounding(non_preemptible_used="8")),
        needs=True,
    ),
    "a default of the admin needs no permission": Case(
        resource=CLAIMING.build(), facts=Facts(settings=PolicySettings(default_preemptible=False))
    ),
    "a pod that is being deleted needs none": Case(resource=CLAIMING.being_deleted().build()),
    "a template that claims only while its object is being deleted needs it": Case(
        resource=being_deleted(CLAIMING.in_template_of("StatefulSet")),
        old=being_deleted(MODEST.in_template_of("StatefulSet")),
        needs=True,
    ),
    "a workload that is being deleted may grow: it makes no more pods": Case(
        resource=being_deleted(pods(3)), old=being_deleted(pods(1)), facts=BOUNDED
    ),
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
    # Of what does not fit, `quota-fit` warns as well.
    assert [text for text in verdict.warnings if " over m" not in text] == (
        [f"{prefix}{PATH}: needs a quota or a right"] if case.needs else []
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
    "class 10 newly, in an object that is being deleted": (
        being_deleted(TEN),
        being_deleted(NINE),
        NamespacePolicy(),
        True,
    ),
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
