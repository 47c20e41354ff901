"""Every edge of `transitions.TABLE` as something that a test can bring about.

For each edge: how a victim gets into its phase, and what happens then. Derived from the table: it
is an error of this module if an edge has neither a setup nor a reason in `NO_WRITE`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from reprieve_policy.lifecycle import transitions
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_policy.lifecycle.transitions import Observation

Json = Any

LONG, SHORT, DEFERRAL = 120, 4, 2
"""Seconds that a workload requests: never used up, used up, and on top."""
POSTPONED = 30
"""Seconds that are used up after the acknowledgement was written, which a burst puts off."""
FORGETFUL = 15
"""Seconds that are used up while the workload is polled twice."""
WALLTIME = 45
"""Seconds from its start to a pod's deadline: it may not be marked at once."""

SAVING: Json = {"state": "saving", "progress": 0.5}
SAVED: Json = {"state": "saved", "step": 7, "path": "/data/7"}
CANNOT: Json = {"state": "cannot", "message": "in the middle of something"}
DEFER: Json = {"state": "defer", "deferSeconds": DEFERRAL}


class Edge(NamedTuple):
    """One entry of the table."""

    phase: Phase
    observation: Observation

    def __str__(self) -> str:
        return f"{self.phase} x {self.observation.name.lower().replace('_', ' ')}"


class PodAction(Enum):
    """A foreign change of a pod."""

    INSIST = auto()
    UNMARK = auto()
    DELETE = auto()
    END = auto()
    VANISH = auto()
    """Its object disappears at once, whatever finalizers it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSetup:
    """How a victim gets into a phase and stays there."""

    scripted_answer: Json = None
    """`None`: the workload receives the request and does not answer."""
    seconds: int = LONG
    walltime: int | None = None
    """With a walltime, a scheduler marks the pod, and the mark may be refused."""
    is_in_gang: bool = False
    """Another pod belongs to its gang, and saves for long."""
    before_a_lost_delete: bool = False
    """The operator is killed before its DELETE, so that the pod still exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """How an observation is brought about once the victim is in the phase."""

    scripted_answer: Json = None
    """`None`: as before."""
    action: PodAction | None = None
    seconds: int | None = None
    walltime: int | None = None
    is_preemptible: bool = True
    """If False, a scheduler marks it."""
    has_hint: bool = True
    saves_on_sigterm: bool = False
    """It gets no request; its DELETE gives it the time to save."""
    save_takes: str = ""
    """How long a save takes, if it is known; a scheduler marks the pod then."""
    after_a_lost_hint: bool = False
    forgets: bool = False
    """Its container restarts and knows of no request."""
    least_seconds: int = 0
    partner_saves: bool = False
    is_held: bool = False
    """An eviction marked it, and a budget holds it until the ceiling."""


PHASE_SETUPS: Mapping[Phase, PhaseSetup] = {
    Phase.REQUESTED: PhaseSetup(),
    Phase.REPRIEVED: PhaseSetup(walltime=LONG),
    Phase.HINTED: PhaseSetup(),
    Phase.CHECKPOINTING: PhaseSetup(scripted_answer=SAVING),
    Phase.EXTENDED: PhaseSetup(scripted_answer=SAVING, seconds=SHORT),
    Phase.DEFERRED: PhaseSetup(scripted_answer=DEFER),
    Phase.SETTLED: PhaseSetup(scripted_answer=CANNOT, is_in_gang=True),
    Phase.SAVED: PhaseSetup(scripted_answer=SAVED, is_in_gang=True),
    Phase.TERMINATING: PhaseSetup(scripted_answer=SAVED, before_a_lost_delete=True),
}

TRIGGERS: Mapping[Observation, Trigger] = {
    Observation.PROTECTED: Trigger(is_preemptible=False),
    Observation.PROTECTED_FOR_NOW: Trigger(walltime=LONG),
    Observation.PROTECTION_OVER: Trigger(walltime=WALLTIME),
    Observation.REQUESTED_AGAIN: Trigger(action=PodAction.INSIST),
    Observation.CHECKPOINT_WANTED: Trigger(),
    Observation.CHECKPOINT_UNWANTED: Trigger(has_hint=False),
    Observation.CHECKPOINT_LOSES_MORE: Trigger(save_takes="1h"),
    Observation.CHECKPOINT_ON_SIGTERM: Trigger(has_hint=False, saves_on_sigterm=True),
    Observation.HINT_LOST: Trigger(after_a_lost_hint=True),
    Observation.REQUEST_FORGOTTEN: Trigger(forgets=True, least_seconds=FORGETFUL),
    Observation.ANSWERED: Trigger(scripted_answer=SAVING),
    Observation.SAVED: Trigger(scripted_answer=SAVED),
    Observation.DEFERRED: Trigger(scripted_answer=DEFER),
    Observation.CANNOT: Trigger(scripted_answer=CANNOT),
    Observation.DEADLINE_UNANSWERED: Trigger(seconds=SHORT),
    Observation.DEADLINE_ANSWERED: Trigger(seconds=POSTPONED),
    Observation.RELEASED: Trigger(partner_saves=True),
    Observation.MARK_REMOVED: Trigger(action=PodAction.UNMARK),
    Observation.DELETED_BY_OTHERS: Trigger(action=PodAction.DELETE),
    Observation.CONTAINERS_ENDED: Trigger(action=PodAction.END),
    Observation.OBJECT_GONE: Trigger(action=PodAction.VANISH),
    Observation.HELD_BY_BUDGET: Trigger(is_held=True, seconds=SHORT),
}

PASSED: Mapping[Phase, Observation] = {
    Phase.SAVED: Observation.RELEASED,
    Phase.SETTLED: Observation.RELEASED,
    Phase.REQUESTED: Observation.CHECKPOINT_WANTED,
}
"""Phases that one decision passes through where it waits for no other pod: no write stops there."""

_NO_OBJECT = (
    "nothing is written, so no write can be cut in two: the operator changes only its own memory, "
    "an Event and counters, which a kill may lose at any time. A successor keeps only pods that "
    "exist, and counts a gang's pods anew. What the replacement of an ended pod needs was stored "
    "before: on the owner, or as a bare pod's record"
)
_KILLED_ALL_THE_SAME = "; killed nevertheless, with the object gone before the operator can see it"
_LOST_PHASES = (
    Phase.REPRIEVED,
    Phase.HINTED,
    Phase.CHECKPOINTING,
    Phase.EXTENDED,
    Phase.DEFERRED,
    Phase.SETTLED,
    Phase.SAVED,
)
_AS_OUR_HOLD_ENDS = (
    Edge(Phase.TERMINATING, Observation.OBJECT_GONE),
    Edge(Phase.GONE, Observation.REPLACED),
)
"""Just after our finalizer is removed from a pod with an owner: the pod disappears unseen."""
_KILLED_AS_OUR_HOLD_ENDS = "; a kill just after our finalizer is removed is a kill at it"
_KILLED_AS_IT_TAKES_IT_UP = (
    "; killed nevertheless, while the operator still counts it as a victim and is about to write"
)
NO_WRITE: Mapping[Edge, str] = {
    **{
        Edge(phase, Observation.OBJECT_GONE): _NO_OBJECT + _KILLED_ALL_THE_SAME
        for phase in _LOST_PHASES
    },
    Edge(
        Phase.REQUESTED, Observation.OBJECT_GONE
    ): f"Reprieve never wrote to it; {_NO_OBJECT}{_KILLED_AS_IT_TAKES_IT_UP}",
    Edge(Phase.TERMINATING, Observation.OBJECT_GONE): _NO_OBJECT + _KILLED_AS_OUR_HOLD_ENDS,
    Edge(Phase.GONE, Observation.REPLACED): (
        "performed in the same step as the edge that led to gone: "
        f"{_NO_OBJECT}{_KILLED_AS_OUR_HOLD_ENDS}"
    ),
    Edge(Phase.REQUESTED, Observation.MARK_REMOVED): (
        "a pod that lost its mark before its first state was written is no victim: every operator, "
        "before a kill or after it, finds neither a mark nor a state, and leaves it. Only a member "
        "of a gang has something written, and that at most once: its first state is its last, and "
        "without it a successor does not evict the pod either, because the gang was cancelled"
        + _KILLED_AS_IT_TAKES_IT_UP
    ),
}
"""The edges at which no write can be cut in two, with the reason. Final phases have no edges."""

AT_THE_CEILING = Edge(Phase.TERMINATING, Observation.HELD_BY_BUDGET)
"""All victims share the ceiling, which is longer than their own times: a test of its own covers
this edge.
"""


NEEDS_A_SCHEDULER = tuple(
    Edge(phase, Observation.NOT_NEEDED)
    for phase, moves in transitions.TABLE.items()
    if Observation.NOT_NEEDED in moves
)
"""The write of these edges is that of a removed mark, at which operators are killed; only its
outcome differs. No scheduler nominates a pod here.
"""


NEEDS_A_CLEANER = tuple(
    Edge(phase, Observation.CLEANERS_DONE)
    for phase, moves in transitions.TABLE.items()
    if Observation.CLEANERS_DONE in moves
)
"""The write of these edges is that of the one that follows in the same decision, `RELEASED`, at
which operators are killed. No cleaner runs here; `cluster/operator/test_finalizer.py` kills an
operator that waits for one.
"""


class WrittenState(NamedTuple):
    """The state that the write of an edge contains.

    The write also performs the edges that follow in the same decision. `None`: the outcome is
    unchanged.
    """

    phase: Phase
    outcome: CheckpointOutcome | None


def all_edges() -> Iterator[Edge]:
    """Yield each entry of the table."""
    for phase, moves in transitions.TABLE.items():
        for observation in moves:
            yield Edge(phase, observation)


def written_edges() -> list[Edge]:
    """Return the edges that begin a write: all but those in `NO_WRITE` and the one at the
    ceiling.
    """
    left_out = {*NO_WRITE, AT_THE_CEILING, *NEEDS_A_SCHEDULER, *NEEDS_A_CLEANER}
    return [edge for edge in all_edges() if edge not in left_out]


def lost_edges() -> list[Edge]:
    """Return the edges where an object disappears, and the operator is killed before it sees
    that.
    """
    return [Edge(phase, Observation.OBJECT_GONE) for phase in _LOST_PHASES]


def unseen_edges() -> list[Edge]:
    """Return the edges where a pod stops being a victim before Reprieve writes anything to it."""
    return [
        Edge(Phase.REQUESTED, Observation.MARK_REMOVED),
        Edge(Phase.REQUESTED, Observation.OBJECT_GONE),
    ]


def left_edges() -> list[Edge]:
    """Return the edges without a kill: none."""
    tried = {*written_edges(), AT_THE_CEILING, *lost_edges(), *unseen_edges(), *_AS_OUR_HOLD_ENDS}
    left_out = {*NEEDS_A_SCHEDULER, *NEEDS_A_CLEANER}
    return [edge for edge in all_edges() if edge not in {*tried, *left_out}]


def ending_edges() -> list[Edge]:
    """Return the edges that differ between deletion and eviction of the victim.

    All others come before the operator ends the victim, or follow a deletion by another client.
    """
    return [
        edge
        for edge in written_edges()
        if Phase.TERMINATING in (edge.phase, written_state(edge).phase)
        and edge.observation is not Observation.DELETED_BY_OTHERS
    ]


def edges_in_one_write(edge: Edge) -> list[Edge]:
    """Return the edges that one write performs with this one, itself first."""
    found = [edge]
    phase = transitions.TABLE[edge.phase][edge.observation].to
    while phase in PASSED:
        found.append(Edge(phase, PASSED[phase]))
        phase = transitions.TABLE[phase][PASSED[phase]].to
    return found


def written_state(edge: Edge) -> WrittenState:
    """Return the state that the write contains."""
    moves = [transitions.TABLE[each.phase][each.observation] for each in edges_in_one_write(edge)]
    outcomes = [move.outcome for move in moves if move.outcome is not None]
    return WrittenState(moves[-1].to, outcomes[-1] if outcomes else None)


def walltime_of(edge: Edge) -> int | None:
    """Return the pod's walltime, or `None`."""
    return TRIGGERS[edge.observation].walltime or PHASE_SETUPS[edge.phase].walltime


def seconds_of(edge: Edge) -> int:
    """Return the seconds that the victim requests.

    The shorter time of its setup and its trigger, and at least what the trigger needs.
    """
    event = TRIGGERS[edge.observation]
    return max(event.least_seconds, min(PHASE_SETUPS[edge.phase].seconds, event.seconds or LONG))
