"""The guard's decision on a scheduler's deletion, or an eviction: the pod may need notice.

Level-based: the pod's own mark and state say how far its notice is. So the answer does not depend
on how often a client asks, which replica answers, or what was answered before. Every refusal ends:
at the ceiling, with the protection that it is based on, or because no operator is there to save
anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.config.namespace import OFF, WARN
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodView
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import cleanup, mark, termination
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

from . import first_refusal, selection
from . import protection as protection_rules
from .selection import Refusal

GRACE_AFTER_CEILING_SECONDS = 60
"""Beyond the ceiling, and for an unprocessed mark: a leading but idle operator must not block."""


class RequestKind(Enum):
    """How the deletion is requested."""

    PREEMPTION = auto()
    """A scheduler's DELETE: the guard may refuse it."""
    EVICTION = auto()
    """The Eviction API: the pod gets notice, then the eviction is honoured, whatever the pod is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPod:
    """The pod whose deletion is requested, as it is now."""

    view: PodView
    state: Eviction | None = None
    is_marked: bool = False
    """It carries a mark that the operator has not processed."""
    is_terminating: bool = False
    """It has ended, or is being deleted."""
    deletion_ends_at: datetime | None = None
    """When its grace period ends; `None`: it is not being deleted, or has ended."""
    has_started: bool = True
    evicted_as_a_unit: bool = False
    """All of its gang is evicted with it."""
    leaves_with_others: bool = False
    """Other victims of its preemptor on its node get notice: it leaves when they do."""
    walltime: Walltime | None = None
    refused_since: datetime | None = None
    """When it was first refused on a ground that its owner can renew (`first_refusal`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The origin of the request, as far as known."""

    request_kind: RequestKind
    refusal: Refusal | None = None
    """Why the preemptor may not take this pod; `None` also if the preemptor is unknown."""
    has_victims_elsewhere: bool = False
    """Its victims on another node are not gone yet."""
    is_exempt: bool = False
    """The preemptor is system-critical or in an exempt Namespace: it waits for notice only."""
    eviction_blocked: bool = False
    """A PodDisruptionBudget allows no eviction of the pod now (`eviction_pdb`)."""
    unprocessed_mark_seconds: float = 0.0
    """How long the pod has been seen with a mark that no operator processed."""

    @property
    def overrides_protection(self) -> bool:
        """True if the pod gets notice and is then evicted, whatever protects it."""
        return self.request_kind is RequestKind.EVICTION or self.is_exempt


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDecision:
    """The answer, and whether to mark the pod."""

    violation: Violation | None = None
    """`None`: allowed."""
    until: datetime | None = None
    """When the answer may change; `None` if that is unknown."""
    is_postponed: bool = False
    """True if the pod goes later; false if this preemption is refused."""
    sets_mark: bool = False
    is_renewable: bool = False
    """Refused on a ground that the pod's owner can renew: the first such refusal is recorded."""
    has_victims_elsewhere: bool = False
    """Refused only because the preemptor's victims on another node are not gone yet."""
    warning: str = ""

    @property
    def is_allowed(self) -> bool:
        """True if the pod may be deleted now."""
        return self.violation is None


ALLOWED = GuardDecision()
ALLOWED_WITHOUT_ROOM = GuardDecision(warning="no notice: the pod has no room for its mark")
"""Its owner can fill the annotations. With `failurePolicy: Fail`, a failed review would keep it."""


def decide(target: TargetPod, requester: Requester, facts: Facts, now: datetime) -> GuardDecision:
    """Return the answer to a request to delete this pod; `now` is aware UTC."""
    if target.is_terminating or facts.namespace.enforcement == OFF or not facts.operator_is_live:
        return ALLOWED
    decision = _decide_requested(target, requester, facts, now)
    if decision is None and not requester.overrides_protection:
        decision = _decide_protected(target, requester, facts, now)
    if decision is None:
        decision = _decide_unprotected(target, requester, facts, now)
    if facts.namespace.enforcement == WARN and decision.violation is not None:
        return GuardDecision(warning=str(decision.violation))
    return decision


def decide_unmarkable(
    decision: GuardDecision, target: TargetPod, facts: Facts, now: datetime
) -> GuardDecision:
    """Return the answer about a pod that changed, again and again, before it could be marked.

    Its owner can have it change for ever: after the ceiling, the pod goes without notice.
    """
    is_over = first_refusal.is_over(target.refused_since, facts.settings.ceiling_seconds, now)
    return ALLOWED if is_over else replace(decision, is_renewable=True)


def mark_changes(
    request_kind: RequestKind,
    preemptor_uid: str,
    now: datetime,
    *,
    is_exempt: bool = False,
    is_for_sensitive: bool = False,
    victims: int | None = None,
) -> tuple[MetadataChange, ...]:
    """Return the changes that mark the pod.

    A scheduler's mark is in Koordinator's format, so that it is read as a preemption; a drain's is
    Reprieve's own label and is honoured. A drain's mark says that it is an eviction, so that the
    pod is evicted, not deleted. For a system-critical preemptor (`is_exempt`) our label requests
    the eviction by itself: without this, the operator would keep a non-preemptible pod.

    The mark contains only the preemptor's uid: its name belongs to another tenant. The uid is
    written twice: a user with the right to delete the pod may write such a mark, but not the
    preemptor's annotation. If the preemptor is unknown, the annotation is empty. Without this, the
    pod would count as an earlier preemptor's victim.

    `victims`: how many the preemptor has on the node, if that is known. Without it, the operator
    waits for others before the first goes.
    """
    if request_kind is RequestKind.EVICTION:
        return (MetadataChange("labels", keys.SOFT_EVICTION, mark.EVICT),)
    reason = f"{_REASON} {preemptor_uid}".strip() + (
        ", which is sensitive" if is_for_sensitive else ""
    )
    asked = mark.Mark(
        initiator=mark.GUARD_INITIATOR, reason=reason, requested_at=now, victims=victims
    )
    return (
        MetadataChange("labels", keys.SOFT_EVICTION, mark.REQUESTED if is_exempt else mark.MARKED),
        MetadataChange("annotations", keys.KOORDINATOR_SOFT_EVICTION, mark.render(asked)),
        MetadataChange("annotations", keys.PREEMPTOR, preemptor_uid),
    )


def has_victims_elsewhere(
    preemptor_uid: str,
    node: str,
    victims: Iterable[tuple[TargetPod, str]],
    ceiling_seconds: int,
    now: datetime,
) -> bool:
    """Return whether the preemptor has victims left on another node than `node`.

    `victims`: each pod with its node. One that is being deleted counts until its grace period is
    over, and a little longer, if that is within the ceiling. Without the former, the preemptor
    would get a second set of victims while the first one has its last seconds. Without the latter,
    an owner who deletes a victim with a grace period of years would hold the preemptor for as long.
    """
    return any(
        where != node
        and (
            is_victim_of(preemptor_uid, victim)
            or _is_ending_for(preemptor_uid, victim, ceiling_seconds, now)
        )
        for victim, where in victims
    )


def _is_ending_for(
    preemptor_uid: str, target: TargetPod, ceiling_seconds: int, now: datetime
) -> bool:
    if target.deletion_ends_at is None:
        return False
    left = (target.deletion_ends_at - now).total_seconds()
    return (
        -GRACE_AFTER_CEILING_SECONDS < left <= ceiling_seconds
        and target.view.annotations.get(keys.PREEMPTOR) == preemptor_uid
    )


def is_victim_of(preemptor_uid: str, target: TargetPod) -> bool:
    """Return whether the pod leaves for this preemptor and is not being deleted yet."""
    if target.is_terminating or target.view.annotations.get(keys.PREEMPTOR) != preemptor_uid:
        return False
    state = target.state
    if state is None or state.phase in TERMINAL:
        return target.is_marked
    # A pod evicted because of its gang or by request says nothing about a preemption; but a person
    # may ask for a victim of the guard's, too. A reprieved pod does not leave: its preemptor would
    # wait for as long as that takes.
    is_guards = state.source is Source.LABEL and state.initiator == mark.GUARD_INITIATOR
    is_preempted = state.source is Source.KOORDINATOR or is_guards
    return is_preempted and state.phase is not Phase.REPRIEVED


def _decide_requested(
    target: TargetPod, requester: Requester, facts: Facts, now: datetime
) -> GuardDecision | None:
    """Decide about a pod that was marked before."""
    state = target.state
    if (
        state is None
        or state.phase in TERMINAL
        or (state.phase is Phase.REPRIEVED and requester.is_exempt)
    ):
        if not target.is_marked:
            return None
        return (
            ALLOWED
            if requester.unprocessed_mark_seconds >= GRACE_AFTER_CEILING_SECONDS
            else _postponed("it is already marked for eviction", None)
        )
    ceiling = termination.ceiling_of(state, facts.settings)
    if (
        termination.is_held_by_budget(state)
        and requester.request_kind is RequestKind.PREEMPTION
        and now >= termination.budget_wait_ends_at(state, facts.settings)
    ):
        # Notified, and kept by a budget. Without this, its protection would end with the budget's
        # wait.
        protected = (
            None
            if requester.overrides_protection
            else _decide_protected(target, requester, facts, now)
        )
        return protected or ALLOWED
    if now >= ceiling + timedelta(seconds=GRACE_AFTER_CEILING_SECONDS):
        return ALLOWED
    return _decide_in_progress(state, requester.request_kind)


def _decide_in_progress(state: Eviction, request_kind: RequestKind) -> GuardDecision:
    until = state.deadline if state.phase in WITH_DEADLINE else None
    if state.phase is Phase.REPRIEVED:
        refused = _refused_on(state.refused_on or ProtectionReason.NEAR_COMPLETION, until)
        # An eviction waits for the same as a preemption, and changes nothing about it.
        is_eviction = request_kind is RequestKind.EVICTION
        return replace(
            refused,
            is_postponed=is_eviction,
            is_renewable=refused.is_renewable and not is_eviction,
        )
    # A saved or settled pod waits for its gang or for its deletion: its deadline is only the
    # ceiling.
    if cleanup.waits_for_cleaners(state):
        until = state.cleaners_until
        return _postponed(f"it waits for its cleaners before SIGTERM{_by(until)}", until)
    if state.phase in _FINISHED_SAVING:
        return _postponed("it is about to be deleted", None)
    return _postponed(f"it is asked to save a checkpoint{_by(until)}", until)


def _decide_protected(
    target: TargetPod, requester: Requester, facts: Facts, now: datetime
) -> GuardDecision | None:
    """Decide about a pod that its own policy, or the preemptor's, protects from preemption."""
    # One pod cannot tell whether its gang is complete: it is marked, and the operator decides.
    walltime = None if target.evicted_as_a_unit else target.walltime
    protection = protection_rules.decide_protection(
        target.view, facts, walltime, now, refused_since=target.refused_since
    )
    if protection is not None:
        return _refused_on(protection.reason, protection.until)
    if requester.refusal is not None:
        # Without figures and names: a reader of the scheduler's logs or events may own neither the
        # pod nor the rest of its gang.
        reason, until = requester.refusal.reason, requester.refusal.until
        detail = selection.REASON_MESSAGES[reason] + (
            "" if until is None else f", until {_render_time(until)}"
        )
        return GuardDecision(
            violation=Violation(
                _PATHS.get(reason, "metadata"), ViolationKind.FORBIDDEN, None, detail
            ),
            until=until,
            is_renewable=requester.refusal.is_renewable,
        )
    if requester.has_victims_elsewhere:
        return replace(_refused(_VICTIMS_ELSEWHERE, None), has_victims_elsewhere=True)
    return None


def _decide_unprotected(
    target: TargetPod, requester: Requester, facts: Facts, now: datetime
) -> GuardDecision:
    """Decide about an unprotected pod: it gets notice if it wants that, and so does its gang.

    `deletes_preempted` lets a scheduler delete a single pod without notice, but not a part of a
    gang. A pod that wants no notice leaves together with the other victims of its preemptor.
    Without this, its room would lie idle while they save, or another pod would take it.
    """
    plan = checkpoint_plan.read_leniently(target.view.annotations, facts.settings)
    is_deleted = (
        facts.settings.deletes_preempted and requester.request_kind is RequestKind.PREEMPTION
    )
    waits = plan.gives_notice or bool(plan.cleaners_before)
    if is_deleted or not waits or not target.has_started:
        if requester.request_kind is not RequestKind.PREEMPTION:
            return ALLOWED
        if target.evicted_as_a_unit:
            # Without this, the rest of its gang would run on without use.
            return _postponed_with_mark("its whole gang is marked for eviction first")
        return (
            _postponed_with_mark("other victims of its preemptor save a checkpoint first")
            if target.leaves_with_others
            else ALLOWED
        )
    if requester.eviction_blocked:
        return _refused(_BLOCKED_BY_BUDGET, None)
    until = now + timedelta(seconds=min(plan.timeout_seconds, facts.settings.ceiling_seconds))
    return _postponed_with_mark(_notice_text(plan), until)


def _notice_text(plan: CheckpointPlan) -> str:
    if not plan.gives_notice:
        return "its cleaners are asked before SIGTERM"
    if plan.saves_on_sigterm:
        return "it is given the time to save a checkpoint on SIGTERM"
    return "it is asked to save a checkpoint first"


def _postponed_with_mark(why: str, until: datetime | None = None) -> GuardDecision:
    return replace(_postponed(why, until), sets_mark=True)


def _postponed(why: str, until: datetime | None) -> GuardDecision:
    violation = Violation(label_path("", keys.SOFT_EVICTION), ViolationKind.FORBIDDEN, None, why)
    return GuardDecision(violation=violation, until=until, is_postponed=True)


def _refused_on(reason: ProtectionReason, until: datetime | None) -> GuardDecision:
    return replace(
        _refused(_PROTECTION_VIOLATIONS[reason], until),
        is_renewable=reason is ProtectionReason.NEAR_COMPLETION,
    )


def _refused(violation: Violation, until: datetime | None) -> GuardDecision:
    if until is not None:
        violation = replace(violation, detail=f"{violation.detail}, until {_render_time(until)}")
    return GuardDecision(violation=violation, until=until)


def _by(until: datetime | None) -> str:
    return "" if until is None else f" by {_render_time(until)}"


def _render_time(moment: datetime) -> str:
    """Return whole seconds with the date: a toleration may hold for weeks."""
    return timestamp.render(moment.replace(microsecond=0))


TOO_MANY_EVICTIONS = _postponed("too many evictions at once, try again", None)
"""For an eviction: the client tries again."""
_REASON = "preempted by pod"
_FINISHED_SAVING = (Phase.SETTLED, Phase.SAVED, Phase.TERMINATING)
_PROTECTION_VIOLATIONS = {
    ProtectionReason.NON_PREEMPTIBLE: Violation(
        label_path("", keys.PREEMPTION_CLASS),
        ViolationKind.FORBIDDEN,
        None,
        "this pod is non-preemptible",
    ),
    ProtectionReason.NEAR_COMPLETION: Violation(
        "spec.activeDeadlineSeconds",
        ViolationKind.FORBIDDEN,
        None,
        "it is almost complete and may finish",
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
"""As the API server itself would say, later.

Without this, a budget that allows an eviction by then would let the pod go without notice.
"""
