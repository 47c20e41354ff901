"""A preempted Job has neither failed nor finished: a spec that counts it so causes a warning."""

from dataclasses import replace
from typing import Any

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import (
    Container,
    ContainerPort,
    ExitCodes,
    JobTemplate,
    PodConditionPattern,
    PodFailurePolicy,
    PodFailurePolicyRule,
    Resource,
    Spec,
)
from reprieve_testing.objects.builders import a_pod

POLICY = (
    "spec.podFailurePolicy: preemptions are failures: ignore "
    "DisruptionTarget; on SIGTERM exit non-zero"
)
TRAP = "spec.template.spec.containers[0]: exits with 0 on SIGTERM: its Job counts it as finished"
IGNORES = PodFailurePolicyRule(
    action="Ignore", onPodConditions=(PodConditionPattern(type="DisruptionTarget"),)
)


def a_job(
    *rules: PodFailurePolicyRule,
    hint: str | None = "http://:8080/x",
    kind: str = "Job",
    **container: Any,
) -> Resource:
    main = Container(name="main", ports=(ContainerPort(containerPort=8080),), **container)
    pod = a_pod().with_containers(main)
    pod = pod if hint is None else pod.with_hint(hint)
    made = pod.in_template_of(kind)
    assert made.spec is not None
    policy = PodFailurePolicy(rules=rules) if rules else None
    if kind == "CronJob":
        job = replace(made.spec.jobTemplate.spec, podFailurePolicy=policy)  # type: ignore[union-attr, type-var]
        return replace(made, spec=Spec(jobTemplate=JobTemplate(spec=job)))
    return replace(made, spec=replace(made.spec, podFailurePolicy=policy))


def on_exit(operator: str, *codes: int, action: str = "FailJob") -> PodFailurePolicyRule:
    return PodFailurePolicyRule(
        action=action, onExitCodes=ExitCodes(operator=operator, values=codes)
    )


def on_condition(kind: str, status: str = "True", action: str = "Ignore") -> PodFailurePolicyRule:
    return PodFailurePolicyRule(
        action=action, onPodConditions=(PodConditionPattern(type=kind, status=status),)
    )


QUIET = {
    "a rule that ignores disruptions": (IGNORES,),
    "disruptions are ignored after a rule for other exit codes": (on_exit("In", 42), IGNORES),
    "disruptions are ignored after a rule for all exit codes but SIGTERM's": (
        on_exit("NotIn", 0, 143),
        IGNORES,
    ),
    "a rule that ignores SIGTERM's exit code": (on_exit("In", 143, action="Ignore"),),
    "disruptions are ignored after a rule for another condition": (
        on_condition("ConfigIssue", action="Count"),
        IGNORES,
    ),
}
WARNED = {
    "no podFailurePolicy": (),
    "a rule that ignores another condition": (on_condition("ConfigIssue"),),
    "a rule that ignores pods without a disruption": (on_condition("DisruptionTarget", "False"),),
    "a rule that fails the Job on a disruption": (
        on_condition("DisruptionTarget", action="FailJob"),
        IGNORES,
    ),
    "an earlier rule that fails the Job on SIGTERM's exit code": (on_exit("In", 143), IGNORES),
    "an earlier rule that fails the Job on all but a few exit codes": (
        on_exit("NotIn", 3),
        IGNORES,
    ),
    "a rule is about nothing": (PodFailurePolicyRule(action="Ignore"),),
}
SCRIPTS = {
    "trap 'exit 0' TERM; train & wait": True,
    'trap "save; exit 0;" INT TERM\ntrain': True,
    "trap 'exit 0' SIGTERM": True,
    "trap 'exit 143' TERM; exit 0": False,
    "trap 'exit 0' INT; train": False,
    "trap 'exit 0' INT; trap 'exit 1' TERM": False,
    "echo trap exit 0 TERM": False,
    "trap 'exit' TERM": False,
}


@pytest.mark.parametrize("rules", QUIET.values(), ids=QUIET)
def test_no_warning_is_given_if(rules: tuple[PodFailurePolicyRule, ...]) -> None:
    assert decide_admission(a_job(*rules), None, Facts()).warnings == ()


@pytest.mark.parametrize("rules", WARNED.values(), ids=WARNED)
def test_a_job_that_counts_preemptions_as_failures_gets_a_warning(
    rules: tuple[PodFailurePolicyRule, ...],
) -> None:
    assert decide_admission(a_job(*rules), None, Facts()).warnings == (POLICY,)


@pytest.mark.parametrize(("script", "causes_warning"), SCRIPTS.items())
def test_a_trap_that_exits_with_0_causes_a_warning(script: str, causes_warning: object) -> None:
    want = (TRAP,) if causes_warning else ()
    for words in ({"command": ("sh", "-c", script)}, {"args": ("-c", script)}):
        assert decide_admission(a_job(IGNORES, **words), None, Facts()).warnings == want


@pytest.mark.parametrize("start", ["trap", "trap '", "trap 'exit", "trap 'exit 0", "trap 'exit 0;"])
def test_a_script_of_spaces_is_read_once(start: str) -> None:
    """Not once from each of them, which would take this test hours."""
    script = start + " " * 1_000_000
    assert decide_admission(a_job(IGNORES, args=(script,)), None, Facts()).warnings == ()


def test_a_cron_jobs_warning_fits_into_a_line() -> None:
    (warning,) = decide_admission(a_job(kind="CronJob"), None, Facts()).warnings
    assert warning == POLICY.replace("spec.", "spec.jobTemplate.spec.", 1)
    assert len(warning) < 120


def test_a_job_without_a_hint_gets_no_warning() -> None:
    assert decide_admission(a_job(hint=None), None, Facts()).warnings == ()


def test_a_job_without_a_checkpoint_or_without_a_readable_spec_gets_no_warning() -> None:
    without_hint = a_pod().with_hint("annotation:").with_checkpoint("none").in_template_of("Job")
    assert all(
        "podFailurePolicy" not in warning
        for warning in decide_admission(without_hint, None, Facts()).warnings
    )
    empty = Resource(kind="CronJob", spec=Spec(jobTemplate=JobTemplate()))
    assert decide_admission(empty, None, Facts()).warnings == ()


def test_a_deployment_gets_no_warning() -> None:
    assert decide_admission(a_job(kind="Deployment"), None, Facts()).warnings == ()
