"""What would happen to a pod that had to go: at what cost, and step by step. Who may preempt it is `choosing.prospect`'s to say.

For a person (`reprieve explain`). Nothing is decided here: it puts together what `cost`, `checkpoint` and `ending` decide,
by the same functions that the operator calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import (
    CheckpointPlan,
    FileHint,
    GrpcHint,
    Hint,
    HttpHint,
    Requeue,
    SignalHint,
)
from reprieve_policy.config.settings import DELETE, EVICT, PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import membership
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube import duration, owners
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, PodView, controller_of
from reprieve_policy.lifecycle.machine import MIN_GRACE_SECONDS
from reprieve_policy.verdict import quote

from . import cost
from .cost import Cost, WorkProgress

_DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedPod:
    """A pod, and how far it is. Times are aware UTC."""

    view: PodView
    metadata: ObjectMeta
    has_started: bool
    work: WorkProgress
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    """Of its gang, where it has one."""
    native_group: PodGroupInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPreview:
    """Everything that `reprieve explain` says of one pod."""

    cost: Cost
    steps: tuple[str, ...]


def preview(subject: PreviewedPod, facts: Facts, now: datetime) -> EvictionPreview:
    """Return what would happen to the pod, were it asked to go at `now`."""
    view, settings = subject.view, facts.settings
    plan = checkpoint_plan.read_leniently(view.annotations, settings)
    workload_type = facts.namespace.workload_type
    return EvictionPreview(
        cost=cost.decide_cost(view, plan, subject.work, settings, now, workload_type=workload_type),
        steps=tuple(_steps(subject, plan, settings)),
    )


def _steps(subject: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> Iterator[str]:
    yield from _notice(subject, plan, settings)
    gang_of = membership.read(subject.view)
    if gang_of is not None and subject.disruption_mode is DisruptionMode.ALL:
        yield f"its gang {quote(gang_of.name)} goes as a whole: none is deleted before the last has answered"
    if (
        gang_of is not None
        and subject.native_group is not None
        and subject.native_group.min_count is not None
    ):
        yield f"its PodGroup {quote(gang_of.name)} places {subject.native_group.min_count} pods together, or none"
    owner = controller_of(subject.metadata)
    if plan.requeue is Requeue.AUTO and owners.ledger_kind_of(owner) is not None:
        yield "what its replacement needs to know is written to its controller, or to what that is a part of"
    grace = _grace_seconds(subject, settings)
    yield f"{_END[settings.end_with]}, with {duration.render(grace)} between SIGTERM and SIGKILL"
    if settings.suspend_jobs and owner is not None and owner.kind == "Job":
        back = duration.render(settings.suspended_job_backoff_seconds)
        yield f"where all pods of its Job must go and none has failed to save, that is suspended instead, for {back}"
    yield _succession(subject, plan, settings)


def _notice(subject: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> Iterator[str]:
    if not plan.gives_notice:
        yield "nobody is asked and nothing is waited for: it wants no checkpoint"
        return
    if not subject.has_started:
        yield "nobody is asked and nothing is waited for: it has not started"
        return
    yield f"it is asked to save a checkpoint: {_carry(plan.hint)}"
    ceiling = settings.ceiling_seconds
    longer = min(plan.timeout_seconds * (100 + settings.extension_percent) // 100, ceiling)
    times = [f"it has {duration.render(min(plan.timeout_seconds, ceiling))}"]
    if longer > plan.timeout_seconds:
        times.append(f"{duration.render(longer)} if it answers and is slow")
    if plan.max_deferral_seconds:
        times.append(
            f"up to {duration.render(plan.max_deferral_seconds)} more where it asks for that"
        )
    yield ", ".join(times) + f"; never more than {duration.render(ceiling)} in all"


def _succession(subject: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> str:
    """Return what takes its place."""
    owner, is_inherited = controller_of(subject.metadata), plan.requeue is Requeue.AUTO
    if owner is not None:
        is_told = is_inherited and owners.ledger_kind_of(owner) is not None
        return f"{_name(owner)} replaces it; the replacement {_INHERITANCE[is_told]}"
    if settings.recreate_bare_pods and is_inherited and not subject.metadata.ownerReferences:
        return f"where its Namespace lets Reprieve create pods, it is made anew; the replacement {_INHERITANCE[True]}"
    return "nothing replaces it: it has no controller"


def _carry(hint: Hint) -> str:
    """Return how the request reaches the workload."""
    if isinstance(hint, HttpHint):
        return f"POST to port {hint.port} of its own address, path {quote(hint.path)}"
    if isinstance(hint, GrpcHint):
        return f"a gRPC call to port {hint.port} of its own address"
    if isinstance(hint, SignalHint):
        return f"SIG{hint.signal} to container {quote(hint.container)}"
    return (
        f"file {quote(hint.path)}"
        if isinstance(hint, FileHint)
        else f"annotation {keys.CHECKPOINT_REQUEST}"
    )


def _grace_seconds(subject: PreviewedPod, settings: PolicySettings) -> int:
    said = subject.view.spec.terminationGracePeriodSeconds
    own = _DEFAULT_GRACE_SECONDS if said is None else said
    return max(MIN_GRACE_SECONDS, min(own, settings.grace_cap_seconds))


def _name(owner: OwnerReference) -> str:
    return f"{owner.kind}/{owner.name}"


_END: Mapping[str, str] = {
    DELETE: "it is deleted",
    EVICT: "it is evicted as soon as its PodDisruptionBudget lets it go, and deleted where that is not in time",
}
_INHERITANCE = {
    True: "is told of the preemption and of the checkpoint",
    False: "is told nothing",
}
