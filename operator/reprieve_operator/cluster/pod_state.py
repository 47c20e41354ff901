"""Reads a pod's object into the terms of `reprieve_policy`. No I/O, and no decision."""

from dataclasses import replace
from datetime import datetime, timedelta

from reprieve_policy import facts as known
from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan, contract
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan, Requeue, Strategy
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import gate, membership
from reprieve_policy.gangs.disruption import GangMemberState
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube import owners
from reprieve_policy.kube.conditions import DISRUPTION_TARGET, is_true
from reprieve_policy.kube.objects import (
    Container,
    PodView,
    Spec,
    VersionedMeta,
    annotations_of,
    controller_of,
    labels_of,
)
from reprieve_policy.kube.pods import FAILED, has_ended, is_terminating, own_grace_seconds
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import (
    cleanup,
    eviction,
    machine,
    mark,
    termination,
    transitions,
    victim_set,
)
from reprieve_policy.lifecycle.eviction import (
    CheckpointOutcome,
    Eviction,
    Phase,
    Protection,
    Source,
)
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_policy.verdict import Violation, annotation_path

from .pods import ContainerState, VictimPod

_JOINING = (Source.GANG, eviction.Phase.REQUESTED)


def state_of(metadata: VersionedMeta) -> Eviction | None:
    """Return the state that the pod carries; `None` also if it cannot be read."""
    text = annotations_of(metadata).get(keys.EVICTION)
    return None if text is None else eviction.parse(text)


def is_in_progress(state: Eviction | None) -> bool:
    """True if an eviction has begun and is not over."""
    return state is not None and state.phase not in transitions.TERMINAL


def is_requested(metadata: VersionedMeta) -> bool:
    """True if our label requests an eviction, or stands for another mark that is still there."""
    labels = labels_of(metadata)
    label = labels.get(keys.SOFT_EVICTION)
    return label in mark.REQUESTING_VALUES or (
        label == mark.MARKED and mark.is_marked(labels, annotations_of(metadata))
    )


def is_victim(metadata: VersionedMeta) -> bool:
    """True if an eviction is requested or in progress.

    It may be in progress without the label: it was cancelled while no operator watched.
    """
    return is_requested(metadata) or is_in_progress(state_of(metadata))


def has_stale_label(metadata: VersionedMeta) -> bool:
    """True if the pod has our label, but neither a mark nor a state: nothing else would remove it.

    The state was removed or cannot be read, or a mark in another dialect was removed before the
    operator saw it.
    """
    label, state = labels_of(metadata).get(keys.SOFT_EVICTION), state_of(metadata)
    if label is None or is_victim(metadata):
        return False
    return state is None or label == mark.MARKED


def initial_state(pod: VictimPod, now: datetime) -> Eviction | None:
    """Return the first state of a pod that was just marked.

    `None` if it is not marked, or the mark cannot be read.
    """
    if not is_requested(pod.metadata):
        return None
    found = mark.read(labels_of(pod.metadata), annotations_of(pod.metadata))
    if not isinstance(found, mark.Mark):
        return None
    source = Source.LABEL if is_requested_by_label(pod.metadata) else Source.KOORDINATOR
    before = state_of(pod.metadata)
    begun = machine.begin_eviction(
        found, source, pod.metadata.uid or "", now, must_evict=must_use_eviction_api(pod.metadata)
    )
    # The checkpoint of an eviction that was cancelled before is kept.
    return begun if before is None else replace(begun, checkpoint=before.checkpoint)


def is_marked(metadata: VersionedMeta, source: Source) -> bool:
    """True until the mark that requested the eviction is removed: our label, or another mark."""
    label = labels_of(metadata).get(keys.SOFT_EVICTION)
    if source is not Source.KOORDINATOR or label is None or label in mark.REQUESTING_VALUES:
        return label is not None
    return _has_mark_in_another_dialect(metadata)


def gang_of(pod: VictimPod) -> Gang | None:
    """Return the gang of the pod, in any dialect."""
    spec = Spec(schedulingGroup=pod.spec.schedulingGroup)
    return membership.read(
        PodView("", labels_of(pod.metadata), annotations_of(pod.metadata), spec, is_template=False)
    )


def member_of(pod: VictimPod) -> GangMemberState:
    """Return what the decision about the pod's gang depends on."""
    state = state_of(pod.metadata)
    has_label = keys.SOFT_EVICTION in labels_of(pod.metadata)
    return GangMemberState(
        uid=pod.metadata.uid or "",
        created_at=timestamp.parse(pod.metadata.creationTimestamp),
        is_terminating=is_terminating(pod),
        state=state,
        is_marked=is_requested(pod.metadata) or (state is None and has_label),
        is_gated=labels_of(pod.metadata).get(keys.GANG_GATE_LABEL) == gate.WAITING,
    )


def victim_set_of(pod: VictimPod) -> VictimSetKey | None:
    """Return the set of victims that the pod is in; `None` if it is in none, or is no victim."""
    if not is_victim(pod.metadata):
        return None
    preemptor_uid = annotations_of(pod.metadata).get(keys.PREEMPTOR, "")
    return victim_set.key_of(preemptor_uid, pod.spec.nodeName)


def victims_in_set(pod: VictimPod) -> int | None:
    """Return how many victims its set has, by the guard's mark; `None`: that is unknown."""
    found = mark.read(labels_of(pod.metadata), annotations_of(pod.metadata))
    return found.victims if isinstance(found, mark.Mark) else None


def awaited_by_set_until(pod: VictimPod) -> datetime | None:
    """Return until when the other victims of its set wait for this one; `None`: they do not."""
    if has_ended(pod) or (is_terminating(pod) and have_containers_ended(pod)):
        return None
    state = state_of(pod.metadata)
    return victim_set.awaited_until(state if is_in_progress(state) else None, grace_ends_at(pod))


def is_requested_by_label(metadata: VersionedMeta) -> bool:
    """True if our label requests an eviction now; once the state is written, it is a phase."""
    return labels_of(metadata).get(keys.SOFT_EVICTION) in mark.REQUESTING_VALUES


def must_use_eviction_api(metadata: VersionedMeta) -> bool:
    """True if our label requests the Eviction API, not a DELETE."""
    return labels_of(metadata).get(keys.SOFT_EVICTION) == mark.EVICT


def observe(
    pod: VictimPod,
    state: Eviction,
    answer: CheckpointAnswer | None,
    *,
    protection: Protection | None = None,
    hint_lost: bool,
    request_forgotten: bool = False,
    has_cleaners: bool = False,
) -> machine.ObservedVictim:
    """Return the observation of a pod that exists."""
    return machine.ObservedVictim(
        # A pod that is evicted with its gang carries no mark before its notice.
        is_marked=(state.source, state.phase) == _JOINING or is_marked(pod.metadata, state.source),
        is_requested_again=is_requested_by_label(pod.metadata),
        must_evict=must_use_eviction_api(pod.metadata),
        protection=protection,
        is_being_deleted=pod.metadata.deletionTimestamp is not None,
        containers_ended=has_ended(pod),
        pod_grace_seconds=grace_seconds_of(pod),
        answer=answer,
        hint_lost=hint_lost,
        request_forgotten=request_forgotten,
        has_cleaners=has_cleaners,
    )


def pending_cleaners(pod: VictimPod, plan: CheckpointPlan) -> tuple[str, ...]:
    """Return the finalizers on the pod whose owners clean up before SIGTERM."""
    return cleanup.pending_cleaners(plan.cleaners_before, pod.metadata.finalizers or ())


def plan_of(pod: VictimPod, settings: PolicySettings, *, has_room: bool = True) -> CheckpointPlan:
    """Return how the pod is evicted.

    A pod that has not started has nothing to save and no workload to notify. Notice also needs room
    for the state on the pod.
    """
    plan = checkpoint_plan.read_leniently(annotations_of(pod.metadata), settings)
    return (
        plan
        if has_room and pod.status.phase != "Pending"
        else replace(plan, strategy=Strategy.NONE, cleaners_before=())
    )


def expected_save_end(pod: VictimPod, state: Eviction, settings: PolicySettings) -> datetime | None:
    """Return when the requested save is expected to end; `None` if that is unknown."""
    plan = plan_of(pod, settings)
    seconds = checkpoint_plan.known_save_seconds(plan, annotations_of(pod.metadata))
    if state.hinted_at is None or seconds is None:
        return None
    return state.hinted_at + timedelta(seconds=min(seconds, settings.ceiling_seconds))


def view_of(pod: VictimPod) -> PodView:
    """Return the view of the pod on which its class and its cost depend."""
    containers, init_containers = pod.spec.containers or (), pod.spec.initContainers or ()
    spec = Spec(
        containers=[Container(resources=container.resources) for container in containers],
        initContainers=[
            Container(resources=container.resources, restartPolicy=container.restartPolicy)
            for container in init_containers
        ],
        resources=pod.spec.resources,
        overhead=pod.spec.overhead,
    )
    return PodView(
        "", labels_of(pod.metadata), annotations_of(pod.metadata), spec, is_template=False
    )


def answer_of(pod: VictimPod) -> CheckpointAnswer | Violation | None:
    """Return the answer in the annotation; it is accepted whatever carried the hint."""
    text = annotations_of(pod.metadata).get(keys.CHECKPOINT_ANSWER)
    return (
        None
        if text is None
        else contract.parse_answer(text, annotation_path("", keys.CHECKPOINT_ANSWER))
    )


def request_of(
    pod: VictimPod,
    state: Eviction,
    settings: PolicySettings,
    policy: NamespacePolicy,
    gang_size: int = 0,
) -> contract.CheckpointRequest:
    """Return the request for a state with a deadline; `policy` is that of the pod's Namespace."""
    assert state.deadline is not None
    return contract.CheckpointRequest(
        eviction_id=state.eviction_id,
        attempt=state.attempt,
        deadline=state.deadline,
        reason=state.reason,
        preemption_class=known.effective_class(
            view_of(pod), Facts(settings=settings, namespace=policy)
        ),
        may_extend=settings.extension_percent > 0
        and state.phase in (eviction.Phase.HINTED, eviction.Phase.CHECKPOINTING)
        and state.deadline < termination.latest_deadline(state, settings, gang_size),
    )


def has_failed(pod: VictimPod) -> bool:
    """True if the pod has failed."""
    return pod.status.phase == FAILED


def have_containers_ended(pod: VictimPod) -> bool:
    """True if no container runs or will run: all have ended, or the pod never got a node.

    A native sidecar (an init container that is restarted always) ends after the other containers.
    """
    states = [status.state for status in pod.status.containerStatuses or ()]
    if has_ended(pod) or (pod.status.phase == "Pending" and not pod.spec.nodeName):
        return True
    have_main_ended = bool(states) and all(
        state is not None and state.terminated is not None for state in states
    )
    return have_main_ended and not any(
        state is not None and state.running is not None for state in _other_states(pod)
    )


def _other_states(pod: VictimPod) -> list[ContainerState | None]:
    """Return the states of init containers, sidecars among them, and of those for debugging."""
    status = pod.status
    others = (*(status.initContainerStatuses or ()), *(status.ephemeralContainerStatuses or ()))
    return [container.state for container in others]


def is_about_to_go(pod: VictimPod) -> bool:
    """True if the pod is deleted, its containers have ended and no finalizer of others holds it.

    Ours is removed then, and the watch may show the end of the object before the answer to that.
    """
    is_deleted = pod.metadata.deletionTimestamp is not None
    return is_deleted and have_containers_ended(pod) and not other_finalizers(pod)


def containers_ended_at(pod: VictimPod) -> datetime | None:
    """Return when the last container ended; `None` if the pod does not say so."""
    main = [status.state for status in pod.status.containerStatuses or ()]
    states = [*main, *_other_states(pod)]
    ended = [
        timestamp.parse(state.terminated.finishedAt)
        for state in states
        if state is not None and state.terminated is not None
    ]
    return max((moment for moment in ended if moment is not None), default=None)


def asked_at(state: Eviction) -> datetime:
    """Return since when the cleaners before SIGTERM are asked: with the workload, else before."""
    return state.hinted_at or state.requested_at


def is_force_deleted(metadata: VersionedMeta) -> bool:
    """True if no kubelet will report that the containers ended: the grace is 0.

    Reprieve or another client chose that, or the kubelet itself, as its last call.
    """
    state = state_of(metadata)
    by_us = state is not None and state.grace_seconds == 0
    return by_us or metadata.deletionGracePeriodSeconds == 0


def has_completed(pod: VictimPod) -> bool:
    """True if the work is done: all containers have exited with 0, and none is restarted."""
    states = [status.state for status in pod.status.containerStatuses or ()]
    ended = [
        state.terminated for state in states if state is not None and state.terminated is not None
    ]
    is_over = bool(ended) and len(ended) == len(states)
    return (
        is_over
        and pod.spec.restartPolicy != "Always"
        and not any(container.exitCode for container in ended)
    )


def has_failed_after_notice(pod: VictimPod) -> bool:
    """True for a victim that failed by itself after its notice and before its DELETE.

    Its failure counts as a preemption. The state that the pod carries says so.
    """
    state = state_of(pod.metadata)
    has_ended_itself = state is not None and state.phase is eviction.Phase.FINISHED
    return (
        has_ended_itself
        and state is not None
        and termination.counts_as_preempted(state, has_failed=has_failed(pod))
    )


def is_replaced(pod: VictimPod, state: Eviction, plan: CheckpointPlan) -> bool:
    """True if the owner creates a replacement for the pod that Reprieve evicted; it inherits."""
    is_evicted_by_us = (
        state.phase is Phase.TERMINATING and state.outcome is not CheckpointOutcome.OVERTAKEN
    )
    has_ledger = owners.ledger_kind_of(controller_of(pod.metadata)) is not None
    return (
        is_evicted_by_us
        and has_ledger
        and plan.requeue is not Requeue.NEVER
        and not has_completed(pod)
    )


def without_other_conditions(pod: VictimPod) -> VictimPod:
    """Return the pod with no condition but `DisruptionTarget`.

    Of ten thousand victims, the others would take 8 MB.
    """
    all_of_pod = pod.status.conditions or ()
    kept = tuple(condition for condition in all_of_pod if condition.type == DISRUPTION_TARGET)
    if len(kept) == len(all_of_pod):
        return pod
    return replace(pod, status=replace(pod.status, conditions=kept))


def has_disruption_target(pod: VictimPod) -> bool:
    """True if the condition that announces a disruption is set, by us or by a scheduler."""
    return is_true(pod.status.conditions, DISRUPTION_TARGET)


def grace_seconds_of(pod: VictimPod) -> int:
    """Return the pod's own grace period, between SIGTERM and SIGKILL."""
    return own_grace_seconds(pod.spec.terminationGracePeriodSeconds)


def grace_ends_at(pod: VictimPod) -> datetime | None:
    """Return when the pod's grace period ends; `None` if it is not deleted."""
    return timestamp.parse(pod.metadata.deletionTimestamp)


def other_finalizers(pod: VictimPod) -> tuple[str, ...]:
    """Return the finalizers that are not ours."""
    return tuple(name for name in pod.metadata.finalizers or () if name != keys.CLEANUP_FINALIZER)


def has_cleanup_finalizer(metadata: VersionedMeta) -> bool:
    """True if our finalizer is on the object."""
    return keys.CLEANUP_FINALIZER in (metadata.finalizers or ())


def _has_mark_in_another_dialect(metadata: VersionedMeta) -> bool:
    unlabelled = {
        key: value for key, value in labels_of(metadata).items() if key != keys.SOFT_EVICTION
    }
    return mark.is_marked(unlabelled, annotations_of(metadata))
