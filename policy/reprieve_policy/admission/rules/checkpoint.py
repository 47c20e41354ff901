"""The checkpoint annotations are readable, and request no more time than the admin allows.

Checked: `checkpoint` is `auto`, `manual` or `none`; `checkpoint-hint` has one of six forms, all of
which stay on the pod itself; durations are like `10m`, and within the limits; `requeue` is `auto`
or `never`, `requeue-env` is `true` or `false`; `cleaners-before` lists finalizers. Warned of: a
class of 7 or more without a checkpoint, which makes the workload non-preemptible; a hint that has
no effect because of `checkpoint: none`.

Why: an unreadable annotation would count as absent at the eviction, and the workload would not be
asked to save.

Source: document 001, "Preemption Sequence", "Checkpoint Timeout Handling" and
"Non-Preemptible Allocations".

Setting: `ceiling` bounds the timeout, `maxDeferral` the deferral.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.config import preemption_class
from reprieve_policy.facts import Facts
from reprieve_policy.keys import CHECKPOINT_HINT, PREEMPTION_CLASS
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, annotation_path, label_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the plan of the pod or of the template."""
    violations: list[Violation] = []
    warnings: list[str] = []
    for view in pod_views(resource):
        plan = checkpoint_plan.parse(view.annotations, facts.settings, view.prefix)
        if isinstance(plan, CheckpointPlan):
            warnings.extend(_warn(view, plan, facts))
        else:
            violations.extend(plan)
    if not violations and not warnings:
        return NO_FINDINGS
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


def _warn(view: PodView, plan: CheckpointPlan, facts: Facts) -> Iterator[str]:
    if not plan.gives_notice and CHECKPOINT_HINT in view.annotations:
        path = annotation_path(view.prefix, CHECKPOINT_HINT)
        yield f'{path}: has no effect with checkpoint "none"'
    value = known.effective_class(view, facts)
    if value < preemption_class.HIGHEST and preemption_class.is_non_preemptible(
        value, has_checkpoint=plan.gives_notice
    ):
        path = label_path(view.prefix, PREEMPTION_CLASS)
        yield f"{path}: class {value} without a checkpoint is non-preemptible"
