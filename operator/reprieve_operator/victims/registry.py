"""All victims of this term: one keeper each, begun by what the watch and the sweep see."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_operator.cluster.pods import VersionedMeta, VictimPod

from .context import Tools
from .gang_eviction import GangEviction
from .gang_registry import GangRegistry
from .reconciler import VictimReconciler, VictimRef

_log = logging.getLogger(__name__)


class ReconcilerRegistry:
    """Keepers by the uid of their victim."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._gangs = GangRegistry(tools, self._join_gang)
        self._reconcilers: dict[str, VictimReconciler] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, uid: str | None) -> bool:
        return uid in self._reconcilers

    def pod(self, uid: str) -> VictimPod | None:
        """Return a victim as it was seen last, `None` where it is none."""
        keeper = self._reconcilers.get(uid)
        return None if keeper is None else keeper.pod

    def pods(self) -> list[VictimPod]:
        """Return all victims as they were seen last."""
        return [keeper.pod for keeper in self._reconcilers.values() if keeper.pod is not None]

    def on_pod_update(self, pod: VictimPod) -> None:
        """Take in what the watch saw."""
        if pod.metadata.uid in self._reconcilers or pod_state.is_victim(pod.metadata):
            self._get_or_start(pod.metadata).on_pod_update(pod)

    def on_pod_delete(self, uid: str) -> None:
        """Have a pod looked at that the watch no longer sees: it is gone, or its label is."""
        if uid in self._reconcilers:
            self._reconcilers[uid].request_reread()

    def enqueue(self, metadata: VersionedMeta) -> None:
        """Have a pod looked at that no event told of."""
        self._get_or_start(metadata).request_reread()

    def _join_gang(self, pod: VictimPod, gang_eviction: GangEviction) -> None:
        """Have a pod kept that goes with its gang."""
        keeper = self._get_or_start(pod.metadata)
        keeper.join_gang(gang_eviction)
        keeper.on_pod_update(pod)

    def count_by_phase(self) -> Mapping[str, int]:
        """Return the number of victims in each phase that has any."""
        return Counter(keeper.phase.value for keeper in self._reconcilers.values())

    def count_stuck(self) -> int:
        """Return the number of victims that are there long after their grace."""
        return sum(keeper.is_stuck for keeper in self._reconcilers.values())

    def queue_age_seconds(self) -> float:
        """Return how long the oldest victim has waited for its first write; 0 where none waits."""
        return max((keeper.waiting_seconds for keeper in self._reconcilers.values()), default=0.0)

    async def close(self) -> None:
        """End all keepers; the victims' states are on the pods."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _get_or_start(self, metadata: VersionedMeta) -> VictimReconciler:
        uid = metadata.uid or ""
        if uid not in self._reconcilers:
            victim = VictimRef(metadata.namespace or "", metadata.name or "", uid)
            self._reconcilers[uid] = VictimReconciler(victim, self._tools, self._gangs)
            task = asyncio.create_task(self._reconcilers[uid].run(), name=f"keeper of {uid}")
            self._tasks[uid] = task
            task.add_done_callback(lambda done: self._on_done(uid, done))
        return self._reconcilers[uid]

    def _on_done(self, uid: str, task: "asyncio.Task[None]") -> None:
        keeper = self._reconcilers.pop(uid)
        del self._tasks[uid]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, NotLeading):
            # The sweep finds the victim again; a keeper that fails at once on each event would loop.
            _log.error(
                "keeper failed",
                exc_info=error,
                extra={"pod": f"{keeper.victim.namespace}/{keeper.victim.name}"},
            )
