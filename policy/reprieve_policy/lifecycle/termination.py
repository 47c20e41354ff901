"""How a victim is ended: by a DELETE, the Eviction API, or the suspension of the Job that owns it.

`machine` decides when; the operator carries out the method chosen here. All waiting in here ends at
the victim's ceiling (the setting `ceiling`, counted from the request). Then the victim is deleted,
whatever stands in the way. On a lost node it is deleted at once: no budget counts a pod there as
healthy, and the node may return during the wait.

There is one exception. A victim that the Eviction API asked for is evicted. If a budget still holds
it at its ceiling, its eviction is cancelled (`transitions`), because a client with the right to
evict a pod must not thereby delete it. Without this, a drain would end, after a short notice, what
a PodDisruptionBudget holds. The exception protects the pod from no other client: for a preemptor it
is then a pod like any other, also if an eviction asks for it again.
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

_URGENT_SECONDS, _URGENT_SHARE = 60, 4
"""A victim is urgent in the last minute before its ceiling, and at most in the last quarter."""
_SECONDS_PER_POD = 0.03
"""To write a victim's last state and to delete it, among many: about 30 pods a second."""


class EvictionMethod(StrEnum):
    """What to do now."""

    DELETE = "delete"
    EVICT = "evict"
    """Use the Eviction API: it honours PodDisruptionBudgets and writes the condition itself."""
    SUSPEND = "suspend"
    """Suspend the Job: the job controller deletes all of its pods, of which no answer is
    awaited."""
    SET_DISRUPTION_CONDITION = "set-disruption-condition"
    """Write the pod's condition, and wait for the Job's other pods to be as far."""
    WAIT = "wait"
    """Wait for the Job's other pods, or for the job controller."""


@dataclass(frozen=True, slots=True)
class OwnerJobState:
    """The Job that owns a victim, as far as suspending it depends on it."""

    may_be_suspended: bool
    is_suspended: bool
    other_pods: frozenset[SuspensionReadiness]
    """How far its other live pods are."""


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
    """True if the method depends on the Job that owns the victim, if there is one."""
    may_suspend = settings.suspend_jobs and not eviction.must_evict
    return (
        may_suspend and not _is_on_lost_node(eviction) and suspension.ends_by_suspension(eviction)
    )


def decide_method(
    eviction: Eviction, job: OwnerJobState | None, settings: PolicySettings, now: datetime
) -> EvictionMethod:
    """Return how to end this victim now; its outcome is settled.

    `job`: the Job that owns it, if the method depends on it.
    """
    if eviction.must_evict:
        return EvictionMethod.EVICT
    if _is_on_lost_node(eviction) or now >= ceiling_of(eviction, settings):
        return EvictionMethod.DELETE
    if job is not None and depends_on_job(eviction, settings) and _may_be_suspended(job):
        return next(rule.method for rule in _SUSPENDING if rule.applies(job))
    return EvictionMethod.EVICT if settings.end_with == EVICT else EvictionMethod.DELETE


def counts_as_preempted(eviction: Eviction, *, has_failed: bool) -> bool:
    """True if a pod that ended by itself leaves its replacement the same as a deleted one.

    With exit code 0 it is finished, and has no replacement. A pod that was notified and failed
    before its DELETE ended because of the notice.
    """
    return has_failed and eviction.hinted_at is not None


def is_recorded_in_ledger(eviction: Eviction) -> bool:
    """True for a victim whose end was decided: what its replacement inherits is already written.

    The victim may stay after all.
    """
    return eviction.grace_seconds is not None


def stays_for_budget(eviction: Eviction, settings: PolicySettings, now: datetime) -> bool:
    """True for a victim that may only be evicted and has reached its ceiling.

    If it still cannot be evicted, it stays and is not deleted.
    """
    return eviction.must_evict and now >= ceiling_of(eviction, settings)


def may_stay(eviction: Eviction) -> bool:
    """True for a victim that may stay though its mark is not removed.

    Its preemptor may turn elsewhere (`victim_set`), or a budget hold it at its ceiling. A pod that
    is evicted with its gang stays or goes as the gang does.
    """
    is_undecided = eviction.source.is_preemption or eviction.must_evict
    return is_undecided and not eviction.gang and eviction.phase not in TERMINAL


def is_held_by_budget(eviction: Eviction) -> bool:
    """True for a victim that only waits to be evicted.

    Also for one that a budget held before and may hold again.
    """
    may_be_held = eviction.phase is Phase.TERMINATING or eviction.held_since is not None
    # A pod whose eviction was cancelled stays: no preemptor waits for it.
    return eviction.must_evict and may_be_held and eviction.phase not in TERMINAL


def was_held_by_budget(eviction: Eviction) -> bool:
    """True for a victim whose eviction was cancelled because a budget held it, or its gang."""
    return eviction.outcome is CheckpointOutcome.HELD_BY_BUDGET


def budget_held_since(eviction: Eviction) -> datetime:
    """Return since when other pods wait for a victim that a budget holds."""
    return eviction.held_since or eviction.requested_at


def budget_wait_ends_at(eviction: Eviction, settings: PolicySettings) -> datetime:
    """Return when other pods stop waiting for a victim that a budget holds."""
    return budget_held_since(eviction) + timedelta(seconds=settings.ceiling_seconds)


def carry_over_budget_hold(
    begun: Eviction, before: Eviction | None, settings: PolicySettings
) -> Eviction:
    """Return the first state of a pod, with the hold of a previous eviction.

    Notice begins again, but the time that other pods wait does not (`budget_wait_ends_at`), unless
    the pod was no victim for as long as the ceiling. Without this, a user who keeps marking their
    own pod and holds it by a budget would make other pods wait for its node for ever.
    """
    since = None if before is None else _previous_hold_began(before, settings)
    if before is None or since is None:
        return begun
    is_new = begun.requested_at >= ceiling_of(before, settings) + timedelta(
        seconds=settings.ceiling_seconds
    )
    return begun if is_new else replace(begun, held_since=since)


def ceiling_of(eviction: Eviction, settings: PolicySettings) -> datetime:
    """Return when the victim's wait ends, whatever stands in the way."""
    return eviction.requested_at + timedelta(seconds=settings.ceiling_seconds)


def latest_deadline(eviction: Eviction, settings: PolicySettings, gang_size: int) -> datetime:
    """Return how long the victim may wait: to the ceiling, less what its gang takes to be deleted.

    That is at most a quarter of the ceiling. Without this, the last of a thousand pods would be
    deleted long after the ceiling.
    """
    seconds = min(gang_size * _SECONDS_PER_POD, settings.ceiling_seconds / _URGENT_SHARE)
    return ceiling_of(eviction, settings) - timedelta(seconds=seconds)


def is_urgent(eviction: Eviction, settings: PolicySettings, now: datetime) -> bool:
    """True if the victim's ceiling is so near that its end comes before the notice of others."""
    left = (ceiling_of(eviction, settings) - now).total_seconds()
    return left <= min(_URGENT_SECONDS, settings.ceiling_seconds / _URGENT_SHARE)


def _previous_hold_began(before: Eviction, settings: PolicySettings) -> datetime | None:
    return before.held_since or (
        ceiling_of(before, settings) if was_held_by_budget(before) else None
    )


def _is_on_lost_node(eviction: Eviction) -> bool:
    """True for a victim on a lost node (`lost_node`)."""
    return eviction.grace_seconds == 0


def _may_be_suspended(job: OwnerJobState) -> bool:
    """True if the Job may be suspended, which takes all its pods.

    So none of them may be one that stays or that has failed.
    """
    return job.may_be_suspended and SuspensionReadiness.PREVENTS_SUSPENSION not in job.other_pods
