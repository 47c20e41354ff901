"""Injects each fault of a plan, and records from when until when it disturbed whom."""

import asyncio
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve_testing.chaos.chaos_namespace import ChaosNamespace
from reprieve_testing.chaos.invariants import Outage
from reprieve_testing.chaos.scripted_victims import utc_now

from .call_faults import CallFaults
from .insisting import insist
from .outages import TAKING_UP
from .plan import EXCUSES_NOTHING, Fault, PlannedAction
from .programs import REPLICAS, RobustnessPrograms

_WATCH_POLLS, _WATCH_POLL_SECONDS = 300, 0.1
_STOPPED_SECONDS, _RUNNING_SECONDS = 0.5, 0.25
"""How etcd's process is stopped and continued while it is slow."""
_CALLS = (Fault.TOO_MANY_REQUESTS, Fault.SERVER_ERRORS, Fault.LOST_ANSWERS, Fault.SLOW_CALLS)
_OF_THE_GUARD = {Fault.KILL_WEBHOOKS, Fault.STOP_WEBHOOKS, Fault.ROTATE_CA}
_OF_BOTH = {Fault.KILL_APISERVER, Fault.KILL_ETCD, Fault.SLOW_ETCD}


@dataclass
class FaultInjector:
    """Faults of one run. `injected` counts those that took effect."""

    programs: RobustnessPrograms
    calls: CallFaults
    namespace: ChaosNamespace
    injected: Counter[str] = field(default_factory=Counter)
    operator_windows: list[Outage] = field(default_factory=list)
    guard_windows: list[Outage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ways: dict[Fault, Callable[[float], Awaitable[None] | Awaitable[bool]]] = {
            Fault.KILL_LEADER: lambda seconds: self._kill_operator(self._leader(), seconds),
            Fault.KILL_STANDBY: lambda seconds: self._kill_operator(self._standby(), seconds),
            Fault.STOP_LEADER: self._stop_leader,
            Fault.STEP_CLOCK: self._step_clock,
            Fault.DELETE_LEASE: self._delete_lease,
            Fault.STEAL_LEASE: self._steal_lease,
            Fault.KILL_WEBHOOKS: self._kill_webhooks,
            Fault.STOP_WEBHOOKS: self._stop_webhooks,
            Fault.ROTATE_CERTIFICATE: lambda _: self._rotate(ca=False),
            Fault.ROTATE_CA: lambda _: self._rotate(ca=True),
            Fault.KILL_APISERVER: lambda seconds: self._kill("kube-apiserver", seconds),
            Fault.KILL_ETCD: lambda seconds: self._kill("etcd", seconds),
            Fault.SLOW_ETCD: self._slow_etcd,
            Fault.KILL_SCHEDULER: lambda seconds: self._kill("kube-scheduler", seconds),
            Fault.CUT_WATCHES: self._cut_watches,
            Fault.HOLD_WATCHES: self._hold_watches,
        }

    async def inject(self, action: PlannedAction) -> None:
        """Inject a fault; return once it is over and all parts run again."""
        fault, since, before = Fault(action.name), utc_now(), dict(self.calls.hits)
        if fault in _CALLS:
            self.calls.begin(fault, action.seconds)
            await asyncio.sleep(action.seconds)
            took_effect = self.calls.hits[fault] > before.get(fault, 0)
        else:
            took_effect = await self._ways[fault](action.seconds) is not False
        self.injected[fault] += took_effect
        self._excuse(fault, since)

    def _excuse(self, fault: Fault, since: datetime) -> None:
        if fault in EXCUSES_NOTHING:
            return
        until = utc_now()
        if fault in _OF_THE_GUARD | _OF_BOTH:
            self.guard_windows.append(Outage(since, until + _guarded_again(fault)))
        if fault not in _OF_THE_GUARD:
            self.operator_windows.append(Outage(since, until))

    def _leader(self) -> str:
        return self.calls.leader if self.calls.leader in REPLICAS else REPLICAS[0]

    def _standby(self) -> str:
        return next(name for name in REPLICAS if name != self._leader())

    async def _kill_operator(self, name: str, seconds: float) -> None:
        async with self._locks[name]:
            await asyncio.to_thread(self.programs.operators[name].kill, end_lease=False)
            await asyncio.sleep(seconds)
            self.programs.start_operator(name)

    async def _stop_leader(self, seconds: float) -> None:
        name = self._leader()
        async with self._locks[name]:
            await self._stop(self.programs.operators[name].process.pid, seconds)

    async def _stop(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _step_clock(self, seconds: float) -> None:
        self.programs.step_clock(self._leader(), seconds)

    async def _delete_lease(self, _: float) -> None:
        async with self._locks["control-plane"]:
            await insist(self.namespace.delete_lease)

    async def _steal_lease(self, seconds: float) -> None:
        async with self._locks["control-plane"]:
            await insist(self.namespace.steal_lease, max(1, round(seconds)))
        await asyncio.sleep(seconds)

    async def _kill_webhooks(self, seconds: float) -> None:
        async with self._locks["webhooks"]:
            assert self.programs.webhooks is not None
            await asyncio.to_thread(self.programs.webhooks.kill, end_lease=False)
            await asyncio.sleep(seconds)
            async with self._locks["control-plane"]:
                await asyncio.to_thread(self.programs.start_webhooks)
                await asyncio.to_thread(self.programs.wait_guarded)

    async def _stop_webhooks(self, seconds: float) -> None:
        async with self._locks["webhooks"]:
            assert self.programs.webhooks is not None
            await self._stop(self.programs.webhooks.process.pid, seconds)

    async def _rotate(self, *, ca: bool) -> None:
        async with self._locks["webhooks"], self._locks["control-plane"]:
            await asyncio.to_thread(lambda: self.programs.rotate(ca=ca))
            await asyncio.to_thread(self.programs.wait_guarded)

    async def _kill(self, component: str, seconds: float) -> None:
        handle = self.programs.handle
        async with self._locks["control-plane"]:
            await asyncio.to_thread(handle.kill_component, component)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(handle.start_component, component)

    async def _slow_etcd(self, seconds: float) -> None:
        async with self._locks["control-plane"]:
            etcd = self.programs.handle.cluster.processes.running("etcd")
            assert etcd is not None
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await self._stop(etcd.pid, _STOPPED_SECONDS)
                await asyncio.sleep(_RUNNING_SECONDS)

    async def _cut_watches(self, _: float) -> bool:
        await self._until_watched()
        return self.programs.proxy.cut_watches() > 0

    async def _hold_watches(self, seconds: float) -> bool:
        proxy = self.programs.proxy
        await self._until_watched()
        proxy.watches_allowed.clear()
        cut = proxy.cut_watches()
        await asyncio.sleep(seconds)
        proxy.watches_allowed.set()
        return cut > 0

    async def _until_watched(self) -> None:
        """Wait, not for ever, for a watch: there is none while the API server starts."""
        for _ in range(_WATCH_POLLS):
            if self.programs.proxy.watches:
                return
            await asyncio.sleep(_WATCH_POLL_SECONDS)


def _guarded_again(fault: Fault) -> timedelta:
    """Return how long the API server may go on without the guard.

    It keeps failing connections for a while; and the guard reads all nominated pods again.
    """
    return TAKING_UP if fault is not Fault.STOP_WEBHOOKS else TAKING_UP / 2
