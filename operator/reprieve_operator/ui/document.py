"""What the page shows, as one JSON document. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_operator.gangs.divergence import DivergingGang
from reprieve_operator.gangs.gate_status import GateStatus
from reprieve_operator.history import History, NamespaceTotals, PastSteps, Step
from reprieve_operator.leader import Term
from reprieve_operator.replacements.bare_pods import PendingReplacement
from reprieve_operator.replacements.job_resumer import SuspendedJob
from reprieve_operator.victims.registry import CurrentVictim
from reprieve_policy.lifecycle.eviction import WITH_DEADLINE, Eviction
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_runtime.client.reflector import Key

from .gangs import GangRow, gang_rows
from .queue import QueueRow, queue_rows

MAX_VICTIMS = 1_000
"""Victims in one document, with the nearest deadlines: a browser asks for it every few seconds."""
_MAX_ENDED = 200
_MAX_ROWS = 500
"""Gangs, and what waits in the queue: the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVictim:
    """A row of the page."""

    namespace: str
    name: str
    uid: str
    phase: str
    requested_at: datetime | None = None
    begun_at: datetime | None = None
    """When the time until `deadline` began."""
    deadline: datetime | None = None
    initiator: str = ""
    reason: str = ""
    cause: str = ""
    outcome: str = ""
    gang: str = ""
    attempt: int = 0
    is_stuck: bool = False
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """What the leader alone knows."""

    victims: Sequence[CurrentVictim]
    queue_age_seconds: float
    gated_pods: int
    gates: Sequence[GateStatus] = ()
    diverging: Sequence[DivergingGang] = ()
    sets: Mapping[str, VictimSetKey] = field(default_factory=dict)
    """The set of each victim that names its preemptor, by uid."""
    preemptors: Mapping[str, Key] = field(default_factory=dict)
    """Namespace and name of preemptors, by uid."""
    replacements: Sequence[PendingReplacement] = ()
    suspended: Sequence[SuspendedJob] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDocument:
    """All of the page. Without `is_leading`, only the leader's name says anything."""

    now: datetime
    is_leading: bool
    identity: str
    leader: str = ""
    since: datetime | None = None
    """Since when the totals count."""
    past_steps: PastSteps = PastSteps.NOT_YET
    steps_since: datetime | None = None
    """The time of the oldest step that is known."""
    victim_count: int = 0
    queue_age_seconds: float = 0.0
    gated_pods: int = 0
    diverging_gangs: int = 0
    victims: Sequence[ShownVictim] = ()
    ended: Sequence[ShownVictim] = ()
    gang_count: int = 0
    gangs: Sequence[GangRow] = ()
    queue_count: int = 0
    queue: Sequence[QueueRow] = ()
    namespaces: Sequence[NamespaceTotals] = ()


def state_of(term: Term) -> LeaderState:
    """Return what the page shows of a term."""
    victims = term.registry.current()
    members = {each.ref.uid: term.victim_sets.find(each.ref.uid) for each in victims}
    return LeaderState(
        victims=victims,
        queue_age_seconds=term.registry.queue_age_seconds(),
        gated_pods=term.gate_controller.count_gated(),
        gates=term.gate_controller.statuses(),
        diverging=term.divergence.diverging(),
        sets={uid: member.key for uid, member in members.items() if member is not None},
        preemptors=term.preemptors.names(),
        replacements=term.bare_pods.pending(),
        suspended=term.job_resumer.suspended,
    )


def build(
    *, identity: str, leader: str, now: datetime, state: LeaderState | None, history: History
) -> PageDocument:
    """Return the document; `state` is `None` where this replica does not lead."""
    if state is None:
        return PageDocument(now=now, is_leading=False, identity=identity, leader=leader)
    shown = sorted((_shown(victim, history) for victim in state.victims), key=_urgency)
    current = {victim.uid for victim in shown}
    gangs = gang_rows(state.gates, state.victims, state.diverging)
    queue = queue_rows(
        victims=state.victims,
        sets=state.sets,
        preemptors=state.preemptors,
        gangs=gangs,
        replacements=state.replacements,
        suspended=state.suspended,
    )
    return PageDocument(
        now=now,
        is_leading=True,
        identity=identity,
        leader=identity,
        since=history.since,
        past_steps=history.past,
        steps_since=history.steps_since(),
        victim_count=len(shown),
        queue_age_seconds=round(state.queue_age_seconds, 1),
        gated_pods=state.gated_pods,
        diverging_gangs=len(state.diverging),
        victims=shown[:MAX_VICTIMS],
        ended=_ended(history, current),
        gang_count=len(gangs),
        gangs=gangs[:_MAX_ROWS],
        queue_count=len(queue),
        queue=queue[:_MAX_ROWS],
        namespaces=history.totals(),
    )


def _shown(victim: CurrentVictim, history: History) -> ShownVictim:
    ref, state = victim.ref, victim.state
    steps = history.steps_of(ref.uid)
    if state is None:
        return ShownVictim(
            namespace=ref.namespace, name=ref.name, uid=ref.uid, phase=victim.phase, steps=steps
        )
    has_deadline = state.phase in WITH_DEADLINE
    return ShownVictim(
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        phase=victim.phase,
        requested_at=state.requested_at,
        begun_at=_begun_at(state) if has_deadline else None,
        deadline=state.deadline if has_deadline else None,
        initiator=state.initiator,
        reason=state.reason,
        cause=state.cause or "",
        outcome=state.outcome or "",
        gang=state.gang,
        attempt=state.attempt,
        is_stuck=victim.is_stuck,
        steps=steps,
    )


def _begun_at(state: Eviction) -> datetime:
    return state.hinted_at or state.requested_at


def _ended(history: History, current: set[str]) -> list[ShownVictim]:
    """Return pods that are no longer victims, by their last step."""
    ended = []
    for known in history.newest_first():
        if known.uid not in current:
            steps = tuple(known.steps)
            ended.append(
                ShownVictim(
                    namespace=known.namespace,
                    name=known.name,
                    uid=known.uid,
                    phase="ended",
                    outcome=steps[-1].reason,
                    requested_at=steps[0].at,
                    steps=steps,
                )
            )
        if len(ended) == _MAX_ENDED:
            break
    return ended


def _urgency(victim: ShownVictim) -> tuple[bool, float, str, str]:
    deadline = victim.deadline
    seconds = 0.0 if deadline is None else deadline.timestamp()
    return deadline is None, seconds, victim.namespace, victim.name
