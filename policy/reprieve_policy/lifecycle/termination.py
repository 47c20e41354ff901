"""How a victim that may go is ended: by a DELETE, the Eviction API, or the suspension of the Job that owns it.

When it may go is `life`'s; what was chosen is performed by the operator. All waiting in here ends at the victim's own
ceiling (the setting `ceiling`, after it was requested): then it is a DELETE, whatever stands in the way. It is one at once
on a lost node: no budget counts a pod there as healthy, and the node may return while somebody is waited for.

With one exception. A victim that was asked for through the Eviction API, or by an EvictionRequest, is evicted, and at its ceiling, where
a budget holds it still, stood down (`life_table`): whoever may evict a pod, or ask for that, may not thereby delete it. Without this,
a drain would end what a PodDisruptionBudget holds, after a little notice. Nor does that keep it from anybody: to whoever preempts it, it
is then a pod like any other, also where an eviction asks for it anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from reprieve_policy.config.settings import EVICT, PolicySettings

from . import suspension
from .eviction import CheckpointOutcome, Eviction, Phase
from .suspension import SuspensionReadiness
from .transitions import TERMINAL


class EvictionMethod(StrEnum):
    """What is done now."""

    DELETE = "delete"
    EVICT = "evict"
    """The Eviction API: a PodDisruptionBudget is honoured, and the API server writes the condition itself."""
    SUSPEND = "suspend"
    """The Job is suspended: the job controller deletes all of its pods, which have nothing more to say."""
    SET_DISRUPTION_CONDITION = "announce"
    """The disruption is announced, and the Job's other pods are waited for to be as far."""
    WAIT = "wait"
    """The Job's other pods, or the job controller, are waited for."""


@dataclass(frozen=True, slots=True)
class OwnerJobState:
    """The Job that owns a victim, as far as suspending it is concerned."""

    may_be_suspended: bool
    is_suspended: bool
    other_pods: frozenset[SuspensionReadiness]
    """How far its other living pods are."""


class _SuspensionRule(NamedTuple):
    applies: Callable[[OwnerJobState], bool]
    method: EvictionMethod


_SUSPENDING = (
    _SuspensionRule(
        lambda job: job.is_suspended or SuspensionReadiness.SAVING in job.other_pods,
        EvictionMethod.WAIT,
    ),
    _SuspensionRule(
        lambda job: SuspensionReadiness.READY in job.other_pods,
        EvictionMethod.SET_DISRUPTION_CONDITION,
    ),
    _SuspensionRule(lambda _: True, EvictionMethod.SUSPEND),
)


def depends_on_job(eviction: Eviction, settings: PolicySettings) -> bool:
    """True where the way depends on the Job that owns the victim, if one does."""
    may_be = settings.suspend_jobs and not eviction.must_evict
    return may_be and not _is_on_lost_node(eviction) and suspension.ends_by_suspension(eviction)


def decide_method(
    eviction: Eviction, job: OwnerJobState | None, settings: PolicySettings, now: datetime
) -> EvictionMethod:
    """Return how this victim, whose outcome is settled, is ended now; `job`: what owns it, where it is concerned."""
    if eviction.must_evict:
        return EvictionMethod.EVICT
    if _is_on_lost_node(eviction) or now >= ceiling_of(eviction, settings):
        return EvictionMethod.DELETE
    if job is not None and depends_on_job(eviction, settings) and _may_be_suspended(job):
        return next(rule.method for rule in _SUSPENDING if rule.applies(job))
    return EvictionMethod.EVICT if settings.end_with == EVICT else EvictionMethod.DELETE


def counts_as_preempted(eviction: Eviction, *, has_failed: bool) -> bool:
    """True where a pod that ended by itself leaves its replacement what a deleted one would.

    With exit code 0 it is finished, and nothing replaces it. One that was told and failed before its DELETE went because
    it was told.
    """
    return has_failed and eviction.hinted_at is not None


def is_recorded_in_ledger(eviction: Eviction) -> bool:
    """True for one that was to be ended: what its replacement inherits is written before, and it may stay after all."""
    return eviction.grace_seconds is not None


def stays_for_budget(eviction: Eviction, settings: PolicySettings, now: datetime) -> bool:
    """True at the ceiling of one that may only be evicted: where it still cannot be, it is not deleted either."""
    return eviction.must_evict and now >= ceiling_of(eviction, settings)


def is_held_by_budget(eviction: Eviction) -> bool:
    """True for one that waits for nothing but to be evicted, or that goes and that a budget held before, and may hold again."""
    may_be = eviction.phase is Phase.TERMINATING or eviction.held_since is not None
    # One that was stood down, or taken back, stays: nobody waits for it.
    return eviction.must_evict and may_be and eviction.phase not in TERMINAL


def budget_held_since(eviction: Eviction) -> datetime:
    """Return since when others wait for one that is held."""
    return eviction.held_since or eviction.requested_at


def budget_wait_ends_at(eviction: Eviction, settings: PolicySettings) -> datetime:
    """Return when others wait no longer for one that is held."""
    return budget_held_since(eviction) + timedelta(seconds=settings.ceiling_seconds)


def carry_over_budget_hold(
    begun: Eviction, before: Eviction | None, settings: PolicySettings
) -> Eviction:
    """Return the first state of a pod with what remains of the eviction before, which a budget held until its ceiling.

    Notice begins anew; what others wait does not (`waits_until`), unless the pod was nobody's victim for as long as that. Without
    this, whoever marks his own pod again and again, and holds it by a budget, would have others wait for its room for ever.
    """
    since = None if before is None else _previous_hold_began(before, settings)
    if before is None or since is None:
        return begun
    is_new = begun.requested_at >= ceiling_of(before, settings) + timedelta(
        seconds=settings.ceiling_seconds
    )
    return begun if is_new else replace(begun, held_since=since)


def ceiling_of(eviction: Eviction, settings: PolicySettings) -> datetime:
    """Return when nothing stands in the way any longer."""
    return eviction.requested_at + timedelta(seconds=settings.ceiling_seconds)


def _previous_hold_began(before: Eviction, settings: PolicySettings) -> datetime | None:
    was_held = before.outcome is CheckpointOutcome.HELD_BY_BUDGET
    return before.held_since or (ceiling_of(before, settings) if was_held else None)


def _is_on_lost_node(eviction: Eviction) -> bool:
    """True for one on a lost node (`lost_node`)."""
    return eviction.grace_seconds == 0


def _may_be_suspended(job: OwnerJobState) -> bool:
    """A suspension takes all pods of a Job: one that is to stay, or that has failed, is never among them."""
    return job.may_be_suspended and SuspensionReadiness.PREVENTS_SUSPENSION not in job.other_pods
