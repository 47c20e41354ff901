"""Whose turn it is: asks `policy` which of the gangs that wait for room are released now.

A decision reads all nodes, so it is made only if room may have become free, a gang has come, or one
was placed; in a thread, and for at most a tenth of the time.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.policies import PolicySource
from reprieve_policy.gangs import gate_queue, gate_rotation
from reprieve_policy.gangs.gate_queue import GangFailure, QueuedGang
from reprieve_policy.gangs.gate_rotation import GateRotation
from reprieve_policy.gangs.gate_steps import GateDecision, GatedGang, GateMember, GateStep
from reprieve_policy.gangs.start_requirements import NO_REQUIREMENTS, StartRequirements
from reprieve_policy.preemption.selection.gangs.room import (
    GangDemand,
    GangRoom,
    ReleasedGang,
    RoomLimits,
)
from reprieve_policy.preemption.selection.snapshot import PodDemand, ScheduledPod

from .gang_counts import CountedGang
from .gate_pods import LabelledPod, uids_of
from .room_watch import RoomKnowledge, RoomWatch

T = TypeVar("T")

POLL_SECONDS = 0.5
"""How often it is looked whether room may have become free, while a gang waits for room."""
_FULL_SECONDS = 30.0
"""How often a decision is made in any case: tolerations and costs change with the time."""
_PAUSE_FACTOR = 9.0
"""The pause after a decision, as a multiple of its CPU time."""
_MAX_PLAN_SECONDS = 2.0
"""For plans with victims, in one decision. Gangs that come too late have their turn in the next."""
_MAX_SECONDS = 3.0
"""For all gangs that wait, in one decision, with these plans."""
_MAX_RELEASED_SECONDS = 3.0
"""To count the gangs that are being placed. If that takes longer, no other is released."""
_MAX_UNGATED = 200
"""Gangs for which the gate keeps no room that one decision looks at: its time grows with the square
of their number. Others have their turn in the next."""
_MAX_UNGATED_SECONDS = 1.0
"""For pods for which the gate keeps no room: their number does not take the time of gangs."""
_MAX_SURPLUS = 8
"""Pods that one gang which has started may ask room for in one decision."""
_FAILURE_KEPT_SECONDS = 3600.0
"""A gang of a name that comes back later than this after its failure counts as a new one."""

GangKey = tuple[str, tuple[str, ...]]
"""The namespace, and what identifies the gang there, or one pod of it that it does not need."""


@dataclass(frozen=True, slots=True)
class WatchedGang:
    """A gang in one pass of the controller, and what is done with it."""

    key: GangKey
    pods: Sequence[LabelledPod]
    counted: CountedGang
    requirements: StartRequirements
    gang: GatedGang
    decision: GateDecision

    @property
    def chosen(self) -> Sequence[LabelledPod]:
        """The pods that the decision concerns."""
        return self.among(self.decision.pods)

    def among(self, members: Sequence[GateMember]) -> Sequence[LabelledPod]:
        """Return the pods of these members."""
        uids = uids_of(members)
        return [pod for pod in self.pods if pod.member.uid in uids]

    @property
    def key_of_pods(self) -> GangKey:
        """A key of the pods that the decision concerns, beside that of the gang."""
        return self.key[0], (*self.key[1], *(pod.uid for pod in self.decision.pods))

    @property
    def unplaced(self) -> Sequence[PodDemand]:
        """What the scheduler still has to place: what the gang needs, or more of one that runs."""
        if not self.gang.released:
            return ()
        uids = {pod.uid for pod in self.gang.released if not pod.is_bound}
        if self.decision.step is GateStep.RELEASE:
            uids |= uids_of(self.decision.pods)
        return [pod.preemptor.demand for pod in self.pods if pod.member.uid in uids]

    @property
    def placed(self) -> Sequence[PodDemand]:
        """What those of its released pods request that are on nodes."""
        uids = {pod.uid for pod in self.gang.released if pod.is_bound}
        return [pod.preemptor.demand for pod in self.pods if pod.member.uid in uids]

    @property
    def surplus(self) -> Mapping[GangKey, "WatchedGang"]:
        """The pods that a gang which runs does not need, the oldest: each asks for its own room."""
        return {
            (self.key[0], (*self.key[1], pod.uid)): replace(
                self,
                requirements=NO_REQUIREMENTS,
                decision=GateDecision(GateStep.QUEUE, (pod,)),
            )
            for pod in self.decision.surplus[:_MAX_SURPLUS]
        }


_Pods = tuple[str, Sequence[PodDemand]]
"""The Namespace of some pods, and the pods."""


@dataclass(frozen=True, slots=True)
class _Unplaced:
    """What the scheduler has to place."""

    gangs: Sequence[ReleasedGang]
    """Of gangs that the gate has released and that have not started."""
    others: Sequence[_Pods]
    """Of gangs that no gate held, and pods that gangs do not need."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision."""

    released: Sequence[WatchedGang] = ()
    """The gangs to release now, in their order."""
    expanded: Sequence[WatchedGang] = ()
    """The same for pods that their gang, which runs, does not need."""
    refused: Sequence[WatchedGang] = ()
    """Those that wait on; none where no decision was due."""


_NO_TURN = Turn()


class _Stopwatch:
    """Measures a time that begins when it is first asked for."""

    def __init__(self) -> None:
        self._began = 0.0

    def has_run(self, seconds: float) -> bool:
        """True if so much time has passed."""
        now = time.monotonic()
        self._began = self._began or now
        return now - self._began >= seconds


def _namespace_of(key: GangKey) -> str:
    return key[0]


def _namespace_of_pods(pods: _Pods) -> str:
    return pods[0]


def _demands_of(pods: _Pods) -> Sequence[PodDemand]:
    return pods[1]


class GateTurns:
    """Decides which gangs are released, and remembers which of them failed."""

    def __init__(self, room: RoomWatch, policy: PolicySource, clock: Clock) -> None:
        self._room, self._policy, self._clock = room, policy, clock
        self._failures: dict[GangKey, GangFailure] = {}
        self._rotation: GateRotation[GangKey] = GateRotation(_namespace_of)
        self._large: set[GangKey] | None = None
        """Gangs that were released with many kinds; `None` before the first decision of a term.

        Then, those count that an earlier operator has released."""
        self._tried: set[GangKey] = set()
        """Gangs that had a turn since something changed."""
        self._decisions = 0
        self._ungated_turns: Counter[str] = Counter()
        """How many gangs of a Namespace were looked at for which the gate keeps no room."""
        self._last: object = None
        self._due_at = self._next_at = float("-inf")

    def failed(self, key: GangKey) -> float:
        """Record that a gang did not start in time; return the seconds of its back-off."""
        now = self._clock.now()
        self._failures[key] = failure = GangFailure.after(self._failures.get(key), now)
        return (failure.retry_at - now).total_seconds()

    def started(self, key: GangKey) -> None:
        """Forget the failures of a gang."""
        self._failures.pop(key, None)

    def order(self, gangs: Sequence[WatchedGang]) -> list[GangKey]:
        """Return the gangs that wait for room, in the order in which they are tried."""
        waiting = [one for one in gangs if one.decision.step is GateStep.QUEUE]
        queued = [_queued(one.key, one) for one in waiting]
        return [each.key for each in gate_queue.in_order(queued, self._failures)]

    def retries(self) -> Mapping[GangKey, datetime]:
        """Return when gangs that failed may be released again, as far as that is to come."""
        now = self._clock.now()
        return {
            key: failure.retry_at
            for key, failure in self._failures.items()
            if failure.retry_at > now
        }

    def decide_soon(self, seconds: float = 0.0) -> None:
        """Make the next decision after these seconds, also if nothing changes."""
        self._due_at = min(self._due_at, self._clock.monotonic() + seconds)

    async def next_turn(self, gangs: Sequence[WatchedGang]) -> Turn:
        """Decide which of the gangs are released now."""
        queue = {one.key: one for one in gangs if one.decision.step is GateStep.QUEUE}
        for one in gangs:
            queue |= one.surplus
        self._forget_old_failures(gangs)
        if not queue:
            self._last = None
            return _NO_TURN
        self._room.want()
        if self._room.knowledge is not RoomKnowledge.KNOWN:
            return _NO_TURN
        present = {one.key for one in gangs}
        self._large = present if self._large is None else self._large & present
        in_flight, unseen = self._in_flight(gangs, self._large), self._unseen(gangs)
        ready = self._ready(queue)
        state = self._state(ready, in_flight, unseen)
        is_same = state == self._last and self._clock.monotonic() < self._due_at
        tried = self._tried if is_same else set()
        is_due = not is_same or not tried.issuperset(ready)
        if not is_due or time.monotonic() < self._next_at:
            return _NO_TURN
        looked_at = self._rotation.next_gangs(list(ready), tried)
        released, gang_room, cpu_seconds = await self._decide(
            {key: ready[key] for key in looked_at}, in_flight, unseen
        )
        self._large = (self._large - set(released)) | gang_room.large
        self._tried = tried.union(self._rotation.record(looked_at, gang_room.without_turn))
        self._last = state
        self._due_at = self._clock.monotonic() + _FULL_SECONDS
        # Processor time passes on the machine's clock, whatever clock the controller has.
        self._next_at = time.monotonic() + _PAUSE_FACTOR * cpu_seconds
        return Turn(
            [queue[key] for key in released if key == queue[key].key],
            [queue[key] for key in released if key != queue[key].key],
            [one for key, one in queue.items() if key not in released and key == one.key],
        )

    def _ready(self, queue: Mapping[GangKey, WatchedGang]) -> Mapping[GangKey, WatchedGang]:
        """Return the gangs that may be released now, in the order in which they are tried."""
        now, failures = self._clock.now(), self._failures
        queued = [
            _queued(key, one)
            for key, one in queue.items()
            if key not in failures or failures[key].retry_at <= now
        ]
        return {each.key: queue[each.key] for each in gate_queue.in_order(queued, failures)}

    def _in_flight(self, gangs: Sequence[WatchedGang], large: Collection[GangKey]) -> _Unplaced:
        store, now = self._room.store, self._clock.monotonic()
        ceiling_seconds = self._policy.current.ceiling_seconds
        labelled = {pod.member.uid for one in gangs for pod in one.pods}
        oldest = self._clock.now() - timedelta(
            seconds=self._policy.current.gang_gate_timeout_seconds
        )
        needed: list[ReleasedGang] = []
        others: list[_Pods] = [*store.unplaced_gangs(labelled, oldest)]
        for one in gangs:
            demands = [demand for demand in one.unplaced if not store.is_on_node(demand.uid)]
            if demands and one.decision.step is GateStep.STARTED:
                others.append((one.key[0], demands))
            elif demands and one.counted.keeps_room(one.gang, ceiling_seconds, now):
                needed.append(
                    ReleasedGang(
                        namespace=one.key[0],
                        pods=demands,
                        placed=one.placed,
                        was_large=one.key in large,
                    )
                )
        return _Unplaced(needed, others)

    def _to_look_at(self, others: Sequence[_Pods]) -> Sequence[_Pods]:
        """Return one of each Namespace, then a second; in each decision, others are first."""
        by_namespace: dict[str, list[_Pods]] = {}
        for other in others:
            by_namespace.setdefault(other[0], []).append(other)
        self._ungated_turns = Counter({name: self._ungated_turns[name] for name in by_namespace})
        rotated = [
            other
            for name in _rotated(sorted(by_namespace), self._decisions)
            for other in _rotated(by_namespace[name], self._ungated_turns[name])
        ]
        return gate_rotation.in_rounds(rotated, _namespace_of_pods)[:_MAX_UNGATED]

    def _record_looked_at(self, others: Sequence[_Pods], number: int) -> None:
        """Record for how many of these there was time.

        If there was none for any, the first had its turn: it had all the time that there is.
        """
        self._ungated_turns.update(map(_namespace_of_pods, others[: max(1, number)]))

    def _unseen(self, gangs: Sequence[WatchedGang]) -> list[ScheduledPod]:
        """Return the pods on nodes that the watch of all pods does not show, or no longer shows."""
        store = self._room.store
        pods = (pod for one in gangs for pod in one.pods if pod.node)
        return [_as_scheduled(pod) for pod in pods if not store.is_on_node(pod.member.uid)]

    def _state(
        self,
        ready: Mapping[GangKey, WatchedGang],
        in_flight: _Unplaced,
        unseen: Sequence[ScheduledPod],
    ) -> object:
        """Return what is equal as long as the last decision holds."""
        waiting = {
            key: {pod.metadata.uid: pod.metadata.resourceVersion for pod in one.chosen}
            for key, one in ready.items()
        }
        unplaced = (*(gang.pods for gang in in_flight.gangs), *map(_demands_of, in_flight.others))
        placing = sorted(demand.uid for demands in unplaced for demand in demands)
        taken = sorted(pod.uid for pod in unseen)
        return waiting, placing, taken, self._room.store.changes, self._policy.current

    async def _decide(
        self,
        queue: Mapping[GangKey, WatchedGang],
        in_flight: _Unplaced,
        unseen: Sequence[ScheduledPod],
    ) -> tuple[Sequence[GangKey], GangRoom[GangKey], float]:
        """Return the gangs to release, the room with them, and the CPU time that it took."""
        self._decisions += 1
        now, failures = self._clock.now(), dict(self._failures)
        room = self._room.store.snapshot(self._policy.current, now, unseen)
        demands = {key: _demand_of(one) for key, one in queue.items()}
        queued = [_queued(key, one) for key, one in queue.items()]
        others = self._to_look_at(in_flight.others)
        # The time of a thread: a clock that a test sets does not pass in one.
        queue_time, released_time, ungated_time = _Stopwatch(), _Stopwatch(), _Stopwatch()
        limits = RoomLimits(
            are_plans_over=lambda: queue_time.has_run(_MAX_PLAN_SECONDS),
            is_over=lambda: queue_time.has_run(_MAX_SECONDS),
            is_released_over=lambda: released_time.has_run(_MAX_RELEASED_SECONDS),
            is_ungated_over=lambda: ungated_time.has_run(_MAX_UNGATED_SECONDS),
        )

        def decide() -> tuple[Sequence[GangKey], GangRoom[GangKey], float]:
            began_at = time.thread_time()
            gang_room = GangRoom(
                room.snapshot,
                room.free_nodes,
                demands,
                in_flight.gangs,
                limits,
                ungated=[demands for _, demands in others],
            )
            released = list(gate_queue.releases(queued, failures, gang_room, now))
            return released, gang_room, time.thread_time() - began_at

        released, gang_room, cpu_seconds = await asyncio.to_thread(decide)
        self._record_looked_at(others, gang_room.ungated_turns)
        return released, gang_room, cpu_seconds

    def _forget_old_failures(self, gangs: Sequence[WatchedGang]) -> None:
        """Forget those of gangs that are gone.

        Not of gangs that wait: without this, a few that are never placed would be first again and
        again, and no other gang would have their room.
        """
        now, present = self._clock.now(), {one.key for one in gangs}
        self._failures = {
            key: failure
            for key, failure in self._failures.items()
            if key in present or (now - failure.retry_at).total_seconds() < _FAILURE_KEPT_SECONDS
        }


def _demand_of(one: WatchedGang) -> GangDemand:
    return GangDemand(
        pods=[pod.preemptor for pod in one.chosen],
        namespace=one.key[0],
        min_resources=one.requirements.min_resources,
    )


def _queued(key: GangKey, one: WatchedGang) -> QueuedGang[GangKey]:
    pods = one.pods if key == one.key else one.chosen
    first = min(pods, key=lambda pod: (pod.member.created_at, pod.member.uid)).member
    return QueuedGang(
        key=key,
        priority=max(pod.preemptor.demand.priority for pod in pods),
        created_at=first.created_at,
        uid=first.uid,
    )


def _as_scheduled(pod: LabelledPod) -> ScheduledPod:
    demand = pod.preemptor.demand
    return ScheduledPod(
        uid=demand.uid,
        node=pod.node,
        priority=demand.priority,
        preemption_priority=demand.priority,
        amounts=demand.amounts,
        ports=demand.ports,
        # No victim: what else it is, the watch of all pods shows soon.
        is_non_preemptible=True,
    )


def _rotated(items: Iterable[T], by: int) -> Iterable[T]:
    """Return all items in the same order, beginning with another one."""
    rotated = deque(items)
    rotated.rotate(-by)
    return rotated
