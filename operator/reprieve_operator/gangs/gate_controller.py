"""Releases the pods that the gang gate holds: a gang's together, once enough of them exist, and all when their time is over.

A watch brings the pods that carry our label, and nothing else, so that the work grows with the pods that wait. Which
members exist beside them is asked for a gang that is not complete by itself, after a moment and then at times: a gang
that has just been created costs one patch a pod, and no list. Nothing is remembered that a restart would lose.
"""

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.gangs import gate
from reprieve_policy.gangs.gate import GateReleaseReason
from reprieve_policy.keys import GANG_GATE_LABEL
from reprieve_policy.kube import duration
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

from . import gate_pods
from .gate_pods import GangPod, LabelledPod
from .gate_release import RETRY_SECONDS, GateReleaser

_log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.05
"""What comes within it is looked at together: one look costs as much as all pods that wait."""
_SETTLE_SECONDS = 1.0
"""For a gang that is being created to become complete by itself, before its other members are asked for."""
_MAX_COUNT_AGE_SECONDS = 1.0
"""No gang is called complete by members that were counted longer ago."""
_NEVER = float("-inf")
_MAX_CONCURRENT_LISTS = 4
MAX_COUNTS_PER_NAMESPACE = 4
"""Of one namespace's gangs, before all others are looked at again. Without this, a tenant with thousands of gangs that never
become complete would hold up those of all others."""
_EVENTS = {
    GateReleaseReason.COMPLETE: "GangReleased",
    GateReleaseReason.TIMED_OUT: "GangIncomplete",
}

GangKey = tuple[str, tuple[str, str]]


@dataclass(slots=True)
class _WaitingGang:
    """What is known of a gang that waits, beside its pods."""

    settles_at: float
    counted_at: float = _NEVER
    member_uids: frozenset[str] = frozenset()
    """The uids of all its members, when they were last asked for."""
    is_announced: bool = False


class GateController:
    """One term's releases."""

    def __init__(
        self,
        api: Api,
        effects: Writes,
        policy: PolicySource,
        announcer: EventRecorder,
        metrics: OperatorMetrics,
        clock: Clock,
        *,
        recount_seconds: float,
    ) -> None:
        self._api, self._policy = api, policy
        self._announcer, self._metrics, self._clock = announcer, metrics, clock
        self._recount_seconds = recount_seconds
        self._changed = asyncio.Event()
        self._list_semaphore = asyncio.Semaphore(_MAX_CONCURRENT_LISTS)
        self._counts_by_namespace: Counter[str] = Counter()
        self._waiting_gangs: dict[GangKey, _WaitingGang] = {}
        self._releaser = GateReleaser(effects, clock)
        self._reflector: Reflector[GangPod, LabelledPod] = Reflector(
            api,
            object_path("pods"),
            GangPod,
            self._on_pod,
            on_delete=self._releaser.forget,
            params={"labelSelector": GANG_GATE_LABEL},
        )

    def count_gated(self) -> int:
        """Return how many pods the gate holds."""
        return sum(held.is_gated for held in self._reflector.items.values())

    async def run(self) -> None:
        """Release what may go, until cancelled."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._reflector.run(), name="gated pods")
                    tasks.create_task(self._reconcile_loop(), name="gates")
            except* NotLeading:
                _log.debug("no longer leading: nothing is released")
            except* Exception:  # noqa: BLE001 - for the reason below
                # Pods wait for this: it must not end because of what nobody thought of.
                _log.exception("the gatekeeper failed and begins anew")
            await asyncio.sleep(RETRY_SECONDS)

    async def _reconcile_loop(self) -> None:
        while True:
            seconds = await self._reconcile_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            await asyncio.sleep(_BATCH_SECONDS)
            self._changed.clear()

    async def _reconcile_all(self) -> float:
        """Look at every gang that waits; return when to look again though nothing changed [s]."""
        gangs, strays = self._group_by_gang()
        self._counts_by_namespace.clear()
        self._waiting_gangs = {key: self._waiting_gang(key) for key in gangs}
        looks = [
            self._reconcile_gang(self._waiting_gangs[key], members)
            for key, members in gangs.items()
        ]
        freed, again = await asyncio.gather(self._releaser.release(strays), asyncio.gather(*looks))
        return min([*again, self._next_reconcile_seconds(freed, strays)])

    def _group_by_gang(self) -> tuple[dict[GangKey, list[LabelledPod]], list[LabelledPod]]:
        """Return the members that wait, by gang, and what carries our label for nothing."""
        gangs: dict[GangKey, list[LabelledPod]] = defaultdict(list)
        strays: list[LabelledPod] = []
        for key, held in self._reflector.items.items():
            if not held.is_member or self._releaser.was_attempted(held):
                continue
            if held.gang is None or not held.is_gated:
                strays.append(held)
            else:
                gangs[key[0], held.gang.key].append(held)
        return gangs, strays

    def _waiting_gang(self, key: GangKey) -> _WaitingGang:
        return self._waiting_gangs.get(key) or _WaitingGang(
            settles_at=self._clock.monotonic() + _SETTLE_SECONDS
        )

    async def _reconcile_gang(self, record: _WaitingGang, members: list[LabelledPod]) -> float:
        """Release the members that wait, or leave them; return when to look again [s]."""
        try:
            why = await self._decide(record, members)
        except ApiError as error:
            _log.warning(
                "gang not counted", extra={"gang": str(members[0].regarding), "error": str(error)}
            )
            return RETRY_SECONDS
        if why is None:
            return self._keep_waiting(record, members)
        freed = await self._releaser.release(members)
        if freed:
            self._report_release(freed, why)
        # Of what could not be released now, the others exist: they are asked for at once.
        record.settles_at = record.counted_at = _NEVER
        return self._next_reconcile_seconds(freed, members)

    def _next_reconcile_seconds(
        self, released: list[LabelledPod], tried: list[LabelledPod]
    ) -> float:
        return self._recount_seconds if len(released) == len(tried) else RETRY_SECONDS

    async def _decide(
        self, record: _WaitingGang, members: list[LabelledPod]
    ) -> GateReleaseReason | None:
        why = self._decide_from_counts(record, members)
        is_settled = self._clock.monotonic() >= record.settles_at
        is_old = self._count_age_seconds(record) >= self._recount_seconds
        is_guess = (
            why is GateReleaseReason.COMPLETE
            and len(members) < _min_available(members)
            and self._count_age_seconds(record) >= _MAX_COUNT_AGE_SECONDS
        )
        if not ((why is None and is_settled and is_old) or is_guess):
            return why
        if (
            self._counts_by_namespace[members[0].metadata.namespace or ""]
            == MAX_COUNTS_PER_NAMESPACE
        ):
            return None
        await self._count_members(record, members)
        return self._decide_from_counts(record, members)

    def _decide_from_counts(
        self, record: _WaitingGang, members: list[LabelledPod]
    ) -> GateReleaseReason | None:
        # A watch that is behind does not know all that were counted: nobody counts twice.
        others = record.member_uids.difference(held.metadata.uid or "" for held in members)
        waiting = [held.gated_pod for held in members]
        return gate.decide_release(waiting, len(others), self._policy.current, self._clock.now())

    async def _count_members(self, record: _WaitingGang, members: list[LabelledPod]) -> None:
        """Ask which members exist, also those that do not wait."""
        self._counts_by_namespace[members[0].metadata.namespace or ""] += 1
        async with self._list_semaphore:
            record.member_uids = await gate_pods.list_member_uids(self._api, members[0])
        record.counted_at = self._clock.monotonic()

    def _count_age_seconds(self, record: _WaitingGang) -> float:
        return self._clock.monotonic() - record.counted_at

    def _keep_waiting(self, record: _WaitingGang, members: list[LabelledPod]) -> float:
        now = self._clock.monotonic()
        end = gate.deadline([held.gated_pod for held in members], self._policy.current)
        left = (end - self._clock.now()).total_seconds()
        is_settled = now >= record.settles_at
        if is_settled and record.counted_at != _NEVER and not record.is_announced:
            record.is_announced = True
            self._report_waiting(len(record.member_uids), members, left)
        next_count = record.counted_at + self._recount_seconds if is_settled else record.settles_at
        return max(0.0, min(left, next_count - now))

    def _report_release(self, released: list[LabelledPod], why: GateReleaseReason) -> None:
        self._metrics.gang_releases.labels(why.value).inc()
        if why in _EVENTS:
            limit = duration.render(self._policy.current.gang_gate_timeout_seconds)
            notes = {
                GateReleaseReason.COMPLETE: f"{_format_pod_count(released)} to the scheduler together: enough of the gang exist",
                GateReleaseReason.TIMED_OUT: f"{_format_pod_count(released)} to the scheduler without the rest of the gang: waited {limit}",
            }
            self._announcer.event(released[0].regarding, _EVENTS[why], notes[why])

    def _report_waiting(
        self, existing: int, members: list[LabelledPod], left_seconds: float
    ) -> None:
        left = duration.render(max(1, int(left_seconds)))
        note = f"{existing} of {_min_available(members)} pods exist; the scheduler gets them together, in {left} at the latest"
        self._announcer.event(members[0].regarding, "GangWaiting", note)

    def _on_pod(self, pod: GangPod) -> LabelledPod:
        self._changed.set()
        return gate_pods.to_labelled_pod(pod, self._clock.now())


def _min_available(members: list[LabelledPod]) -> int:
    return min(held.gated_pod.min_available or 0 for held in members)


def _format_pod_count(members: list[LabelledPod]) -> str:
    return f"{len(members)} pods" if len(members) > 1 else "1 pod"
