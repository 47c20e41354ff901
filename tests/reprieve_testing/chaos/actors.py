"""Victims that follow a script: what each workload says in which phase, and what somebody else does to its pod.

All workloads are one HTTP server on every address of this machine, told apart by their paths. What they heard and said
is written down.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from aiohttp import web

from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import WAITING, Eviction, Phase
from reprieve_policy.lifecycle.transitions import Observation

from . import edges
from .edges import Act, Edge, Event
from .invariants import Victim
from .proxy import Call
from .records import Hint, Said, moment

Json = Any
When = Literal["before", "after"]

HELD = "example.com/held"
"""A finalizer of somebody else's: what was deleted by others can still be written to."""

_IMPRECISION = 2
"""Seconds. An operator whose clock was stepped goes by the API server's `Date`, which has whole ones: it may be one behind."""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Point:
    """A write at which the operator is killed."""

    name: str
    performs: Callable[["Actor", Call], bool]


@dataclass(frozen=True, slots=True)
class Kill:
    """Just before, or just after, a write took effect."""

    point: Point
    when: When

    def __str__(self) -> str:
        return f"{self.when} {self.point.name}"


@dataclass
class Actor:
    """One victim."""

    name: str
    kills: list[Kill] = field(default_factory=list)
    says: Json = None
    seconds: int = edges.LONG
    slack_seconds: int = 25
    """For the operator's polls and a busy machine; the time without an operator counts extra."""
    has_hint: bool = True
    hint: str = ""
    """Where its workload is no actor's."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    has_owner: bool = False
    walltime: int | None = None
    partner: "Actor | None" = None
    """A pod of the same gang, reached when this one is marked."""
    waits_for_partner: bool = False
    """It says nothing before that one was reached: whether it is, is then not chance."""
    scene: Phase = Phase.REQUESTED
    """Once it is there, what follows happens."""
    event: Event = field(default_factory=Event)
    acts_unseen: bool = False
    """What somebody does to its pod is done as its first state is about to be written, which is then refused."""
    uid: str = ""
    phase: Phase = Phase.REQUESTED
    has_heard: str | None = None
    attempt: int = 0
    """What the operator has written down last."""
    attempt_heard: int = 0
    marked_at: datetime | None = None
    ended_at: datetime | None = None
    is_over: bool = False

    def as_victim(self, pod: str) -> Victim:
        """Return what it may expect."""
        assert self.marked_at is not None, f"{self.name} was never marked"
        longest = 2 * self.seconds + edges.DEFERRAL + self.slack_seconds + (self.walltime or 0)
        return Victim(
            uid=self.uid,
            pod=pod,
            marked_at=self.marked_at,
            has_notice=self.has_hint,
            least=timedelta(seconds=self.seconds - _IMPRECISION),
            longest=timedelta(seconds=longest),
            must_be_deleted=self.event.is_preemptible
            and self.event.act in (None, Act.INSIST)
            and not self.event.is_held,
            ended_at=self.ended_at,
            may_be_touched=not self.acts_unseen,
        )

    @property
    def is_preempted(self) -> bool:
        """True where a scheduler marks it."""
        return self.walltime is not None or not self.event.is_preemptible

    @property
    def answer(self) -> Json:
        """What it says by now; `None`: nothing."""
        is_early = self.waits_for_partner and self.partner is not None and self.partner.phase is Phase.REQUESTED
        return None if is_early else self.says

    @property
    def is_about_to_be_told(self) -> bool:
        """True between what is written of an attempt, and the hint."""
        return self.phase in WAITING and self.attempt > self.attempt_heard and not self.is_over

    def enter(self, state: Eviction) -> Act | None:
        """Take in what the operator has written; return what somebody does now."""
        is_new = state.phase is not self.phase
        self.phase, self.attempt = state.phase, state.attempt
        if state.phase is not self.scene:
            return None
        self.says = self.event.says or self.says
        if self.event.forgets and is_new:
            self.has_heard = None
        if self.partner is not None and self.event.partner_saves:
            self.partner.wind_up()
        return self.event.act

    def wind_up(self) -> None:
        """Say that it has saved: what the test wanted of it has happened."""
        self.says = edges.SAVED
        if self.partner is not None:
            self.partner.wind_up()


def actor_of(edge: Edge, point: Point, when: When, name: str) -> Actor:
    """Return the victim whose life goes through an edge, and loses its operator at a point of it."""
    way, event = edges.WAYS[edge.phase], edges.EVENTS[edge.observation]
    kills = [Kill(point, when)]
    if event.after_a_lost_hint:
        kills.insert(0, Kill(point_of(Edge(Phase.REQUESTED, Observation.CHECKPOINT_WANTED)), "after"))
    if way.before_a_lost_delete and not event.is_held:
        kills.insert(0, Kill(DELETION, "before"))
    return Actor(
        name=name,
        kills=kills,
        says=way.says,
        seconds=edges.seconds_of(edge),
        has_hint=event.has_hint,
        has_owner=point in (LEDGER, LETTING_GO) or event.is_held,
        walltime=edges.walltime_of(edge),
        partner=partner_of(name, event) if way.is_in_gang else None,
        scene=edge.phase,
        event=event,
    )


def partner_of(name: str, event: Event) -> Actor:
    """Return who goes with a pod of that name, and stays where that one's mark is taken back."""
    taken_back = Event(act=Act.UNMARK) if event.act is Act.UNMARK else Event()
    return Actor(f"{name}-partner", says=edges.SAVING, event=taken_back)


def crowd(prefix: str, count: int) -> list[Actor]:
    """Return victims as they are met: some want no notice, some save at once, some need long, some never answer."""
    kinds: tuple[Callable[[str], Actor], ...] = (
        lambda name: Actor(name, has_hint=False),
        lambda name: Actor(name, says=edges.SAVED),
        lambda name: Actor(name, says=edges.SAVING),
        lambda name: Actor(name, seconds=edges.SHORT),
    )
    return [kinds[index % len(kinds)](f"{prefix}-{index}") for index in range(count)]


def lost_at(edge: Edge, name: str) -> Actor:
    """Return the victim whose object is gone at once when its phase is written, and its operator before it can see that."""
    in_phase = Point(str(edge), lambda _, call: (state := state_in(call)) is not None and state.phase is edge.phase)
    return replace(actor_of(edge, in_phase, "after", name), waits_for_partner=True)


def unseen_at(edge: Edge, when: When, name: str) -> Actor:
    """Return the victim that is none any more when its first state is written, and its operator before it can see that."""
    first = Point(str(edge), lambda actor, call: state_in(call) is not None and actor.phase is Phase.REQUESTED)
    return replace(actor_of(edge, first, when, name), acts_unseen=True)


def point_of(edge: Edge) -> Point:
    """Return the write that performs an edge."""
    lands = edges.landing(edge)

    def performs(actor: Actor, call: Call) -> bool:
        state = state_in(call)
        if state is None or actor.phase is not edge.phase:
            return False
        return state.phase is lands.phase and lands.outcome in (None, state.outcome)

    return Point(str(edge), performs)


DELETION = Point("the DELETE, or the eviction", lambda _, call: is_deletion(call))
LETTING_GO = Point("the end of our hold", lambda actor, call: actor.phase is Phase.TERMINATING and _lets_go(call))
LEDGER = Point("the ledger", lambda _, call: call.method == "PATCH" and "/jobs/" in call.path)


def is_deletion(call: Call) -> bool:
    """True for a DELETE, and for an eviction through the Eviction API."""
    return call.method == "DELETE" or (call.method == "POST" and call.path.endswith("/eviction"))


def state_in(call: Call) -> Eviction | None:
    """Return the state that a call writes."""
    if call.method != "PATCH" or "/pods/" not in call.path:
        return None
    text = (call.body["metadata"].get("annotations") or {}).get(keys.EVICTION)
    return None if text is None else eviction.parse(text)


def _lets_go(call: Call) -> bool:
    return call.method == "PATCH" and "finalizers" in call.body["metadata"] and state_in(call) is None


class Workloads:
    """The server behind all actors' hints."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []
        self.said: list[Said] = []
        self.called_off: list[str] = []
        """Ids of requests that were taken back."""
        self.actors: dict[str, Actor] = {}
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def hint(self, name: str) -> str:
        """Return the annotation of a pod of this name."""
        return f"http://:{self._runner.addresses[0][1]}/{name}"

    async def is_called_off(self, actor: Actor) -> bool:
        """True where an actor was told that it may stay after all."""
        return actor.has_heard in self.called_off

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        actor = self.actors[request.path.removeprefix("/")]
        if request.method == "POST":
            return self._hear(actor, await request.json(), request)
        if request.method == "DELETE":
            self.called_off.append((await request.json())["id"])
            return web.Response(status=204)
        if actor.has_heard is None:
            return web.json_response({"state": "idle"})
        return web.Response(status=503) if actor.answer is None else self._say(actor)

    def _hear(self, actor: Actor, document: Json, request: web.BaseRequest) -> web.StreamResponse:
        actor.has_heard, actor.attempt_heard = document["id"], document["attempt"]
        self.hints.append(
            Hint(
                uid=actor.uid,
                eviction_id=document["id"],
                attempt=document["attempt"],
                at=utc_now(),
                deadline=moment(document["deadline"]),
            )
        )
        if actor.answer is not None:
            return self._say(actor)
        if request.transport is not None:
            request.transport.abort()  # It has heard, and ends before it can say so.
        return web.Response(status=500)

    def _say(self, actor: Actor) -> web.Response:
        self.said.append(Said(uid=actor.uid, at=utc_now(), state=actor.says["state"]))
        return web.json_response({"id": actor.has_heard, **actor.says})
