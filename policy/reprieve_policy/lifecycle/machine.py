"""The state machine of a victim: `decide` walks `transitions.TABLE` to the state to write next.

The operator observes and acts; all decisions are made here. `decide` is level-based: it gets the
state that the pod carries and what is observed now. So it does not matter how often it is called,
or by which operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.pods import DEFAULT_GRACE_SECONDS

from . import grace_period, mark, termination, victim_set
from .eviction import (
    AWAITING_WORKLOAD,
    WITH_DEADLINE,
    Checkpoint,
    CheckpointOutcome,
    Eviction,
    Phase,
    PreemptionCause,
    Protection,
    Source,
)
from .transitions import TABLE, Observation, Transition

MAX_ATTEMPTS = 3
"""Hints that may get lost before the time just runs out: an operator was killed between recording a
hint and sending it, or a container restarted."""

_READY_TO_TERMINATE = (Phase.SETTLED, Phase.SAVED)
"""Phases in which no more answers are expected of the workload, but other pods of its gang, or
other victims of its preemptor, may still need time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedVictim:
    """The pod as it is now, and its workload's answer."""

    is_marked: bool = True
    is_requested_again: bool = False
    """Our label asks for a pod whose eviction has begun, or the eviction of its gang is in
    progress."""
    must_evict: bool = False
    """That request came through the Eviction API. It waits until the preemption's time comes, and
    does not change the preemption."""
    protection: Protection | None = None
    """What protects the pod from preemption."""
    loses_less_at_once: bool = False
    """By ending at once it loses less than by a save (`preemption.loss`)."""
    is_being_deleted: bool = False
    containers_ended: bool = False
    is_gone: bool = False
    pod_grace_seconds: int = DEFAULT_GRACE_SECONDS
    answer: CheckpointAnswer | None = None
    hint_lost: bool = False
    """After our restart, the workload was asked, and does not report that it knows of the
    request."""
    request_forgotten: bool = False
    """The workload was notified, and now does not know of the request (for example, its container
    restarted), or has never reported that it does."""
    may_terminate: bool = True
    """False while other members of the gang must be saved first; past the ceiling it no longer
    counts."""
    gang_size: int = 0
    """How many pods are evicted with it as a unit."""
    is_gang_held: bool = False
    """Its eviction is cancelled because a budget holds another pod of its gang."""
    is_set_ready: bool = True
    """False while other victims of its preemptor must be saved first; past the ceiling it no longer
    counts."""
    may_set_grow: bool = False
    """True just after its preemptor's first victim was marked: others are marked one by one."""
    has_preemptor_left: bool = False
    """Its preemptor was nominated to its node, and is not any more."""
    is_node_wanted: bool = False
    """A pod is nominated to its node; known only if its own preemptor left."""
    is_replaced: bool = False
    """Its owner has created another pod in its place."""
    has_cleaners: bool = False
    """Finalizers are on the pod whose owners clean up before SIGTERM (`cleanup`)."""
    eviction_blocked: bool = False
    """The API server refused to evict it, mostly because of a disruption budget."""
    has_call_slot: bool = True
    """False while its first hint waits until other workloads were called; its time begins then."""
    is_node_lost: bool = False
    """Its node is certainly gone (`lost_node`): no kubelet will report that its containers
    ended."""

    @property
    def is_requested_by_deleter(self) -> bool:
        """True if the new request comes from a client that may delete the pod.

        A request to evict does not count: a budget would then hold a pod that may be deleted, or a
        protected pod would be ended before its time.
        """
        return self.is_requested_again and not self.must_evict


@dataclass(frozen=True, slots=True)
class LifecycleDecision:
    """The state to write if it is another one, and the transitions that led to it."""

    eviction: Eviction
    transitions: tuple[Transition, ...] = ()
    gives_up_cleaners: bool = False
    """Cleaners that are to act before SIGTERM are not done, and no longer waited for: their time is
    over, or the workload has used all of it."""


@dataclass(frozen=True, slots=True)
class _Context:
    seen: ObservedVictim
    plan: CheckpointPlan
    settings: PolicySettings
    now: datetime


def begin_eviction(
    request: mark.Mark, source: Source, pod_uid: str, now: datetime, *, must_evict: bool = False
) -> Eviction:
    """Return the first state of a pod that was just marked.

    `must_evict`: the request came as an eviction.

    The id has milliseconds. With whole seconds, a mark that is removed and set again within one
    second would have the id of an eviction that the workload knows as cancelled.
    """
    return Eviction(
        eviction_id=f"{pod_uid}-{int(now.timestamp() * 1000)}",
        phase=Phase.REQUESTED,
        requested_at=now,
        source=source,
        initiator=request.initiator,
        reason=request.reason,
        mark_grace_seconds=request.grace_seconds,
        must_evict=must_evict,
    )


def begin_as_gang_member(origin: Eviction, pod_uid: str, now: datetime) -> Eviction:
    """Return the first state of a pod that leaves because `origin` does, with the same request.

    Notice counts from now, as for every pod. The others wait for it no longer than until their own
    ceiling.
    """
    request = mark.Mark(
        initiator=origin.initiator, reason=origin.reason, grace_seconds=origin.mark_grace_seconds
    )
    joined = begin_eviction(request, Source.GANG, pod_uid, now, must_evict=origin.must_evict)
    return replace(joined, cause=origin.cause)


def decide(
    eviction: Eviction,
    seen: ObservedVictim,
    plan: CheckpointPlan,
    settings: PolicySettings,
    now: datetime,
) -> LifecycleDecision:
    """Walk the table from `eviction` as far as the observations lead; `now` is aware UTC.

    A new request of a client that may delete the pod replaces one after which the pod may stay. The
    workload is not asked anew, and no deadline changes.
    """
    if seen.is_requested_by_deleter and termination.may_stay(eviction):
        eviction = _as_request(eviction)
    context = _Context(seen, plan, settings, now)
    moves: list[Transition] = []
    while True:
        observation = _observe(eviction, context)
        move = TABLE[eviction.phase].get(observation) if observation else None
        if move is None:
            return LifecycleDecision(
                eviction, tuple(moves), _gives_up_cleaners(eviction, moves, context.seen)
            )
        if observation in _ANSWER_OBSERVED.values() and eviction.answered_at is None:
            eviction = replace(eviction, answered_at=now)
        eviction = _enter(eviction, move, context)
        moves.append(move)
        # An answer counts for one transition, and so does a lost hint. Without this, one "defer"
        # would count for ever.
        context = replace(
            context,
            seen=replace(context.seen, answer=None, hint_lost=False, request_forgotten=False),
        )


def is_hint_queued(eviction: Eviction) -> bool:
    """True if the first hint waits for a call: the workload's time has not begun."""
    return eviction.phase is Phase.HINTED and eviction.hinted_at is None


def begins_call(eviction: Eviction, decision: LifecycleDecision) -> bool:
    """True if the workload is called first after this decision."""
    after = decision.eviction
    return (
        eviction.hinted_at is None and after.hinted_at is not None and after.phase is Phase.HINTED
    )


def may_postpone_write(decision: LifecycleDecision, answer: CheckpointAnswer | None) -> bool:
    """True if the decision only records that the workload is saving, which the next poll repeats.

    Only for an answer that names the eviction. An answer without a document comes once, and asking
    again for it would need another hint.
    """
    return (
        decision.transitions == _ONLY_ACKNOWLEDGED
        and answer is not None
        and answer.eviction_id is not None
    )


def next_wake(eviction: Eviction) -> datetime | None:
    """Return when `decide` may change its answer without a new observation; `None`: never."""
    if eviction.phase in _READY_TO_TERMINATE and eviction.cleaners_until is not None:
        return eviction.cleaners_until
    return eviction.deadline if eviction.phase in WITH_DEADLINE else None


def awaits_workload(phase: Phase) -> bool:
    """True if the workload has been notified and may answer."""
    return phase in AWAITING_WORKLOAD


def _observe(eviction: Eviction, context: _Context) -> Observation | None:
    """Return the observation that counts: one that ends the wait before one that prolongs it."""
    seen, phase = context.seen, eviction.phase
    stays = seen.eviction_blocked and termination.stays_for_budget(
        eviction, context.settings, context.now
    )
    facts = (
        (phase is Phase.GONE and seen.is_replaced, Observation.REPLACED),
        (seen.is_gone, Observation.OBJECT_GONE),
        (seen.is_being_deleted, Observation.DELETED_BY_OTHERS),
        (seen.containers_ended, Observation.CONTAINERS_ENDED),
        (not seen.is_marked, Observation.MARK_REMOVED),
        (_is_not_needed(eviction, seen), Observation.NOT_NEEDED),
        (phase is Phase.REPRIEVED and seen.is_requested_by_deleter, Observation.REQUESTED_AGAIN),
        (_are_cleaners_done(eviction, context), Observation.CLEANERS_DONE),
        (
            phase in _READY_TO_TERMINATE
            and (_is_released(eviction, seen) or _is_over(eviction, context.now)),
            Observation.RELEASED,
        ),
        (phase is Phase.REPRIEVED and _is_over(eviction, context.now), Observation.PROTECTION_OVER),
        (phase is Phase.TERMINATING and stays, Observation.HELD_BY_BUDGET),
    )
    certain = next((observation for applies, observation in facts if applies), None)
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


def _is_not_needed(eviction: Eviction, seen: ObservedVictim) -> bool:
    return not seen.is_requested_again and victim_set.is_not_needed(
        eviction, has_preemptor_left=seen.has_preemptor_left, is_node_wanted=seen.is_node_wanted
    )


def _are_cleaners_done(eviction: Eviction, context: _Context) -> bool:
    """True if the cleaners that a ready victim waits for are done, or their time is over."""
    until = eviction.cleaners_until
    if until is None or eviction.phase not in _READY_TO_TERMINATE:
        return False
    return not context.seen.has_cleaners or context.now >= until


def _gives_up_cleaners(
    eviction: Eviction, moves: Sequence[Transition], seen: ObservedVictim
) -> bool:
    is_ready_now = any(move.to in _READY_TO_TERMINATE for move in moves)
    return is_ready_now and eviction.cleaners_until is None and seen.has_cleaners


def _is_released(eviction: Eviction, seen: ObservedVictim) -> bool:
    """True if a victim that is ready waits for no cleaner and no other pod."""
    return (
        eviction.cleaners_until is None
        and seen.may_terminate
        and not victim_set.waits_for_set(
            eviction, is_set_ready=seen.is_set_ready, may_set_grow=seen.may_set_grow
        )
    )


def _observe_request(eviction: Eviction, context: _Context) -> Observation:
    protection = context.seen.protection
    if protection is not None and eviction.source.is_preemption:
        if protection.until is None:
            return Observation.PROTECTED
        # Only once: without this, a deadline that keeps moving would protect the pod for ever.
        if eviction.refused_on is None and context.now < protection.until:
            return Observation.PROTECTED_FOR_NOW
    if not context.plan.gives_notice:
        return Observation.CHECKPOINT_UNWANTED
    # Pods of a gang save together, and who asks by our label asks for a save.
    is_alone = eviction.source.is_preemption and not eviction.gang
    if context.seen.loses_less_at_once and is_alone:
        return Observation.CHECKPOINT_LOSES_MORE
    if context.plan.saves_on_sigterm:
        return Observation.CHECKPOINT_ON_SIGTERM
    return Observation.CHECKPOINT_WANTED


def _observe_answer(eviction: Eviction, seen: ObservedVictim) -> Observation | None:
    if seen.answer is not None and seen.answer.may_belong_to(eviction.eviction_id):
        observation = _ANSWER_OBSERVED.get(seen.answer.state)
        if observation in TABLE[eviction.phase]:
            return observation
    return None


def _observe_loss(eviction: Eviction, context: _Context) -> Observation | None:
    """Return that the workload must be asked again, if an attempt is left.

    A workload that forgot the request also needs time left.
    """
    if is_hint_queued(eviction):
        return Observation.HINT_LOST if context.seen.has_call_slot else None
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


def is_acknowledgement(answer: CheckpointAnswer) -> bool:
    """True for an answer that says no more than that the workload saves, or will."""
    return _ANSWER_OBSERVED.get(answer.state) is Observation.ANSWERED


def _enter(eviction: Eviction, move: Transition, context: _Context) -> Eviction:
    if move.resends_hint:
        return replace(eviction, attempt=eviction.attempt + 1)
    if move.ends_cleaning:
        return replace(eviction, cleaners_until=None)
    entered = replace(eviction, phase=move.to, outcome=move.outcome or eviction.outcome)
    return _ON_ENTRY[move.to](entered, context) if move.to in _ON_ENTRY else entered


def _enter_requested(eviction: Eviction, context: _Context) -> Eviction:
    """Ask again. If the request is a new one, only that one can be cancelled from now on."""
    if context.seen.is_requested_by_deleter:
        eviction = _as_request(eviction)
    return replace(eviction, deadline=None)


def _as_request(eviction: Eviction) -> Eviction:
    return replace(eviction, source=Source.LABEL, cause=PreemptionCause.REQUEST, must_evict=False)


def _enter_reprieved(eviction: Eviction, context: _Context) -> Eviction:
    protection = context.seen.protection
    assert protection is not None
    assert protection.until is not None
    until = min(protection.until, termination.ceiling_of(eviction, context.settings))
    return replace(eviction, refused_on=protection.reason, deadline=until)


def _enter_spared(eviction: Eviction, context: _Context) -> Eviction:
    assert context.seen.protection is not None
    return replace(eviction, refused_on=context.seen.protection.reason)


def _enter_hinted(eviction: Eviction, context: _Context) -> Eviction:
    """Give the whole timeout, also if an operator lost the hint, or once the hint can be sent.

    A workload that forgot the request gets no more time. A hint that waits for a call does so until
    the ceiling at most.
    """
    if eviction.hinted_at is None:
        latest = _latest(eviction, context)
        eviction = replace(eviction, deadline=None if context.seen.has_call_slot else latest)
    if not context.seen.has_call_slot:
        return eviction
    hinted = replace(
        eviction, hinted_at=eviction.hinted_at or context.now, attempt=eviction.attempt + 1
    )
    if context.seen.request_forgotten and eviction.deadline is not None:
        return hinted
    return _prolong(hinted, context.now + timedelta(seconds=context.plan.timeout_seconds), context)


def _enter_extended(eviction: Eviction, context: _Context) -> Eviction:
    extension = timedelta(
        seconds=context.plan.timeout_seconds * context.settings.extension_percent / 100
    )
    return _prolong(eviction, _deadline(eviction) + extension, context)


def _enter_deferred(eviction: Eviction, context: _Context) -> Eviction:
    """Grant the time that the workload asks for, up to `max-deferral`."""
    answer, longest = context.seen.answer, context.plan.max_deferral_seconds
    seconds = (
        longest
        if answer is None or answer.defer_seconds is None
        else min(answer.defer_seconds, longest)
    )
    return _prolong(eviction, context.now + timedelta(seconds=seconds), context)


def _enter_saved(eviction: Eviction, context: _Context) -> Eviction:
    answer = context.seen.answer
    step, path = (None, None) if answer is None else (answer.step, answer.path)
    saved = replace(eviction, checkpoint=Checkpoint(saved_at=context.now, step=step, path=path))
    return _enter_settled(saved, context)


def _enter_settled(eviction: Eviction, context: _Context) -> Eviction:
    """Wait for cleaners and other pods, at most to the ceiling.

    A save on SIGTERM must end by then.
    """
    until = _latest(eviction, context)
    if eviction.outcome is CheckpointOutcome.ON_SIGTERM:
        until -= timedelta(seconds=context.plan.save_seconds)
    return _await_cleaners(_prolong(eviction, until, context), context)


def _await_cleaners(eviction: Eviction, context: _Context) -> Eviction:
    """Wait for the cleaners before SIGTERM, within the time for a checkpoint.

    They see the first phase, so their time counts from the notice, as the workload's does.
    """
    asked_at = eviction.hinted_at or context.now
    until = min(asked_at + timedelta(seconds=context.plan.timeout_seconds), _deadline(eviction))
    is_wanted = context.seen.has_cleaners and context.now < until
    return replace(eviction, cleaners_until=until) if is_wanted else eviction


def _enter_terminating(eviction: Eviction, context: _Context) -> Eviction:
    """Choose the grace period, once."""
    grace_seconds = grace_period.decide_grace_seconds(
        eviction,
        context.seen.pod_grace_seconds,
        context.plan,
        context.settings,
        context.now,
        is_node_lost=context.seen.is_node_lost,
    )
    return replace(eviction, grace_seconds=grace_seconds, deadline=None)


def _enter_cancelled(eviction: Eviction, context: _Context) -> Eviction:
    """Record a gang's hold as the pod's own: its next eviction continues it (`termination`)."""
    if not context.seen.is_gang_held:
        return eviction
    return replace(eviction, outcome=CheckpointOutcome.HELD_BY_BUDGET)


_ON_ENTRY = {
    Phase.REQUESTED: _enter_requested,
    Phase.REPRIEVED: _enter_reprieved,
    Phase.SPARED: _enter_spared,
    Phase.CANCELLED: _enter_cancelled,
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
    """Move the deadline, at most to the latest, and never before the one the workload knows."""
    bounded = min(deadline, _latest(eviction, context))
    return replace(eviction, deadline=max(bounded, eviction.deadline or bounded))


def _latest(eviction: Eviction, context: _Context) -> datetime:
    return termination.latest_deadline(eviction, context.settings, context.seen.gang_size)
