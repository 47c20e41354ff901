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
from reprieve_policy.lifecycle.eviction import TIMED, Eviction, Ground, Phase, Source
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_policy.verdict import Change, Kind, Violation, annotation_path, label_path

from . import protection as reprieve
from . import selection
from .selection import Refusal

SLACK_SECONDS = 60
"""Beyond the ceiling, and for a mark that nobody takes up: an operator that leads and does nothing must not hold up others."""

LEAST_RETRY_SECONDS = 4
"""For each victim. A client of Kubernetes tries eleven times, then the scheduler begins anew without a pause: with 2, two victims
of which each of two replicas sees one would bring 1.1 calls a second."""
MOST_RETRY_SECONDS = 30
"""Enough for any number of victims: kube-scheduler deletes 16 of a preemptor's at a time (`framework/parallelize`)."""
REFUSED_RETRY_SECONDS = 5
"""Of a preemption that is refused, not put off. Meanwhile the scheduler does not look elsewhere for its preemptor: shorter."""


class Door(Enum):
    """How somebody asks."""

    PREEMPTION = auto()
    """A scheduler's DELETE: it may be refused."""
    EVICTION = auto()
    """The Eviction API: notice is given, then it is honoured, whatever the pod is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The pod that somebody wants gone, as it is now."""

    view: PodView
    state: Eviction | None = None
    is_asked: bool = False
    """It carries a mark that the operator has not taken up."""
    is_leaving: bool = False
    """It has ended, or is being deleted."""
    has_started: bool = True
    goes_whole: bool = False
    """All of its gang goes with it."""
    walltime: Walltime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeker:
    """Who wants it gone, as far as anybody knows."""

    door: Door
    refusal: Refusal | None = None
    """Why the preemptor may not have this pod; `None` also where nobody knows who it is."""
    is_busy: bool = False
    """Its victims on another node are not gone yet."""
    is_exempt: bool = False
    """The preemptor is Kubernetes' own, or of an exempt Namespace: what a node or a cluster needs waits for notice, and no longer."""
    is_held: bool = False
    """A PodDisruptionBudget allows no eviction of the pod now (`disruption_budget`)."""
    unheeded_seconds: float = 0.0
    """How long the pod has been seen with a mark that nobody took up."""

    @property
    def insists(self) -> bool:
        """True where the pod gets notice and goes, whatever protects it against preemption."""
        return self.door is Door.EVICTION or self.is_exempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What is answered, and whether the pod is to be marked."""

    violation: Violation | None = None
    """`None`: allowed."""
    until: datetime | None = None
    """When the answer may be another one; `None` where nobody knows."""
    is_put_off: bool = False
    """True where the pod goes, later; false where this preemption is refused."""
    marks: bool = False
    warning: str = ""

    @property
    def is_allowed(self) -> bool:
        """True where the pod may go now."""
        return self.violation is None


ALLOWED = Ruling()


def decide(sought: Sought, seeker: Seeker, facts: Facts, now: datetime) -> Ruling:
    """Return what whoever wants this pod gone is told; `now` is aware UTC."""
    if sought.is_leaving or facts.namespace.enforcement == OFF or not facts.operator_is_there:
        return ALLOWED
    ruling = _of_one_that_goes(sought, seeker, facts, now)
    if ruling is None and not seeker.insists:
        ruling = _of_one_that_is_protected(sought, seeker, facts, now)
    if ruling is None:
        ruling = _of_one_that_is_asked(sought, seeker, facts, now)
    if facts.namespace.enforcement == WARN and ruling.violation is not None:
        return Ruling(warning=str(ruling.violation))
    return ruling


def retry_after(
    ruling: Ruling, door: Door, *, is_asynchronous: bool, is_short: bool = False, fellows: int, now: datetime
) -> int | None:
    """Return the seconds that the client is asked to wait; `None` where it is to come back by itself.

    `fellows`: victims of the same node that were refused lately, this one among them; each is a client of its own. Where
    there are several, the scheduler waits for all of them: it is not asked to sleep longer than the rate demands. Nor is it where
    the answer had better be `is_short`.
    """
    if door is Door.EVICTION or not is_asynchronous:
        return None
    least = min(MOST_RETRY_SECONDS, LEAST_RETRY_SECONDS * max(1, fellows))
    if is_short:
        return least
    most = MOST_RETRY_SECONDS if ruling.is_put_off else REFUSED_RETRY_SECONDS
    if ruling.until is None or fellows > 1:
        return max(least, LEAST_RETRY_SECONDS if ruling.is_put_off else most)
    return max(least, min(most, math.ceil((ruling.until - now).total_seconds())))


def passes_for_gone(ruling: Ruling, door: Door, *, is_asynchronous: bool, is_followed: bool) -> bool:
    """True where the scheduler is told that the pod is gone, which it then waits to see; `is_followed`: others go with it.

    kube-scheduler deletes the last victim only once it is through with all before, and does not look at its preemptor until
    then. Without this, victims that save and go while it sleeps over the first would go unnoticed, and their room stay
    empty for up to five minutes. Told so, it is through at once, and sleeps over the last.
    """
    return door is Door.PREEMPTION and is_asynchronous and ruling.is_put_off and is_followed


def changes_for(
    door: Door, preemptor_uid: str, now: datetime, *, is_exempt: bool = False, is_for_sensitive: bool = False
) -> tuple[Change, ...]:
    """Return the mark: a scheduler's is Koordinator's, so that it is read as a preemption; a drain's is ours, and honoured.

    A drain's says that it is an eviction, so that it ends as one. Beside a scheduler's for Kubernetes' own (`is_exempt`) our label
    asks by itself: without this, the operator would let a pod stay that nobody may preempt.

    Of the preemptor it says the uid and no more: its name is another tenant's. It says so twice: whoever may delete the pod may
    write such a mark, but not the preemptor's annotation. Where nobody knows the preemptor, that says so: empty. Without this,
    the pod would count as an earlier preemptor's.
    """
    if door is Door.EVICTION:
        return (Change("labels", keys.SOFT_EVICTION, mark.EVICT),)
    reason = f"{_REASON} {preemptor_uid}".strip() + (", which is sensitive" if is_for_sensitive else "")
    asked = mark.Mark(initiator=mark.BY_GUARD, reason=reason, requested_at=now)
    return (
        Change("labels", keys.SOFT_EVICTION, mark.REQUESTED if is_exempt else mark.MARKED),
        Change("annotations", keys.KOORDINATOR_SOFT_EVICTION, mark.render(asked)),
        Change("annotations", keys.PREEMPTOR, preemptor_uid),
    )


def is_busy(preemptor_uid: str, node: str, victims: Iterable[tuple[Sought, str]]) -> bool:
    """True where a victim of this preemptor on another node than `node` is not gone yet; `victims`: each with its node."""
    return any(where != node and _goes_for(preemptor_uid, victim) for victim, where in victims)


def _goes_for(preemptor_uid: str, sought: Sought) -> bool:
    if sought.is_leaving or sought.view.annotations.get(keys.PREEMPTOR) != preemptor_uid:
        return False
    state = sought.state
    if state is None or state.phase in TERMINAL:
        return sought.is_asked
    # One that goes by now because its gang does, or because somebody asked for it, says nothing of a preemption; and one that is
    # let finish does not go: its preemptor would wait for as long as that takes.
    return state.source is Source.KOORDINATOR and state.phase is not Phase.REPRIEVED


def _of_one_that_goes(sought: Sought, seeker: Seeker, facts: Facts, now: datetime) -> Ruling | None:
    """Rule on a pod that was asked to go before."""
    state = sought.state
    if state is None or state.phase in TERMINAL or (state.phase is Phase.REPRIEVED and seeker.is_exempt):
        if not sought.is_asked:
            return None
        return ALLOWED if seeker.unheeded_seconds >= SLACK_SECONDS else _put_off("it has been asked to go", None)
    ceiling = termination.ceiling_of(state, facts.settings)
    if (
        termination.is_held(state)
        and seeker.door is Door.PREEMPTION
        and now >= termination.waits_until(state, facts.settings)
    ):
        # It was told, and stays while a budget holds its eviction. Without this, what protects it would have ended with that.
        protected = None if seeker.insists else _of_one_that_is_protected(sought, seeker, facts, now)
        return protected or ALLOWED
    if now >= ceiling + timedelta(seconds=SLACK_SECONDS):
        return ALLOWED
    return _of_one_under_way(state, seeker.door)


def _of_one_under_way(state: Eviction, door: Door) -> Ruling:
    until = state.deadline if state.phase in TIMED else None
    if state.phase is Phase.REPRIEVED:
        refused = _refused(_PROTECTED[state.refused_on or Ground.NEAR_COMPLETION], until)
        # An eviction waits for what a preemption waits for, and changes nothing of it.
        return replace(refused, is_put_off=door is Door.EVICTION)
    # Saved or settled, it waits for its gang, or for nothing at all: its deadline is the ceiling, and tells nothing.
    if state.phase in _HEARD:
        return _put_off("it is about to be deleted", None)
    return _put_off(f"it is asked to save a checkpoint{_by(until)}", until)


def _of_one_that_is_protected(sought: Sought, seeker: Seeker, facts: Facts, now: datetime) -> Ruling | None:
    """Rule on a pod that its own policy, or the preemptor's, keeps from being preempted."""
    # Whether a gang is complete is not one pod's to say: it is marked, and the operator, which sees all of it, decides.
    walltime = None if sought.goes_whole else sought.walltime
    protection = reprieve.decide_reprieve(sought.view, facts, walltime, now)
    if protection is not None:
        return _refused(_PROTECTED[protection.ground], protection.until)
    if seeker.refusal is not None:
        # Without its figures and names: whoever reads a scheduler's log or events may own neither the pod nor the rest of its gang.
        ground, until = seeker.refusal.ground, seeker.refusal.until
        # With its date: a toleration may hold for weeks.
        said = selection.SENTENCES[ground] + ("" if until is None else f", until {timestamp.render(until)}")
        return Ruling(violation=Violation(_PATHS.get(ground, "metadata"), Kind.FORBIDDEN, None, said), until=until)
    if seeker.is_busy:
        return _refused(_BUSY, None)
    return None


def _of_one_that_is_asked(sought: Sought, seeker: Seeker, facts: Facts, now: datetime) -> Ruling:
    """Rule on a pod that nothing protects: one that wants notice gets it, and so does a gang of which a scheduler takes a part.

    `deletes_preempted` spares a scheduler the notice of a single pod, not of a gang.
    """
    plan = checkpoint_plan.read_leniently(sought.view.annotations, facts.settings)
    is_deleted = facts.settings.deletes_preempted and seeker.door is Door.PREEMPTION
    if is_deleted or not plan.waits or not sought.has_started:
        # Without this, the rest of its gang would run on, and come to nothing.
        is_torn = sought.goes_whole and seeker.door is Door.PREEMPTION
        return replace(_put_off("all of its gang is asked to go first", None), marks=True) if is_torn else ALLOWED
    if seeker.is_held:
        return _refused(_HELD, None)
    until = now + timedelta(seconds=min(plan.timeout_seconds, facts.settings.ceiling_seconds))
    return replace(_put_off("it is asked to save a checkpoint first", until), marks=True)


def _put_off(why: str, until: datetime | None) -> Ruling:
    violation = Violation(label_path("", keys.SOFT_EVICTION), Kind.FORBIDDEN, None, why)
    return Ruling(violation=violation, until=until, is_put_off=True)


def _refused(violation: Violation, until: datetime | None) -> Ruling:
    said = violation if until is None else replace(violation, detail=f"{violation.detail}, until {_clock(until)}")
    return Ruling(violation=said, until=until)


def _by(until: datetime | None) -> str:
    return "" if until is None else f" by {_clock(until)}"


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%SZ}"


TOO_MANY = _put_off("too many evictions at once to look at each of them, try again", None)
"""Of an eviction: whoever evicts tries again."""
_REASON = "preempted by pod"
_HEARD = (Phase.SETTLED, Phase.SAVED, Phase.TERMINATING)
_PROTECTED = {
    Ground.NON_PREEMPTIBLE: Violation(
        label_path("", keys.PREEMPTION_CLASS), Kind.FORBIDDEN, None, "nobody may preempt this pod"
    ),
    Ground.NEAR_COMPLETION: Violation(
        "spec.activeDeadlineSeconds", Kind.FORBIDDEN, None, "it is almost complete, and is let finish"
    ),
}
_PATHS = {
    selection.Ground.CLASS: label_path("", keys.PREEMPTION_CLASS),
    selection.Ground.TOLERATION: "spec.priorityClassName",
    selection.Ground.PRIORITY: annotation_path("", keys.PREEMPTION_PRIORITY_CLASS),
}
"""What of the pod a refusal is about; of the others, more than one field, or none of its own."""
_BUSY = Violation(
    annotation_path("", keys.EVICTION), Kind.FORBIDDEN, None, "the preemptor's victims on another node are not gone yet"
)
_HELD = Violation(
    label_path("", keys.SOFT_EVICTION), Kind.FORBIDDEN, None, "its PodDisruptionBudget allows no eviction now"
)
"""What the API server would say itself, later. Without this, a budget that allows one by then would let the pod go without notice."""
