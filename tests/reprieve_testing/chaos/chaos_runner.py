"""Creates victims, acts on their observed states, and kills the operator at the requested writes.

One kill serves every victim whose write is under way: each of them loses its operator at exactly
that write.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from reprieve_policy import keys
from reprieve_policy.lifecycle import transitions
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.cluster.handle import Program

from . import invariants, records
from .chaos_namespace import BY_A_BUDGET, ChaosNamespace, all_of
from .edges import PodAction
from .invariants import History, Outage
from .proxy import Dropped, ProxiedCall, ProxiedResponse
from .scripted_victims import (
    HELD,
    Kill,
    ScriptedVictim,
    WorkloadServer,
    is_deletion,
    state_in,
    utc_now,
)

Json = Any

_PAUSE_SECONDS = 1.0
"""Each check lists all pods."""
_STANDSTILL_SECONDS = 150.0
"""Longer than a victim waits that lost too many hints."""
_TICK_SECONDS = 0.02
_START_SECONDS = 60.0
_QUIET_SECONDS = 0.4
_TAKING_UP = timedelta(seconds=30)
_ENOUGH = 26
"""Of the operator's concurrent calls: more would not arrive."""
_PATIENCE_SECONDS = 4.0
"""Shorter than the operator's own timeout of a call, so that KILL ends it."""


@dataclass
class ChaosRunner:
    """Acts on the calls that the proxy shows."""

    namespace: ChaosNamespace
    workloads: WorkloadServer
    start: Callable[..., Program]
    audit_log: Path
    victims: dict[str, ScriptedVictim] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    outages: list[Outage] = field(default_factory=list)
    kills: int = 0
    leader: str = ""
    """The identity in the Lease's last write."""

    def __post_init__(self) -> None:
        self._held: list[tuple[ScriptedVictim, Kill]] = []
        self._arrived = asyncio.Event()
        self._killed = asyncio.Event()
        self._leads = asyncio.Event()
        self._arrived_at = 0.0
        self._happened = 0
        self._crashing: asyncio.Task[None] | None = None
        self._operator: Program | None = None
        """The one that is killed next."""
        self._gangs: dict[str, str] = {}

    async def before(self, call: ProxiedCall) -> None:
        """Hold a call that must not take effect."""
        victim = self._victim_of(call)
        kill = self._due_kill(victim, call)
        if victim is None or kill is None:
            return
        if victim.acts_before_first_state:
            await self._perform(victim, victim.trigger.action)
            victim.is_over = True
        if kill.when == "before":
            await self._hold(victim, kill)

    async def after(self, call: ProxiedCall, answer: ProxiedResponse) -> None:
        """Record an effect, run the script, and hold an answer that the operator must not
        receive.
        """
        if "/leases" in call.path and call.is_write and answer.is_success:
            self.leader = call.body["spec"]["holderIdentity"]
            self._leads.set()
        victim = self._victim_of(call)
        if victim is None or answer.is_success is victim.acts_before_first_state:
            return
        self._happened += 1
        kill = self._due_kill(victim, call)
        if answer.is_success:
            await self._run_script(victim, call)
        if kill is not None and kill.when == "after":
            await self._hold(victim, kill)

    async def start_leader(self, **settings: object) -> Program:
        """Start an operator; return once the Lease is written."""
        self._leads.clear()
        program = self.start(**settings)
        await self.wait_leading()
        return program

    async def wait_leading(self) -> None:
        """Return once any operator has written the Lease."""
        self._leads.clear()
        async with asyncio.timeout(_START_SECONDS):
            await self._leads.wait()

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Record an outage: no operator acts within the block, nor until one leads."""
        since = utc_now()
        yield
        await self.wait_leading()
        self.add_outage(since)

    def add_outage(self, since: datetime) -> None:
        """Record an outage since then: until now, and until each victim was taken up again."""
        began = max([since, *(one.until for one in self.outages[-1:])])
        self.outages.append(Outage(began, max(began, utc_now() + _TAKING_UP)))

    @contextlib.asynccontextmanager
    async def crashing(self) -> AsyncIterator[None]:
        """Keep an operator running for the block, between kills."""
        self._operator = await self.start_leader()
        self._crashing = asyncio.create_task(self._crash())
        try:
            yield
        finally:
            self._crashing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._crashing

    async def create_victims(self, victims: Iterable[ScriptedVictim]) -> None:
        """Create the pods of victims and of their partners, instead of the earlier victims."""
        company = list(victims)
        company += [victim.partner for victim in company if victim.partner is not None]
        self.victims = {victim.name: victim for victim in company}
        self._gangs = {
            one.name: victim.name
            for victim in company
            if victim.partner
            for one in (victim, victim.partner)
        }
        self.workloads.victims |= self.victims
        pods = await self.namespace.create_pods(
            [await self._pod(victim) for victim in self.victims.values()]
        )
        for victim in self.victims.values():
            victim.uid = pods[victim.name]["metadata"]["uid"]

    async def mark(self, victims: Iterable[ScriptedVictim] | None = None) -> None:
        """Mark some victims, or all."""
        partners = {id(victim.partner) for victim in self.victims.values()}
        wanted = self.victims.values() if victims is None else list(victims)
        await all_of(self._mark(victim) for victim in wanted if id(victim) not in partners)

    async def wait_over(self, victims: Iterable[ScriptedVictim] | None = None) -> None:
        """Wait until these pods, or all, are gone or need no more attention.

        Raise an error once nothing has happened for a while.
        """
        names = {victim.name for victim in victims} if victims is not None else set(self.victims)
        seen, seen_at = -1, time.monotonic()
        while left := await self._left(names):
            if self._crashing is not None and self._crashing.done():
                await self._crashing
            if self._happened != seen:
                seen, seen_at = self._happened, time.monotonic()
            assert self._operator is None or self._operator.process.poll() is None, (
                f"the operator has ended by itself: {self._describe_operator()}"
            )
            assert time.monotonic() < seen_at + _STANDSTILL_SECONDS, "\n".join(
                ["nothing happens any more:", *left, self._describe_operator()]
            )
            await asyncio.sleep(_PAUSE_SECONDS)

    async def finish(self) -> None:
        """Let the workloads that need long save, and assert that nothing was lost."""
        for victim in self.victims.values():
            if victim.scripted_answer is not None:
                victim.finish_soon()
        await self.wait_over()
        await self.check()

    async def check(self) -> None:
        """Assert that every promise was kept to these victims, and delete their pods."""
        uids, pods = (
            {victim.uid for victim in self.victims.values()},
            {self._pod_of(name) for name in self.victims},
        )
        writes = records.read_writes(self.audit_log, self.namespace.namespace)
        history = History(
            victims=[victim.as_victim(self._pod_of(name)) for name, victim in self.victims.items()],
            writes=[write for write in writes if write.pod in pods],
            hints=[hint for hint in self.workloads.hints if hint.uid in uids],
            answers=[answer for answer in self.workloads.answers if answer.uid in uids],
            outages=self.outages,
        )
        left = await self.namespace.pods()
        broken = [
            *invariants.broken_promises(history),
            *invariants.no_finalizer_left(left.values()),
        ]
        assert not broken, "\n".join(["broken promises:", *broken])
        await self.namespace.release(left, HELD)
        await all_of(self.namespace.delete(name) for name in left)

    def _pod_of(self, name: str) -> str:
        return f"{self.namespace.namespace}/{name}"

    async def _pod(self, victim: ScriptedVictim) -> Json:
        hint = (
            {keys.CHECKPOINT_HINT: victim.hint or self.workloads.hint(victim.name)}
            if victim.has_hint
            else {}
        )
        annotations = {keys.CHECKPOINT_TIMEOUT: f"{victim.seconds}s", **hint, **victim.annotations}
        owners = [await self.namespace.create_owner(victim.name)] if victim.has_owner else []
        held = [HELD] if victim.trigger.action is PodAction.DELETE else []
        labels = {} if victim.trigger.is_preemptible else {keys.PREEMPTIBLE: "false"}
        labels |= BY_A_BUDGET if victim.trigger.is_held else {}
        if victim.name in self._gangs:
            labels[keys.POD_GROUP] = self._gangs[victim.name]
        pod = self.namespace.pod(
            victim.name, annotations, labels=labels, finalizers=held, ownerReferences=owners
        )
        if victim.walltime is not None:
            pod["spec"]["activeDeadlineSeconds"] = victim.walltime
        return pod

    async def _mark(self, victim: ScriptedVictim) -> None:
        if victim.trigger_phase is Phase.REQUESTED and not victim.acts_before_first_state:
            await self._perform(victim, victim.trigger.action)
        victim.marked_at = utc_now()
        if victim.partner is not None:
            victim.partner.marked_at = victim.marked_at
        mark = self.namespace.preempt if victim.is_preempted else self.namespace.mark
        await (self.namespace.drain(victim.name) if victim.trigger.is_held else mark(victim.name))

    async def _run_script(self, victim: ScriptedVictim, call: ProxiedCall) -> None:
        if is_deletion(call):
            victim.is_over = True
        state = state_in(call)
        if state is None:
            return
        act = victim.observe_state(state)
        await self._perform(victim, act)
        is_others = state.phase is Phase.TERMINATING and victim.trigger.action is PodAction.DELETE
        victim.is_over |= (
            is_others or act is PodAction.VANISH or state.phase in transitions.TERMINAL
        )

    async def _perform(self, victim: ScriptedVictim, act: PodAction | None) -> None:
        if act is None:
            return
        if act is not PodAction.INSIST:
            victim.ended_at = utc_now()
        actions = {
            PodAction.INSIST: self.namespace.mark,
            PodAction.UNMARK: self.namespace.unmark,
            PodAction.DELETE: self.namespace.delete,
            PodAction.END: self.namespace.finish_containers,
            PodAction.VANISH: self.namespace.force_delete,
        }
        await actions[act](victim.name)

    def _victim_of(self, call: ProxiedCall) -> ScriptedVictim | None:
        """Return the victim whose pod, or whose owner of the same name, a write changes."""
        if not call.is_write or f"/namespaces/{self.namespace.namespace}/" not in call.path:
            return None
        return next(
            (self.victims[part] for part in call.path.split("/") if part in self.victims), None
        )

    def _due_kill(self, victim: ScriptedVictim | None, call: ProxiedCall) -> Kill | None:
        is_due = victim is not None and victim.kills and victim.kills[0].point.matches(victim, call)
        return victim.kills[0] if victim is not None and is_due else None

    async def _hold(self, victim: ScriptedVictim, kill: Kill) -> None:
        killed = self._killed
        if all(victim is not other for other, _ in self._held):
            self._held.append((victim, kill))
        self._arrived_at = time.monotonic()
        self._arrived.set()
        await killed.wait()
        raise Dropped

    async def _crash(self) -> None:
        while True:
            await self._arrived.wait()
            await self._collect()
            assert self._operator is not None
            assert self._operator.process.poll() is None, self._describe_operator()
            self._operator.kill(end_lease=False)
            async with self.outage():
                done = self._drop_held_calls()
                self._operator = self.start()
                await all_of(self._finish_soon(victim) for victim in done)

    def _describe_operator(self) -> str:
        """Return whether the operator that is killed next still runs, and the end of its log."""
        if self._operator is None:
            return "another operator leads"
        has_ended = self._operator.process.poll() is not None
        return f"its operator {'ended by itself' if has_ended else 'runs'}\n{self._operator.tail()}"

    async def _finish_soon(self, victim: ScriptedVictim) -> None:
        """Let a victim end soon: the test has seen what it wanted."""
        victim.finish_soon()
        if victim.walltime is not None and victim.trigger.action is None:
            await self.namespace.mark(victim.name)

    def _drop_held_calls(self) -> list[ScriptedVictim]:
        """Drop the held calls without an answer and count the kill.

        Return the victims that need no further kill.
        """
        self.kills += 1
        self._arrived.clear()
        held, self._held = self._held, []
        killed, self._killed = self._killed, asyncio.Event()
        for victim, kill in held:
            self.hits[str(kill)] += 1
            victim.kills.pop(0)
        killed.set()
        return [victim for victim, _ in held if not victim.kills]

    async def _collect(self) -> None:
        """Wait for more writes to hold, for as long as more arrive."""
        latest = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < latest and not self._has_held_enough():  # noqa: ASYNC110 - it waits for silence
            await asyncio.sleep(_TICK_SECONDS)

    def _has_held_enough(self) -> bool:
        """True if no more writes will arrive, and no other workload is about to be hinted.

        Without the second part, many victims would lose as many operators as there are attempts
        between state and hint.
        """
        held = {victim.name for victim, _ in self._held}
        is_quiet = (
            len(self._held) >= _ENOUGH or time.monotonic() > self._arrived_at + _QUIET_SECONDS
        )
        return is_quiet and not any(
            victim.is_about_to_be_hinted
            for victim in self.victims.values()
            if victim.name not in held
        )

    async def _left(self, names: set[str]) -> list[str]:
        there = await self.namespace.pods()
        return [
            f"{name} is {victim.phase}, to be killed at {list(map(str, victim.kills))}; "
            f"{_describe(there[name])}"
            for name, victim in self.victims.items()
            if name in names & there.keys() and not _needs_nothing(victim, there[name])
        ]


def _describe(pod: Json) -> str:
    """Describe a pod: without finalizers, or while its containers run, kwok must act."""
    metadata = pod["metadata"]
    deleted, held = metadata.get("deletionTimestamp", "never"), metadata.get("finalizers", [])
    state = metadata.get("annotations", {}).get(keys.EVICTION)
    return f"{pod['status'].get('phase')}, deleted {deleted}, held by {held}, state {state}"


def _needs_nothing(victim: ScriptedVictim, pod: Json) -> bool:
    """True if only others must still act on the pod."""
    metadata = pod["metadata"]
    finalizers = metadata.get("finalizers", [])
    only_kubelet = "deletionTimestamp" in metadata and not finalizers
    return victim.is_over and not only_kubelet and all(name == HELD for name in finalizers)
