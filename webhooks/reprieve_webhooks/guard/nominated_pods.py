"""Watches the pending pods with a nominated node: as many as there are preemptions under way."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption import nominated_pods
from reprieve_policy.preemption.nominated_pods import FreedCapacity, NominatedPod
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_webhooks.snapshot import pod_pruning
from reprieve_webhooks.snapshot.informers import MAX_SILENCE_SECONDS

from .scheduler_mode import SchedulerMode

NOMINATION_WAIT_SECONDS = 0.5
"""To wait for a nomination: asynchronous preemption writes it while it deletes the victim."""
_FORBIDDEN_RETRY_SECONDS = 10.0
_RECENT_SECONDS = 1.0
"""Asynchronous preemption nominates milliseconds before the deletion or after it. So does
synchronous preemption if the previous pod preempted on the same node. So asynchronous preemption is
only probable, and not even that if a deletion on the node was accepted just before."""
_MAX_NODES = 5000
"""Nodes with accepted deletions; beyond that, the oldest are forgotten."""
_MAX_EMPTY_WAITS = 3
"""Waits in a row without any nomination: each may have held up a scheduling loop.

Those on nodes where a preemptor is known are counted apart: a preemptor that is refused may come
back every few seconds, for ever. Without this, its waits would be the last, and the next preemptor,
whose deletion comes before its nomination, would count as one of whom nothing is known.
"""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A nominated pod, and since when this replica knows of the nomination."""

    nominee: NominatedPod
    since: float


class NominatedPods:
    """Finds the pods that a victim may make room for."""

    def __init__(self, api: Api, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._changed = asyncio.Event()
        self._empty_waits: Counter[bool] = Counter()
        """Since the last nomination, by whether a preemptor was known on the node."""
        self._accepted_deletions: BoundedDict[str, float] = BoundedDict(_MAX_NODES)
        self.reflector: Reflector[Pod, Nomination] = Reflector(
            api,
            object_path("pods"),
            Pod,
            self._keep,
            params={"fieldSelector": "status.nominatedNodeName!=,spec.nodeName="},
            # Without the guard, this permission is missing; readiness must not wait for the list.
            absent_retry_seconds=_FORBIDDEN_RETRY_SECONDS,
            absent_statuses=(HTTPStatus.FORBIDDEN,),
        )

    @property
    def is_fresh(self) -> bool:
        """True where the nominated pods are known: they are listed, and the watch is not silent."""
        return self.reflector.is_served and self.reflector.age_seconds <= MAX_SILENCE_SECONDS

    def record_accepted_deletion(self, node: str) -> None:
        """Record that a scheduler's deletion of a pod of this node was allowed."""
        self._accepted_deletions[node] = self.monotonic()

    async def possible_preemptors(
        self,
        capacity: FreedCapacity,
        chosen_for: Collection[str],
        is_enough: Callable[[Sequence[NominatedPod]], bool],
        *,
        is_asynchronous: bool = False,
    ) -> tuple[Sequence[NominatedPod], SchedulerMode]:
        """Return the pods that a victim may make room for, and the mode of their scheduler.

        The most probable preemptor is first; the time of its nomination shows the mode.
        `chosen_for`: the uids of the pods for which the extender chose the victim; these come
        before all others. Otherwise it is a pod that is unschedulable and gets its nomination
        during this call, or got it a moment ago: why the others are nominated is unknown. If
        `is_enough` rejects them, the call waits for another one. `is_asynchronous`: the policy says
        so of schedulers, so that no wait holds up a scheduling loop. Raises `ApiError` if the
        nominated pods are unknown.
        """
        if not self.is_fresh:
            raise ApiError(0, "NotKnown", "the nominated pods are not known now")
        known = self._candidates(capacity)
        recent = _unschedulable(
            self._candidates(capacity, since=self.monotonic() - _RECENT_SECONDS)
        )
        chosen = _with_uids(known, chosen_for)
        if chosen:
            return chosen, SchedulerMode.PROBABLY_ASYNCHRONOUS if _with_uids(
                recent, chosen_for
            ) else SchedulerMode.UNKNOWN
        # A recent nomination shows nothing if the extender chose the victim for another pod, whose
        # nomination will come.
        probable = [] if chosen_for else recent
        if probable and not self._follow_accepted_deletion(probable):
            return probable, SchedulerMode.PROBABLY_ASYNCHRONOUS
        nominees = probable or known
        knows_preemptor = bool(_unschedulable(known))
        may_wait = is_asynchronous or self._empty_waits[knows_preemptor] < _MAX_EMPTY_WAITS
        if is_enough(nominees) or not may_wait:
            return nominees, SchedulerMode.UNKNOWN
        new = await self._wait_for_new(capacity, {one.uid for one in known}, chosen_for)
        self._empty_waits[knows_preemptor] += not new
        return (new, SchedulerMode.ASYNCHRONOUS) if new else (nominees, SchedulerMode.UNKNOWN)

    def exempt_preemptors(self, capacity: FreedCapacity) -> list[NominatedPod]:
        """Return the system-critical pods that a victim may make room for."""
        return [one for one in _unschedulable(self._candidates(capacity)) if one.is_exempt]

    def _candidates(self, capacity: FreedCapacity, since: float = -math.inf) -> list[NominatedPod]:
        nominees = (one.nominee for one in self.reflector.items.values() if one.since >= since)
        return nominated_pods.possible_preemptors(nominees, capacity)

    def _follow_accepted_deletion(self, nominees: Sequence[NominatedPod]) -> bool:
        """True where one of these nominations came so soon after an accepted deletion on its node.

        It may then belong to that deletion. Without this, a synchronous scheduler that has placed a
        pod there would get a `retryAfterSeconds` for the next pod's victim.
        """
        uids, earliest = {one.uid for one in nominees}, self.monotonic() - 2 * _RECENT_SECONDS
        nominations = (one for one in self.reflector.items.values() if one.nominee.uid in uids)
        return any(
            earliest <= self._accepted_deletions.get(one.nominee.node, -math.inf) <= one.since
            for one in nominations
        )

    async def _wait_for_new(
        self, capacity: FreedCapacity, known: Collection[str], chosen_for: Collection[str]
    ) -> list[NominatedPod]:
        """Return unschedulable pods that are nominated meanwhile; first those in `chosen_for`."""
        found: list[NominatedPod] = []
        try:
            async with asyncio.timeout(NOMINATION_WAIT_SECONDS):
                while True:
                    found = [
                        one
                        for one in _unschedulable(self._candidates(capacity))
                        if one.uid not in known
                    ]
                    chosen = _with_uids(found, chosen_for)
                    if chosen or (found and not chosen_for):
                        return chosen or found
                    await self._changed.wait()
        except TimeoutError:
            return found

    def _keep(self, pod: Pod) -> Nomination:
        self._empty_waits.clear()
        # The tasks that wait continue once the watch has stored the pod.
        self._changed.set()
        self._changed = asyncio.Event()
        nominee = NominatedPod(pod=pod_pruning.prune(pod)[0])
        return Nomination(nominee, self._known_since(nominee))

    def _known_since(self, nominee: NominatedPod) -> float:
        metadata = nominee.pod.metadata
        before = self.reflector.items.get((metadata.namespace or "", metadata.name or ""))
        if before is not None and (before.nominee.uid, before.nominee.node) == (
            nominee.uid,
            nominee.node,
        ):
            return before.since
        # A nomination in the first list may be of any age.
        return self.monotonic() if self.reflector.is_synced else -math.inf


def _unschedulable(nominees: Sequence[NominatedPod]) -> list[NominatedPod]:
    return [one for one in nominees if one.was_unschedulable]


def _with_uids(nominees: Sequence[NominatedPod], uids: Collection[str]) -> list[NominatedPod]:
    return [one for one in nominees if one.uid in uids]
