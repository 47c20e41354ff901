"""Preview of an eviction: its cost, its expected loss, and its steps.

For `reprieve explain`. Nothing is decided here: it combines what `cost`, `loss`, `checkpoint_plan`
and `termination` decide, by the same functions that the operator calls. Which preemptors may take
the pod is in `selection.explain`.
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
from reprieve_policy.kube import owners
from reprieve_policy.kube.jobs import owning_job_of
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, PodView, controller_of
from reprieve_policy.kube.pods import own_grace_seconds
from reprieve_policy.kube.values import duration
from reprieve_policy.lifecycle.grace_period import usual_grace_seconds
from reprieve_policy.verdict import quote

from . import cost, loss
from .cost import Cost, WorkProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedPod:
    """A pod and its progress. Times are aware UTC."""

    view: PodView
    metadata: ObjectMeta
    has_started: bool
    work: WorkProgress
    disruption_mode: DisruptionMode = DisruptionMode.SINGLE
    """The mode of its gang, if it has one."""
    native_group: PodGroupInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPreview:
    """Everything that `reprieve explain` shows about one pod."""

    cost: Cost
    loss_seconds: float
    """The work that a preemption is expected to lose, in device-seconds."""
    steps: tuple[str, ...]


def preview(pod: PreviewedPod, facts: Facts, now: datetime) -> EvictionPreview:
    """Return what would happen to the pod if its eviction started at `now`."""
    view, settings = pod.view, facts.settings
    plan = checkpoint_plan.read_leniently(view.annotations, settings)
    workload_type = facts.namespace.workload_type
    return EvictionPreview(
        cost=cost.decide_cost(view, plan, pod.work, settings, now, workload_type=workload_type),
        loss_seconds=loss.expected_loss(loss.loss_inputs_of(view, plan, settings), pod.work, now),
        steps=tuple(_steps(pod, plan, settings)),
    )


def _steps(pod: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> Iterator[str]:
    yield from _notice(pod, plan, settings)
    if plan.cleaners_before and pod.has_started:
        names = ", ".join(map(quote, plan.cleaners_before))
        longest = duration.render(min(plan.timeout_seconds, settings.ceiling_seconds))
        yield f"finalizers {names} are waited for before SIGTERM, for {longest} at the longest"
    gang = membership.read(pod.view)
    if gang is not None and pod.disruption_mode is DisruptionMode.ALL:
        yield (
            f"its gang {quote(gang.name)} is evicted as a unit: "
            "no member is deleted before the last has answered"
        )
    if gang is not None and pod.native_group is not None and pod.native_group.min_count is not None:
        together = pod.native_group.min_count
        yield f"its PodGroup {quote(gang.name)} places {together} pods together, or none"
    owner = controller_of(pod.metadata)
    if plan.requeue is Requeue.AUTO and owners.ledger_kind_of(owner) is not None:
        yield (
            "what its replacement needs to know is written to its controller, "
            "or to that controller's owner"
        )
    grace = _grace_seconds(pod, plan, settings)
    yield f"{_END[settings.end_with]}, with {duration.render(grace)} between SIGTERM and SIGKILL"
    is_of_job = owning_job_of(pod.metadata) is not None
    if settings.suspend_jobs and is_of_job and not plan.saves_on_sigterm:
        backoff = duration.render(settings.suspended_job_backoff_seconds)
        yield (
            "if all pods of its Job are victims and none failed to save, "
            f"the Job is suspended instead, for {backoff}"
        )
    yield _succession(pod, plan, settings)


def _notice(pod: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> Iterator[str]:
    if not plan.gives_notice:
        yield "it gets no notice: it wants no checkpoint"
        return
    if not pod.has_started:
        yield "it gets no notice: it has not started"
        return
    ceiling = settings.ceiling_seconds
    if plan.saves_on_sigterm:
        yield "it is not asked: its workload saves a checkpoint on SIGTERM"
        return
    yield f"it is asked to save a checkpoint: {_carry(plan.hint)}"
    extended = min(plan.timeout_seconds * (100 + settings.extension_percent) // 100, ceiling)
    phrases = [f"it has {duration.render(min(plan.timeout_seconds, ceiling))}"]
    if extended > plan.timeout_seconds:
        phrases.append(f"{duration.render(extended)} if it answers and is slow")
    if plan.max_deferral_seconds:
        phrases.append(
            f"up to {duration.render(plan.max_deferral_seconds)} more where it asks for that"
        )
    yield ", ".join(phrases) + f"; never more than {duration.render(ceiling)} in all"


def _succession(pod: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> str:
    """Return what replaces the pod."""
    owner, is_inherited = controller_of(pod.metadata), plan.requeue is Requeue.AUTO
    if owner is not None:
        is_informed = is_inherited and owners.ledger_kind_of(owner) is not None
        why = "" if is_inherited else f", because of {_NEVER}"
        return f"{_name(owner)} replaces it; the replacement {_INHERITANCE[is_informed]}{why}"
    if not settings.recreate_bare_pods or pod.metadata.ownerReferences:
        return "nothing replaces it: it has no controller"
    if not is_inherited:
        return f"nothing replaces it, because of {_NEVER}"
    return (
        "if its Namespace lets Reprieve create pods, Reprieve creates it again; "
        f"the replacement {_INHERITANCE[True]}"
    )


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


def _grace_seconds(pod: PreviewedPod, plan: CheckpointPlan, settings: PolicySettings) -> int:
    own = own_grace_seconds(pod.view.spec.terminationGracePeriodSeconds)
    usual = usual_grace_seconds(own, settings)
    saves_on_sigterm = plan.saves_on_sigterm and pod.has_started
    return (
        max(usual, min(plan.save_seconds, settings.ceiling_seconds)) if saves_on_sigterm else usual
    )


def _name(owner: OwnerReference) -> str:
    return f"{owner.kind}/{owner.name}"


_END: Mapping[str, str] = {
    DELETE: "it is deleted",
    EVICT: "it is evicted as soon as its PodDisruptionBudget allows that, "
    "and deleted if that is too late",
}
_NEVER = f"{keys.REQUEUE}: {Requeue.NEVER.value}"
_INHERITANCE = {
    True: "is informed of the preemption and the checkpoint",
    False: "is not informed",
}
