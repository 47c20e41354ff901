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
from reprieve_operator.cluster.call_limiter import Slots, Urgency
from reprieve_operator.cluster.event_recorder import Regarding
from reprieve_operator.cluster.pods import Pod
from reprieve_policy.gangs import disruption, pod_group
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.gangs.pod_group import Group
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle.eviction import Eviction, Source
from reprieve_policy.preemption import protection
from reprieve_policy.preemption.protection import Reprieve
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .assessment import Assessment
from .context import Tools
from .gang_eviction import Muster

_log = logging.getLogger(__name__)

_LISTS_AT_ONCE, _LISTS_OF_A_TENANT = 4, 2
"""Without a share, a namespace with a thousand gangs that no label tells would keep all others' from being told: each is found by
reading all of its pods."""
_TOO_LARGE_SECONDS = 60.0
"""A gang that is too large is not counted again within it, however many of its pods are marked."""
_TAKING_BACK_SECONDS = 10.0
"""A pod that cannot be written holds up a new mark no longer."""
_FORBIDDEN = 403
"""Served since our rights were given: as good as not there."""

_Key = tuple[str, str]


Reach = Callable[[Pod, Muster], None]
"""Has a pod kept that goes with its gang."""


class Gangs:
    """One term's musters."""

    def __init__(self, tools: Tools, reach: Reach) -> None:
        self._tools = tools
        self._announcer = tools.announcer
        self._reach = reach
        self._musters: dict[_Key, Muster] = {}
        self._too_large: dict[_Key, float] = {}
        self._locks: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        self._lists = Slots(_LISTS_AT_ONCE, share=_LISTS_OF_A_TENANT)

    async def muster(self, pod: Pod, state: Eviction) -> Muster | None:
        """Return with whom the pod goes, `None` where it goes alone; raises `ApiError`."""
        found = pod_state.gang_of(pod)
        if found is None:
            return None
        mode = disruption.mode_of(found, pod.metadata)
        if mode is Mode.SINGLE:
            return None
        key = pod.metadata.namespace or "", disruption.identity_of(found)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._musters.get(key)
            if known is not None and (known.is_open or state.gang):
                return known
            if known is not None and known.is_cancelled:
                # Without this, a mark that is set again at once would be taken for part of what is being taken back.
                await known.wait_over(_TAKING_BACK_SECONDS)
            if mode is Mode.AS_ITS_GROUP_SAYS and not state.gang:
                mode = await self._ask_group(key[0], found.name)
            return await self._call_roll(key, found, pod, state) if mode is not Mode.SINGLE else None

    async def assess(self, muster: Muster, state: Eviction) -> None:
        """Find out, once, what protects a gang as a whole against the preemption that `state` is; raises `ApiError`."""
        async with muster.assessing:
            if not muster.is_assessed:
                muster.reprieve = protection.of_gang([found async for found in self._protections(muster, state)])
                muster.is_assessed = True

    async def _protections(self, muster: Muster, state: Eviction) -> AsyncIterator[Reprieve | None]:
        # One for each controller: the pods of a Job have its walltime, which is read once.
        assessments: defaultdict[str, Assessment] = defaultdict(lambda: Assessment(self._tools))
        for pod in muster.to_reach:
            owner = controller_of(pod.metadata)
            _, found = await assessments[owner.uid if owner else ""].of(pod, state)
            yield found

    def begin(self, muster: Muster) -> None:
        """Have all pods kept that a gang takes with it, once the first of them was told."""
        muster.is_under_way = True
        reached, muster.to_reach = muster.to_reach, []
        if not muster.is_cancelled:
            for pod in reached:
                self._reach(pod, muster)

    def announce(self, muster: Muster, pod: Pod, state: Eviction) -> None:
        """Say on a pod that it does not go alone."""
        why = "another of its pods was asked to go" if state.source is Source.GANG else "this pod was asked to go"
        note = f'its gang "{muster.identity}" goes as a whole, {muster.size} pods in all: {why}'
        self._announcer.announce(Regarding.pod(pod.metadata), "GangGoesAsAWhole", note)

    def forget(self, muster: Muster) -> None:
        """Drop what nobody is part of any more."""
        self._musters = {key: known for key, known in self._musters.items() if known is not muster}

    async def _ask_group(self, namespace: str, name: str) -> Mode:
        """Return what the native PodGroup says; one that is not there says nothing."""
        try:
            path = object_path("podgroups", namespace, name)
            group = await self._tools.effects.find(path, Group, Urgency.TELL)
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            return Mode.SINGLE
        return Mode.SINGLE if group is None else pod_group.read(group).mode

    async def _call_roll(self, key: _Key, gang: Gang, pod: Pod, state: Eviction) -> Muster | None:
        now = self._tools.clock.monotonic()
        self._too_large = {known: until for known, until in self._too_large.items() if until > now}
        if key in self._too_large:
            return None
        pods = await self._find(gang, key)
        if pods is None:
            self._too_large[key] = now + _TOO_LARGE_SECONDS
            note = f'gang "{key[1]}" has more than {disruption.MAX_MEMBERS} pods, so only this one goes'
            self._announcer.announce(Regarding.pod(pod.metadata), "GangTooLarge", note)
            return None
        roll = disruption.call_roll(key[1], state, map(pod_state.member_of, pods.values()))
        muster = self._musters[key] = Muster(key[1], roll, pods)
        _log.info("gang mustered", extra={"gang": f"{key[0]}/{key[1]}", "pods": muster.size})
        return muster

    async def _find(self, gang: Gang, key: _Key) -> dict[str, Pod] | None:
        """Return all pods of the gang by uid; `None` where there are too many."""
        params = {} if gang.selector is None else {"labelSelector": gang.selector}
        found: dict[str, Pod] = {}
        async with self._lists.hold(Urgency.TELL, key[0]):
            async for pods in self._tools.effects.pages(object_path("pods", key[0]), Pod, params=params):
                found.update((pod.metadata.uid or "", pod) for pod in pods if _is_of(key[1], pod))
                if len(found) > disruption.MAX_MEMBERS:
                    return None
        return found


def _is_of(identity: str, pod: Pod) -> bool:
    found = pod_state.gang_of(pod)
    return found is not None and disruption.identity_of(found) == identity
