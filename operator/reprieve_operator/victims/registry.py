"""All victims of this term: one reconciler each, started by what the watch and the resync see."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_runtime.waiting import end_tasks

from .gang_eviction.eviction import GangEviction
from .gang_eviction.registry import GangRegistry, OnMember
from .pod_tracker import VictimRef
from .reconciler import VictimReconciler
from .victim_sets import VictimSets

_log = logging.getLogger(__name__)


class CurrentVictim(NamedTuple):
    """A victim as far as it has come."""

    ref: VictimRef
    phase: Phase
    state: Eviction | None
    """As it was last written or read; `None` before that."""
    is_stuck: bool


class ReconcilerRegistry:
    """Reconcilers by the uid of their victim."""

    def __init__(
        self,
        make_reconciler: Callable[[VictimRef, GangRegistry], VictimReconciler],
        make_gangs: Callable[[OnMember], GangRegistry],
        victim_sets: VictimSets,
    ) -> None:
        self._make_reconciler = make_reconciler
        self._gangs = make_gangs(self._join_gang)
        self._victim_sets = victim_sets
        self._reconcilers: dict[str, VictimReconciler] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, uid: str | None) -> bool:
        return uid in self._reconcilers

    def on_pod_update(self, pod: VictimPod) -> None:
        """Take over a pod from the watch."""
        if pod.metadata.uid in self._reconcilers or pod_state.is_victim(pod.metadata):
            self._get_or_start(pod.metadata).tracker.on_pod_update(pod)

    def on_pod_delete(self, uid: str) -> None:
        """Note that a pod left the watch: it is gone, or its label is."""
        if uid in self._reconcilers:
            self._reconcilers[uid].tracker.on_left_watch()

    def enqueue(self, metadata: VersionedMeta) -> None:
        """Start on a victim that no event showed."""
        self._get_or_start(metadata).tracker.request_reread()

    def on_namespace_terminating(self, namespace: str | None) -> None:
        """Wake the victims of a Namespace that is terminating; `None`: all of them."""
        for reconciler in self._reconcilers.values():
            if namespace in (None, reconciler.tracker.ref.namespace):
                reconciler.tracker.wake()

    def victims(self) -> list[VictimRef]:
        """Return all victims."""
        return [reconciler.tracker.ref for reconciler in self._reconcilers.values()]

    def current(self) -> list[CurrentVictim]:
        """Return all victims with their states."""
        return [
            CurrentVictim(each.tracker.ref, each.progress.phase, each.progress.state, each.is_stuck)
            for each in self._reconcilers.values()
        ]

    def _join_gang(self, pod: VictimPod, gang_eviction: GangEviction) -> None:
        """Start on a pod that is evicted with its gang."""
        reconciler = self._get_or_start(pod.metadata)
        reconciler.join_gang(gang_eviction)
        reconciler.tracker.on_pod_update(pod)

    def count_by_phase(self) -> Mapping[str, int]:
        """Return the number of victims in each phase that has any."""
        return Counter(reconciler.progress.phase.value for reconciler in self._reconcilers.values())

    def count_stuck(self) -> int:
        """Return the number of victims that exist long after their grace period."""
        return sum(reconciler.is_stuck for reconciler in self._reconcilers.values())

    def queue_age_seconds(self) -> float:
        """Return how long the oldest victim has waited for its first write; 0 if none waits."""
        return max(
            (reconciler.progress.waiting_seconds for reconciler in self._reconcilers.values()),
            default=0.0,
        )

    async def close(self) -> None:
        """End all reconcilers; the victims' states are on the pods."""
        await end_tasks([*self._gangs.starts, *self._tasks.values()])

    def _get_or_start(self, metadata: VersionedMeta) -> VictimReconciler:
        uid = metadata.uid or ""
        current = self._reconcilers.get(uid)
        # One that has ended looks at the pod no more.
        if current is None or current.is_done:
            ref = VictimRef(metadata.namespace or "", metadata.name or "", uid)
            self._reconcilers[uid] = self._make_reconciler(ref, self._gangs)
            task = asyncio.create_task(self._reconcilers[uid].run(), name=f"reconciler of {uid}")
            self._tasks[uid] = task
            task.add_done_callback(lambda done: self._on_done(uid, done))
        return self._reconcilers[uid]

    def _on_done(self, uid: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(uid) is not task:
            return
        reconciler = self._reconcilers.pop(uid)
        del self._tasks[uid]
        self._victim_sets.remove(uid)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, NotLeading):
            # The resync finds the victim again. A reconciler that failed at once at each event
            # and was restarted each time would loop.
            _log.error(
                "reconciler failed", exc_info=error, extra={"pod": reconciler.tracker.ref.key}
            )
