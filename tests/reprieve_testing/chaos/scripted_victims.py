"""Victims with a script: the workload's answer in each phase, and foreign changes of its pod.

All workloads are one HTTP server on every address of this machine, distinguished by their paths.
The server records what they received and answered.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from aiohttp import web

from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import AWAITING_WORKLOAD, Eviction, Phase
from reprieve_policy.lifecycle.transitions import Observation

from . import edges
from .edges import Edge, PodAction, Trigger
from .invariants import VictimExpectation
from .proxy import ProxiedCall
from .records import Hint, WorkloadAnswer, moment

Json = Any
When = Literal["before", "after"]

HELD = "example.com/held"
"""A foreign finalizer: a pod that was deleted by others can still be written to."""

_IMPRECISION = 2
"""Seconds. An operator whose clock was stepped uses the API server's `Date`, in whole seconds:
it may be one second behind.
"""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class KillPoint:
    """A write at which the operator is killed."""

    name: str
    matches: Callable[["ScriptedVictim", ProxiedCall], bool]


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill just before, or just after, a write takes effect."""

    point: KillPoint
    when: When

    def __str__(self) -> str:
        return f"{self.when} {self.point.name}"


@dataclass
class ScriptedVictim:
    """One victim."""

    name: str
    kills: list[Kill] = field(default_factory=list)
    scripted_answer: Json = None
    seconds: int = edges.LONG
    slack_seconds: int = 60
    """For the operator's polls and a busy machine; the time without an operator counts extra."""
    has_hint: bool = True
    hint: str = ""
    """The hint's address, if `WorkloadServer` does not serve this workload."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    has_owner: bool = False
    walltime: int | None = None
    partner: "ScriptedVictim | None" = None
    """A pod of the same gang; this pod's mark reaches it."""
    waits_for_partner: bool = False
    """The workload answers nothing until the mark has reached the partner. Without this, chance
    would decide whether it does.
    """
    trigger_phase: Phase = Phase.REQUESTED
    """The trigger acts once the victim is in this phase."""
    trigger: Trigger = field(default_factory=Trigger)
    acts_before_first_state: bool = False
    """The trigger's action happens as the first state is about to be written; that write is then
    refused.
    """
    uid: str = ""
    phase: Phase = Phase.REQUESTED
    heard_eviction_id: str | None = None
    attempt: int = 0
    """The attempt in the last state that the operator wrote."""
    attempt_heard: int = 0
    marked_at: datetime | None = None
    ended_at: datetime | None = None
    is_over: bool = False

    def as_victim(self, pod: str) -> VictimExpectation:
        """Return the victim's expectations."""
        assert self.marked_at is not None, f"{self.name} was never marked"
        longest = 2 * self.seconds + edges.DEFERRAL + self.slack_seconds + (self.walltime or 0)
        return VictimExpectation(
            uid=self.uid,
            pod=pod,
            marked_at=self.marked_at,
            # A pod whose save takes longer than it has run is not asked.
            has_notice=self.has_hint and not self.trigger.save_takes,
            min_notice=timedelta(seconds=self.seconds - _IMPRECISION),
            max_duration=timedelta(seconds=longest),
            must_be_deleted=self.trigger.is_preemptible
            and self.trigger.action in (None, PodAction.INSIST)
            and not self.trigger.is_held,
            ended_at=self.ended_at,
            may_be_touched=not self.acts_before_first_state,
        )

    @property
    def is_preempted(self) -> bool:
        """True if a scheduler marks it."""
        return (
            self.walltime is not None
            or not self.trigger.is_preemptible
            or self.trigger.save_takes != ""
        )

    @property
    def answer(self) -> Json:
        """The workload's current answer; `None`: no answer."""
        is_early = (
            self.waits_for_partner
            and self.partner is not None
            and self.partner.phase is Phase.REQUESTED
        )
        return None if is_early else self.scripted_answer

    @property
    def is_about_to_be_hinted(self) -> bool:
        """True between the write of an attempt and its hint."""
        return (
            self.phase in AWAITING_WORKLOAD
            and self.attempt > self.attempt_heard
            and not self.is_over
        )

    def observe_state(self, state: Eviction) -> PodAction | None:
        """Record a state that the operator wrote; return the action on the pod that follows it."""
        is_new = state.phase is not self.phase
        self.phase, self.attempt = state.phase, state.attempt
        if state.phase is not self.trigger_phase:
            return None
        self.scripted_answer = self.trigger.scripted_answer or self.scripted_answer
        if self.trigger.forgets and is_new:
            self.heard_eviction_id = None
        if self.partner is not None and self.trigger.partner_saves:
            self.partner.finish_soon()
        return self.trigger.action

    def finish_soon(self) -> None:
        """Let the workload answer that it has saved: the test has seen what it wanted."""
        self.scripted_answer = edges.SAVED
        if self.partner is not None:
            self.partner.finish_soon()


def victim_for_edge(edge: Edge, point: KillPoint, when: When, name: str) -> ScriptedVictim:
    """Return a victim whose life includes an edge and whose operator is killed at a point of it."""
    way, event = edges.PHASE_SETUPS[edge.phase], edges.TRIGGERS[edge.observation]
    kills = [Kill(point, when)]
    if event.after_a_lost_hint:
        kills.insert(
            0, Kill(point_of(Edge(Phase.REQUESTED, Observation.CHECKPOINT_WANTED)), "after")
        )
    if way.before_a_lost_delete and not event.is_held:
        kills.insert(0, Kill(DELETION, "before"))
    return ScriptedVictim(
        name=name,
        kills=kills,
        scripted_answer=way.scripted_answer,
        seconds=edges.seconds_of(edge),
        has_hint=event.has_hint,
        annotations=annotations_of(event),
        has_owner=point in (LEDGER, FINALIZER_REMOVAL) or event.is_held,
        walltime=edges.walltime_of(edge),
        partner=partner_of(name, event) if way.is_in_gang else None,
        waits_for_partner=way.is_in_gang,
        trigger_phase=edge.phase,
        trigger=event,
    )


def annotations_of(event: Trigger) -> dict[str, str]:
    """Return what the pod declares about its saves."""
    if event.saves_on_sigterm:
        return {keys.CHECKPOINT_HINT: "sigterm:"}
    return {keys.ESTIMATED_CHECKPOINT_TIME: event.save_takes} if event.save_takes else {}


def partner_of(name: str, event: Trigger) -> ScriptedVictim:
    """Return the partner of a pod; it stays if the pod's mark is removed."""
    taken_back = Trigger(action=PodAction.UNMARK) if event.action is PodAction.UNMARK else Trigger()
    return ScriptedVictim(f"{name}-partner", scripted_answer=edges.SAVING, trigger=taken_back)


def mixed_victims(prefix: str, count: int) -> list[ScriptedVictim]:
    """Return a usual mixture of victims.

    Some want no notice, some save at once, some need long, some never answer.
    """
    kinds: tuple[Callable[[str], ScriptedVictim], ...] = (
        lambda name: ScriptedVictim(name, has_hint=False),
        lambda name: ScriptedVictim(name, scripted_answer=edges.SAVED),
        lambda name: ScriptedVictim(name, scripted_answer=edges.SAVING),
        lambda name: ScriptedVictim(name, seconds=edges.SHORT),
    )
    return [kinds[index % len(kinds)](f"{prefix}-{index}") for index in range(count)]


def lost_at(edge: Edge, name: str) -> ScriptedVictim:
    """Return a victim whose object disappears as soon as its phase is written.

    Its operator is killed before it can see that.
    """
    in_phase = KillPoint(
        str(edge),
        lambda _, call: (state := state_in(call)) is not None and state.phase is edge.phase,
    )
    return replace(victim_for_edge(edge, in_phase, "after", name), waits_for_partner=True)


def unseen_at(edge: Edge, when: When, name: str) -> ScriptedVictim:
    """Return a pod that stops being a victim as its first state is written.

    Its operator is killed before it can see that.
    """
    first = KillPoint(
        str(edge),
        lambda victim, call: state_in(call) is not None and victim.phase is Phase.REQUESTED,
    )
    return replace(victim_for_edge(edge, first, when, name), acts_before_first_state=True)


def point_of(edge: Edge) -> KillPoint:
    """Return the write that performs an edge."""
    lands = edges.written_state(edge)

    def performs(victim: ScriptedVictim, call: ProxiedCall) -> bool:
        state = state_in(call)
        if state is None or victim.phase is not edge.phase:
            return False
        return state.phase is lands.phase and lands.outcome in (None, state.outcome)

    return KillPoint(str(edge), performs)


DELETION = KillPoint("the DELETE, or the eviction", lambda _, call: is_deletion(call))
FINALIZER_REMOVAL = KillPoint(
    "the end of our hold",
    lambda victim, call: victim.phase is Phase.TERMINATING and _removes_finalizer(call),
)
LEDGER = KillPoint("the ledger", lambda _, call: call.method == "PATCH" and "/jobs/" in call.path)


def is_deletion(call: ProxiedCall) -> bool:
    """True for a DELETE, and for an eviction through the Eviction API."""
    return call.method == "DELETE" or (call.method == "POST" and call.path.endswith("/eviction"))


def state_in(call: ProxiedCall) -> Eviction | None:
    """Return the state that a call writes, or `None`."""
    if call.method != "PATCH" or "/pods/" not in call.path:
        return None
    text = (call.body["metadata"].get("annotations") or {}).get(keys.EVICTION)
    return None if text is None else eviction.parse(text)


def _removes_finalizer(call: ProxiedCall) -> bool:
    return (
        call.method == "PATCH" and "finalizers" in call.body["metadata"] and state_in(call) is None
    )


class WorkloadServer:
    """The HTTP server of all scripted workloads."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []
        self.answers: list[WorkloadAnswer] = []
        self.cancelled: list[str] = []
        """The ids of cancelled requests."""
        self.victims: dict[str, ScriptedVictim] = {}
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        return int(self._runner.addresses[0][1])

    def hint(self, name: str) -> str:
        """Return the annotation of a pod of this name."""
        return f"http://:{self.port}/{name}"

    async def is_cancelled(self, victim: ScriptedVictim) -> bool:
        """True if a workload was notified that its pod stays after all."""
        return victim.heard_eviction_id in self.cancelled

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        victim = self.victims[request.path.removeprefix("/")]
        if request.method == "POST":
            return self._record_hint(victim, await request.json(), request)
        if request.method == "DELETE":
            self.cancelled.append((await request.json())["id"])
            return web.Response(status=204)
        if victim.heard_eviction_id is None:
            return web.json_response({"state": "idle"})
        return web.Response(status=503) if victim.answer is None else self._record_answer(victim)

    def _record_hint(
        self, victim: ScriptedVictim, document: Json, request: web.BaseRequest
    ) -> web.StreamResponse:
        victim.heard_eviction_id, victim.attempt_heard = document["id"], document["attempt"]
        self.hints.append(
            Hint(
                uid=victim.uid,
                eviction_id=document["id"],
                attempt=document["attempt"],
                at=utc_now(),
                deadline=moment(document["deadline"]),
            )
        )
        if victim.answer is not None:
            return self._record_answer(victim)
        if request.transport is not None:
            # The workload has received the hint, and ends before it can answer.
            request.transport.abort()
        return web.Response(status=500)

    def _record_answer(self, victim: ScriptedVictim) -> web.Response:
        self.answers.append(
            WorkloadAnswer(uid=victim.uid, at=utc_now(), state=victim.scripted_answer["state"])
        )
        return web.json_response({"id": victim.heard_eviction_id, **victim.scripted_answer})
