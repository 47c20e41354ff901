"""The view of gangs: those that wait to start, those that go as a unit, those whose pods differ.

No I/O.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from reprieve_operator.gangs.divergence import DivergingGang
from reprieve_operator.gangs.gate_status import GateStatus
from reprieve_operator.victims.registry import CurrentVictim
from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.gate_steps import GateStep

_MAX_NAMES = 5
_NONE = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRow:
    """A gang, and what it waits for."""

    namespace: str
    name: str
    phase: str
    waits_for: str
    pods: int
    """How many of its pods exist."""
    minimum: int | None = None
    """How many it needs to start; `None` where it does not wait to start."""
    gated: int = 0
    bound: int | None = None
    """How many of its pods are on a node, of a gang that waits to start."""
    until: datetime | None = None
    is_problem: bool = False


def gang_rows(
    gates: Sequence[GateStatus],
    victims: Iterable[CurrentVictim],
    diverging: Iterable[DivergingGang],
) -> list[GangRow]:
    """Return the gangs: those that wait for room in their turn, then by name."""
    by_turn = sorted(gates, key=lambda gate: (not gate.turn, gate.turn, gate.namespace, gate.name))
    in_turn = [gate for gate in by_turn if gate.turn]
    starting = (_starting(gate, in_turn) for gate in by_turn)
    return [*filter(None, starting), *_leaving(victims), *map(_differing, diverging)]


def names_in(names: Sequence[str]) -> str:
    """Return names as one text; of many, the first."""
    rest = len(names) - _MAX_NAMES
    shown = ", ".join(names[:_MAX_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _starting(gate: GateStatus, in_turn: Sequence[GateStatus]) -> GangRow | None:
    phase, waits_for = _phase_of(gate, in_turn)
    if not phase:
        return None
    return GangRow(
        namespace=gate.namespace,
        name=gate.name,
        phase=phase,
        waits_for=waits_for,
        pods=gate.count,
        minimum=gate.minimum,
        gated=gate.gated,
        bound=gate.bound,
        until=gate.retry_at or gate.until,
        is_problem=gate.step in (GateStep.INCOMPLETE, GateStep.HOLD_BACK),
    )


def _phase_of(gate: GateStatus, in_turn: Sequence[GateStatus]) -> tuple[str, str]:
    """Return the phase of a gang, and what it waits for; empty if it waits for nothing."""
    missing = count_of(max(0, gate.minimum - gate.count), "more pod")
    phases = {
        GateStep.QUEUE: ("waiting for room", _room_for(gate, in_turn)),
        GateStep.INCOMPLETE: ("incomplete", f"{missing}: they did not come in time"),
        GateStep.HOLD_BACK: (
            "held back",
            "its pods to be replaced: they were not placed in time",
        ),
    }
    if gate.step in phases:
        return phases[gate.step]
    if gate.step is GateStep.STARTED:
        return ("running", f"room for {count_of(gate.gated, 'more pod')}") if gate.gated else _NONE
    if gate.count < gate.minimum:
        return "waiting for pods", missing
    if gate.has_other_gates:
        return "waiting for other gates", "the other scheduling gates of its pods"
    unplaced = count_of(max(0, gate.minimum - gate.bound), "pod")
    return "being placed", f"the scheduler to place {unplaced}"


def _room_for(gate: GateStatus, in_turn: Sequence[GateStatus]) -> str:
    if gate.retry_at is not None:
        return "the end of its back-off, since it did not start in time"
    turn = f"room for {count_of(gate.minimum, 'pod')}; turn {gate.turn} of {len(in_turn)}"
    if gate.turn <= 1:
        return turn
    before = in_turn[gate.turn - 2]
    return f"{turn}, after {before.namespace}/{before.name}"


def _leaving(victims: Iterable[CurrentVictim]) -> Iterator[GangRow]:
    """Yield the gangs that are evicted as a unit: no pod goes before the last is ready."""
    gangs: dict[tuple[str, str], list[CurrentVictim]] = defaultdict(list)
    for victim in victims:
        if victim.state is not None and victim.state.gang:
            gangs[victim.ref.namespace, victim.state.gang].append(victim)
    for (namespace, name), members in sorted(gangs.items()):
        awaited = [each for each in members if not is_ready(each)]
        names = sorted(each.ref.name for each in awaited)
        yield GangRow(
            namespace=namespace,
            name=name,
            phase="leaving",
            waits_for=f"{names_in(names)} to be ready" if names else "its pods to go",
            pods=len(members),
            until=latest_deadline(awaited),
            is_problem=any(each.is_stuck for each in members),
        )


def _differing(gang: DivergingGang) -> GangRow:
    return GangRow(
        namespace=gang.namespace,
        name=gang.name,
        phase="pods differ",
        waits_for=f"nothing: a pod {gang.text}",
        pods=0,
        is_problem=True,
    )


def is_ready(victim: CurrentVictim) -> bool:
    """True if other victims do not wait for this one."""
    return victim.state is not None and disruption.is_ready_to_delete(victim.state)


def latest_deadline(victims: Iterable[CurrentVictim]) -> datetime | None:
    """Return the last deadline of victims; `None` if none has any."""
    deadlines = (each.state.deadline for each in victims if each.state is not None)
    return max((each for each in deadlines if each is not None), default=None)
