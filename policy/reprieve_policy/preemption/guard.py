"""The guard's ruling: a scheduler deletes a pod, or somebody evicts it, and it may be owed notice first.

Level-based: what the pod carries (its mark, its state) says how far its notice is, so that it makes no difference how often
anybody asks, which replica answers, or what was answered before. A refusal always ends: at the ceiling, with the protection
that it is based on, or because no operator is there to save anything.

How often a refused scheduler may come back follows from kube-scheduler's own code (1.37, `framework/preemption/executor.go`):
asynchronous preemption begins anew at once after an error, unless the client waits as `Retry-After` says, and synchronous
preemption sleeps so long in the scheduling loop.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.namespace import OFF, WARN
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import PodView
from reprieve_policy.lifecycle import mark, termination
from reprieve_policy.lifecycle.eviction import (
    WITH_DEADLINE,
    Eviction,
    Phase,
    ProtectionReason,
    Source,
)
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_policy.verdict import (
    MetadataChange,
    Violation,
    ViolationKind,
    annotation_path,
    label_path,
)

from . import protection as reprieve
from . import selection
from .selection import Refusal

GRACE_AFTER_CEILING_SECONDS = 60
"""Beyond the ceiling, and for a mark that nobody takes up: an operator that leads and does nothing must not hold up others."""

MIN_RETRY_SECONDS = 4
"""For each victim. A client of Kubernetes tries eleven times, then the scheduler begins anew without a pause: with 2, two victims
of which each of two replicas sees one would bring 1.1 calls a second."""
MAX_RETRY_SECONDS = 30
"""Enough for any number of victims: kube-scheduler deletes 16 of a preemptor's at a time (`framework/parallelize`)."""
REFUSED_RETRY_SECONDS = 5
"""Of a preemption that is refused, not put off. Meanwhile the scheduler does not look elsewhere for its preemptor: shorter."""


class RequestKind(Enum):
    """How somebody asks."""

    PREEMPTION = auto()
    """A scheduler's DELETE: it may be refused."""
    EVICTION = auto()
    """The Eviction API: notice is given, then it is honoured, whatever the pod is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPod:
    """The pod that somebody wants gone, as it is now."""

    view: PodView
    state: Eviction | None = None
    is_marked: bool = False
    """It carries a mark that the operator has not taken up."""
    is_terminating: bool = False
    """It has ended, or is being deleted."""
    has_started: bool = True
    evicted_as_a_unit: bool = False
    """All of its gang goes with it."""
    walltime: Walltime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """Who wants it gone, as far as anybody knows."""

    request_kind: RequestKind
    refusal: Refusal | None = None
    """Why the preemptor may not have this pod; `None` also where nobody knows who it is."""
    has_victims_elsewhere: bool = False
    """Its victims on another node are not gone yet."""
    is_exempt: bool = False
    """The preemptor is Kubernetes' own, or of an exempt Namespace: what a node or a cluster needs waits for notice, and no longer."""
    eviction_blocked: bool = False
    """A PodDisruptionBudget allows no eviction of the pod now (`disruption_budget`)."""
    unprocessed_mark_seconds: float = 0.0
    """How long the pod has been seen with a mark that nobody took up."""

    @property
    def overrides_protection(self) -> bool:
        """True where the pod gets notice and goes, whatever protects it against preemption."""
        return self.request_kind is RequestKind.EVICTION or self.is_exempt


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDecision:
    """What is answered, and whether the pod is to be marked."""

    violation: Violation | None = None
    """`None`: allowed."""
    until: datetime | None = None
    """When the answer may be another one; `None` where nobody knows."""
    is_postponed: bool = False
    """True where the pod goes, later; false where this preemption is refused."""
    sets_mark: bool = False
    warning: str = ""

    @property
    def is_allowed(self) -> bool:
        """True where the pod may go now."""
        return self.violation is None


ALLOWED = GuardDecision()


def decide(sought: TargetPod, seeker: Requester, facts: Facts, now: datetime) -> GuardDecision:
    """Return what whoever wants this pod gone is told; `now` is aware UTC."""
    if sought.is_terminating or facts.namespace.enforcement == OFF or not facts.operator_is_live:
        return ALLOWED
    ruling = _decide_requested(sought, seeker, facts, now)
    if ruling is None and not seeker.overrides_protection:
        ruling = _decide_protected(sought, seeker, facts, now)
    if ruling is None:
        ruling = _decide_unprotected(sought, seeker, facts, now)
    if facts.namespace.enforcement == WARN and ruling.violation is not None:
        return GuardDecision(warning=str(ruling.violation))
    return ruling


def retry_after(
    ruling: GuardDecision,
    door: RequestKind,
    *,
    is_asynchronous: bool,
    is_short: bool = False,
    fellows: int,
    now: datetime,
) -> int | None:
    """Return the seconds that the client is asked to wait; `None` where it is to come back by itself.

    `fellows`: victims of the same node that were refused lately, this one among them; each is a client of its own. Where
    there are several, the scheduler waits for all of them: it is not asked to sleep longer than the rate demands. Nor is it where
    the answer had better be `is_short`.
    """
    if door is RequestKind.EVICTION or not is_asynchronous:
        return None
    least = min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * max(1, fellows))
    if is_short:
        return least
    most = MAX_RETRY_SECONDS if ruling.is_postponed else REFUSED_RETRY_SECONDS
    if ruling.until is None or fellows > 1:
        return max(least, MIN_RETRY_SECONDS if ruling.is_postponed else most)
    return max(least, min(most, math.ceil((ruling.until - now).total_seconds())))


def should_answer_not_found(
    ruling: GuardDecision, door: RequestKind, *, is_asynchronous: bool, is_followed: bool
) -> bool:
    """True where the scheduler is told that the pod is gone, which it then waits to see; `is_followed`: others go with it.

    kube-scheduler deletes the last victim only once it is through with all before, and does not look at its preemptor until
    then. Without this, victims that save and go while it sleeps over the first would go unnoticed, and their room stay
    empty for up to five minutes. Told so, it is through at once, and sleeps over the last.
    """
    return (
        door is RequestKind.PREEMPTION and is_asynchronous and ruling.is_postponed and is_followed
    )


def mark_changes(
    door: RequestKind,
    preemptor_uid: str,
    now: datetime,
    *,
    is_exempt: bool = False,
    is_for_sensitive: bool = False,
) -> tuple[MetadataChange, ...]:
    """Return the mark: a scheduler's is Koordinator's, so that it is read as a preemption; a drain's is ours, and honoured.

    A drain's says that it is an eviction, so that it ends as one. Beside a scheduler's for Kubernetes' own (`is_exempt`) our label
    asks by itself: without this, the operator would let a pod stay that nobody may preempt.

    Of the preemptor it says the uid and no more: its name is another tenant's. It says so twice: whoever may delete the pod may
    write such a mark, but not the preemptor's annotation. Where nobody knows the preemptor, that says so: empty. Without this,
    the pod would count as an earlier preemptor's.
    """
    if door is RequestKind.EVICTION:
        return (MetadataChange("labels", keys.SOFT_EVICTION, mark.EVICT),)
    reason = f"{_REASON} {preemptor_uid}".strip() + (
        ", which is sensitive" if is_for_sensitive else ""
    )
    asked = mark.Mark(initiator=mark.GUARD_INITIATOR, reason=reason, requested_at=now)
    return (
        MetadataChange("labels", keys.SOFT_EVICTION, mark.REQUESTED if is_exempt else mark.MARKED),
        MetadataChange("annotations", keys.KOORDINATOR_SOFT_EVICTION, mark.render(asked)),
        MetadataChange("annotations", keys.PREEMPTOR, preemptor_uid),
    )


def has_victims_elsewhere(
    preemptor_uid: str, node: str, victims: Iterable[tuple[TargetPod, str]]
) -> bool:
    """True where a victim of this preemptor on another node than `node` is not gone yet; `victims`: each with its node."""
    return any(where != node and _is_victim_of(preemptor_uid, victim) for victim, where in victims)


def _is_victim_of(preemptor_uid: str, sought: TargetPod) -> bool:
    if sought.is_terminating or sought.view.annotations.get(keys.PREEMPTOR) != preemptor_uid:
        return False
    state = sought.state
    if state is None or state.phase in TERMINAL:
        return sought.is_marked
    # One that goes by now because its gang does, or because somebody asked for it, says nothing of a preemption; and one that is
    # let finish does not go: its preemptor would wait for as long as that takes.
    return state.source is Source.KOORDINATOR and state.phase is not Phase.REPRIEVED


def _decide_requested(
    sought: TargetPod, seeker: Requester, facts: Facts, now: datetime
) -> GuardDecision | None:
    """Rule on a pod that was asked to go before."""
    state = sought.state
    if (
        state is None
        or state.phase in TERMINAL
        or (state.phase is Phase.REPRIEVED and seeker.is_exempt)
    ):
        if not sought.is_marked:
            return None
        return (
            ALLOWED
            if seeker.unprocessed_mark_seconds >= GRACE_AFTER_CEILING_SECONDS
            else _postponed("it has been asked to go", None)
        )
    ceiling = termination.ceiling_of(state, facts.settings)
    if (
        termination.is_held_by_budget(state)
        and seeker.request_kind is RequestKind.PREEMPTION
        and now >= termination.budget_wait_ends_at(state, facts.settings)
    ):
        # It was told, and stays while a budget holds its eviction. Without this, what protects it would have ended with that.
        protected = (
            None if seeker.overrides_protection else _decide_protected(sought, seeker, facts, now)
        )
        return protected or ALLOWED
    if now >= ceiling + timedelta(seconds=GRACE_AFTER_CEILING_SECONDS):
        return ALLOWED
    return _decide_in_progress(state, seeker.request_kind)


def _decide_in_progress(state: Eviction, door: RequestKind) -> GuardDecision:
    until = state.deadline if state.phase in WITH_DEADLINE else None
    if state.phase is Phase.REPRIEVED:
        refused = _refused(
            _PROTECTION_VIOLATIONS[state.refused_on or ProtectionReason.NEAR_COMPLETION], until
        )
        # An eviction waits for what a preemption waits for, and changes nothing of it.
        return replace(refused, is_postponed=door is RequestKind.EVICTION)
    # Saved or settled, it waits for its gang, or for nothing at all: its deadline is the ceiling, and tells nothing.
    if state.phase in _FINISHED_SAVING:
        return _postponed("it is about to be deleted", None)
    return _postponed(f"it is asked to save a checkpoint{_by(until)}", until)


def _decide_protected(
    sought: TargetPod, seeker: Requester, facts: Facts, now: datetime
) -> GuardDecision | None:
    """Rule on a pod that its own policy, or the preemptor's, keeps from being preempted."""
    # Whether a gang is complete is not one pod's to say: it is marked, and the operator, which sees all of it, decides.
    walltime = None if sought.evicted_as_a_unit else sought.walltime
    protection = reprieve.decide_protection(sought.view, facts, walltime, now)
    if protection is not None:
        return _refused(_PROTECTION_VIOLATIONS[protection.reason], protection.until)
    if seeker.refusal is not None:
        # Without its figures and names: whoever reads a scheduler's log or events may own neither the pod nor the rest of its gang.
        ground, until = seeker.refusal.reason, seeker.refusal.until
        # With its date: a toleration may hold for weeks.
        said = selection.REASON_MESSAGES[ground] + (
            "" if until is None else f", until {timestamp.render(until)}"
        )
        return GuardDecision(
            violation=Violation(
                _PATHS.get(ground, "metadata"), ViolationKind.FORBIDDEN, None, said
            ),
            until=until,
        )
    if seeker.has_victims_elsewhere:
        return _refused(_VICTIMS_ELSEWHERE, None)
    return None


def _decide_unprotected(
    sought: TargetPod, seeker: Requester, facts: Facts, now: datetime
) -> GuardDecision:
    """Rule on a pod that nothing protects: one that wants notice gets it, and so does a gang of which a scheduler takes a part.

    `deletes_preempted` spares a scheduler the notice of a single pod, not of a gang.
    """
    plan = checkpoint_plan.read_leniently(sought.view.annotations, facts.settings)
    is_deleted = facts.settings.deletes_preempted and seeker.request_kind is RequestKind.PREEMPTION
    if is_deleted or not plan.gives_notice or not sought.has_started:
        # Without this, the rest of its gang would run on, and come to nothing.
        is_torn = sought.evicted_as_a_unit and seeker.request_kind is RequestKind.PREEMPTION
        return (
            replace(_postponed("all of its gang is asked to go first", None), sets_mark=True)
            if is_torn
            else ALLOWED
        )
    if seeker.eviction_blocked:
        return _refused(_BLOCKED_BY_BUDGET, None)
    until = now + timedelta(seconds=min(plan.timeout_seconds, facts.settings.ceiling_seconds))
    return replace(_postponed("it is asked to save a checkpoint first", until), sets_mark=True)


def _postponed(why: str, until: datetime | None) -> GuardDecision:
    violation = Violation(label_path("", keys.SOFT_EVICTION), ViolationKind.FORBIDDEN, None, why)
    return GuardDecision(violation=violation, until=until, is_postponed=True)


def _refused(violation: Violation, until: datetime | None) -> GuardDecision:
    said = (
        violation
        if until is None
        else replace(violation, detail=f"{violation.detail}, until {_clock(until)}")
    )
    return GuardDecision(violation=said, until=until)


def _by(until: datetime | None) -> str:
    return "" if until is None else f" by {_clock(until)}"


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%SZ}"


TOO_MANY_EVICTIONS = _postponed(
    "too many evictions at once to look at each of them, try again", None
)
"""Of an eviction: whoever evicts tries again."""
_REASON = "preempted by pod"
_FINISHED_SAVING = (Phase.SETTLED, Phase.SAVED, Phase.TERMINATING)
_PROTECTION_VIOLATIONS = {
    ProtectionReason.NON_PREEMPTIBLE: Violation(
        label_path("", keys.PREEMPTION_CLASS),
        ViolationKind.FORBIDDEN,
        None,
        "nobody may preempt this pod",
    ),
    ProtectionReason.NEAR_COMPLETION: Violation(
        "spec.activeDeadlineSeconds",
        ViolationKind.FORBIDDEN,
        None,
        "it is almost complete, and is let finish",
    ),
}
_PATHS = {
    selection.RefusalReason.CLASS: label_path("", keys.PREEMPTION_CLASS),
    selection.RefusalReason.TOLERATION: "spec.priorityClassName",
    selection.RefusalReason.PRIORITY: annotation_path("", keys.PREEMPTION_PRIORITY_CLASS),
}
"""What of the pod a refusal is about; of the others, more than one field, or none of its own."""
_VICTIMS_ELSEWHERE = Violation(
    annotation_path("", keys.EVICTION),
    ViolationKind.FORBIDDEN,
    None,
    "the preemptor's victims on another node are not gone yet",
)
_BLOCKED_BY_BUDGET = Violation(
    label_path("", keys.SOFT_EVICTION),
    ViolationKind.FORBIDDEN,
    None,
    "its PodDisruptionBudget allows no eviction now",
)
"""What the API server would say itself, later. Without this, a budget that allows one by then would let the pod go without notice."""
