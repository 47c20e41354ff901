"""What the gang gate waits for with each gang, for the page `/ui`. No I/O, no decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.gate_steps import GateStep

from .gate_turns import GangKey, WatchedGang


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatus:
    """A gang that the gate holds, or that is being placed."""

    namespace: str
    name: str
    """As `disruption.identity_of` names it."""
    step: GateStep
    minimum: int
    count: int
    """How many of its pods exist."""
    bound: int
    """How many of its pods are on a node."""
    gated: int
    """How many of its pods the gate holds."""
    priority: int
    has_other_gates: bool
    """Other controllers hold some of its pods, too."""
    turn: int = 0
    """Its place among the gangs that wait for room, from 1 on; 0: it does not wait for room."""
    until: datetime | None = None
    """When it counts as failed; `None`: no time is set."""
    retry_at: datetime | None = None
    """It failed, and is not released before this time."""


def status_of(
    one: WatchedGang,
    turns: Mapping[GangKey, int],
    retry_at: Mapping[GangKey, datetime],
    ceiling_seconds: int,
) -> GateStatus:
    """Return the status of a gang; `turns` has the places of the gangs that wait for room."""
    gang = one.gang
    return GateStatus(
        namespace=one.key[0],
        name=disruption.identity_of(one.pods[0].gang) if one.pods[0].gang else "",
        step=one.decision.step,
        minimum=gang.minimum,
        count=gang.count,
        bound=gang.bound,
        gated=len(gang.gated),
        priority=max(pod.preemptor.demand.priority for pod in one.pods),
        has_other_gates=any(pod.has_other_gates for pod in gang.needed),
        turn=turns.get(one.key, 0),
        until=_until(one, ceiling_seconds),
        retry_at=retry_at.get(one.key),
    )


def _until(one: WatchedGang, ceiling_seconds: int) -> datetime | None:
    gang = one.gang
    if gang.released:
        return gang.placed_until(ceiling_seconds)
    # While a pod of it leaves, no time is set.
    is_waiting = one.decision.step is GateStep.WAIT and gang.count < gang.minimum
    has_end = is_waiting and not any(pod.is_leaving for pod in gang.members)
    return gang.waits_until() if has_end else None
