"""Whether a job fits into its ElasticQuota, by document 000's formulas."""

from dataclasses import dataclass, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.admission.rules import quota_fit
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, JobRequests
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quota, Quotas
from reprieve_policy.kube.objects import ObjectMeta, PodTemplate, Resource, TemplatedResource
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_quota

AMOUNTS = ("min_amounts", "max_amounts", "used", "non_preemptible_used", "non_preemptible_request")


def of_cpus(**cpus: str) -> Quota:
    """A quota of 10 to 20 CPUs of which nothing is used, but for what `cpus` says."""
    said = {"min_amounts": "10", "max_amounts": "20"} | cpus
    fields = {
        name: quota.read_amounts({"cpu": said[name]} if said.get(name) else {}) for name in AMOUNTS
    }
    return replace(a_quota("gpu", "team"), **fields)  # type: ignore[arg-type]  # named by this module only


def a_job(cpus: str, *, preemptible: str = "true", pods: int = 1) -> Resource:
    pod = (
        a_pod()
        .labelled(keys.QUOTA_NAME, "gpu")
        .labelled(keys.PREEMPTIBLE, preemptible)
        .asking(cpu=cpus)
    )
    job = pod.in_template_of("Job")
    assert job.spec is not None
    spec = replace(job.spec, parallelism=pods)
    return replace(job, metadata=replace(job.metadata, namespace="team"), spec=spec)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A new job, its quota, and what of it is too much."""

    job: Resource
    quota: Quota
    before: Resource | None = None
    others: JobRequests = NO_JOB_REQUESTS
    warned: tuple[str, ...] = ()


def pod_of_job(cpus: str) -> Resource:
    """Return a bare, non-preemptible pod that names a job."""
    return (
        a_pod()
        .labelled(keys.QUOTA_NAME, "gpu")
        .labelled(keys.PREEMPTIBLE, "false")
        .labelled("pod-group.scheduling.sigs.k8s.io", "job1")
        .asking(cpu=cpus)
        .build()
    )


def other_pods(cpus: str, *, placed: str = "0") -> JobRequests:
    return JobRequests(
        requested=quota.read_amounts({"cpu": cpus}), placed=quota.read_amounts({"cpu": placed})
    )


def over(what: str, prefix: str = "spec.template.") -> tuple[str, ...]:
    return (f"{prefix}spec: cpu {what} of quota gpu",)


PLAIN = a_pod().asking(cpu="100")

CASES = {
    "a non-preemptible job that fills the min fits": Case(
        job=a_job("10", preemptible="false"), quota=of_cpus()
    ),
    "a non-preemptible job above the min does not": Case(
        job=a_job("11", preemptible="false"), quota=of_cpus(), warned=over("11 over min 10")
    ),
    "all the pods of a job count": Case(
        job=a_job("3", preemptible="false", pods=4), quota=of_cpus(), warned=over("12 over min 10")
    ),
    "usage of other non-preemptible jobs counts against the min": Case(
        job=a_job("5", preemptible="false"),
        quota=of_cpus(used="6", non_preemptible_used="6"),
        warned=over("11 over min 10"),
    ),
    "usage of preemptible jobs counts against the max only": Case(
        job=a_job("5", preemptible="false"),
        quota=of_cpus(used="15500m"),
        warned=over("20500m over max 20"),
    ),
    "a job may be too much for both": Case(
        job=a_job("25", preemptible="false"),
        quota=of_cpus(),
        warned=(*over("25 over min 10"), *over("25 over max 20")),
    ),
    "a preemptible job may use the free part of the min": Case(job=a_job("20"), quota=of_cpus()),
    "a preemptible job above the max does not fit": Case(
        job=a_job("21"), quota=of_cpus(), warned=over("21 over max 20")
    ),
    "requests of non-preemptible jobs are kept for them": Case(
        job=a_job("13"), quota=of_cpus(non_preemptible_request="8"), warned=over("21 over max 20")
    ),
    "no more than the min is kept for non-preemptible jobs": Case(
        job=a_job("10"), quota=of_cpus(non_preemptible_request="15")
    ),
    "usage of other preemptible jobs counts": Case(
        job=a_job("13"),
        quota=of_cpus(used="10", non_preemptible_used="2", non_preemptible_request="2"),
        warned=over("23 over max 20"),
    ),
    "figures of different times never free quota": Case(
        job=a_job("21"),
        quota=of_cpus(used="1", non_preemptible_used="4"),
        warned=over("21 over max 20"),
    ),
    "a resource that the quota does not name is not limited": Case(
        job=a_job("99", preemptible="false"), quota=of_cpus(min_amounts="", max_amounts="")
    ),
    "a job that asks for nothing fits into a quota that is overdrawn": Case(
        job=a_job("0"), quota=of_cpus(used="30")
    ),
    "a job that makes no pods yet fits": Case(job=a_job("30", pods=0), quota=of_cpus()),
    "an existing job that does not grow is not checked again": Case(
        job=a_job("30"), before=a_job("30"), quota=of_cpus()
    ),
    "a job that shrinks is not checked, however large it is": Case(
        job=a_job("29"), before=a_job("30"), quota=of_cpus()
    ),
    "a job that grows beyond the max is told, and counts once": Case(
        job=a_job("5", pods=5),
        before=a_job("5", pods=2),
        quota=of_cpus(used="10"),
        warned=over("25 over max 20"),
    ),
    "a job that grows up to the max fits": Case(
        job=a_job("5", pods=4), before=a_job("5", pods=2), quota=of_cpus(used="10")
    ),
    "a job that becomes non-preemptible counts against the min": Case(
        job=a_job("5", preemptible="false"),
        before=a_job("5"),
        quota=of_cpus(used="20", non_preemptible_used="6"),
        warned=over("11 over min 10"),
    ),
    "a job that moves to the quota counts there": Case(
        job=a_job("5"),
        before=PLAIN.in_template_of("Job"),
        quota=of_cpus(used="16"),
        warned=over("21 over max 20"),
    ),
    "bare pods of one job count together": Case(
        job=pod_of_job("3"),
        quota=of_cpus(min_amounts="4"),
        others=other_pods("3"),
        warned=("spec: its job: cpu 6 over min 4 of quota gpu",),
    ),
    "other pods of the job that are on a node count once": Case(
        job=pod_of_job("3"),
        quota=of_cpus(min_amounts="10", used="7", non_preemptible_used="7"),
        others=other_pods("3", placed="3"),
    ),
    "with other jobs, they may be too much": Case(
        job=pod_of_job("3"),
        quota=of_cpus(min_amounts="10", used="8", non_preemptible_used="8"),
        others=other_pods("3", placed="3"),
        warned=("spec: its job: cpu 11 over min 10 of quota gpu",),
    ),
    "a pod that joins a job counts with the rest of it": Case(
        job=pod_of_job("3"),
        before=a_pod()
        .labelled(keys.QUOTA_NAME, "gpu")
        .labelled(keys.PREEMPTIBLE, "false")
        .asking(cpu="3")
        .build(),
        quota=of_cpus(min_amounts="4"),
        others=other_pods("3"),
        warned=("spec: its job: cpu 6 over min 4 of quota gpu",),
    ),
    "a single pod is its own job": Case(
        job=a_pod().labelled(keys.QUOTA_NAME, "gpu").asking(cpu="21").build(),
        quota=of_cpus(),
        warned=over("21 over max 20", ""),
    ),
    "a pod without Koordinator's labels is not checked": Case(
        job=PLAIN.build(), quota=replace(of_cpus(), name="team")
    ),
    "a pod of another quota is not judged by this one": Case(
        job=PLAIN.labelled(keys.QUOTA_NAME, "other").build(), quota=of_cpus()
    ),
    "the names of a long quota and resource are shortened": Case(
        job=a_pod()
        .labelled(keys.PREEMPTIBLE, "true")
        .asking(**{"requests.nvidia.com/gpu-of-2026": "2"})
        .build(),
        quota=replace(
            a_quota("q" * 253, "team", "team"),
            max_amounts=quota.read_amounts({"requests.nvidia.com/gpu-of-2026": "1"}),
        ),
        warned=(f"spec: requests.nvidia.c... 2 over max 1 of quota {'q' * 17}...",),
    ),
}


def facts(case: Case, **settings: str) -> Facts:
    return Facts(
        settings=PolicySettings(**settings),  # type: ignore[arg-type]
        quotas=Quotas([case.quota]),
        job_requests=case.others,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_job_is_compared_with_its_quota(case: Case) -> None:
    verdict = decide_admission(case.job, case.before, facts(case))
    assert verdict.warnings == case.warned
    assert verdict.is_allowed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_job_that_does_not_fit_is_refused_if_the_policy_says_so(case: Case) -> None:
    verdict = decide_admission(case.job, case.before, facts(case, quota_fit="refuse"))
    assert verdict.warnings == ()
    assert len(verdict.violations) == len(case.warned)
    assert {violation.rule for violation in verdict.violations} <= {"quota-fit"}


def test_a_refusal_shows_the_requested_and_the_remaining_amounts() -> None:
    case = CASES["usage of other non-preemptible jobs counts against the min"]
    verdict = decide_admission(case.job, None, facts(case, quota_fit="refuse"))
    assert verdict.message == (
        'spec.template.spec: Forbidden: "cpu": asks for 5, 6 is taken, the min '
        'of ElasticQuota "gpu" is 10'
    )
    assert verdict.status == 403


def test_a_refused_pod_is_told_that_its_job_counts() -> None:
    case = CASES["bare pods of one job count together"]
    verdict = decide_admission(case.job, None, facts(case, quota_fit="refuse"))
    assert verdict.message == (
        'spec: Forbidden: "cpu": its job asks for 6, 0 is taken, the min of ElasticQuota "gpu" is 4'
    )


def test_the_templates_of_one_object_count_together() -> None:
    pod = a_pod().labelled(keys.QUOTA_NAME, "gpu").asking(cpu="11").build()
    template = PodTemplate(metadata=pod.metadata, spec=pod.spec)
    job = TemplatedResource(
        kind="PyTorchJob",
        metadata=ObjectMeta(name="job", namespace="team"),
        templates=(("spec.master.", template), ("spec.worker.", template)),
    )
    verdict = quota_fit.check(job, None, facts(Case(job=job, quota=of_cpus())))
    assert verdict.warnings == ("spec.master.spec: cpu 22 over max 20 of quota gpu",)


def test_if_pods_are_non_preemptible_by_default_a_job_without_the_label_counts() -> None:
    job = a_pod().labelled(keys.QUOTA_NAME, "gpu").asking(cpu="11").build()
    known = Facts(settings=PolicySettings(default_preemptible=False), quotas=Quotas([of_cpus()]))
    assert decide_admission(job, None, known).warnings == over("11 over min 10", "")


def test_a_warning_fits_into_a_line() -> None:
    deepest: PodBuilder = a_pod().labelled(keys.PREEMPTIBLE, "true").asking(**{"x" * 63: "2048Mi"})
    quotas = Quotas(
        [
            replace(
                a_quota("q" * 253, "admin", "team"),
                max_amounts=quota.read_amounts({"x" * 63: "2047Mi"}),
            )
        ]
    )
    (warning,) = decide_admission(
        deepest.in_template_of("CronJob"), None, Facts(quotas=quotas)
    ).warnings
    assert len(warning) < 120
