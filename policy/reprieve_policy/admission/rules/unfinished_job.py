"""A Job that is preempted is neither failed nor finished.

Warned of, in a Job or a CronJob whose pods have a hint: a `podFailurePolicy` that does not ignore
pods with the condition `DisruptionTarget`, or that fails the Job by an earlier rule; a shell
command that traps SIGTERM and exits with 0.

Why: a preempted pod counts towards `backoffLimit` unless it is ignored, so that a Job that is
preempted often enough fails. And a pod that exits with 0 has finished its Job, even while it is
being deleted: the rest of its work is never done. A pod that has saved waits for its deletion, and
exits non-zero on SIGTERM.

Source: Kubernetes' "Handling retriable and non-retriable pod failures with Pod failure policy";
document 001, "Preemption Sequence": suspended allocations re-enter the queue.

Setting: none.
"""

import re
from collections.abc import Iterator

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.facts import Facts
from reprieve_policy.kube.conditions import DISRUPTION_TARGET
from reprieve_policy.kube.objects import PodFailurePolicyRule, PodView, Resource, Spec, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict

_BY_SIGTERM = 143
"""The exit code of a program ended by SIGTERM, as shells and container runtimes count."""
# Without the possessive quantifiers, its time grows with the square of the number of spaces.
_EXITS_WITH_0 = re.compile(
    r"""trap\s++(["'])[^"']{0,1000}\bexit\s++0\s*+;?\s*+\1\s[^\n;&|]{0,100}\b(SIG)?TERM\b"""
)


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Warn if a preempted pod would count as failed or as finished."""
    warnings = tuple(
        warning for view in pod_views(resource) for warning in _check(resource, view, facts)
    )
    return Verdict(warnings=warnings) if warnings else NO_FINDINGS


def _check(resource: Resource, view: PodView, facts: Facts) -> Iterator[str]:
    if keys.CHECKPOINT_HINT not in view.annotations:
        return
    if not checkpoint_plan.read_leniently(view.annotations, facts.settings).gives_notice:
        return
    if not _ignores_disruption(_job_of(resource)):
        path = view.prefix.removesuffix("template.") + "podFailurePolicy"
        yield f"{path}: preemptions are failures: ignore DisruptionTarget; on SIGTERM exit non-zero"
    for index, container in enumerate(view.spec.containers or ()):
        if any(
            _EXITS_WITH_0.search(word)
            for word in (*(container.command or ()), *(container.args or ()))
        ):
            path = f"{view.prefix}spec.containers[{index}]"
            yield f"{path}: exits with 0 on SIGTERM: its Job counts it as finished"


def _job_of(resource: Resource) -> Spec:
    """Return the spec of the Job, or of the Jobs that a CronJob makes."""
    spec = resource.spec or Spec()
    return spec if spec.jobTemplate is None else spec.jobTemplate.spec or Spec()


def _ignores_disruption(job: Spec) -> bool:
    """True if the first rule that matches a preempted pod ignores it."""
    rules = (job.podFailurePolicy.rules if job.podFailurePolicy else None) or ()
    return next((rule.action == "Ignore" for rule in rules if _concerns_preempted(rule)), False)


def _concerns_preempted(rule: PodFailurePolicyRule) -> bool:
    if rule.onExitCodes is not None:
        return (_BY_SIGTERM in (rule.onExitCodes.values or ())) == (
            rule.onExitCodes.operator == "In"
        )
    return any(
        found.type == DISRUPTION_TARGET and found.status != "False"
        for found in rule.onPodConditions or ()
    )
