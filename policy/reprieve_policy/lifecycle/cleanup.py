"""Finalizers on a victim: Reprieve's own, and those of other cleaners.

Reprieve's finalizer keeps the victim's object from the beginning of the eviction until its
containers have ended and what its replacement inherits is written. Without it, the state of the
eviction would be lost where another client deletes the pod while no operator runs. It holds nothing
else up: SIGTERM and SIGKILL come as without it.

A finalizer of another cleaner holds the object after that, as in all of Kubernetes. One that the
pod names in `reprieve.dev/cleaners-before` is also waited for before SIGTERM, within the time for a
checkpoint.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from reprieve_policy.config.settings import PolicySettings

from .eviction import AWAITING_WORKLOAD, CheckpointOutcome, Eviction, Phase
from .transitions import TERMINAL

_READY = (Phase.SETTLED, Phase.SAVED)
_NOTIFIED = (*AWAITING_WORKLOAD, *_READY, Phase.TERMINATING)
"""Phases in which cleaners before SIGTERM are asked."""
GIVE_UP_AFTER = timedelta(seconds=60)
"""How long a write is repeated that an eviction can do without, and that may still succeed: the API
server is under load, or a webhook that fails closed is down."""


class ReleaseReason(StrEnum):
    """Why Reprieve's finalizer is removed from a pod that is being deleted."""

    CONTAINERS_ENDED = "containers-ended"
    FORCED = "forced"
    """No kubelet will report that the containers ended: the grace period is 0."""
    CEILING = "ceiling"
    """The containers should have ended long ago."""
    WRITES_REFUSED = "writes-refused"
    """The ceiling is over, and what the replacement inherits cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVictim:
    """A pod that is being deleted and has Reprieve's finalizer."""

    have_containers_ended: bool = False
    is_forced: bool = False
    overdue: timedelta = timedelta(0)
    """Since when its grace period is over; negative before that."""
    ceiling_seconds: float = 0.0


class _ReleaseRule(NamedTuple):
    applies: Callable[[HeldVictim], bool]
    reason: ReleaseReason


_RULES = (
    _ReleaseRule(lambda held: held.have_containers_ended, ReleaseReason.CONTAINERS_ENDED),
    _ReleaseRule(lambda held: held.is_forced, ReleaseReason.FORCED),
    _ReleaseRule(
        lambda held: held.overdue >= timedelta(seconds=held.ceiling_seconds), ReleaseReason.CEILING
    ),
)


def is_held(eviction: Eviction, settings: PolicySettings) -> bool:
    """True if a living pod with this state gets the finalizer.

    Its eviction has begun. That of a reprieved pod has not: its workload has not been notified.
    """
    is_under_way = eviction.phase not in (Phase.REPRIEVED, *TERMINAL)
    return settings.cleanup_finalizer and is_under_way


def decide_release(held: HeldVictim) -> ReleaseReason | None:
    """Return why the finalizer is removed now; `None`: it stays."""
    return next((rule.reason for rule in _RULES if rule.applies(held)), None)


def decide_release_unwritten(held: HeldVictim, refused_for: timedelta) -> ReleaseReason | None:
    """Return why the finalizer is removed though a write that comes before was refused.

    `refused_for`: since when all writes about the victim are refused. Without that bound, a single
    refusal would lose what a victim leaves whose operator was away until after the ceiling.
    """
    is_over = held.overdue >= timedelta(seconds=held.ceiling_seconds)
    return ReleaseReason.WRITES_REFUSED if is_over and refused_for >= GIVE_UP_AFTER else None


def pending_cleaners(named: Iterable[str], on_pod: Iterable[str]) -> tuple[str, ...]:
    """Return the named finalizers that are still on the pod, in the order of their names there."""
    present = set(on_pod)
    return tuple(name for name in named if name in present)


def waits_for_cleaners(eviction: Eviction) -> bool:
    """True for a victim that would be ready, but for its cleaners before SIGTERM."""
    return eviction.phase in _READY and eviction.cleaners_until is not None


def inherits_if_overtaken(eviction: Eviction) -> bool:
    """True if the replacement of a victim that another client deleted is told of the eviction.

    So it is once the workload was asked: what it saved, or could not save any more, is what the
    next pod begins with.
    """
    has_saved = eviction.outcome is CheckpointOutcome.SAVED
    return has_saved or eviction.hinted_at is not None


class CleanerTurn(StrEnum):
    """When a cleaner does its work."""

    BEFORE_SIGTERM = "before-sigterm"
    """The pod is a victim and names the cleaner; its containers may still run."""
    AT_THE_END = "at-the-end"
    """The pod is deleted, by any client, and its containers have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPod:
    """A pod as a cleaner sees it."""

    has_finalizer: bool
    """The cleaner's finalizer is on it: its work is not done."""
    names_cleaner: bool = False
    """It names the finalizer in `reprieve.dev/cleaners-before`."""
    is_being_deleted: bool = False
    has_ended: bool = False
    """No container runs any more, or no kubelet will say so."""
    eviction: Eviction | None = None


def decide_turn(pod: CleanedPod) -> CleanerTurn | None:
    """Return whether the cleaner does its work now; `None`: there is nothing to do yet."""
    if not pod.has_finalizer:
        return None
    if pod.is_being_deleted:
        # SIGTERM was sent: it is too late for the other turn.
        return CleanerTurn.AT_THE_END if pod.has_ended else None
    is_notified = pod.eviction is not None and pod.eviction.phase in _NOTIFIED
    return CleanerTurn.BEFORE_SIGTERM if pod.names_cleaner and is_notified else None


def may_add_finalizer(pod: CleanedPod) -> bool:
    """True for a living pod without the cleaner's finalizer, unless the cleaner was asked already.

    Without the exception, it would be asked again and again.
    """
    is_living = not (pod.has_finalizer or pod.is_being_deleted or pod.has_ended)
    return is_living and decide_turn(replace(pod, has_finalizer=True)) is None
