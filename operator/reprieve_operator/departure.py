"""One victim from TERMINATING on: the ledger, the condition, the DELETE, and the wait for whoever holds the object.

Whether it goes is decided before (`life`); what this process knows of the end may be lost at any instant.
"""

import logging
from collections.abc import Callable

from reprieve_policy import checkpoint
from reprieve_policy.eviction import Eviction
from reprieve_policy.life import Decision
from reprieve_runtime.api import ApiError

from . import observe
from .ending import Ending
from .pods import Pod
from .tools import Tools

_log = logging.getLogger(__name__)

HOPELESS = (400, 403, 422)
"""Asking once more will not be answered otherwise."""
NO_ROOM = 422
"""What a write gets where the pod's own annotations fill the 262,144 bytes that the API server allows."""


class Departure:
    """Between one keeper and the end of its victim."""

    def __init__(self, tools: Tools, see: Callable[[Pod], None], written: Callable[[Pod, Decision], None]) -> None:
        self.unwritten: Eviction | None = None
        """The state, where the pod has no room for it."""
        self._tools = tools
        self._see = see
        self._written = written
        self._ending = Ending(tools)
        self._deleted_version: str | None = None

    def is_stuck(self, pod: Pod | None) -> bool:
        """True where the victim is there long after its grace was over."""
        return self._ending.is_stuck(pod)

    def looked(self) -> None:
        """Take note that the pod was read: should the DELETE not show in it, it is made again."""
        self._deleted_version = None

    async def proceed(self, pod: Pod, decision: Decision) -> float:
        """Bring the victim to its end; return the seconds until there is more to do, should nothing happen before."""
        state, resync = decision.eviction, self._tools.settings.resync_interval_seconds
        if pod.metadata.deletionTimestamp is not None:
            return await self._wait_for_end(pod, decision)
        if pod.metadata.resourceVersion == self._deleted_version:
            return resync  # Deleted, but the watch has not told yet.
        await self._record(pod, state)
        marked = await self._write_end(pod, state)
        self._see(marked)
        self._written(pod, decision)
        if await self._tools.effects.delete(marked, state):
            self._tools.tally.deleted(marked, state)
        self._deleted_version = marked.metadata.resourceVersion
        return resync

    async def _write_end(self, pod: Pod, state: Eviction) -> Pod:
        """Write the state and the condition; only the condition where the pod has no room for the state."""
        try:
            return await self._tools.effects.write_disruption(pod, state)
        except ApiError as error:
            if error.status != NO_ROOM:
                raise
        self.unwritten = state
        return await self._tools.effects.write_disruption(pod, None)

    async def _wait_for_end(self, pod: Pod, decision: Decision) -> float:
        if decision.moves:
            try:
                pod = await self._tools.effects.write_state(pod, decision.eviction, None, begins=False)
            except ApiError as error:
                if error.status != NO_ROOM:
                    raise
                self.unwritten = decision.eviction
            self._see(pod)
            self._written(pod, decision)
        pause = self._ending.wait(pod)
        if self._ending.may_let_go(pod):
            self._see(await self._tools.effects.let_go(pod.metadata))
        return pause

    async def _record(self, pod: Pod, state: Eviction) -> None:
        plan = observe.plan_of(pod, self._tools.policy.current)
        if plan.requeue is checkpoint.Requeue.NEVER:
            return
        try:
            await self._tools.ledger.record(pod, state, self._tools.clock.now())
        except ApiError as error:
            # A right that we lack comes with no retry: what is inherited is lost, but the victim must go.
            if error.status not in HOPELESS:
                raise
            _log.error("ledger not written", extra={"pod": pod.metadata.key, "error": str(error)})
