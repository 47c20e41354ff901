"""A cluster as victims are chosen in it: objects are taken in, from wherever they come, and a scene comes out. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from reprieve_cli.cluster.cluster_policy import Known
from reprieve_policy.config.walltime import Job, Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.pod_group import NativeGroup
from reprieve_policy.keys import QUOTA_NAME
from reprieve_policy.kube import quota
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec, controller_of, group_name_of, labels_of
from reprieve_policy.kube.quota import Quotas
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Node, Pod, PodDisruptionBudget
from reprieve_policy.preemption.selection.snapshot import Budget, Preemptor, Scene, Tenant

_Name = tuple[str, str]
"""Namespace and name."""

_REPLICAS_HASH = "pod-template-hash"
"""A label of a ReplicaSet that a Deployment made, and the end of its name."""


class Maker(NamedTuple):
    """A workload that makes pods."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup(pod_group.Group):
    """A native PodGroup with its name."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class Stage:
    """Takes in what was read. Pods come last: what they are judged by has to be known."""

    def __init__(self, known: Known, now: datetime) -> None:
        self.known = known
        self.now = now
        self.unknown: dict[str, str] = {}
        """By kind, the first object that a pod names, and that was not taken."""
        self._quotas = Quotas()
        self._facts: dict[str, Facts] = {}
        self._natives: dict[_Name, NativeGroup] = {}
        self._jobs: dict[_Name, Walltime] = {}
        self._nodes: dict[str, Node] = {}
        self._budgets: dict[_Name, Budget] = {}
        self._tenants: dict[_Name, Tenant] = {}
        self._waiting: dict[_Name, Preemptor] = {}
        """Pods that have no room."""
        self._makers: dict[_Name, Maker] = {}
        """Of pods that have one."""

    def take_policy(self, resource: Resource) -> None:
        """Take a Namespace, a PriorityClass, or the ConfigMap with the policy."""
        self.known.take(resource)

    def take_quota(self, found: Resource) -> None:
        """Take an ElasticQuota. How much of it is used decides nothing here."""
        spec = found.spec or Spec()
        self._quotas.put(quota.read_leniently(found.metadata, spec.min or {}, spec.max or {}, {}))

    def take_group(self, group: PodGroup) -> None:
        """Take a native PodGroup."""
        self._natives[_name(group.metadata)] = pod_group.read(group)

    def take_job(self, job: Job) -> None:
        """Take a Job."""
        if job.walltime is not None:
            self._jobs[_name(job.metadata)] = job.walltime

    def take_node(self, node: Node) -> None:
        """Take a node."""
        self._nodes[node.metadata.name or ""] = node

    def take_budget(self, found: PodDisruptionBudget) -> None:
        """Take a PodDisruptionBudget."""
        self._budgets[_name(found.metadata)] = snapshot_builder.budget_of(found)

    def take_pod(self, pod: Pod) -> None:
        """Take a pod that has room, or waits for it; one that has ended is nobody's business.

        Of two with one name the last is what became of it: dumps may overlap.
        """
        name = _name(pod.metadata)
        self._tenants.pop(name, None)
        self._waiting.pop(name, None)
        self._makers.pop(name, None)
        if not pod.metadata.uid:
            pod = replace(pod, metadata=replace(pod.metadata, uid="/".join(name)))
        if pod.has_room:
            self._tenants[name] = self.tenant_of(pod)
        elif pod.wants_room:
            self._waiting[name] = self.preemptor_of(pod)
        maker = _maker_of(pod.metadata)
        if maker is not None:
            self._makers[name] = maker

    def tenant_of(self, pod: Pod) -> Tenant:
        """Return a pod that has room, as it may be a victim."""
        owner = controller_of(pod.metadata)
        is_of_job = owner is not None and owner.kind == "Job"
        job = self._jobs.get((pod.metadata.namespace or "", owner.name)) if owner is not None and is_of_job else None
        return snapshot_builder.tenant_of(pod, self._facts_of(pod), native=self.native_of(pod), job=job, now=self.now)

    def preemptor_of(self, pod: Pod) -> Preemptor:
        """Return a pod that wants room, without its gang."""
        return snapshot_builder.preemptor_of(pod, self._facts_of(pod), native=self.native_of(pod))

    def waiting_as(self, metadata: ObjectMeta) -> Preemptor | None:
        """Return the pod of that name, where it waits."""
        return self._waiting.get(_name(metadata))

    def take_away(self, maker: Maker) -> tuple[int, Sequence[Preemptor]]:
        """Return how many of a workload's pods have room and stay, and those that wait, which wait no more as they are."""
        names = [name for name, its in self._makers.items() if its == maker]
        staying = sum(name in self._tenants and not self._tenants[name].is_going for name in names)
        waiting = [self._waiting.pop(name) for name in names if name in self._waiting]
        # One that is to have room already asks for none.
        return staying, sorted(waiting, key=lambda found: (found.nominated_node is not None, found.name))

    def with_gang(self, preemptor: Preemptor, mates: Sequence[Preemptor]) -> Preemptor:
        """Return the preemptor with the rest of its gang: `mates`, and those that wait in the cluster."""
        named = {mate.guest.uid for mate in mates}
        waiting = [*mates, *(found for found in self._waiting.values() if found.guest.uid not in named)]
        placed = [tenant for tenant in self._tenants.values() if tenant.group == preemptor.group]
        return snapshot_builder.with_gang(preemptor, waiting, placed)

    def native_of(self, pod: Pod) -> NativeGroup | None:
        """Return the PodGroup that a pod names, where it was taken."""
        group = group_name_of(pod.spec.schedulingGroup)
        if not group:
            return None
        namespace = pod.metadata.namespace or ""
        if (namespace, group) not in self._natives:
            self.unknown.setdefault("PodGroup", f"{namespace}/{group}")
        return self._natives.get((namespace, group))

    def build(self) -> Scene:
        """Return the scene."""
        return snapshot_builder.scene_of(
            self._nodes.values(),
            self._tenants.values(),
            self._waiting.values(),
            self._budgets.values(),
            self.known.settings,
            self.now,
        )

    def _facts_of(self, pod: Pod) -> Facts:
        namespace = pod.metadata.namespace or ""
        if namespace not in self._facts:
            self._facts[namespace] = self.known.facts_in(namespace, self._quotas)
        facts, wanted = self._facts[namespace], pod.view.labels.get(QUOTA_NAME)
        found = facts.quotas.find(pod.view.labels, namespace) if wanted else None
        if wanted and (found is None or found.name != wanted):
            self.unknown.setdefault("ElasticQuota", wanted)
        return facts


def _maker_of(metadata: ObjectMeta) -> Maker | None:
    owner = controller_of(metadata)
    if owner is None:
        return None
    replicas = labels_of(metadata).get(_REPLICAS_HASH)
    if owner.kind == "ReplicaSet" and replicas:
        return Maker(metadata.namespace or "", "Deployment", owner.name.removesuffix(f"-{replicas}"))
    return Maker(metadata.namespace or "", owner.kind, owner.name)


def _name(metadata: ObjectMeta) -> _Name:
    return metadata.namespace or "", metadata.name or ""
