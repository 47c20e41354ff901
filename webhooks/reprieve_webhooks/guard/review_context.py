"""A pod whose deletion or eviction is under review, and the facts needed to decide on it."""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import disruption, membership, pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.pods import Pod, has_ended, is_terminating
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption.guard import RequestKind, TargetPod
from reprieve_policy.preemption.nominated_pods import FreedCapacity
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_webhooks.admission import review
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

from .objects import GuardedPod
from .reader import GuardReader


class FactsReader(Protocol):
    """The facts of a running cluster."""

    async def facts_for(self, request: review.AdmissionRequest, resource: Resource) -> Facts:
        """Return the facts for this object."""


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """A pod under review, the kind of the request, and the facts that hold for the pod."""

    victim: GuardedPod
    namespace: str
    request_kind: RequestKind
    facts: Facts
    job_walltime: Walltime | None
    """The walltime of the Job that the pod belongs to."""
    pod_group: PodGroupInfo | None
    """The PodGroup that the pod names."""
    takes_whole_gang: bool = False
    """All of its gang leaves, which does not ask to be evicted as a unit, but can spare no pod."""
    leaves_with_others: bool = False
    """Other victims of its preemptor on its node get notice."""

    @property
    def identity(self) -> PodIdentity:
        """The pod, as a write to it must name it."""
        return PodIdentity(self.victim.uid, self.namespace, self.victim.metadata.name or "")

    @property
    def evicted_as_a_unit(self) -> bool:
        """True for a member of a gang that is evicted as a unit."""
        return snapshot_builder.evicted_as_a_unit(self.victim, self.pod_group)

    @property
    def gang(self) -> GangKey | None:
        """The gang that is evicted with the pod; `None` if the pod is evicted alone."""
        found = membership.read(self.victim.view) if self.evicted_as_a_unit else None
        return None if found is None else GangKey(self.namespace, disruption.identity_of(found))

    @property
    def priority_to_exceed(self) -> int:
        """A pod whose priority is not above this cannot be the preemptor, for any scheduler.

        The lower of two priorities, because not all schedulers use the PodGroup's.
        """
        own = self.victim.spec.priority or 0
        return min(own, pod_group.priority_of(own, self.pod_group))

    @property
    def nomination_scope(self) -> FreedCapacity:
        """The nodes and priorities among which its preemptor is searched."""
        spans_nodes = (
            self.pod_group is not None and self.pod_group.disruption_mode is DisruptionMode.ALL
        )
        return FreedCapacity(
            node=self.victim.node, priority=self.priority_to_exceed, spans_nodes=spans_nodes
        )

    def target_pod(self, now: datetime) -> TargetPod:
        """Return the pod as the policy decides on it."""
        own = walltime.read(self.victim)
        bound = walltime.tightest((own, self.job_walltime), now)
        return replace(
            observed_target(self.victim),
            walltime=bound,
            evicted_as_a_unit=self.evicted_as_a_unit or self.takes_whole_gang,
            leaves_with_others=self.leaves_with_others,
        )


class ReviewContextReader:
    """Reads the context of pods; raises `ApiError`."""

    def __init__(self, reader: GuardReader, facts: FactsReader) -> None:
        self._reader, self._facts = reader, facts

    async def read(
        self, victim: GuardedPod, namespace: str, request_kind: RequestKind
    ) -> ReviewContext:
        """Return the context of a pod."""
        facts = await self.facts_of(victim, namespace)
        is_preemption = request_kind is RequestKind.PREEMPTION
        needs_walltime = is_preemption and facts.settings.near_completion_seconds > 0
        # At once: the API server waits for three seconds.
        job_walltime, pod_group = await asyncio.gather(
            self._reader.job_walltime(victim, namespace) if needs_walltime else _nothing(),
            self._reader.find_pod_group(victim, namespace) if is_preemption else _nothing(),
        )
        return ReviewContext(victim, namespace, request_kind, facts, job_walltime, pod_group)

    async def facts_of(self, pod: Pod, namespace: str) -> Facts:
        """Return the facts that hold for a pod."""
        resource = Resource(kind="Pod", metadata=pod.metadata, spec=pod.spec)
        kind = review.GroupVersionKind("Pod")
        # As for an update that changes nothing: it needs no permission, and inherits nothing.
        request = review.AdmissionRequest(
            uid="",
            operation="UPDATE",
            kind=kind,
            namespace=namespace,
            object=resource,
            old_object=resource,
        )
        return await self._facts.facts_for(request, resource)


async def _nothing() -> None:
    pass


def observed_target(victim: GuardedPod) -> TargetPod:
    """Return what the pod itself states, without its Job and its gang."""
    return TargetPod(
        view=victim.view,
        state=victim.state,
        is_marked=victim.has_pending_mark,
        is_terminating=is_terminating(victim),
        deletion_ends_at=None
        if has_ended(victim)
        else timestamp.parse(victim.metadata.deletionTimestamp or ""),
        has_started=victim.status.phase != "Pending",
        refused_since=victim.refused_since,
    )
