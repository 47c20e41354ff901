"""Releases the pods that the gang gate holds.

The pods of a gang are released together, once enough of them exist, or when the gate times out. A
watch selects the pods with Reprieve's label, so that the work grows only with the pods that wait.
For a gang whose waiting pods are too few, the controller lists its other members, after a short
delay and then periodically: a gang that has just been created costs one patch a pod and no list.
No state is lost in a restart.
"""

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.gangs import gate
from reprieve_policy.gangs.gate import GateReleaseReason
from reprieve_policy.keys import GANG_GATE_LABEL
from reprieve_policy.kube.values import duration
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

from . import gate_pods
from .gate_pods import GangPod, LabelledPod
from .gate_release import RETRY_SECONDS, GateReleaser

_log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.05
"""Changes within this time are reconciled together: one pass reads all pods that wait."""
_SETTLE_SECONDS = 1.0
"""Time for a new gang to become complete, before its other members are listed."""
_MAX_COUNT_AGE_SECONDS = 1.0
"""An older count of members is repeated before it makes a gang complete."""
_NEVER = float("-inf")
_MAX_CONCURRENT_LISTS = 4
MAX_COUNTS_PER_NAMESPACE = 4
"""Member lists for one namespace's gangs in one pass.

Without this, a tenant with thousands of gangs that never become complete would delay the gangs of
all other tenants.
"""
_EVENTS = {
    GateReleaseReason.COMPLETE: "GangReleased",
    GateReleaseReason.TIMED_OUT: "GangIncomplete",
}

GangKey = tuple[str, tuple[str, str]]


@dataclass(slots=True)
class _WaitingGang:
    """The state of a waiting gang, besides its pods."""

    settles_at: float
    counted_at: float = _NEVER
    member_uids: frozenset[str] = frozenset()
    """The uids of all its members at the last list."""
    is_reported: bool = False


class GateController:
    """Releases gated pods during one leader's term."""

    def __init__(
        self,
        api: Api,
        writes: Writes,
        policy: PolicySource,
        recorder: EventRecorder,
        metrics: OperatorMetrics,
        clock: Clock,
        *,
        recount_seconds: float,
    ) -> None:
        self._api, self._policy = api, policy
        self._recorder, self._metrics, self._clock = recorder, metrics, clock
        self._recount_seconds = recount_seconds
        self._changed = asyncio.Event()
        self._list_semaphore = asyncio.Semaphore(_MAX_CONCURRENT_LISTS)
        self._counts_by_namespace: Counter[str] = Counter()
        self._waiting_gangs: dict[GangKey, _WaitingGang] = {}
        self._releaser = GateReleaser(writes, clock)
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
        return sum(pod.is_gated for pod in self._reflector.items.values())

    async def run(self) -> None:
        """Release pods until cancelled; restart after unexpected errors."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._reflector.run(), name="gated pods")
                    tasks.create_task(self._reconcile_loop(), name="gates")
            except* NotLeading:
                _log.debug("not the leader: no pods are released")
            except* Exception:  # noqa: BLE001 - for the reason below
                # Pods wait for this controller: an unexpected error must not end it.
                _log.exception("gate controller failed; restarting")
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
        """Reconcile all waiting gangs; return the seconds until the next pass without changes."""
        gangs, strays = self._group_by_gang()
        self._counts_by_namespace.clear()
        self._waiting_gangs = {key: self._waiting_gang(key) for key in gangs}
        passes = [
            self._reconcile_gang(self._waiting_gangs[key], members)
            for key, members in gangs.items()
        ]
        released, waits = await asyncio.gather(
            self._releaser.release(strays), asyncio.gather(*passes)
        )
        return min([*waits, self._next_reconcile_seconds(released, strays)])

    def _group_by_gang(self) -> tuple[dict[GangKey, list[LabelledPod]], list[LabelledPod]]:
        """Return the waiting members by gang, and labelled pods without a gang or a gate."""
        gangs: dict[GangKey, list[LabelledPod]] = defaultdict(list)
        strays: list[LabelledPod] = []
        for key, pod in self._reflector.items.items():
            if not pod.is_member or self._releaser.was_attempted(pod):
                continue
            if pod.gang is None or not pod.is_gated:
                strays.append(pod)
            else:
                gangs[key[0], pod.gang.key].append(pod)
        return gangs, strays

    def _waiting_gang(self, key: GangKey) -> _WaitingGang:
        return self._waiting_gangs.get(key) or _WaitingGang(
            settles_at=self._clock.monotonic() + _SETTLE_SECONDS
        )

    async def _reconcile_gang(
        self, waiting_gang: _WaitingGang, members: list[LabelledPod]
    ) -> float:
        """Release the waiting members, or keep them; return the seconds until the next pass."""
        try:
            reason = await self._decide(waiting_gang, members)
        except ApiError as error:
            extra = {"gang": str(members[0].regarding), "error": str(error)}
            _log.warning("could not list the members of a gang", extra=extra)
            return RETRY_SECONDS
        if reason is None:
            return self._keep_waiting(waiting_gang, members)
        released = await self._releaser.release(members)
        if released:
            self._report_release(released, reason)
        # The members that could not be released need a new count: list them without delay.
        waiting_gang.settles_at = waiting_gang.counted_at = _NEVER
        return self._next_reconcile_seconds(released, members)

    def _next_reconcile_seconds(
        self, released: list[LabelledPod], tried: list[LabelledPod]
    ) -> float:
        return self._recount_seconds if len(released) == len(tried) else RETRY_SECONDS

    async def _decide(
        self, waiting_gang: _WaitingGang, members: list[LabelledPod]
    ) -> GateReleaseReason | None:
        reason = self._decide_from_counts(waiting_gang, members)
        is_settled = self._clock.monotonic() >= waiting_gang.settles_at
        is_old = self._count_age_seconds(waiting_gang) >= self._recount_seconds
        is_guess = (
            reason is GateReleaseReason.COMPLETE
            and len(members) < _min_available(members)
            and self._count_age_seconds(waiting_gang) >= _MAX_COUNT_AGE_SECONDS
        )
        if not ((reason is None and is_settled and is_old) or is_guess):
            return reason
        if (
            self._counts_by_namespace[members[0].metadata.namespace or ""]
            == MAX_COUNTS_PER_NAMESPACE
        ):
            return None
        await self._count_members(waiting_gang, members)
        return self._decide_from_counts(waiting_gang, members)

    def _decide_from_counts(
        self, waiting_gang: _WaitingGang, members: list[LabelledPod]
    ) -> GateReleaseReason | None:
        # Waiting pods may be in the last list, too, if the watch was behind: count no pod twice.
        others = waiting_gang.member_uids.difference(pod.metadata.uid or "" for pod in members)
        waiting = [pod.gated_pod for pod in members]
        return gate.decide_release(waiting, len(others), self._policy.current, self._clock.now())

    async def _count_members(self, waiting_gang: _WaitingGang, members: list[LabelledPod]) -> None:
        """List the members of a gang, including those that do not wait."""
        self._counts_by_namespace[members[0].metadata.namespace or ""] += 1
        async with self._list_semaphore:
            waiting_gang.member_uids = await gate_pods.list_member_uids(self._api, members[0])
        waiting_gang.counted_at = self._clock.monotonic()

    def _count_age_seconds(self, waiting_gang: _WaitingGang) -> float:
        return self._clock.monotonic() - waiting_gang.counted_at

    def _keep_waiting(self, waiting_gang: _WaitingGang, members: list[LabelledPod]) -> float:
        now = self._clock.monotonic()
        end = gate.deadline([pod.gated_pod for pod in members], self._policy.current)
        left = (end - self._clock.now()).total_seconds()
        is_settled = now >= waiting_gang.settles_at
        if is_settled and waiting_gang.counted_at != _NEVER and not waiting_gang.is_reported:
            waiting_gang.is_reported = True
            self._report_waiting(len(waiting_gang.member_uids), members, left)
        next_count = (
            waiting_gang.counted_at + self._recount_seconds
            if is_settled
            else waiting_gang.settles_at
        )
        return max(0.0, min(left, next_count - now))

    def _report_release(self, released: list[LabelledPod], reason: GateReleaseReason) -> None:
        self._metrics.gang_releases.labels(reason.value).inc()
        if reason in _EVENTS:
            limit = duration.render(self._policy.current.gang_gate_timeout_seconds)
            pods = _format_pod_count(released)
            notes = {
                GateReleaseReason.COMPLETE: (
                    f"released {pods} to the scheduler together: enough pods of the gang exist"
                ),
                GateReleaseReason.TIMED_OUT: (
                    f"released {pods} to the scheduler without the rest of the gang after {limit}"
                ),
            }
            self._recorder.event(released[0].regarding, _EVENTS[reason], notes[reason])

    def _report_waiting(
        self, existing: int, members: list[LabelledPod], left_seconds: float
    ) -> None:
        left = duration.render(max(1, int(left_seconds)))
        note = (
            f"{existing} of {_min_available(members)} pods exist; they are released to the "
            f"scheduler together, in {left} at the latest"
        )
        self._recorder.event(members[0].regarding, "GangWaiting", note)

    def _on_pod(self, pod: GangPod) -> LabelledPod:
        self._changed.set()
        return gate_pods.to_labelled_pod(pod, self._clock.now())


def _min_available(members: list[LabelledPod]) -> int:
    return min(pod.gated_pod.min_available or 0 for pod in members)


def _format_pod_count(members: list[LabelledPod]) -> str:
    return f"{len(members)} pods" if len(members) > 1 else "1 pod"
