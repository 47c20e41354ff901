"""The pending pods that a scheduler has nominated to a node, watched: there are as many as preemptions are under way."""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from reprieve_policy.preemption import nominated_pods
from reprieve_policy.preemption.nominated_pods import FreedCapacity, NominatedPod
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_webhooks.snapshot import pod_pruning

from .scheduler_mode import SchedulerMode

NOMINATION_WAIT_SECONDS = 0.5
"""For a nomination that is on its way: where preemption is asynchronous it is written while the victim is deleted."""
_MAX_SILENCE_SECONDS = 150.0
"""Bookmarks come once a minute, and a watch that is silent for 90 s is begun anew: this one could not be."""
_FORBIDDEN_RETRY_SECONDS = 10.0
_RECENT_SECONDS = 1.0
"""Asynchronous preemption nominates milliseconds before the deletion, or after. Synchronous too, where the pod before preempted on
the same node: so it is only probable, and not even that where a deletion on the node was accepted just before it."""
_MAX_NODES = 5000
"""Where deletions were accepted lately; the oldest go first where there are more."""
_MAX_EMPTY_WAITS = 3
"""Times in a row that nothing came, and nobody was nominated anywhere: each time a scheduling loop may have stood still."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A nomination, and since when it is known here."""

    nominee: NominatedPod
    since: float


class NominatedPods:
    """Finds whom a victim makes room for."""

    def __init__(self, api: Api, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._changed = asyncio.Event()
        self._empty_waits = 0
        self._accepted_deletions: dict[str, float] = {}
        self.reflector: Reflector[Pod, Nomination] = Reflector(
            api,
            object_path("pods"),
            Pod,
            self._keep,
            params={"fieldSelector": "status.nominatedNodeName!=,spec.nodeName="},
            # Who does without the guard grants no such right, and waits for no such list.
            absent_retry_seconds=_FORBIDDEN_RETRY_SECONDS,
            absent_statuses=(403,),
        )

    @property
    def is_fresh(self) -> bool:
        """True where it is known who is nominated: listed, and heard of lately."""
        return self.reflector.is_served and self.reflector.age_seconds <= _MAX_SILENCE_SECONDS

    def record_accepted_deletion(self, node: str) -> None:
        """Take note that a scheduler may delete a pod of this node."""
        self._accepted_deletions.pop(node, None)
        self._accepted_deletions[node] = self.monotonic()
        if len(self._accepted_deletions) > _MAX_NODES:
            del self._accepted_deletions[next(iter(self._accepted_deletions))]

    async def possible_preemptors(
        self,
        vacancy: FreedCapacity,
        chosen_for: Collection[str],
        is_enough: Callable[[Sequence[NominatedPod]], bool],
    ) -> tuple[Sequence[NominatedPod], SchedulerMode]:
        """Return for whom a victim may go, the most probable first, and how their nomination shows their scheduler's pace.

        `chosen_for`: the uids of those for whom the extender chose it, before all others the ones. Else it is who is turned away
        and nominated while this is asked, or was a moment ago: of the others nobody knows why they are there. Where these are not
        enough, another is waited for. Raises `ApiError` where nothing can be known.
        """
        if not self.is_fresh:
            raise ApiError(0, "NotKnown", "nobody knows now which pods are nominated")
        before = self._candidates(vacancy)
        fresh = _unschedulable(self._candidates(vacancy, since=self.monotonic() - _RECENT_SECONDS))
        chosen = _with_uids(before, chosen_for)
        if chosen:
            return chosen, SchedulerMode.PROBABLY_ASYNCHRONOUS if _with_uids(
                fresh, chosen_for
            ) else SchedulerMode.UNKNOWN
        # A nomination of a moment ago says nothing where the victim was chosen for another pod, whose own is on its way.
        probable = [] if chosen_for else fresh
        if probable and not self._follow_accepted_deletion(probable):
            return probable, SchedulerMode.PROBABLY_ASYNCHRONOUS
        known = probable or before
        if is_enough(known) or self._empty_waits >= _MAX_EMPTY_WAITS:
            return known, SchedulerMode.UNKNOWN
        new = await self._wait_for_new(vacancy, {one.uid for one in before}, chosen_for)
        self._empty_waits += not new
        return (new, SchedulerMode.ASYNCHRONOUS) if new else (known, SchedulerMode.UNKNOWN)

    def exempt_preemptors(self, vacancy: FreedCapacity) -> list[NominatedPod]:
        """Return Kubernetes' own among those for whom a victim may go, whoever is more probable."""
        return [one for one in _unschedulable(self._candidates(vacancy)) if one.is_exempt]

    def _candidates(self, vacancy: FreedCapacity, since: float = -math.inf) -> list[NominatedPod]:
        seen = (one.nominee for one in self.reflector.items.values() if one.since >= since)
        return nominated_pods.possible_preemptors(seen, vacancy)

    def _follow_accepted_deletion(self, nominees: Sequence[NominatedPod]) -> bool:
        """True where one of these nominations came so soon after a deletion on its node was accepted that it may be its end.

        Without this, a synchronous scheduler that has placed a pod there would be told to wait with the next pod's victim.
        """
        uids, least = {one.uid for one in nominees}, self.monotonic() - 2 * _RECENT_SECONDS
        seen = (one for one in self.reflector.items.values() if one.nominee.uid in uids)
        return any(
            least <= self._accepted_deletions.get(one.nominee.node, -math.inf) <= one.since
            for one in seen
        )

    async def _wait_for_new(
        self, vacancy: FreedCapacity, known: Collection[str], chosen_for: Collection[str]
    ) -> list[NominatedPod]:
        """Return who is turned away and nominated meanwhile; of several, those for whom the victim was chosen."""
        found: list[NominatedPod] = []
        try:
            async with asyncio.timeout(NOMINATION_WAIT_SECONDS):
                while True:
                    found = [
                        one
                        for one in _unschedulable(self._candidates(vacancy))
                        if one.uid not in known
                    ]
                    chosen = _with_uids(found, chosen_for)
                    if chosen or (found and not chosen_for):
                        return chosen or found
                    await self._changed.wait()
        except TimeoutError:
            return found

    def _keep(self, pod: Pod) -> Nomination:
        self._empty_waits = 0
        # Whoever waits goes on once the watch has stored it.
        self._changed.set()
        self._changed = asyncio.Event()
        found = NominatedPod(pod=pod_pruning.prune(pod)[0])
        return Nomination(found, self._known_since(found))

    def _known_since(self, found: NominatedPod) -> float:
        metadata = found.pod.metadata
        before = self.reflector.items.get((metadata.namespace or "", metadata.name or ""))
        if before is not None and (before.nominee.uid, before.nominee.node) == (
            found.uid,
            found.node,
        ):
            return before.since
        # What the first list has may be of any time.
        return self.monotonic() if self.reflector.is_synced else -math.inf


def _unschedulable(nominees: Sequence[NominatedPod]) -> list[NominatedPod]:
    return [one for one in nominees if one.was_unschedulable]


def _with_uids(nominees: Sequence[NominatedPod], uids: Collection[str]) -> list[NominatedPod]:
    return [one for one in nominees if one.uid in uids]
