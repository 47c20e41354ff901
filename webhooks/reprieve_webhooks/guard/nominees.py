"""The pending pods that a scheduler has nominated to a node, watched: there are as many as preemptions are under way."""

import asyncio

from reprieve_policy import nominee
from reprieve_policy.choosing.objects import Pod
from reprieve_policy.nominee import Nominee
from reprieve_runtime.api import Api, ApiError
from reprieve_runtime.paths import object_path
from reprieve_runtime.reflector import Reflector

PATIENCE_SECONDS = 0.5
"""For a nomination that is on its way: where preemption is asynchronous it is written while the victim is deleted."""
_LONGEST_SILENCE_SECONDS = 150.0
"""Bookmarks come once a minute, and a watch that is silent for 90 s is begun anew: this one could not be."""
_BARRED_RETRY_SECONDS = 10.0
_VAIN = 3
"""Times in a row that nothing came, and nobody was nominated anywhere: each time a scheduling loop may have stood still."""


class Nominees:
    """Finds whom a victim makes room for."""

    def __init__(self, api: Api) -> None:
        self._changed = asyncio.Event()
        self._vain = 0
        self.reflector: Reflector[Pod, Nominee] = Reflector(
            api,
            object_path("pods"),
            Pod,
            self._keep,
            params={"fieldSelector": "status.nominatedNodeName!=,spec.nodeName="},
            # Who does without the guard grants no such right, and waits for no such list.
            absent_retry_seconds=_BARRED_RETRY_SECONDS,
            absent=(403,),
        )

    @property
    def is_known(self) -> bool:
        """True where it is known who is nominated: listed, and heard of lately."""
        return self.reflector.is_served and self.reflector.age_seconds <= _LONGEST_SILENCE_SECONDS

    async def infer(self, node: str, victim_priority: int, *, may_wait: bool) -> Nominee | None:
        """Return the preemptor, `None` where none is known; raises `ApiError` where that cannot be known."""
        if not self.is_known:
            raise ApiError(0, "NotKnown", "nobody knows now which pods are nominated")
        found = self._infer(node, victim_priority)
        if found is None and may_wait and self._vain < _VAIN:
            found = await self._await(node, victim_priority)
            self._vain += found is None
        return found

    def _infer(self, node: str, victim_priority: int) -> Nominee | None:
        return nominee.infer(self.reflector.items.values(), node, victim_priority)

    async def _await(self, node: str, victim_priority: int) -> Nominee | None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (found := self._infer(node, victim_priority)) is None:
                    await self._changed.wait()
        except TimeoutError:
            return None
        return found

    def _keep(self, pod: Pod) -> Nominee:
        self._vain = 0
        # Whoever waits goes on once the watch has stored it.
        self._changed.set()
        self._changed = asyncio.Event()
        return Nominee(pod=pod)
