"""The watches that a scheduler's calls are answered from: pods, nodes, budgets, Jobs and native groups.

They are there only where the extender is. Namespaces, PriorityClasses, quotas and the policy are watched for reviews already.
"""

import asyncio
import contextlib
import gc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from reprieve_policy.config.walltime import Job
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import pod_group
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_policy.preemption.selection.snapshot import Preemptor, Scene, Tenant
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector
from reprieve_webhooks.lookups.walltimes import Walltimes

from .pod_cache import Roster
from .snapshot_cache import Seating

_NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_PAGE = 100
"""Each takes 0.4 ms, and reviews wait for a page of them."""
_ABSENT_RETRY_SECONDS = 60.0
_LONGEST_SILENCE_SECONDS = 150.0
"""Bookmarks come once a minute, and a watch that is silent for 90 s is begun anew: this one could not be."""
_LOOK_SECONDS = 1.0
"""Between two looks whether a policy has changed; a call looks for itself."""
_AT_ONCE = 100
"""Pods that are judged again before anybody else has a turn: some 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group(pod_group.Group):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class KnownFacts(Protocol):
    """What is watched for reviews."""

    @property
    def is_synced(self) -> bool:
        """True once all of it has been listed."""

    def known(self, namespace: str) -> Facts:
        """Return what is known of a Namespace and of the cluster now."""


class WatchedStage:
    """The `Stage` of a running cluster."""

    def __init__(self, api: Api, facts: KnownFacts) -> None:
        self._now, self._facts = api.time.now, facts
        self._seating = Seating()
        self._roster = Roster(self._seating, facts.known, self._now)
        self._jobs: dict[Key, str] = {}
        self._walltimes = Walltimes()
        self._unsettled = asyncio.Event()
        pods = Reflector(
            api, object_path("pods"), Pod, self._roster.put, forget=self._roster.drop, params=_NOT_ENDED, page=_PAGE
        )
        nodes = Reflector(api, object_path("nodes"), Node, self._keep_node, forget=self._forget_node)
        budgets = Reflector(
            api,
            object_path("poddisruptionbudgets"),
            PodDisruptionBudget,
            self._keep_budget,
            forget=self._seating.drop_budget,
        )
        jobs = Reflector(api, object_path("jobs"), Job, self._keep_job, forget=self._forget_job, page=_PAGE)
        groups = Reflector(
            api,
            object_path("podgroups"),
            _Group,
            self._keep_group,
            forget=lambda key: self._roster.put_group(key, None),
            absent_retry_seconds=_ABSENT_RETRY_SECONDS,
        )
        self._reflectors: Mapping[str, Reflector[Any, None]] = {
            "pods": pods,
            "nodes": nodes,
            "poddisruptionbudgets": budgets,
            "jobs": jobs,
            "podgroups": groups,
        }

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors.values():
                tasks.create_task(reflector.run())
            tasks.create_task(self._keep_settled())

    def watches(self) -> Mapping[str, Reflector[Any, None]]:
        """Return them by collection."""
        return self._reflectors

    @property
    def is_behind(self) -> bool:
        """True before the first complete lists, and once nothing was heard for too long."""
        if not self._facts.is_synced or not all(found.is_synced for found in self._reflectors.values()):
            return True
        return max(self._reflectors[name].age_seconds for name in ("pods", "nodes")) > _LONGEST_SILENCE_SECONDS

    @property
    def is_settled(self) -> bool:
        """True where every pod is judged by the policy that holds now."""
        if self._roster.is_settled:
            return True
        self._unsettled.set()
        return False

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return a pod that waits for a node; `None` where no watch has such a one."""
        return self._seating.preemptor(uid)

    def knows(self, node: str, uids: Iterable[str]) -> bool:
        """True where all these pods are seen on that node or in a gang that is, or were seen to leave."""
        return self._seating.knows(node, uids)

    def expect(self, preemptor: Preemptor, node: str, victims: Iterable[Tenant]) -> None:
        """Take for granted that a scheduler does as it was told, until the watches say so themselves."""
        self._roster.expect(preemptor, node, victims)

    def scene(self) -> Scene:
        """Return all that is known, as it is now; no later event changes it."""
        known = self._facts.known("")
        scene = self._seating.scene(self._now(), known.settings)
        return replace(scene, operator_is_there=known.operator_is_there)

    def scene_as_seen(self) -> Scene:
        """Return the same, with the gangs as the watches have seen them, whatever is expected."""
        scene = self.scene()
        return replace(scene, groups=self._roster.as_seen(scene.groups))

    async def _keep_settled(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.wait_synced(float("inf"))
        # What was made so far stays: looking through hundreds of thousands of objects for garbage would hold up reviews.
        gc.collect()
        gc.freeze()
        while True:
            while not self._roster.is_settled:
                self._roster.settle(_AT_ONCE)
                await asyncio.sleep(0)
            self._unsettled.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._unsettled.wait(), _LOOK_SECONDS)

    def _keep_node(self, node: Node) -> None:
        self._seating.put_node(snapshot_builder.room_of(node))

    def _forget_node(self, key: Key) -> None:
        self._seating.drop_node(key[1])

    def _keep_budget(self, found: PodDisruptionBudget) -> None:
        self._seating.put_budget(found.metadata.name or "", snapshot_builder.budget_of(found))

    def _keep_job(self, job: Job) -> None:
        key, uid = (job.metadata.namespace or "", job.metadata.name or ""), job.metadata.uid or ""
        if self._jobs.get(key, uid) != uid:
            self._forget_job(key)
        bound = job.walltime
        if bound is not None:
            self._jobs[key] = uid
        self._roster.put_job(uid, self._walltimes.take(uid, bound))

    def _forget_job(self, key: Key) -> None:
        uid = self._jobs.pop(key, None)
        if uid is not None:
            self._walltimes.forget(uid)
            self._roster.put_job(uid, None)

    def _keep_group(self, group: _Group) -> None:
        key = (group.metadata.namespace or "", group.metadata.name or "")
        self._roster.put_group(key, pod_group.read(group))
