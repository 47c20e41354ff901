"""A victim's life: `decide` walks the table of `life_table`, from the state that the pod carries to the one to write.

The operator observes and performs; what follows from what is decided here and nowhere else. `decide` is level-based:
it is given the state that the pod carries and what is seen now, so that it makes no difference how often it is called
or which operator calls it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.preemption.protection import Protection

from . import mark, termination
from .eviction import (
    AWAITING_WORKLOAD,
    WITH_DEADLINE,
    Checkpoint,
    Eviction,
    Phase,
    PreemptionCause,
    Source,
)
from .transitions import TABLE, Observation, Transition

MAX_ATTEMPTS = 3
"""Hints that may get lost (an operator killed between writing that it hints and hinting; a container that was started again)
before time just runs."""

_READY_TO_TERMINATE = (Phase.SETTLED, Phase.SAVED)
"""There is nothing more to hear of the workload; others may have something to say."""

MIN_GRACE_SECONDS = 1
"""Not 0: it drops the object without the kubelet's word, and a StatefulSet then runs the pod twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedVictim:
    """The pod as it is now, and what its workload says."""

    is_marked: bool = True
    is_requested_again: bool = False
    """Our label asks anew for a pod that was refused to a scheduler."""
    must_evict: bool = False
    """Whoever insists does it through the Eviction API: it waits until the preemption's time comes, and changes nothing of it."""
    protection: Protection | None = None
    """What protects the pod against preemption."""
    is_being_deleted: bool = False
    containers_ended: bool = False
    is_gone: bool = False
    pod_grace_seconds: int = 30
    answer: CheckpointAnswer | None = None
    hint_lost: bool = False
    """The workload was asked after a restart of ours, and does not say that it knows of the request."""
    request_forgotten: bool = False
    """It was told, and knows of no such request any more (its container was started anew, say), or never said that it does."""
    may_terminate: bool = True
    """False while others must be saved first (a gang's members); at the ceiling it goes all the same."""
    is_replaced: bool = False
    """Its owner has made another pod in its place."""
    eviction_blocked: bool = False
    """The API server would not let it be evicted: a disruption budget, mostly."""
    is_node_lost: bool = False
    """Its node is gone for certain (`lost_node`): no kubelet will say that its containers have ended."""

    @property
    def is_requested_by_deleter(self) -> bool:
        """True where whoever insists may delete the pod.

        Not by an eviction: it would have what may be deleted held by a budget, or what is protected deleted before its time.
        """
        return self.is_requested_again and not self.must_evict


@dataclass(frozen=True, slots=True)
class LifecycleDecision:
    """The state to write, and the moves that led there (empty where nothing changes)."""

    eviction: Eviction
    transitions: tuple[Transition, ...] = ()


@dataclass(frozen=True, slots=True)
class _Context:
    seen: ObservedVictim
    plan: CheckpointPlan
    settings: PolicySettings
    now: datetime


def begin_eviction(
    found: mark.Mark, source: Source, pod_uid: str, now: datetime, *, must_evict: bool = False
) -> Eviction:
    """Return the state of a pod that was just marked; `must_evict`: it was asked for by an eviction, as a native one ever does.

    The id holds milliseconds: with whole seconds, a mark that is set again within the second in which the one before was
    taken back would be the same eviction to the workload, which had been told that it is off.
    """
    return Eviction(
        eviction_id=f"{pod_uid}-{int(now.timestamp() * 1000)}",
        phase=Phase.REQUESTED,
        requested_at=now,
        source=source,
        initiator=found.initiator,
        reason=found.reason,
        mark_grace_seconds=found.grace_seconds,
        request_uid=found.request_uid,
        must_evict=must_evict or source is Source.EVICTION_REQUEST,
    )


def begin_as_gang_member(
    origin: Eviction, pod_uid: str, now: datetime, before: Eviction | None = None
) -> Eviction:
    """Return the first state of a pod that goes because `origin` does: who asked, how and why, stay visible.

    `before`: the state that it carries of an earlier one. That a native eviction had asked for it is not forgotten.

    Its notice counts from now, as everybody's does; the others wait for it no longer than until their own ceiling.
    """
    asked = mark.Mark(
        initiator=origin.initiator, reason=origin.reason, grace_seconds=origin.mark_grace_seconds
    )
    joined = begin_eviction(asked, Source.GANG, pod_uid, now, must_evict=origin.must_evict)
    return replace(
        joined, cause=origin.cause, request_uid="" if before is None else before.request_uid
    )


def decide(
    eviction: Eviction,
    seen: ObservedVictim,
    plan: CheckpointPlan,
    settings: PolicySettings,
    now: datetime,
) -> LifecycleDecision:
    """Walk the table from `eviction` as far as what is seen leads; `now` is aware UTC."""
    context = _Context(seen, plan, settings, now)
    moves: list[Transition] = []
    while True:
        observation = _observe(eviction, context)
        move = TABLE[eviction.phase].get(observation) if observation else None
        if move is None:
            return LifecycleDecision(eviction, tuple(moves))
        if observation in _ANSWER_OBSERVED.values() and eviction.answered_at is None:
            eviction = replace(eviction, answered_at=now)
        eviction = _enter(eviction, move, context)
        moves.append(move)
        # An answer is good for one move, as is a lost hint; without this, one "defer" would be counted for ever.
        context = replace(
            context,
            seen=replace(context.seen, answer=None, hint_lost=False, request_forgotten=False),
        )


def may_postpone_write(decision: LifecycleDecision, answer: CheckpointAnswer | None) -> bool:
    """True where the decision only writes down that the workload saves, and that can be heard again by whoever asks next.

    Only an answer that names the eviction can: one without a document is given once, and would be asked for by another hint.
    """
    return (
        decision.transitions == _ONLY_ACKNOWLEDGED
        and answer is not None
        and answer.eviction_id is not None
    )


def next_wake(eviction: Eviction) -> datetime | None:
    """Return when `decide` may say something new although nothing was observed; `None`: never."""
    return eviction.deadline if eviction.phase in WITH_DEADLINE else None


def awaits_workload(phase: Phase) -> bool:
    """True where the workload was told and may answer."""
    return phase in AWAITING_WORKLOAD


def _observe(eviction: Eviction, context: _Context) -> Observation | None:
    """Return the one thing that counts most: what ends the wait before what prolongs it."""
    seen, phase = context.seen, eviction.phase
    is_to_stay = seen.eviction_blocked and termination.stays_for_budget(
        eviction, context.settings, context.now
    )
    facts = (
        (phase is Phase.GONE and seen.is_replaced, Observation.REPLACED),
        (seen.is_gone, Observation.OBJECT_GONE),
        (seen.is_being_deleted, Observation.DELETED_BY_OTHERS),
        (seen.containers_ended, Observation.CONTAINERS_ENDED),
        (not seen.is_marked, Observation.MARK_REMOVED),
        (phase is Phase.REPRIEVED and seen.is_requested_by_deleter, Observation.REQUESTED_AGAIN),
        (
            phase in _READY_TO_TERMINATE
            and (seen.may_terminate or _is_over(eviction, context.now)),
            Observation.RELEASED,
        ),
        (phase is Phase.REPRIEVED and _is_over(eviction, context.now), Observation.PROTECTION_OVER),
        (phase is Phase.TERMINATING and is_to_stay, Observation.HELD_BY_BUDGET),
    )
    certain = next((observation for is_so, observation in facts if is_so), None)
    if certain is not None:
        return certain
    if phase is Phase.REQUESTED:
        return _observe_request(eviction, context)
    if phase in AWAITING_WORKLOAD:
        return (
            _observe_answer(eviction, seen)
            or _observe_loss(eviction, context)
            or _observe_deadline(eviction, context.now)
        )
    return None


def _observe_request(eviction: Eviction, context: _Context) -> Observation:
    reprieve = context.seen.protection
    if reprieve is not None and eviction.source.is_preemption:
        if reprieve.until is None:
            return Observation.PROTECTED
        # Once: a deadline that somebody moves for ever would protect for ever.
        if eviction.refused_on is None and context.now < reprieve.until:
            return Observation.PROTECTED_FOR_NOW
    return (
        Observation.CHECKPOINT_WANTED
        if context.plan.gives_notice
        else Observation.CHECKPOINT_UNWANTED
    )


def _observe_answer(eviction: Eviction, seen: ObservedVictim) -> Observation | None:
    if seen.answer is not None and seen.answer.may_belong_to(eviction.eviction_id):
        observation = _ANSWER_OBSERVED.get(seen.answer.state)
        if observation in TABLE[eviction.phase]:
            return observation
    return None


def _observe_loss(eviction: Eviction, context: _Context) -> Observation | None:
    """Return that it must be asked again, where there is an attempt left; of one that forgot, also some time."""
    if eviction.attempt >= MAX_ATTEMPTS:
        return None
    is_forgotten = context.seen.request_forgotten and not _is_over(eviction, context.now)
    if eviction.answered_at is None:
        return Observation.HINT_LOST if context.seen.hint_lost or is_forgotten else None
    return Observation.REQUEST_FORGOTTEN if is_forgotten else None


def _observe_deadline(eviction: Eviction, now: datetime) -> Observation | None:
    if not _is_over(eviction, now):
        return None
    return (
        Observation.DEADLINE_UNANSWERED
        if eviction.phase is Phase.HINTED
        else Observation.DEADLINE_ANSWERED
    )


_ONLY_ACKNOWLEDGED = (TABLE[Phase.HINTED][Observation.ANSWERED],)

_ANSWER_OBSERVED: Mapping[AnswerState, Observation] = {
    AnswerState.ACCEPTED: Observation.ANSWERED,
    AnswerState.SAVING: Observation.ANSWERED,
    AnswerState.SAVED: Observation.SAVED,
    AnswerState.DEFER: Observation.DEFERRED,
    AnswerState.CANNOT: Observation.CANNOT,
}


def _enter(eviction: Eviction, move: Transition, context: _Context) -> Eviction:
    if move.resends_hint:
        return replace(eviction, attempt=eviction.attempt + 1)
    entered = replace(eviction, phase=move.to, outcome=move.outcome or eviction.outcome)
    return _ON_ENTRY[move.to](entered, context) if move.to in _ON_ENTRY else entered


def _enter_requested(eviction: Eviction, context: _Context) -> Eviction:
    """Ask again; whoever insists is the one who asks from now on, and who may take it back."""
    if context.seen.is_requested_by_deleter:
        eviction = replace(eviction, source=Source.LABEL, cause=PreemptionCause.REQUEST)
    return replace(eviction, deadline=None)


def _enter_reprieved(eviction: Eviction, context: _Context) -> Eviction:
    reprieve = context.seen.protection
    assert reprieve is not None
    assert reprieve.until is not None
    until = min(reprieve.until, termination.ceiling_of(eviction, context.settings))
    return replace(eviction, refused_on=reprieve.reason, deadline=until)


def _enter_spared(eviction: Eviction, context: _Context) -> Eviction:
    assert context.seen.protection is not None
    return replace(eviction, refused_on=context.seen.protection.reason)


def _enter_hinted(eviction: Eviction, context: _Context) -> Eviction:
    """Give the whole timeout, also where an operator lost the hint; but nobody gains time by forgetting."""
    told = replace(
        eviction, hinted_at=eviction.hinted_at or context.now, attempt=eviction.attempt + 1
    )
    if context.seen.request_forgotten and eviction.deadline is not None:
        return told
    return _prolong(told, context.now + timedelta(seconds=context.plan.timeout_seconds), context)


def _enter_extended(eviction: Eviction, context: _Context) -> Eviction:
    extension = timedelta(
        seconds=context.plan.timeout_seconds * context.settings.extension_percent / 100
    )
    return _prolong(eviction, _deadline(eviction) + extension, context)


def _enter_deferred(eviction: Eviction, context: _Context) -> Eviction:
    """Grant what is asked for, up to `max-deferral`."""
    answer, longest = context.seen.answer, context.plan.max_deferral_seconds
    asked = (
        longest
        if answer is None or answer.defer_seconds is None
        else min(answer.defer_seconds, longest)
    )
    return _prolong(eviction, context.now + timedelta(seconds=asked), context)


def _enter_saved(eviction: Eviction, context: _Context) -> Eviction:
    answer = context.seen.answer
    step, path = (None, None) if answer is None else (answer.step, answer.path)
    saved = replace(eviction, checkpoint=Checkpoint(saved_at=context.now, step=step, path=path))
    return _enter_settled(saved, context)


def _enter_settled(eviction: Eviction, context: _Context) -> Eviction:
    return _prolong(eviction, termination.ceiling_of(eviction, context.settings), context)


def _enter_terminating(eviction: Eviction, context: _Context) -> Eviction:
    """Choose the grace, once: the pod's own, shortened by the mark and by the admin; below one second on a lost node only."""
    if context.settings.force_delete_on_lost_nodes and context.seen.is_node_lost:
        return replace(eviction, grace_seconds=0, deadline=None)
    limits = [context.seen.pod_grace_seconds, context.settings.grace_cap_seconds]
    if eviction.mark_grace_seconds is not None:
        limits.append(eviction.mark_grace_seconds)
    return replace(eviction, grace_seconds=max(MIN_GRACE_SECONDS, min(limits)), deadline=None)


_ON_ENTRY = {
    Phase.REQUESTED: _enter_requested,
    Phase.REPRIEVED: _enter_reprieved,
    Phase.SPARED: _enter_spared,
    Phase.HINTED: _enter_hinted,
    Phase.EXTENDED: _enter_extended,
    Phase.DEFERRED: _enter_deferred,
    Phase.SETTLED: _enter_settled,
    Phase.SAVED: _enter_saved,
    Phase.TERMINATING: _enter_terminating,
}


def _deadline(eviction: Eviction) -> datetime:
    assert eviction.deadline is not None
    return eviction.deadline


def _is_over(eviction: Eviction, now: datetime) -> bool:
    return now >= _deadline(eviction)


def _prolong(eviction: Eviction, deadline: datetime, context: _Context) -> Eviction:
    """Move the deadline, at most to the ceiling, and never to an earlier moment than the workload was told."""
    bounded = min(deadline, termination.ceiling_of(eviction, context.settings))
    return replace(eviction, deadline=max(bounded, eviction.deadline or bounded))
