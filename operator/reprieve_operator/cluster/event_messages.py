"""The note of each Event: one sentence with the next time or step. No I/O."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.kube.values import duration
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import (
    CheckpointOutcome,
    Eviction,
    Phase,
    PreemptionCause,
    ProtectionReason,
    RecordedCost,
)
from reprieve_policy.lifecycle.transitions import Transition
from reprieve_policy.verdict import quote

HeldSince = Sequence[tuple[str, datetime]]
"""Finalizers that hold a pod, each with since when."""

_MIN_SHOWN_HOURS = 0.005
"""Anything less would read as 0.00."""

_FAILURE_EVENTS = {
    CheckpointOutcome.UNRESPONSIVE: (
        "CheckpointUnanswered",
        "the workload did not answer the checkpoint hint in time",
    ),
    CheckpointOutcome.TIMED_OUT: (
        "CheckpointTimedOut",
        "the checkpoint was not acknowledged in time",
    ),
    CheckpointOutcome.REFUSED: (
        "CheckpointRefused",
        "the workload answered that it cannot save a checkpoint",
    ),
}
_NOT_SENT = (
    "CheckpointNotSent",
    (
        "the checkpoint hint was not sent, because calls to other workloads took all the time "
        "that there was; the workload did nothing wrong"
    ),
)
"""No failure of the workload."""
_ENDS_OF_OWNER: Mapping[CheckpointOutcome | None, str] = {
    CheckpointOutcome.SKIPPED: "no checkpoint was asked for",
    CheckpointOutcome.LOSES_LESS: (
        "it was not asked to save: a save would take as long as the work that it keeps, or longer"
    ),
    CheckpointOutcome.ON_SIGTERM: ("its workload saves on SIGTERM; whether it did is not known"),
    CheckpointOutcome.OVERTAKEN: (
        "another client deleted it before its checkpoint was acknowledged"
    ),
}
"""What became of a pod, for its owner, where no checkpoint was acknowledged or missed."""
_PHASES_WITH_ANSWER = (
    Phase.CHECKPOINTING,
    Phase.EXTENDED,
    Phase.DEFERRED,
    Phase.SAVED,
    Phase.SETTLED,
)
"""The phases whose Event quotes the workload's answer."""
_REFUSAL_TEXTS = {
    ProtectionReason.NON_PREEMPTIBLE: "it is not preemptible",
    ProtectionReason.NEAR_COMPLETION: "it is almost complete and may finish",
}


def transition(
    move: Transition, state: Eviction, answer: CheckpointAnswer | None = None
) -> tuple[str, str] | None:
    """Return the reason and the note of a transition to `state`; `None` if it has no Event.

    `answer` is what the workload answered; the note quotes its progress and message.
    """
    event = None if move.ends_cleaning else _transition(move, state)
    # "idle" means that the workload knows of no request: that is not an answer.
    has_no_answer = (
        answer is None
        or answer.state is AnswerState.IDLE
        or move.resends_hint
        or move.to not in _PHASES_WITH_ANSWER
    )
    if event is None or answer is None or has_no_answer:
        return event
    reason, note = event
    return reason, note + _answer_text(answer)


def _transition(move: Transition, state: Eviction) -> tuple[str, str] | None:
    then = _waiting_text(state) if state.phase is move.to else "deleting the pod"
    if move.outcome is CheckpointOutcome.LOSES_LESS:
        return (
            "CheckpointNotRequested",
            f"a save would take as long as the work that it keeps, or longer; {then}",
        )
    if move.outcome in _FAILURE_EVENTS:
        reason, what = _failure(move.outcome, state)
        return reason, f"{what}: work since the last checkpoint may be lost; {then}"
    if move.outcome is CheckpointOutcome.OVERTAKEN and move.to is Phase.TERMINATING:
        return (
            "SoftEvictionOvertaken",
            "another client deleted the pod before its checkpoint was acknowledged",
        )
    by = _format_time(state.deadline) if state.deadline else "soon"
    if move.to is Phase.SETTLED and state.phase is Phase.SETTLED:
        ready = f"ready to be deleted; {then}, until {by} at the latest"
        return "SoftEvictionWaiting", ready if state.cleaners_until is None else then
    requested = (
        "CheckpointRequested",
        f"asked to save a checkpoint by {by} (attempt {state.attempt})",
    )
    if move.resends_hint:
        return requested
    why = _refusal_text(state.refused_on, state) if state.refused_on else ""
    notes = {
        Phase.REPRIEVED: ("PreemptionRefused", f"the pod stays until {by}: {why}"),
        Phase.SPARED: ("PreemptionRefused", f"the pod stays, and the mark is removed: {why}"),
        Phase.HINTED: None if machine.is_hint_queued(state) else requested,
        Phase.CHECKPOINTING: (
            "CheckpointAcknowledged",
            f"the workload is saving; it has until {by}",
        ),
        Phase.EXTENDED: (
            "CheckpointExtended",
            f"still saving: the time was extended, once, until {by}",
        ),
        Phase.DEFERRED: (
            "CheckpointDeferred",
            f"the workload asked for more time; it has until {by}",
        ),
        Phase.SAVED: (
            "CheckpointSaved",
            f"the workload acknowledged {_checkpoint_text(state)}; {then}",
        ),
        Phase.CANCELLED: (
            "SoftEvictionCancelled",
            f"{_cancellation_text(state)}; the pod stays",
        ),
        Phase.FINISHED: (
            "SoftEvictionFinished",
            "the pod finished by itself before it was deleted",
        ),
    }
    return notes.get(move.to)


def _failure(outcome: CheckpointOutcome, state: Eviction) -> tuple[str, str]:
    if outcome is CheckpointOutcome.UNRESPONSIVE and state.hinted_at is None:
        return _NOT_SENT
    return _FAILURE_EVENTS[outcome]


def deleting(state: Eviction) -> tuple[str, str]:
    """Return the Event of the DELETE."""
    cost = _cost_text(state.cost)
    if state.grace_seconds == 0:
        return "SoftEvictionDeleting", f"deleting the pod at once: its node is gone{cost}"
    for_save = " for its workload to save" if state.outcome is CheckpointOutcome.ON_SIGTERM else ""
    return (
        "SoftEvictionDeleting",
        f"deleting the pod: SIGTERM now{for_save}, SIGKILL after {state.grace_seconds}s{cost}",
    )


def completed(state: Eviction) -> tuple[str, str]:
    """Return the Event of a victim that is gone."""
    result = (
        "whether its workload saved on SIGTERM is not known"
        if state.outcome is CheckpointOutcome.ON_SIGTERM
        else f"its checkpoint ended as {state.outcome or 'unknown'}"
    )
    return "SoftEvictionCompleted", f"the pod is gone; {result}"


def ended_of_owner(pod: str, state: Eviction) -> tuple[str, str]:
    """Return the Event on the controller of a victim that is deleted: what became of its pod."""
    verb = "evicted" if state.cause in (None, PreemptionCause.REQUEST) else "preempted"
    reason = "PodPreempted" if verb == "preempted" else "PodEvicted"
    outcome = state.outcome
    if outcome in _FAILURE_EVENTS:
        reason = "PodEndedWithoutCheckpoint"
        what = f"{_failure(outcome, state)[1]}: work since the last checkpoint may be lost"
    elif outcome is CheckpointOutcome.SAVED:
        what = f"its workload saved {_checkpoint_text(state)}"
    else:
        what = _ENDS_OF_OWNER.get(outcome, "its checkpoint ended as unknown")
    return reason, f"pod {pod} was {verb}; {what}{_cost_text(state.cost)}"


def waiting_for_budget(refusal: str, until: datetime, *, stays: bool) -> tuple[str, str]:
    """Return the Event of a victim whose eviction is blocked, in the API server's words.

    `stays`: it must not be deleted either.
    """
    then = (
        f"the eviction is cancelled if it is still blocked at {_format_time(until)}"
        if stays
        else f"the pod is deleted at {_format_time(until)} at the latest"
    )
    return "WaitingForBudget", f"not evicted yet; {then}: {refusal.rstrip('.')}"


def deleted_by_suspension() -> tuple[str, str]:
    """Return the Event of a victim whose Job was suspended."""
    return (
        "SoftEvictionDeleting",
        "its Job was suspended: all pods of the Job are deleted, each with its own grace period",
    )


def job_suspended(until: datetime) -> tuple[str, str]:
    """Return the Event of a Job that is suspended because all of its pods are to be deleted."""
    return (
        "JobSuspended",
        (
            "all of its pods must be evicted, and all are ready; "
            f"the Job is resumed at {_format_time(until)}"
        ),
    )


def job_resumed() -> tuple[str, str]:
    """Return the Event of a Job that runs again."""
    return "JobResumed", "the back-off is over: resumed"


def job_not_resumed() -> tuple[str, str]:
    """Return the Event of a Job that is no longer ours to resume."""
    return (
        "JobNotResumed",
        (
            "another client has suspended the Job, or changed Reprieve's annotation: "
            "that client must resume the Job"
        ),
    )


def requeued(count: str) -> tuple[str, str]:
    """Return the Event of a bare pod that was created again."""
    return (
        "SoftEvictionRequeued",
        f"created in place of the evicted pod; times preempted so far: {count}",
    )


def requeue_refused(why: str) -> tuple[str, str]:
    """Return the Event of a bare pod that cannot be created again now."""
    return (
        "SoftEvictionRequeueRefused",
        f"the pod is not created again yet; Reprieve tries for a day: {why}",
    )


def not_requeued(why: str) -> tuple[str, str]:
    """Return the Event of a bare pod that is not created again."""
    return "SoftEvictionNotRequeued", f"the pod is not created again: {why}"


def ledger_not_written(why: str) -> tuple[str, str]:
    """Return the Event of a pod on whose owner the ledger cannot be written."""
    return (
        "SoftEvictionNotCounted",
        f"the pod is deleted, but what its replacement inherits is not on its owner: {why}",
    )


def waiting_for_finalizers(held: HeldSince, now: datetime) -> tuple[str, str]:
    """Return the Event of a victim whose containers have ended, but not all finalizers."""
    names = _held_text(held, now)
    return (
        "WaitingForFinalizers",
        f"the pod's containers have ended; it stays until finalizers {names} are removed",
    )


def waiting_for_cleaners(held: HeldSince, until: datetime, now: datetime) -> tuple[str, str]:
    """Return the Event of a victim whose cleaners are asked before SIGTERM."""
    names = _held_text(held, now)
    return (
        "WaitingForCleaners",
        (
            f"SIGTERM waits until finalizers {names} are removed, "
            f"until {_format_time(until)} at the latest"
        ),
    )


def cleaners_not_done(held: HeldSince, now: datetime) -> tuple[str, str]:
    """Return the Event of a victim whose cleaners have used up their time before SIGTERM."""
    names = _held_text(held, now)
    return "CleanersTimedOut", f"finalizers {names} were not removed in time; SIGTERM comes now"


def _held_text(held: HeldSince, now: datetime) -> str:
    """Return the finalizers, each with how long it has held."""
    seconds = {name: max(0, int((now - since).total_seconds())) for name, since in held}
    return ", ".join(
        f"{quote(name)} (held for {duration.render(each)})" for name, each in seconds.items()
    )


def _refusal_text(reason: ProtectionReason, state: Eviction) -> str:
    return (
        f"a pod of its gang {quote(state.gang)} is protected: {_REFUSAL_TEXTS[reason]}"
        if state.gang
        else _REFUSAL_TEXTS[reason]
    )


def _cancellation_text(state: Eviction) -> str:
    """Return why the eviction was cancelled."""
    if state.outcome is CheckpointOutcome.NOT_NEEDED:
        return "its preemptor no longer needs its room: it was placed, is gone, or turned elsewhere"
    return f"{_mark_text(state)} was removed{_budget_text(state)}"


def _waiting_text(state: Eviction) -> str:
    """Return what a victim that is ready still waits for."""
    if state.cleaners_until is not None:
        until = _format_time(state.cleaners_until)
        return f"its cleaners are asked before SIGTERM, until {until} at the latest"
    if state.gang:
        return "waiting for the rest of its gang"
    return "waiting for the other victims of its preemptor on this node"


def _mark_text(state: Eviction) -> str:
    return f"the mark of a pod of its gang {quote(state.gang)}" if state.gang else "the mark"


def _answer_text(answer: CheckpointAnswer) -> str:
    """Return the progress and the message of the workload's answer."""
    progress = "" if answer.progress is None else f"{answer.progress:.0%}"
    parts = [part for part in (progress, quote(answer.message) if answer.message else "") if part]
    return f"; it says {', '.join(parts)}" if parts else ""


def _budget_text(state: Eviction) -> str:
    is_held = state.outcome is CheckpointOutcome.HELD_BY_BUDGET
    return (
        ", because the pod could not be evicted in time (WaitingForBudget says why)"
        if is_held
        else ""
    )


def _checkpoint_text(state: Eviction) -> str:
    if state.checkpoint is None:
        return "a checkpoint"
    step = "" if state.checkpoint.step is None else f" at step {state.checkpoint.step}"
    path = "" if state.checkpoint.path is None else f" in {quote(state.checkpoint.path)}"
    return f"a checkpoint{step}{path}"


def _cost_text(cost: RecordedCost | None) -> str:
    """Return the cost of the preemption, unless it is negligible."""
    if cost is None or cost.hours < _MIN_SHOWN_HOURS:
        return ""
    return f"; that costs about {cost.hours:,.2f} {cost.device.upper()}-hours"


def _format_time(moment: datetime) -> str:
    return moment.strftime("%H:%M:%SZ")
