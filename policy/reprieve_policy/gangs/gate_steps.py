"""What the gang gate does with one gang next, by what its pods show.

It stands in for Permit of document 004. A stock scheduler binds each pod as soon as that has room,
so the gang's pods are kept from it until all that the gang needs have room (`gate_queue`). What was
released and is not placed in time is held back again. A removed gate cannot be put back on a pod,
so the pods are replaced: their controller makes others, which get the gate at creation.

All of it follows from labels and annotations of the pods: an operator that was killed in the middle
of a release, or of holding a gang back, goes on with it. If it was killed after it had deleted the
pods without a node, and before it marked those on nodes, the new pods are released to these once
more: a gang that runs and has lost pods looks the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property

from reprieve_policy.config.settings import PolicySettings

from .gate import MIN_GANG_SIZE

_NEVER = datetime.max.replace(tzinfo=UTC)


class GateReleaseReason(StrEnum):
    """Why pods are released."""

    COMPLETE = "complete"
    """As many members exist as the gang needs, and they have room."""
    TIMED_OUT = "timed-out"
    """Only where the room is not known."""
    NOT_NEEDED = "not-needed"
    """There is no gang, or the gate is switched off."""


class GateFailureReason(StrEnum):
    """Why a gang did not start in time."""

    INCOMPLETE = "incomplete"
    """Fewer members exist than the gang needs."""
    NOT_PLACED = "not-placed"
    """It was released, and the scheduler did not place all that it needs."""


class GateStep(StrEnum):
    """What is done with a gang now."""

    WAIT = "wait"
    """Not enough members exist, or those that were released are being placed."""
    QUEUE = "queue"
    """Enough members exist: it is released once it has room, and it is its turn."""
    RELEASE = "release"
    """Its gates are removed."""
    STARTED = "started"
    """All that it needs are placed: their gates and labels are removed."""
    INCOMPLETE = "incomplete"
    """Not enough members exist after the timeout: it keeps waiting, and that is reported."""
    HOLD_BACK = "hold-back"
    """Its released pods are replaced: they were not placed in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMember:
    """A living pod of a gang that has the gate's label."""

    uid: str
    created_at: datetime
    min_available: int | None = None
    is_gated: bool = True
    has_other_gates: bool = False
    """Other controllers hold it, too."""
    released_at: datetime | None = None
    """When its gate was removed, of a pod whose gang is not placed yet."""
    is_bound: bool = False
    is_leaving: bool = False
    """It is marked or evicted: it does not count any more."""
    is_nominated: bool = False
    """Victims are leaving for it."""


@dataclass(frozen=True, kw_only=True)
class GatedGang:
    """A gang with members that have the gate's label."""

    members: Sequence[GateMember]
    others: int = 0
    """How many members live without the label: those of a gang that has started, mostly."""
    others_bound: int = 0
    """How many of these are on a node."""
    has_run: bool = False
    """All that it needs were on nodes at one time, as far as this operator has seen."""
    group_minimum: int | None = None
    """`minMember` of its PodGroup; counts where its pods state no minimum."""
    timeout_seconds: int
    """How long it may take to become complete, and then to be placed."""

    @cached_property
    def minimum(self) -> int:
        """How many members it needs; 0: it does not wait.

        If the members state several minimums, the lowest counts, so that no pod waits for more than
        it stated.
        """
        stated = [pod.min_available or self.group_minimum or 0 for pod in self.members]
        return min(stated, default=0)

    @cached_property
    def gated(self) -> Sequence[GateMember]:
        """The members that the gate holds, the oldest first."""
        gated = [pod for pod in self.members if pod.is_gated and not pod.is_leaving]
        return sorted(gated, key=lambda pod: (pod.created_at, pod.uid))

    @cached_property
    def released(self) -> Sequence[GateMember]:
        """The members without a gate that stay."""
        return [pod for pod in self.members if not pod.is_gated and not pod.is_leaving]

    @property
    def ungated(self) -> Sequence[GateMember]:
        """The members without a gate, whether they stay or not."""
        return [pod for pod in self.members if not pod.is_gated]

    @property
    def count(self) -> int:
        """How many members count towards the minimum."""
        return len(self.gated) + len(self.released) + self.others

    @property
    def bound(self) -> int:
        """How many members are on a node."""
        return self.others_bound + sum(pod.is_bound for pod in self.released)

    @property
    def has_lost_pods(self) -> bool:
        """True if it seems to have run: at least half of what it needs does.

        Without the bound, one pod that no gate held would let the rest of a new gang go.
        """
        return 0 < self.minimum <= 2 * self.others_bound

    @property
    def goes_on(self) -> bool:
        """True if it has run, and at least half of what it needs still does."""
        return self.has_run and self.minimum <= 2 * self.bound

    @property
    def needed(self) -> Sequence[GateMember]:
        """The gated members to release: as many as the gang lacks, the oldest first.

        The others follow, each once it has room, after the gang has started. Without this, they
        would take the room of the next gang.
        """
        return self.gated[: max(0, self.minimum - len(self.released) - self.others)]

    def waits_until(self) -> datetime:
        """Return when a gang that is not complete counts as failed.

        Not while a member leaves: it may take its time, and its controller replaces it then.
        Without this, a gang that is held back would count as failed a second time.
        """
        if any(pod.is_leaving for pod in self.members):
            return _NEVER
        oldest = min(pod.created_at for pod in self.members)
        return oldest + timedelta(seconds=self.timeout_seconds)

    def placed_until(self, ceiling_seconds: int) -> datetime | None:
        """Return until when the released members must be placed; `None`: none waits for a node.

        Members on a node do not count: a gang whose pods all run is never held back. Victims that
        leave for a member get their notice first, and that ends at the ceiling.
        """
        unbound = [pod for pod in self.released if not pod.is_bound]
        if not unbound:
            return None
        # A user may remove the time from a pod. Without a time, its gang would keep its room.
        since = min(pod.released_at or pod.created_at for pod in unbound)
        return since + timedelta(seconds=self.seconds_to_place(ceiling_seconds))

    def seconds_to_place(self, ceiling_seconds: int) -> int:
        """Return how long placing the released members may take."""
        unbound = [pod for pod in self.released if not pod.is_bound]
        notice = ceiling_seconds if any(pod.is_nominated for pod in unbound) else 0
        return self.timeout_seconds + notice


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What is done with a gang now, and with which of its pods."""

    step: GateStep
    pods: Sequence[GateMember] = ()
    """Those whose gate is removed, or those that are replaced."""
    reason: GateReleaseReason | None = None
    """Of a release."""
    surplus: Sequence[GateMember] = ()
    """Members of a gang that runs which it does not need: each is released once it has room."""
    done: Sequence[GateMember] = ()
    """Members of a gang that runs whose label is removed."""


_WAIT = GateDecision(GateStep.WAIT)


def decide_step(
    gang: GatedGang, settings: PolicySettings, now: datetime, *, is_room_known: bool = True
) -> GateDecision:
    """Return what is done with a gang now.

    Where the room is not known, a gang is released once it is complete, or at its timeout.
    """
    if not settings.gang_gate or gang.minimum < MIN_GANG_SIZE:
        reason = GateReleaseReason.NOT_NEEDED
        return GateDecision(GateStep.STARTED, gang.gated, reason, done=gang.ungated)
    has_started = gang.bound >= gang.minimum or (gang.has_lost_pods and not gang.released)
    is_complete = gang.count >= gang.minimum
    if is_complete and (has_started or not is_room_known):
        # A gang that lost a pod since it started is not held a second time: the rest of it runs.
        return _decide_started(gang, settings, now, is_room_known=is_room_known)
    if gang.released and is_room_known:
        return _decide_released(gang, settings, now)
    if is_complete:
        # A pod that others hold as well would keep its room, and not take it. Where enough members
        # exist that the gate does not hold, it waits until the first of them is on a node.
        is_free = not any(pod.has_other_gates for pod in gang.needed)
        return GateDecision(GateStep.QUEUE, gang.needed) if gang.needed and is_free else _WAIT
    return _WAIT if now < gang.waits_until() else _decide_overdue(gang, is_room_known=is_room_known)


def _decide_overdue(gang: GatedGang, *, is_room_known: bool) -> GateDecision:
    if is_room_known:
        return GateDecision(GateStep.INCOMPLETE)
    reason = GateReleaseReason.TIMED_OUT
    return GateDecision(GateStep.STARTED, gang.gated, reason, done=gang.ungated)


def _decide_started(
    gang: GatedGang, settings: PolicySettings, now: datetime, *, is_room_known: bool
) -> GateDecision:
    """Return what is done with a gang that runs.

    While more of its pods wait for room or are being placed, the labels stay: they show that it
    runs. What the scheduler does not place in time is left to it.
    """
    pods = gang.needed if is_room_known else gang.gated
    surplus = gang.gated[len(pods) :]
    end = gang.placed_until(settings.ceiling_seconds)
    is_placing = is_room_known and end is not None and now < end
    late = [] if is_placing else [pod for pod in gang.released if not pod.is_bound]
    return GateDecision(
        GateStep.STARTED,
        pods,
        GateReleaseReason.COMPLETE if pods else None,
        surplus,
        late if surplus or is_placing else gang.ungated,
    )


def _decide_released(gang: GatedGang, settings: PolicySettings, now: datetime) -> GateDecision:
    end = gang.placed_until(settings.ceiling_seconds)
    if end is not None and now >= end:
        if gang.goes_on:
            # It lost a pod while the label was still on the others, because more of its pods wait
            # for room. Those that run do not go for a replacement that is not placed.
            late = [pod for pod in gang.released if not pod.is_bound]
            return GateDecision(GateStep.STARTED, done=late)
        return GateDecision(GateStep.HOLD_BACK, gang.released)
    # The operator was killed before it had released all, or one of the pods was replaced since.
    if gang.needed:
        return GateDecision(GateStep.RELEASE, gang.needed, GateReleaseReason.COMPLETE)
    return _WAIT
