"""Gangs that go as a whole: one look at all pods of a gang for each decision about it, and a keeper for each of them.

Which gang goes as a whole and which pods that reaches is `policy.disruption`'s; when they are told, hinted and deleted is
each keeper's own. A victim in no such gang costs no call.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from weakref import WeakValueDictionary

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.gangs import disruption, pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.gangs.pod_group import PodGroup
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle.eviction import Eviction, Source
from reprieve_policy.preemption import protection
from reprieve_policy.preemption.protection import Protection
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .assessment import VictimAssessor
from .context import Tools
from .gang_eviction import GangEviction

_log = logging.getLogger(__name__)

_MAX_CONCURRENT_LISTS, _MAX_LISTS_PER_NAMESPACE = 4, 2
"""Without a share, a namespace with a thousand gangs that no label tells would keep all others' from being told: each is found by
reading all of its pods."""
_TOO_LARGE_SECONDS = 60.0
"""A gang that is too large is not counted again within it, however many of its pods are marked."""
_CANCEL_WAIT_SECONDS = 10.0
"""A pod that cannot be written holds up a new mark no longer."""
_FORBIDDEN = 403
"""Served since our rights were given: as good as not there."""

_Key = tuple[str, str]


OnMember = Callable[[VictimPod, GangEviction], None]
"""Has a pod kept that goes with its gang."""


class GangRegistry:
    """One term's musters."""

    def __init__(self, tools: Tools, on_member: OnMember) -> None:
        self._tools = tools
        self._announcer = tools.announcer
        self._on_member = on_member
        self._evictions: dict[_Key, GangEviction] = {}
        self._too_large_until: dict[_Key, float] = {}
        self._locks: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._list_limiter = CallLimiter(
            _MAX_CONCURRENT_LISTS, limit_per_namespace=_MAX_LISTS_PER_NAMESPACE
        )

    async def find_eviction(self, pod: VictimPod, state: Eviction) -> GangEviction | None:
        """Return with whom the pod goes, `None` where it goes alone; raises `ApiError`."""
        found = pod_state.gang_of(pod)
        if found is None:
            return None
        mode = disruption.disruption_mode_of(found, pod.metadata)
        if mode is DisruptionMode.SINGLE:
            return None
        key = pod.metadata.namespace or "", disruption.identity_of(found)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._evictions.get(key)
            if known is not None and (known.accepts_members or state.gang):
                return known
            if known is not None and known.is_cancelled:
                # Without this, a mark that is set again at once would be taken for part of what is being taken back.
                await known.wait_empty(_CANCEL_WAIT_SECONDS)
            if mode is DisruptionMode.FROM_POD_GROUP and not state.gang:
                mode = await self._read_disruption_mode(key[0], found.name)
            return (
                await self._create_eviction(key, found, pod, state)
                if mode is not DisruptionMode.SINGLE
                else None
            )

    async def assess_protection(self, eviction: GangEviction, state: Eviction) -> None:
        """Find out, once, what protects a gang as a whole against the preemption that `state` is; raises `ApiError`."""
        async with eviction.assess_lock:
            if not eviction.is_assessed:
                eviction.protection = protection.protection_of_gang(
                    [found async for found in self._protections(eviction, state)]
                )
                eviction.is_assessed = True

    async def _protections(
        self, muster: GangEviction, state: Eviction
    ) -> AsyncIterator[Protection | None]:
        # One for each controller: the pods of a Job have its walltime, which is read once.
        assessments: defaultdict[str, VictimAssessor] = defaultdict(
            lambda: VictimAssessor(self._tools)
        )
        for pod in muster.newly_included:
            owner = controller_of(pod.metadata)
            _, found = await assessments[owner.uid if owner else ""].assess(pod, state)
            yield found

    def start(self, eviction: GangEviction) -> None:
        """Have all pods kept that a gang takes with it, once the first of them was told."""
        eviction.is_in_progress = True
        reached, eviction.newly_included = eviction.newly_included, []
        if not eviction.is_cancelled:
            for pod in reached:
                self._on_member(pod, eviction)

    def record_gang_event(self, eviction: GangEviction, pod: VictimPod, state: Eviction) -> None:
        """Say on a pod that it does not go alone."""
        why = (
            "another of its pods was asked to go"
            if state.source is Source.GANG
            else "this pod was asked to go"
        )
        note = f'its gang "{eviction.identity}" goes as a whole, {eviction.pod_count} pods in all: {why}'
        self._announcer.event(ObjectReference.for_pod(pod.metadata), "GangGoesAsAWhole", note)

    def remove(self, eviction: GangEviction) -> None:
        """Drop what nobody is part of any more."""
        self._evictions = {
            key: known for key, known in self._evictions.items() if known is not eviction
        }

    async def _read_disruption_mode(self, namespace: str, name: str) -> DisruptionMode:
        """Return what the native PodGroup says; one that is not there says nothing."""
        try:
            path = object_path("podgroups", namespace, name)
            group = await self._tools.effects.get(path, PodGroup, CallPriority.NOTIFY)
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            return DisruptionMode.SINGLE
        return DisruptionMode.SINGLE if group is None else pod_group.read(group).disruption_mode

    async def _create_eviction(
        self, key: _Key, gang: Gang, pod: VictimPod, state: Eviction
    ) -> GangEviction | None:
        now = self._tools.clock.monotonic()
        self._too_large_until = {
            known: until for known, until in self._too_large_until.items() if until > now
        }
        if key in self._too_large_until:
            return None
        pods = await self._list_members(gang, key)
        if pods is None:
            self._too_large_until[key] = now + _TOO_LARGE_SECONDS
            note = f'gang "{key[1]}" has more than {disruption.MAX_MEMBERS} pods, so only this one goes'
            self._announcer.event(ObjectReference.for_pod(pod.metadata), "GangTooLarge", note)
            return None
        roll = disruption.decide_gang(key[1], state, map(pod_state.member_of, pods.values()))
        muster = self._evictions[key] = GangEviction(key[1], roll, pods)
        _log.info("gang mustered", extra={"gang": f"{key[0]}/{key[1]}", "pods": muster.pod_count})
        return muster

    async def _list_members(self, gang: Gang, key: _Key) -> dict[str, VictimPod] | None:
        """Return all pods of the gang by uid; `None` where there are too many."""
        params = {} if gang.selector is None else {"labelSelector": gang.selector}
        found: dict[str, VictimPod] = {}
        async with self._list_limiter.acquire(CallPriority.NOTIFY, key[0]):
            async for pods in self._tools.effects.list_pages(
                object_path("pods", key[0]), VictimPod, params=params
            ):
                found.update(
                    (pod.metadata.uid or "", pod) for pod in pods if _is_member_of(key[1], pod)
                )
                if len(found) > disruption.MAX_MEMBERS:
                    return None
        return found


def _is_member_of(identity: str, pod: VictimPod) -> bool:
    found = pod_state.gang_of(pod)
    return found is not None and disruption.identity_of(found) == identity
