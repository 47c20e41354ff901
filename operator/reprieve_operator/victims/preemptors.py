"""Watches the preemptors of victims: which of them have left the node that victims make room on.

A preemptor is a pending pod that is nominated to a node. It leaves when it is bound, to any node,
when it is nominated to none, when it is gone, and when it is nominated to another node on which it
has victims as well. The watch shows only that it is no longer nominated: while it has victims, the
pod is read once, and if it is bound or gone, its victims stay at once. A nomination to another node
alone is no reason: kube-scheduler nominates before it asks for victims, and the guard refuses a
second set of them while the first one saves.

Only a preemptor that this process has seen nominated to the victim's node can leave it. Without
this, victims would be taken back although no preemptor was nominated: those of a scheduler that
nominates none, and those that a gang needs on other nodes than its first pod. The watch runs only
while victims name a preemptor.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve_operator.background import background
from reprieve_operator.clock import Clock
from reprieve_policy.gangs import membership
from reprieve_policy.kube.objects import (
    PodView,
    SchedulingGroup,
    Spec,
    VersionedMeta,
    annotations_of,
    labels_of,
)
from reprieve_policy.kube.pods import PodStatus
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector

from .victim_sets import VictimSets

_LEFT_SECONDS = 3.0
"""A scheduler that retries may clear a nomination and set it again in its next cycle. This is no
wait for a preemptor that is bound or gone."""
_IDLE_SECONDS = 60.0
"""The watch is kept for this time. Without this, each victim would cost a list."""
_PAGE = 50
"""Pods in one page of a list: each may have 256 KiB of annotations, all in memory at once."""
_WAKE_MARGIN_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreemptorSpec:
    nodeName: str = ""  # noqa: N815 - the API's own name
    schedulingGroup: SchedulingGroup | None = None  # noqa: N815 - the API's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptorPod:
    """A pending pod with its nomination and its gang; nothing else of it is decoded."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _PreemptorSpec = field(default_factory=_PreemptorSpec)
    status: PodStatus = field(default_factory=PodStatus)


@dataclass(slots=True)
class _Departure:
    """When a preemptor left the node of its victims; both times are on the monotonic clock."""

    at: float
    counts_from: float


class Preemptors:
    """The nominated pods of one term, and when each left the node of its victims."""

    def __init__(
        self,
        api: Api,
        sets: VictimSets,
        clock: Clock,
        *,
        left_seconds: float = _LEFT_SECONDS,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._api = api
        self._sets = sets
        self._clock = clock
        self._left_seconds = left_seconds
        self._idle_seconds = idle_seconds
        self._nominations: dict[Key, VictimSetKey] = {}
        self._gang_pods: set[Key] = set()
        self._departures: dict[VictimSetKey, _Departure] = {}
        self._to_read: asyncio.Queue[tuple[Key, VictimSetKey]] = asyncio.Queue()

    async def run(self) -> None:
        """Watch while there are victims with a preemptor, until cancelled."""
        while True:
            await self._sets.wait_until_any()
            async with background(self._make_reflector().run, self._read_departed):
                await self._wait_until_idle()
            self._nominations.clear()
            self._gang_pods.clear()
            self._departures.clear()

    async def _wait_until_idle(self) -> None:
        while True:
            await self._sets.wait_until_none()
            await asyncio.sleep(self._idle_seconds)
            if not self._sets.has_any:
                return

    def has_left(self, uid: str) -> bool:
        """True if a victim's preemptor left its node, after the victim was marked."""
        victim = self._sets.find(uid)
        departure = None if victim is None else self._departures.get(victim.key)
        if victim is None or departure is None or departure.at < victim.joined_at:
            return False
        counts = self._clock.monotonic() >= departure.counts_from
        return counts and not self._has_only_moved(victim.key)

    def _has_only_moved(self, left: VictimSetKey) -> bool:
        """True if the preemptor is nominated to another node and has no victims there.

        The room that it left is then the only one that is being released for it.
        """
        return any(
            nomination.preemptor_uid == left.preemptor_uid and nomination not in self._sets
            for nomination in self._nominations.values()
        )

    def names(self) -> Mapping[str, Key]:
        """Return namespace and name of each nominated preemptor, by uid."""
        return {known.preemptor_uid: key for key, known in self._nominations.items()}

    def is_node_wanted(self, uid: str) -> bool:
        """True if any pod is nominated to the node of a victim."""
        victim = self._sets.find(uid)
        return victim is not None and any(
            nomination.node == victim.key.node for nomination in self._nominations.values()
        )

    def _make_reflector(self) -> Reflector[PreemptorPod, None]:
        return Reflector(
            self._api,
            object_path("pods"),
            PreemptorPod,
            self._handle_pod,
            on_delete=self._handle_delete,
            params={"fieldSelector": "status.nominatedNodeName!=,spec.nodeName="},
            page=_PAGE,
        )

    def _handle_pod(self, pod: PreemptorPod) -> None:
        metadata, node = pod.metadata, pod.status.nominatedNodeName or ""
        key = metadata.namespace or "", metadata.name or ""
        nomination = VictimSetKey(metadata.uid or "", node)
        if self._nominations.get(key, nomination) != nomination:
            self._handle_delete(key)
        self._nominations[key] = nomination
        self._departures.pop(nomination, None)
        if _is_in_gang(pod):
            self._gang_pods.add(key)

    def _handle_delete(self, key: Key) -> None:
        nomination, is_in_gang = self._nominations.pop(key), key in self._gang_pods
        self._gang_pods.discard(key)
        # Other pods of its gang may need the room of its victims.
        if not is_in_gang:
            self.note_left(nomination)
            self._to_read.put_nowait((key, nomination))

    def note_left(self, nomination: VictimSetKey) -> None:
        """Note that a preemptor has left a node, or waits no more for it without a nomination."""
        if nomination not in self._sets:
            return
        # Only those that still have victims, so that the map cannot grow for ever.
        self._departures = {
            one: departure for one, departure in self._departures.items() if one in self._sets
        }
        now = self._clock.monotonic()
        self._departures[nomination] = _Departure(now, now + self._left_seconds)
        delay = self._left_seconds + _WAKE_MARGIN_SECONDS
        asyncio.get_running_loop().call_later(delay, self._sets.wake, nomination)

    async def _read_departed(self) -> None:
        """Read the pods that have left, one after another, while their victims wait."""
        while True:
            key, nomination = await self._to_read.get()
            departure = self._departures.get(nomination)
            if departure is not None and await self._needs_no_room(key, nomination.preemptor_uid):
                departure.counts_from = departure.at
                self._sets.wake(nomination)

    async def _needs_no_room(self, key: Key, uid: str) -> bool:
        """True if the pod is bound or gone; false if that is not known."""
        namespace, name = key
        try:
            pod = await self._api.get(object_path("pods", namespace, name), PreemptorPod)
        except ApiError as error:
            return error.is_not_found
        return pod.metadata.uid != uid or bool(pod.spec.nodeName)


def _is_in_gang(pod: PreemptorPod) -> bool:
    """True if the pod is placed together with others; pods of a batch Job are placed alone."""
    spec = Spec(schedulingGroup=pod.spec.schedulingGroup)
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    gang = membership.read(PodView("", labels, annotations, spec, is_template=False))
    return gang is not None and not gang.is_batch_job
