"""A save has the time that it is said to take.

Warned of, if `estimated-checkpoint-time` says how long a save takes: a workload that is asked to
save (it has a hint, or says `checkpoint: auto` or `manual`) and whose `checkpoint-timeout` is
shorter; any other workload, which is notified by SIGTERM only, and whose
`terminationGracePeriodSeconds`, or the admin's cap on it, is shorter.

Why: SIGKILL would interrupt the save. A workload that is asked saves before its pod is deleted, so
its grace period does not matter.

Source: document 001, "Preemption Sequence" and "Checkpoint Timeout Handling".

Setting: `checkpointTimeout`, `gracePeriodCap`.
"""

from collections.abc import Iterator

from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.facts import Facts
from reprieve_policy.keys import CHECKPOINT_TIMEOUT, ESTIMATED_CHECKPOINT_TIME
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.kube.pods import own_grace_seconds
from reprieve_policy.kube.values import duration
from reprieve_policy.verdict import NO_FINDINGS, Verdict, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Compare the estimate with the available time."""
    warnings = tuple(warning for view in pod_views(resource) for warning in _check(view, facts))
    return Verdict(warnings=warnings) if warnings else NO_FINDINGS


def _check(view: PodView, facts: Facts) -> Iterator[str]:
    if ESTIMATED_CHECKPOINT_TIME not in view.annotations:
        return
    plan = checkpoint_plan.parse(view.annotations, facts.settings, view.prefix)
    if not isinstance(plan, CheckpointPlan) or plan.estimated_seconds is None:
        return
    takes = f"but a save takes {duration.render(plan.estimated_seconds)}"
    if not plan.gives_notice:
        yield from _check_grace(
            view, plan.estimated_seconds, takes, facts.settings.grace_cap_seconds
        )
    elif plan.estimated_seconds > plan.timeout_seconds:
        path = annotation_path(view.prefix, CHECKPOINT_TIMEOUT)
        yield f"{path}: {duration.render(plan.timeout_seconds)}, {takes}"


def _check_grace(
    view: PodView, estimated_seconds: int, takes: str, cap_seconds: int
) -> Iterator[str]:
    own_seconds = own_grace_seconds(view.spec.terminationGracePeriodSeconds)
    grace_seconds = max(0, min(own_seconds, cap_seconds))
    if estimated_seconds > grace_seconds:
        capped = "the cap of " if own_seconds > cap_seconds else ""
        path = f"{view.prefix}spec.terminationGracePeriodSeconds"
        yield f"{path}: {capped}{duration.render(grace_seconds)}, {takes}; use a hint"
