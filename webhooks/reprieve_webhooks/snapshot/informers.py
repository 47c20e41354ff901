"""The watches for the extender: pods, nodes, budgets, Jobs and native groups.

They run only with the extender. Namespaces, PriorityClasses, quotas and the policy are watched for
reviews already (`facts.cluster_facts`).
"""

import asyncio
import gc
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from reprieve_policy.config import walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import pod_group
from reprieve_policy.kube.jobs import Job
from reprieve_policy.kube.limits.disruption_budgets import PodDisruptionBudget
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod, Snapshot
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector
from reprieve_runtime.waiting import wait_at_most
from reprieve_webhooks.lookups.walltimes import FirstSeenWalltimes

from .pod_cache import PodCache
from .snapshot_cache import SnapshotCache

_NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_PAGE_SIZE = 100
"""Objects a page. Each takes 0.4 ms, and reviews wait while a page is decoded."""
_ABSENT_RETRY_SECONDS = 60.0
MAX_SILENCE_SECONDS = 150.0
"""Bookmarks come once a minute, and a watch that is silent for 90 s is restarted. After this time,
the restart has failed too."""
_POLICY_CHECK_SECONDS = 1.0
"""Between two checks whether a policy has changed; each call of a scheduler checks too."""
_BATCH_SIZE = 100
"""Pods that are classified again, or nodes that are made ready, before other tasks of the event
loop run: some 10 ms."""
_TENANTS_SECONDS = 1.0
"""Between two times that the changes of tenants' Jobs and groups are taken up. Without this, a
tenant who changes a Job some times a second would have its pods classified as often."""
_POLICY_WATCHES = ("namespaces", "priorityclasses", "policy")
"""The watches whose changes may have all pods of a Namespace classified again."""
_BACKGROUND_BATCH_SIZE = 20
_BACKGROUND_PAUSE_SECONDS = 0.04
"""After each batch in the background, of some 2 ms: the changes of all tenants together take a
tenth of a processor, for up to 500 pods a second."""


class WatchedFacts(Protocol):
    """The facts that are watched for reviews."""

    @property
    def is_synced(self) -> bool:
        """True once all collections have been listed."""

    def watched_facts(self, namespace: str) -> Facts:
        """Return the current facts of a Namespace and of the cluster."""

    def watches(self) -> Mapping[str, Reflector[Any, Any]]:
        """Return the watches by collection."""


class ClusterInformers:
    """The `ClusterView` of a running cluster."""

    def __init__(self, api: Api, facts: WatchedFacts) -> None:
        self._now, self._facts = api.server_time.now, facts
        self._snapshot_cache = SnapshotCache()
        watches = facts.watches()
        self._policy_stores = [watches[name].store for name in _POLICY_WATCHES]
        self._pod_cache = PodCache(
            self._snapshot_cache, facts.watched_facts, self._policy_version, self._now
        )
        self._jobs: dict[Key, str] = {}
        self._walltimes = FirstSeenWalltimes()
        self._reclassification_requested = asyncio.Event()
        self._has_caught_up = False
        """True once all pods that were listed are classified by the Jobs and groups listed."""
        pods = Reflector(
            api,
            object_path("pods"),
            Pod,
            self._pod_cache.put,
            on_delete=self._pod_cache.remove,
            params=_NOT_ENDED,
            page=_PAGE_SIZE,
        )
        nodes = Reflector(
            api, object_path("nodes"), Node, self._keep_node, on_delete=self._forget_node
        )
        budgets = Reflector(
            api,
            object_path("poddisruptionbudgets"),
            PodDisruptionBudget,
            self._keep_budget,
            on_delete=self._snapshot_cache.remove_budget,
        )
        jobs = Reflector(
            api,
            object_path("jobs"),
            Job,
            self._keep_job,
            on_delete=self._forget_job,
            page=_PAGE_SIZE,
        )
        groups = Reflector(
            api,
            object_path("podgroups"),
            PodGroup,
            self._keep_group,
            on_delete=lambda key: self._pod_cache.put_group(key, None),
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
            await self._catch_up()
            tasks.create_task(self._keep_up_to_date())
            tasks.create_task(self._follow_tenants())

    def watches(self) -> Mapping[str, Reflector[Any, None]]:
        """Return the watches by collection."""
        return self._reflectors

    @property
    def is_stale(self) -> bool:
        """True before the first complete lists, and while a watch is silent for too long."""
        if not self._facts.is_synced or not all(
            reflector.is_synced for reflector in self._reflectors.values()
        ):
            return True
        return (
            max(self._reflectors[name].age_seconds for name in ("pods", "nodes"))
            > MAX_SILENCE_SECONDS
        )

    @property
    def is_up_to_date(self) -> bool:
        """True where every pod is classified by the policy that holds now."""
        if self._has_caught_up and self._pod_cache.is_up_to_date:
            return True
        self._reclassification_requested.set()
        return False

    def pending_pod(self, uid: str) -> Preemptor | None:
        """Return a pod that waits for a node, by itself; `None` where no watch has it."""
        return self._snapshot_cache.pending_pod(uid)

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return the same with the rest of its gang, which may take milliseconds."""
        return self._snapshot_cache.preemptor(uid)

    def find_unseen(self, node: str, uids: Iterable[str]) -> str | None:
        """Return one of these pods that the watches do not know as a victim of that node."""
        return self._snapshot_cache.find_unseen(node, uids)

    def assume(self, preemptor: Preemptor, node: str, victims: Iterable[ScheduledPod]) -> None:
        """Assume that a scheduler follows its answer, until the watches show what happened."""
        self._pod_cache.assume(preemptor, node, victims)

    def snapshot(self) -> Snapshot:
        """Return all that is known now; no later event changes the snapshot."""
        facts = self._facts.watched_facts("")
        snapshot = self._snapshot_cache.snapshot(
            self._now(), facts.settings, facts.quotas.current()
        )
        return replace(snapshot, operator_is_live=facts.operator_is_live)

    def observed_snapshot(self) -> Snapshot:
        """Return the same, with the gangs as the watches observed them, without assumptions."""
        snapshot = self.snapshot()
        return replace(snapshot, gangs=self._pod_cache.without_assumed(snapshot.gangs))

    async def _catch_up(self) -> None:
        """Wait for the lists, and make ready for the first call what they contain."""
        for reflector in self._reflectors.values():
            await reflector.wait_synced(float("inf"))
        self._pod_cache.queue_changes_of_tenants()
        for next_batch in (self._pod_cache.reclassify_waiting, self._snapshot_cache.refresh):
            has_more = True
            while has_more:
                has_more = next_batch(_BATCH_SIZE)
                await asyncio.sleep(0)
        self._has_caught_up = True
        # The objects so far live long: a garbage collection of hundreds of thousands of them would
        # delay reviews.
        gc.collect()
        gc.freeze()

    async def _keep_up_to_date(self) -> None:
        """Classify pods again as soon as the policy changes."""
        while True:
            while not self._pod_cache.is_up_to_date:
                self._pod_cache.reclassify(_BATCH_SIZE)
                await asyncio.sleep(0)
            self._reclassification_requested.clear()
            await wait_at_most(self._reclassification_requested, _POLICY_CHECK_SECONDS)

    async def _follow_tenants(self) -> None:
        """Classify pods again, by and by, whose Jobs or groups change."""
        monotonic = asyncio.get_running_loop().time
        while True:
            self._pod_cache.queue_changes_of_tenants()
            next_at = monotonic() + _TENANTS_SECONDS
            has_more = True
            while has_more and monotonic() < next_at:
                has_more = self._pod_cache.reclassify_waiting(_BACKGROUND_BATCH_SIZE)
                await asyncio.sleep(_BACKGROUND_PAUSE_SECONDS)
            await asyncio.sleep(next_at - monotonic())

    def _policy_version(self) -> int:
        return sum(store.changes for store in self._policy_stores)

    def _keep_node(self, node: Node) -> None:
        self._snapshot_cache.put_node(snapshot_builder.node_info_of(node))

    def _forget_node(self, key: Key) -> None:
        self._snapshot_cache.remove_node(key[1])

    def _keep_budget(self, budget: PodDisruptionBudget) -> None:
        self._snapshot_cache.put_budget(
            budget.metadata.name or "", snapshot_builder.disruption_budget_of(budget)
        )

    def _keep_job(self, job: Job) -> None:
        key, uid = (job.metadata.namespace or "", job.metadata.name or ""), job.metadata.uid or ""
        if self._jobs.get(key, uid) != uid:
            self._forget_job(key)
        bound = walltime.read(job)
        if bound is not None:
            self._jobs[key] = uid
        self._pod_cache.put_job(key[0], uid, self._walltimes.observe(uid, bound))

    def _forget_job(self, key: Key) -> None:
        uid = self._jobs.pop(key, None)
        if uid is not None:
            self._walltimes.forget(uid)
            self._pod_cache.put_job(key[0], uid, None)

    def _keep_group(self, group: PodGroup) -> None:
        key = (group.metadata.namespace or "", group.metadata.name or "")
        self._pod_cache.put_group(key, pod_group.read(group))
