"""All victims of this term: one keeper each, begun by what the watch and the sweep see."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_operator.cluster.pods import Pod, VersionedMeta

from .context import Tools
from .gang_eviction import Muster
from .gang_registry import Gangs
from .reconciler import Keeper, Victim

_log = logging.getLogger(__name__)


class Keepers:
    """Keepers by the uid of their victim."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._gangs = Gangs(tools, self._reach)
        self._keepers: dict[str, Keeper] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, uid: str | None) -> bool:
        return uid in self._keepers

    def pod(self, uid: str) -> Pod | None:
        """Return a victim as it was seen last, `None` where it is none."""
        keeper = self._keepers.get(uid)
        return None if keeper is None else keeper.pod

    def pods(self) -> list[Pod]:
        """Return all victims as they were seen last."""
        return [keeper.pod for keeper in self._keepers.values() if keeper.pod is not None]

    def see(self, pod: Pod) -> None:
        """Take in what the watch saw."""
        if pod.metadata.uid in self._keepers or pod_state.is_victim(pod.metadata):
            self._keeper(pod.metadata).see(pod)

    def lose(self, uid: str) -> None:
        """Have a pod looked at that the watch no longer sees: it is gone, or its label is."""
        if uid in self._keepers:
            self._keepers[uid].look()

    def look_at(self, metadata: VersionedMeta) -> None:
        """Have a pod looked at that no event told of."""
        self._keeper(metadata).look()

    def _reach(self, pod: Pod, muster: Muster) -> None:
        """Have a pod kept that goes with its gang."""
        keeper = self._keeper(pod.metadata)
        keeper.join(muster)
        keeper.see(pod)

    def by_phase(self) -> Mapping[str, int]:
        """Return the number of victims in each phase that has any."""
        return Counter(keeper.phase.value for keeper in self._keepers.values())

    def stuck(self) -> int:
        """Return the number of victims that are there long after their grace."""
        return sum(keeper.is_stuck for keeper in self._keepers.values())

    def queue_age_seconds(self) -> float:
        """Return how long the oldest victim has waited for its first write; 0 where none waits."""
        return max((keeper.waiting_seconds for keeper in self._keepers.values()), default=0.0)

    async def close(self) -> None:
        """End all keepers; the victims' states are on the pods."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keeper(self, metadata: VersionedMeta) -> Keeper:
        uid = metadata.uid or ""
        if uid not in self._keepers:
            victim = Victim(metadata.namespace or "", metadata.name or "", uid)
            self._keepers[uid] = Keeper(victim, self._tools, self._gangs)
            task = asyncio.create_task(self._keepers[uid].run(), name=f"keeper of {uid}")
            self._tasks[uid] = task
            task.add_done_callback(lambda done: self._ended(uid, done))
        return self._keepers[uid]

    def _ended(self, uid: str, task: "asyncio.Task[None]") -> None:
        keeper = self._keepers.pop(uid)
        del self._tasks[uid]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, NotLeading):
            # The sweep finds the victim again; a keeper that fails at once on each event would loop.
            _log.error(
                "keeper failed", exc_info=error, extra={"pod": f"{keeper.victim.namespace}/{keeper.victim.name}"}
            )
