"""Plays one round: creates its pods, acts and injects faults on time, waits, collects, checks."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction, transitions
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace, all_of
from reprieve_testing.chaos.scripted_victims import WorkloadServer, utc_now

from . import promises
from .faults import FaultInjector
from .history import HistoryReader
from .insisting import insist
from .plan import PlannedAction, PlannedRound, Work
from .promises import RoundHistory
from .victims import SAVE_SECONDS, PlannedVictim, pod_of, preemptor_of, victims_of

Json = Any

_STANDSTILL_SECONDS = 180.0
"""Longer than any victim may take, with all outages of a round."""
_PAUSE_SECONDS = 0.5
_SYNC_SECONDS = 5.0
_DRAIN_PAUSE_SECONDS = 1.0
"""`kubectl drain` waits five seconds."""
_NOT_FOUND, _CONFLICT = 404, 409
_SETTLE_SECONDS = 1.0
"""The audit log has an answer shortly after its effect can be seen."""


@dataclass
class RoundPlayer:
    """Plays rounds in one namespace of one cluster."""

    api: Api
    namespace: ChaosNamespace
    workloads: WorkloadServer
    faults: FaultInjector
    audit_log: Path
    nodes: int
    worked: Counter[str] = field(default_factory=Counter)
    """How often each action on workloads was done, in pods."""
    checks: Counter[str] = field(default_factory=Counter)
    """What was checked, and how much of it."""

    def __post_init__(self) -> None:
        self._victims: list[PlannedVictim] = []
        self._preemptors: list[str] = []

    async def play(self, planned: PlannedRound) -> list[str]:
        """Play a round; return its broken promises."""
        self._preemptors = []
        of_action = await self._create(planned)
        self._victims = [victim for group in of_action.values() for victim in group]
        saving = asyncio.create_task(self._let_save())
        try:
            await all_of(
                self._at(action, of_action.get(index, []))
                for index, action in enumerate(planned.actions)
            )
            standstill = await self._wait_over()
        finally:
            saving.cancel()
            with suppress(asyncio.CancelledError):
                await saving
        await asyncio.sleep(_SETTLE_SECONDS)
        broken = [*standstill, *promises.broken_promises(await self._read_history())]
        broken += self.faults.programs.ended_by_themselves()
        self._count()
        await self._clear()
        return broken

    async def _create(self, planned: PlannedRound) -> dict[int, list[PlannedVictim]]:
        """Create all pods before the first fault; return the victims by the index of the action."""
        found = {
            index: victims_of(planned.number, index, action)
            for index, action in enumerate(planned.actions)
            if not action.is_fault
        }
        wanted = [index for index in found if planned.actions[index].name == Work.PREEMPT]
        for number, index in enumerate(wanted):
            for victim in found[index]:
                victim.node = f"kwok-{number % self.nodes}"
        victims = [victim for group in found.values() for victim in group]
        self.workloads.victims |= {victim.name: victim.scripted for victim in victims}
        pods = [await pod_of(victim, self.namespace, self.workloads) for victim in victims]
        made = await self.namespace.create_pods(pods)
        for victim in victims:
            victim.scripted.uid = made[victim.name]["metadata"]["uid"]
        return found

    async def _at(self, action: PlannedAction, victims: Sequence[PlannedVictim]) -> None:
        await asyncio.sleep(action.at)
        if action.is_fault:
            await self.faults.inject(action)
            return
        ways: dict[str, Callable[[Sequence[PlannedVictim]], Awaitable[None]]] = {
            Work.MARK: self._mark,
            Work.GANG: self._mark_gang,
            Work.DRAIN: self._drain,
            Work.PREEMPT: self._preempt,
            Work.CANCEL: self._cancel,
        }
        for victim in victims:
            victim.begun_at = utc_now()
        await ways[action.name](victims)
        self.worked[action.name] += len(victims)

    async def _mark(self, victims: Sequence[PlannedVictim]) -> None:
        for victim in victims:
            await insist(self.namespace.mark, victim.name)

    async def _mark_gang(self, victims: Sequence[PlannedVictim]) -> None:
        await self._mark(victims[:1])

    async def _cancel(self, victims: Sequence[PlannedVictim]) -> None:
        await self._mark(victims)
        await asyncio.sleep(victims[0].action.seconds)
        for victim in victims:
            await insist(self.namespace.unmark, victim.name)
            victim.unmarked_at = utc_now()

    async def _drain(self, victims: Sequence[PlannedVictim]) -> None:
        await all_of(self._evict(victim) for victim in victims)

    async def _evict(self, victim: PlannedVictim) -> None:
        """Ask again and again, as `kubectl drain` does, until the pod is gone."""
        path = object_path("pods", self.namespace.namespace, victim.name)
        metadata = {"name": victim.name, "namespace": self.namespace.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        give_up_at = time.monotonic() + _STANDSTILL_SECONDS
        while time.monotonic() < give_up_at:
            with suppress(ApiError):
                await self.api.post_subresource(f"{path}/eviction", body)
            try:
                await self.api.get(path, dict)
            except ApiError as error:
                if error.status == _NOT_FOUND:
                    return
            await asyncio.sleep(_DRAIN_PAUSE_SECONDS)

    async def _preempt(self, victims: Sequence[PlannedVictim]) -> None:
        name = f"{victims[0].name}-preemptor"
        pod, path = preemptor_of(victims[0], name), object_path("pods", self.namespace.namespace)
        try:
            await insist(self.api.post, path, pod, dict)
        except ApiError as error:
            # An attempt whose answer was lost has created it.
            if error.status != _CONFLICT:
                raise
        self._preemptors.append(name)

    async def _let_save(self) -> None:
        """Let slow saves end in time."""
        while True:
            now = time.monotonic()
            for victim in self._victims:
                if victim.heard_at is None and victim.scripted.heard_eviction_id is not None:
                    victim.heard_at = now
                if (
                    victim.saves_slowly
                    and victim.heard_at is not None
                    and now > victim.heard_at + SAVE_SECONDS
                ):
                    victim.scripted.finish_soon()
            await asyncio.sleep(_PAUSE_SECONDS / 2)

    async def _wait_over(self) -> list[str]:
        """Wait until each victim is gone or no victim any more, and each preemptor runs."""
        give_up_at, synced_at = time.monotonic() + _STANDSTILL_SECONDS, 0.0
        while left := await self._unfinished():
            if time.monotonic() > give_up_at:
                return [f"within {_STANDSTILL_SECONDS:.0f} s: {one}" for one in left]
            if time.monotonic() > synced_at + _SYNC_SECONDS:
                synced_at = time.monotonic()
                await insist(self.namespace.sync_kubelets)
            await asyncio.sleep(_PAUSE_SECONDS)
        return []

    async def _unfinished(self) -> list[str]:
        pods = await insist(self.namespace.pods)
        names = {victim.name for victim in self._victims}
        victims = [
            f"{name} has not ended: {_state(pod)}"
            for name, pod in pods.items()
            if name in names and not _is_no_victim_any_more(pod)
        ]
        waiting = [
            f"{name} was not scheduled"
            for name in self._preemptors
            if name in pods and pods[name]["status"].get("phase") != "Running"
        ]
        return victims + waiting

    async def _read_history(self) -> RoundHistory:
        reader = HistoryReader(
            self.api, self.namespace, self.workloads, self.faults, self.audit_log
        )
        return await reader.read(self._victims)

    def _count(self) -> None:
        self.checks["rounds"] += 1
        self.checks["victims"] += len(self._victims)
        self.checks["promises checked"] += promises.NUMBER_OF_CHECKS

    async def _clear(self) -> None:
        """Remove what is left of the round, so that the next one is not disturbed."""
        left = await insist(self.namespace.pods)
        await all_of(insist(self.namespace.force_delete, name) for name in left)


def _is_no_victim_any_more(pod: Json) -> bool:
    metadata = pod["metadata"]
    state = eviction.parse((metadata.get("annotations") or {}).get(keys.EVICTION, ""))
    is_cancelled = state is not None and state.phase in transitions.TERMINAL
    is_marked = keys.SOFT_EVICTION in (metadata.get("labels") or {})
    is_free = keys.CLEANUP_FINALIZER not in metadata.get("finalizers", ())
    return "deletionTimestamp" not in metadata and is_free and (is_cancelled or not is_marked)


def _state(pod: Json) -> str:
    metadata = pod["metadata"]
    return (
        f"{(metadata.get('labels') or {}).get(keys.SOFT_EVICTION)}, "
        f"deleted {metadata.get('deletionTimestamp', 'never')}, "
        f"held by {metadata.get('finalizers', [])}"
    )
