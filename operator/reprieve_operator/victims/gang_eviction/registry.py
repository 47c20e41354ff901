"""Gangs that are evicted as a unit: one list of a gang's pods for each decision about it.

Victims of a gang that is evicted pod by pod share the list of a second (`spare_pods`).

`gangs.disruption` decides which gangs are evicted as a unit, and which pods that includes. Each
pod's reconciler then notifies and deletes its own pod. A victim in no such gang costs no call.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakValueDictionary

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import kept_pods, pod_state
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.turns import Turns
from reprieve_operator.victims.assessment import VictimAssessor
from reprieve_policy.gangs import disruption, pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.lifecycle.eviction import Eviction, Protection, Source
from reprieve_policy.preemption import protection
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .eviction import GangEviction
from .spare_pods import GangKey, SparePods

_log = logging.getLogger(__name__)

_MAX_CONCURRENT_LISTS = 8
"""The pods of a gang without a label are found by listing the whole namespace. Each namespace has a
share. Without it, those with a thousand such gangs would delay the notice of all others."""
_TOO_LARGE_SECONDS = 60.0
"""How long a gang that is too large is not listed again, however many of its pods are marked."""
_CANCEL_WAIT_SECONDS = 10.0
"""The longest time that a pod that cannot be written delays a new mark."""

OnMember = Callable[[VictimPod, GangEviction], None]
"""Starts the reconciler of a pod that is evicted with its gang."""


class GangRegistry:
    """The evictions of whole gangs in one term."""

    def __init__(
        self,
        writes: Writes,
        recorder: EventRecorder,
        clock: Clock,
        make_assessor: Callable[[], VictimAssessor],
        on_member: OnMember,
    ) -> None:
        self._writes = writes
        self._recorder = recorder
        self._clock = clock
        self._make_assessor = make_assessor
        self._on_member = on_member
        self._evictions: dict[GangKey, GangEviction] = {}
        self._spare_pods = SparePods(clock.monotonic)
        self._too_large_until: dict[GangKey, float] = {}
        self._turns = Turns()
        """Of the pods of all gangs. Without this, one mark on a gang of thousands would keep the
        Lease from being renewed, and the next leader would find the mark again."""
        self.starts: set[asyncio.Task[None]] = set()
        """Tasks that start the reconcilers of gangs."""
        self._locks: WeakValueDictionary[GangKey, asyncio.Lock] = WeakValueDictionary()
        self._list_limiter = CallLimiter(_MAX_CONCURRENT_LISTS, keeps_share_free=True)

    async def find_eviction(self, pod: VictimPod, state: Eviction) -> GangEviction | None:
        """Return the eviction of the pod's gang; `None`: the pod is evicted alone.

        Raises `ApiError`.
        """
        gang = pod_state.gang_of(pod)
        if gang is None:
            return None
        mode = disruption.disruption_mode_of(gang, pod.metadata)
        minimum = disruption.protected_minimum(gang)
        if mode is DisruptionMode.SINGLE and not minimum:
            return None
        key = pod.metadata.namespace or "", disruption.identity_of(gang)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._evictions.get(key)
            if known is not None and (known.accepts_members or known.is_held or state.gang):
                return known
            if known is not None and known.is_cancelled:
                # Without this, a mark that is set again at once would count as a part of the
                # eviction that is being cancelled.
                await known.wait_empty(_CANCEL_WAIT_SECONDS)
            if mode is DisruptionMode.FROM_POD_GROUP and not state.gang:
                mode = await self._read_disruption_mode(key[0], gang.name)
            is_single = mode is DisruptionMode.SINGLE
            if is_single and not minimum:
                return None
            # A written decision about the whole gang stands if it could spare the pod now.
            must_stay = minimum if is_single and not state.gang else 0
            pods = await self._list_unless_spared(gang, key, pod, must_stay)
            return None if pods is None else self._create_eviction(key, pods, state)

    async def assess_protection(self, eviction: GangEviction, state: Eviction) -> None:
        """Decide, once, what protects the whole gang against a preemption; raises `ApiError`."""
        async with eviction.assess_lock:
            if not eviction.is_assessed:
                found = await self._protections(eviction.pods_to_start, state)
                eviction.protection = protection.protection_of_gang(found)
                eviction.is_assessed = True

    async def _protections(
        self, pods: Sequence[VictimPod], state: Eviction
    ) -> list[Protection | None]:
        """Return what protects each pod, up to the first that protects the whole gang."""
        # One for each controller: the pods of a Job share its walltime, which is read once.
        assessors: defaultdict[str, VictimAssessor] = defaultdict(self._make_assessor)
        protections: list[Protection | None] = []
        for pod in pods:
            await self._turns.wait()
            owner = controller_of(pod.metadata)
            assessor = assessors[owner.uid if owner else ""]
            found = await assessor.protection_of(pod, state)
            protections.append(found)
            if found is not None and found.until is None:
                break
        return protections

    def start(self, eviction: GangEviction) -> None:
        """Start the reconcilers of the gang's other pods, once the first pod has its notice."""
        eviction.is_in_progress = True
        included, eviction.pods_to_start = eviction.pods_to_start, []
        if included and not eviction.is_cancelled:
            eviction.is_starting = True
            task = asyncio.create_task(self._start_members(eviction, included))
            self.starts.add(task)
            task.add_done_callback(self.starts.discard)

    async def _start_members(self, eviction: GangEviction, pods: Sequence[VictimPod]) -> None:
        try:
            for pod in pods:
                await self._turns.wait()
                self._on_member(pod, eviction)
        finally:
            eviction.on_started()
            if eviction.is_empty:
                self.remove(eviction)

    def record_gang_event(self, eviction: GangEviction, pod: VictimPod, state: Eviction) -> None:
        """Report on a pod that its whole gang is evicted."""
        requested_for = "another of its pods" if state.source is Source.GANG else "this pod"
        note = (
            f'its gang "{eviction.identity}" is evicted as a unit, {eviction.pod_count} pods '
            f"in all: the eviction of {requested_for} was requested"
        )
        self._recorder.event(ObjectReference.for_pod(pod.metadata), "GangGoesAsAWhole", note)

    def remove(self, eviction: GangEviction) -> None:
        """Drop an eviction that has no members left."""
        self._evictions = {
            key: known for key, known in self._evictions.items() if known is not eviction
        }

    async def _read_disruption_mode(self, namespace: str, name: str) -> DisruptionMode:
        """Return the mode of the native PodGroup; `SINGLE` if it does not exist."""
        try:
            path = object_path("podgroups", namespace, name)
            group = await self._writes.get(path, PodGroup, CallPriority.NOTIFY)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            # The type is served since the operator got its rights: treat it as absent.
            return DisruptionMode.SINGLE
        return DisruptionMode.SINGLE if group is None else pod_group.read(group).disruption_mode

    async def _list_unless_spared(
        self, gang: Gang, key: GangKey, pod: VictimPod, must_stay: int
    ) -> dict[str, VictimPod] | None:
        """Return all pods of the gang by uid; `None` if the pod is evicted alone.

        `must_stay`: how many others the gang needs; 0 if it is evicted as a unit. Raises
        `ApiError`.
        """
        uid = pod.metadata.uid or ""
        if must_stay and self._spare_pods.try_take(key, uid, must_stay):
            return None
        pods = await self._list_unless_too_large(gang, key, pod)
        if pods is None or not must_stay:
            return pods
        members = map(pod_state.member_of, pods.values())
        is_alone = not pods or self._spare_pods.try_take_listed(key, uid, must_stay, members)
        return None if is_alone else pods

    def _create_eviction(
        self, key: GangKey, pods: Mapping[str, VictimPod], state: Eviction
    ) -> GangEviction:
        decision = disruption.decide_gang(key[1], state, map(pod_state.member_of, pods.values()))
        eviction = self._evictions[key] = GangEviction(key[1], decision, pods)
        _log.info(
            "gang is evicted as a unit",
            extra={"gang": f"{key[0]}/{key[1]}", "pods": eviction.pod_count},
        )
        return eviction

    async def _list_unless_too_large(
        self, gang: Gang, key: GangKey, pod: VictimPod
    ) -> dict[str, VictimPod] | None:
        """Return all pods of the gang by uid; `None`, reported on the pod, if there are too many.

        Raises `ApiError`.
        """
        now = self._clock.monotonic()
        self._too_large_until = {
            known: until for known, until in self._too_large_until.items() if until > now
        }
        if key in self._too_large_until:
            return None
        pods = await self._list_members(gang, key)
        if pods is None:
            self._too_large_until[key] = now + _TOO_LARGE_SECONDS
            note = (
                f'gang "{key[1]}" has more than {disruption.MAX_MEMBERS} pods, '
                "so only this one is evicted"
            )
            self._recorder.event(ObjectReference.for_pod(pod.metadata), "GangTooLarge", note)
        return pods

    async def _list_members(self, gang: Gang, key: GangKey) -> dict[str, VictimPod] | None:
        """Return all pods of the gang by uid; `None` if there are too many."""
        params = {} if gang.selector is None else {"labelSelector": gang.selector}
        found: dict[str, VictimPod] = {}
        async with self._list_limiter.acquire(CallPriority.NOTIFY, key[0]):
            async for pods in self._writes.list_pages(
                object_path("pods", key[0]), VictimPod, params=params
            ):
                found.update(
                    (pod.metadata.uid or "", kept_pods.prune_victim(pod))
                    for pod in pods
                    if _is_member_of(key[1], pod)
                )
                if len(found) > disruption.MAX_MEMBERS:
                    return None
        return found


def _is_member_of(identity: str, pod: VictimPod) -> bool:
    gang = pod_state.gang_of(pod)
    return gang is not None and disruption.identity_of(gang) == identity
