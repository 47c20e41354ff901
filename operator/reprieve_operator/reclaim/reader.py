"""Reads what one pass decides on: pending pods, and the pods of the lent nodes that they may use.

Nothing is kept from one pass to the next. The reads grow with the pending pods of home Namespaces
and, only while one of those is due, with the pods of the nodes that it may use and their gangs.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from typing import TypeVar

from reprieve_operator.cluster import kept_pods
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.config import walltime
from reprieve_policy.config.namespace import ENFORCE
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import disruption, membership, pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.jobs import Job, owning_job_of
from reprieve_policy.kube.limits import elastic_quotas
from reprieve_policy.kube.limits.disruption_budgets import PodDisruptionBudget
from reprieve_policy.kube.limits.elastic_quotas import ElasticQuota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import Resource, VersionedMeta, pod_group_name_of
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption import automatic_reclaim, selection
from reprieve_policy.preemption.automatic_reclaim import ReclaimRound
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import (
    DisruptionBudget,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .lent_nodes import LentNode

_PENDING = {"fieldSelector": "spec.nodeName=,status.phase=Pending"}
_MAX_SELECTORS = 8
"""Gangs of one Namespace that are listed each by its label; for more, or for one that no label
identifies, all pods of the Namespace are listed once. Without this, the reads of a pass would grow
with the square of its pods: to find those with a label, the API server goes through all of them."""
_ABSENT = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""The API is not served, or is served since the operator's role was made: there is nothing."""

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class LentNodePod(Pod):
    """A pod with the version that marking it needs."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.metadata.uid or ""


async def reread(writes: Writes, pod: LentNodePod) -> LentNodePod | None:
    """Return the pod as it is now; `None` if it is gone, also if another pod has its name."""
    metadata = pod.metadata
    return await writes.read_pod_as(
        LentNodePod, metadata.namespace or "", metadata.name or "", pod.uid
    )


@dataclass(frozen=True, slots=True)
class LentNodesSnapshot:
    """The lent nodes of one home Namespace, and the pods on them as they were read."""

    snapshot: Snapshot
    pods: Mapping[str, LentNodePod]
    """By uid, with the rest of their gangs on other nodes."""


class ReclaimReader:
    """The reads of one pass; raises `ApiError`."""

    def __init__(
        self,
        writes: Writes,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        now: datetime,
        unmarkable: Collection[str],
    ) -> None:
        """`unmarkable`: uids of pods that cannot be written to; they are non-preemptible."""
        self._writes, self._settings = writes, policy.current
        self._namespaces, self._now, self._unmarkable = namespaces, now, unmarkable
        self._cluster_facts: Facts | None = None
        self._walltimes: dict[tuple[str, str], Walltime | None] = {}
        """By the path of the Job and the uid that is to be its own."""
        self._groups: dict[str, PodGroupInfo | None] = {}

    async def pending_pods(self, namespace: str) -> Sequence[LentNodePod]:
        """Return the pods of a Namespace that wait for a node."""
        return [pod async for pod in self._pods(namespace, _PENDING) if pod.is_pending]

    async def preemptor_of(self, pod: LentNodePod) -> Preemptor:
        """Return a pending pod of a home Namespace."""
        return automatic_reclaim.home_preemptor_of(
            pod, await self._facts_of(pod), await self._group_of(pod)
        )

    async def still_waits(self, pod: LentNodePod) -> bool:
        """True if the pod is still turned away: the other reads may have taken long."""
        current = await reread(self._writes, pod)
        return current is not None and automatic_reclaim.turned_away_at(current) is not None

    async def may_leave(self, pod: LentNodePod, chosen: ReclaimRound, snapshot: Snapshot) -> bool:
        """True if a borrower, as it is now, may be a victim of the round."""
        scheduled = await self._scheduled(pod, chosen.pod.preemptor.namespace)
        return selection.refusal_for(chosen.pod.preemptor, scheduled, snapshot) is None

    async def lent_nodes(self, home: str, nodes: Iterable[LentNode]) -> LentNodesSnapshot:
        """Return these lent nodes of a home Namespace with all pods on them."""
        pods: dict[str, LentNodePod] = {}
        scheduled: dict[str, ScheduledPod] = {}
        infos = [node.info for node in nodes]
        for info in infos:
            async for pod in self._pods(None, {"fieldSelector": f"spec.nodeName={info.name}"}):
                if pod.occupies_node:
                    pods[pod.uid] = pod
                    scheduled[pod.uid] = await self._scheduled(pod, home)
        for pod in await self._other_members(pods.values(), scheduled):
            pods[pod.uid] = pod
            scheduled[pod.uid] = await self._scheduled(pod, home)
        by_node: dict[str, list[ScheduledPod]] = defaultdict(list)
        for found in scheduled.values():
            by_node[found.node].append(found)
        borrowing = {found.namespace for found in scheduled.values()} - {home}
        facts = await self._read_cluster_facts()
        return LentNodesSnapshot(
            Snapshot(
                now=self._now,
                nodes={info.name: replace(info, pods=tuple(by_node[info.name])) for info in infos},
                budgets={name: await self._budgets_of(name) for name in sorted(borrowing)},
                gangs=snapshot_builder.gang_infos_of(scheduled.values()),
                quotas=facts.quotas.current(),
                settings=self._settings,
            ),
            pods,
        )

    async def _scheduled(self, pod: LentNodePod, home: str) -> ScheduledPod:
        is_at_home = pod.metadata.namespace == home
        scheduled = snapshot_builder.scheduled_pod_of(
            pod,
            await self._facts_of(pod),
            native=await self._group_of(pod),
            job_walltime=None if is_at_home else await self._job_walltime_of(pod),
            now=self._now,
        )
        if pod.uid in self._unmarkable:
            return replace(scheduled, is_non_preemptible=True)
        return automatic_reclaim.borrower_of(scheduled, pod.metadata, home)

    async def _other_members(
        self, pods: Iterable[LentNodePod], scheduled: Mapping[str, ScheduledPod]
    ) -> Sequence[LentNodePod]:
        """Return the pods on other nodes that may have to leave with the borrowers."""
        gangs: dict[str, dict[str, Gang]] = defaultdict(dict)
        for pod in pods:
            own, gang = scheduled[pod.uid], membership.read(pod.view)
            depends_on_others = own.disruption_mode is DisruptionMode.ALL or own.gang_minimum > 0
            if gang is not None and depends_on_others and not own.is_non_preemptible:
                gangs[own.namespace][disruption.identity_of(gang)] = gang
        found: dict[str, LentNodePod] = {}
        for namespace, by_identity in gangs.items():
            for params in _lists_of(by_identity.values()):
                async for pod in self._pods(namespace, params):
                    its = membership.read(pod.view) if pod.occupies_node else None
                    if its is not None and disruption.identity_of(its) in by_identity:
                        found[pod.uid] = pod
        return [pod for uid, pod in found.items() if uid not in scheduled]

    async def _pods(
        self, namespace: str | None, params: Mapping[str, str]
    ) -> AsyncIterator[LentNodePod]:
        path = object_path("pods", namespace)
        async for page in self._writes.list_pages(path, LentNodePod, params=params):
            for pod in page:
                yield kept_pods.prune(pod)

    async def _facts_of(self, pod: Pod) -> Facts:
        """Return the facts for a pod, as if its Namespace enforced all rules.

        The operator honours what a victim states wherever it runs. Without this, it would refuse
        again and again what was chosen here.
        """
        policy = replace(self._namespaces.get(pod.metadata.namespace), enforcement=ENFORCE)
        return replace(await self._read_cluster_facts(), namespace=policy)

    async def _read_cluster_facts(self) -> Facts:
        if self._cluster_facts is None:
            classes = await self._list(object_path("priorityclasses"), Resource, lambda one: one)
            quotas = await self._list(
                object_path("elasticquotas"), ElasticQuota, elastic_quotas.read, _ABSENT
            )
            self._cluster_facts = Facts(
                settings=self._settings,
                priority_classes={found.metadata.name or "": found for found in classes},
                quotas=Quotas(quotas),
            )
        return self._cluster_facts

    async def _budgets_of(self, namespace: str) -> Sequence[DisruptionBudget]:
        path = object_path("poddisruptionbudgets", namespace)
        found = await self._list(path, PodDisruptionBudget, _keep_budget)
        kept = [budget for budget in found if budget is not None]
        return snapshot_builder.usual_budgets(kept)

    async def _list(
        self, path: str, kind: type[T], keep: Callable[[T], V], absent_statuses: Sequence[int] = ()
    ) -> Sequence[V]:
        """Return what is kept of each object, which may have 1.5 MB, or ten times that decoded."""
        try:
            pages = self._writes.list_pages(path, kind)
            return [keep(found) async for page in pages for found in page]
        except ApiError as error:
            if error.status not in absent_statuses:
                raise
            return ()

    async def _job_walltime_of(self, pod: Pod) -> Walltime | None:
        owner = owning_job_of(pod.metadata)
        if owner is None:
            return None
        # Not by the uid alone: any pod may name the uid of another tenant's Job.
        path = object_path("jobs", pod.metadata.namespace, owner.name)
        key = (path, owner.uid)
        if key not in self._walltimes:
            job = await self._writes.get(path, Job)
            is_owner = job is not None and job.metadata.uid == owner.uid
            self._walltimes[key] = walltime.read(job) if job and is_owner else None
        return self._walltimes[key]

    async def _group_of(self, pod: Pod) -> PodGroupInfo | None:
        name = pod_group_name_of(pod.spec.schedulingGroup)
        if not name:
            return None
        path = object_path("podgroups", pod.metadata.namespace, name)
        if path not in self._groups:
            try:
                group = await self._writes.get(path, PodGroup)
            except ApiError as error:
                if error.status not in _ABSENT:
                    raise
                group = None
            self._groups[path] = None if group is None else pod_group.read(group)
        return self._groups[path]


def _lists_of(gangs: Iterable[Gang]) -> Sequence[Mapping[str, str]]:
    """Return the parameters of the lists that together have all pods of a Namespace's gangs."""
    selectors = {gang.selector for gang in gangs}
    if None in selectors or len(selectors) > _MAX_SELECTORS:
        return ({},)
    return [{"labelSelector": selector} for selector in selectors if selector is not None]


def _keep_budget(budget: PodDisruptionBudget) -> DisruptionBudget | None:
    return snapshot_builder.usual_budget(snapshot_builder.disruption_budget_of(budget))
