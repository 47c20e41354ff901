"""Releases the pods that the gang gate holds: a gang's together, once enough of them exist, and all when their time is over.

A watch brings the pods that carry our label, and nothing else, so that the work grows with the pods that wait. Which
members exist beside them is asked for a gang that is not complete by itself, after a moment and then at times: a gang
that has just been created costs one patch a pod, and no list. Nothing is remembered that a restart would lose.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from reprieve_policy import duration, gate
from reprieve_policy.gate import Release
from reprieve_policy.keys import GANG_GATE_LABEL
from reprieve_runtime.api import Api, ApiError
from reprieve_runtime.paths import object_path
from reprieve_runtime.reflector import Key, Reflector

from . import gated
from .announce import Announcer
from .clock import Clock
from .effects import Effects
from .election import NotLeading
from .gated import GangPod, Held
from .metrics import Metrics
from .policy_source import PolicySource

_log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.05
"""What comes within it is looked at together: one look costs as much as all pods that wait."""
_SETTLE_SECONDS = 1.0
"""For a gang that is being created to become complete by itself, before its other members are asked for."""
_FRESH_SECONDS = 1.0
"""No gang is called complete by members that were counted longer ago."""
_RETRY_SECONDS = 2.0
_LISTS_AT_ONCE = 4
_GONE_OR_CHANGED = (404, 409)
_EVENTS = {Release.COMPLETE: "GangReleased", Release.TIMED_OUT: "GangIncomplete"}

GangKey = tuple[str, tuple[str, str]]


@dataclass(slots=True)
class _Record:
    """What is known of a gang that waits, beside its pods."""

    settles_at: float
    counted_at: float = float("-inf")
    others: frozenset[str] = frozenset()
    """The uids of its members without our label, when they were last counted."""
    is_announced: bool = False


class Gatekeeper:
    """One term's releases."""

    def __init__(
        self,
        api: Api,
        effects: Effects,
        policy: PolicySource,
        announcer: Announcer,
        metrics: Metrics,
        clock: Clock,
        *,
        recount_seconds: float,
    ) -> None:
        self._api, self._effects, self._policy = api, effects, policy
        self._announcer, self._metrics, self._clock = announcer, metrics, clock
        self._recount_seconds = recount_seconds
        self._changed = asyncio.Event()
        self._lists = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._records: dict[GangKey, _Record] = {}
        self._tried: dict[Key, str] = {}
        """The version of each pod that was patched, until the watch brings another."""
        self._reflector: Reflector[GangPod, Held] = Reflector(
            api,
            object_path("pods"),
            GangPod,
            self._take,
            forget=self._forget,
            params={"labelSelector": GANG_GATE_LABEL},
        )

    def count_held(self) -> int:
        """Return how many pods the gate holds."""
        return sum(held.is_gated for held in self._reflector.items.values())

    async def run(self) -> None:
        """Release what may go, until cancelled or until this replica leads no more."""
        watch = asyncio.create_task(self._reflector.run(), name="gated pods")
        try:
            while True:
                await self._wait(await self._look_safely())
        except NotLeading:
            return
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        await asyncio.sleep(_BATCH_SECONDS)
        self._changed.clear()

    async def _look_safely(self) -> float:
        try:
            return await self._look()
        except ApiError as error:
            _log.warning("gangs not looked at", extra={"error": str(error)})
        except NotLeading:
            raise
        except Exception:  # noqa: BLE001 - as said below
            # Pods wait for this loop: it must not end because of one that nobody thought of.
            _log.exception("gangs not looked at")
        return _RETRY_SECONDS

    async def _look(self) -> float:
        """Look at every gang that waits; return when to look again though nothing changed [s]."""
        gangs, strays = self._sort()
        self._records = {key: self._record(key) for key in gangs}
        waits = [self._look_at(self._records[key], members) for key, members in gangs.items()]
        done = await asyncio.gather(*waits, self._free(strays))
        return min((seconds for seconds in done if seconds is not None), default=self._recount_seconds)

    def _sort(self) -> tuple[dict[GangKey, list[Held]], list[Held]]:
        """Return the members that wait, by gang, and what carries our label for nothing."""
        gangs: dict[GangKey, list[Held]] = defaultdict(list)
        strays: list[Held] = []
        for key, held in self._reflector.items.items():
            if self._tried.get(key) == held.metadata.resourceVersion or not held.is_member:
                continue
            if held.gang is None or not held.is_gated:
                strays.append(held)
            else:
                gangs[key[0], held.gang.key].append(held)
        return gangs, strays

    def _record(self, key: GangKey) -> _Record:
        return self._records.get(key) or _Record(settles_at=self._clock.monotonic() + _SETTLE_SECONDS)

    async def _look_at(self, record: _Record, members: list[Held]) -> float | None:
        """Release the members that wait, or say when to look again."""
        why = await self._decide(record, members)
        if why is None:
            return self._keep_waiting(record, members)
        is_done = await self._free(members)
        # What could not be released now is a rest of a gang, of which others exist.
        record.settles_at = record.counted_at = float("-inf")
        self._tell(members, why)
        return is_done

    async def _decide(self, record: _Record, members: list[Held]) -> Release | None:
        why = self._decide_with(members, 0)
        if why is not None or self._clock.monotonic() < record.settles_at:
            return why
        if self._age(record) >= self._recount_seconds:
            await self._count_others(record, members)
        why = self._decide_with(members, len(record.others))
        if why is Release.COMPLETE and self._age(record) >= _FRESH_SECONDS:
            await self._count_others(record, members)
            why = self._decide_with(members, len(record.others))
        return why

    def _decide_with(self, members: list[Held], others: int) -> Release | None:
        waiting = [held.waiting for held in members]
        return gate.decide_release(waiting, others, self._policy.current, self._clock.now())

    def _age(self, record: _Record) -> float:
        return self._clock.monotonic() - record.counted_at

    async def _count_others(self, record: _Record, members: list[Held]) -> None:
        """Ask which members exist beside those that wait."""
        gang, namespace = members[0].gang, members[0].metadata.namespace
        assert gang is not None
        async with self._lists:
            found = await gated.find_members(self._api, namespace or "", gang)
        record.others = found - {held.metadata.uid for held in members}
        record.counted_at = self._clock.monotonic()

    def _keep_waiting(self, record: _Record, members: list[Held]) -> float:
        now = self._clock.monotonic()
        waiting = [held.waiting for held in members]
        left = (gate.deadline(waiting, self._policy.current) - self._clock.now()).total_seconds()
        if now < record.settles_at:
            return min(left, record.settles_at - now)
        if not record.is_announced:
            record.is_announced = True
            self._announce_waiting(record, members, left)
        return max(0.0, min(left, record.counted_at + self._recount_seconds - now))

    async def _free(self, pods: Sequence[Held]) -> float | None:
        """Release pods; return when to try again where it did not work [s]."""
        is_done = await asyncio.gather(*(self._free_one(held) for held in pods))
        return None if all(is_done) else _RETRY_SECONDS

    async def _free_one(self, held: Held) -> bool:
        metadata = held.metadata
        try:
            await self._effects.release_gate(metadata, held.other_gates if held.is_gated else None)
        except ApiError as error:
            # One that has changed comes again, as it is now.
            if error.status not in _GONE_OR_CHANGED:
                _log.warning("pod not released", extra={"pod": metadata.key, "error": str(error)})
                return False
        self._tried[metadata.namespace or "", metadata.name or ""] = metadata.resourceVersion
        return True

    def _tell(self, members: list[Held], why: Release) -> None:
        self._metrics.gang_releases.labels(why.value).inc()
        if why in _EVENTS:
            limit = duration.render(self._policy.current.gang_gate_timeout_seconds)
            notes = {
                Release.COMPLETE: f"{_pods(members)} to the scheduler together: enough of the gang exist",
                Release.TIMED_OUT: f"{_pods(members)} to the scheduler without the rest of the gang: waited {limit}",
            }
            self._announcer.announce(members[0].about, _EVENTS[why], notes[why])

    def _announce_waiting(self, record: _Record, members: list[Held], left_seconds: float) -> None:
        wanted = min(held.waiting.min_available or 0 for held in members)
        left = duration.render(max(1, int(left_seconds)))
        note = f"{len(members) + len(record.others)} of {wanted} pods exist; the scheduler gets them together, in {left} at the latest"
        self._announcer.announce(members[0].about, "GangWaiting", note)

    def _take(self, pod: GangPod) -> Held:
        self._changed.set()
        return gated.hold(pod, self._clock.now())

    def _forget(self, key: Key) -> None:
        self._tried.pop(key, None)


def _pods(members: list[Held]) -> str:
    return f"{len(members)} pods" if len(members) > 1 else "1 pod"
