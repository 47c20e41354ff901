"""Whether a checkpoint fits into the time that it has."""

from dataclasses import dataclass, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_testing.objects.builders import PodBuilder, a_pod

GRACE = "spec.terminationGracePeriodSeconds"
TIMEOUT = "metadata.annotations[reprieve.dev/checkpoint-timeout]"


def taking(estimate: str, pod: PodBuilder | None = None) -> PodBuilder:
    return (pod or a_pod()).annotated(keys.ESTIMATED_CHECKPOINT_TIME, estimate)


def with_grace(pod: PodBuilder, seconds: int) -> Resource:
    built = pod.build()
    assert built.spec is not None
    return replace(built, spec=replace(built.spec, terminationGracePeriodSeconds=seconds))


ASKED = a_pod().with_checkpoint("manual")


@dataclass(frozen=True)
class Case:
    """A workload, what the admin caps, and what is warned of."""

    resource: Resource
    warned: str = ""
    cap_seconds: int = 30


CASES = {
    "a workload without an estimate of its save": Case(a_pod().build()),
    "a save within Kubernetes' own grace": Case(taking("30s").build()),
    "a save that takes longer": Case(
        taking("31s").build(), f"{GRACE}: 30s, but a save takes 31s; use a hint"
    ),
    "a grace period that is shorter than the save": Case(
        with_grace(taking("20s"), 10), f"{GRACE}: 10s, but a save takes 20s; use a hint"
    ),
    "a negative grace period counts as zero": Case(
        with_grace(taking("1s"), -5), f"{GRACE}: 0s, but a save takes 1s; use a hint"
    ),
    "a grace period of zero": Case(
        with_grace(taking("1s"), 0), f"{GRACE}: 0s, but a save takes 1s; use a hint"
    ),
    "a longer one that the admin caps": Case(
        with_grace(taking("1m"), 120), f"{GRACE}: the cap of 30s, but a save takes 1m; use a hint"
    ),
    "a longer one that the admin lets be": Case(with_grace(taking("1m"), 120), cap_seconds=120),
    "strategy none with a hint": Case(
        taking("1m", a_pod().with_hint("annotation:").with_checkpoint("none")).build(),
        f"{GRACE}: 30s, but a save takes 1m; use a hint",
    ),
    "a hinted workload has its timeout": Case(taking("10m", ASKED).build()),
    "a hinted workload has only its timeout": Case(
        taking("11m", ASKED).build(), f"{TIMEOUT}: 10m, but a save takes 11m"
    ),
    "an explicit timeout": Case(
        taking("90s", ASKED).annotated(keys.CHECKPOINT_TIMEOUT, "1m").build(),
        f"{TIMEOUT}: 1m, but a save takes 1m30s",
    ),
    "a grace period does not matter to a hinted workload": Case(with_grace(taking("5m", ASKED), 1)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_checkpoint_fits_into_its_timeout(case: Case) -> None:
    facts = Facts(settings=PolicySettings(grace_cap_seconds=case.cap_seconds))
    said = [
        text for text in decide_admission(case.resource, None, facts).warnings if "save" in text
    ]
    assert said == ([case.warned] if case.warned else [])


def test_an_unreadable_plan_is_reported_once() -> None:
    verdict = decide_admission(taking("soon").build(), None, Facts())
    assert [violation.rule for violation in verdict.violations] == ["checkpoint"]
    assert verdict.warnings == ()


@pytest.mark.parametrize("pod", [a_pod(), ASKED])
def test_a_warning_fits_into_a_line(pod: PodBuilder) -> None:
    resource = taking("9h59m59s", pod).in_template_of("CronJob")
    (warning,) = decide_admission(resource, None, Facts()).warnings
    assert len(warning) < 120
