"""One pod that somebody wants gone, and what is known of it before it is ruled on."""

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
from reprieve_policy.preemption.guard import RequestKind, TargetPod
from reprieve_policy.preemption.nominated_pods import FreedCapacity
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_webhooks.admission import review

from .objects import GuardedPod
from .reader import GuardReader


class FactsReader(Protocol):
    """The facts of a running cluster."""

    async def facts_for(self, request: review.AdmissionRequest, resource: Resource) -> Facts:
        """Return what the policy may know of this object."""


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """A pod, who asks for it, and the facts that hold for it."""

    victim: GuardedPod
    namespace: str
    request_kind: RequestKind
    facts: Facts
    job_walltime: Walltime | None
    """Of the Job that the pod belongs to."""
    pod_group: PodGroupInfo | None
    """The PodGroup that the pod names."""
    takes_whole_gang: bool = False
    """It was chosen with all of its gang, which does not go as a whole by its own word."""

    @property
    def evicted_as_a_unit(self) -> bool:
        """True for one of a gang of which all go."""
        return snapshot_builder.evicted_as_a_unit(self.victim, self.pod_group)

    @property
    def gang(self) -> GangKey | None:
        """The gang that goes with it; `None` for one that goes alone."""
        found = membership.read(self.victim.view) if self.evicted_as_a_unit else None
        return None if found is None else GangKey(self.namespace, disruption.identity_of(found))

    @property
    def priority_to_exceed(self) -> int:
        """Whoever's priority is not above this preempts it by no scheduler's reckoning: not all go by the PodGroup's."""
        own = self.victim.spec.priority or 0
        return min(own, pod_group.priority_of(own, self.pod_group))

    @property
    def nomination_scope(self) -> FreedCapacity:
        """Where its preemptor is to be looked for."""
        is_anywhere = (
            self.pod_group is not None and self.pod_group.disruption_mode is DisruptionMode.ALL
        )
        return FreedCapacity(
            node=self.victim.node, priority=self.priority_to_exceed, spans_nodes=is_anywhere
        )

    def target_pod(self, now: datetime) -> TargetPod:
        """Return the pod as it is ruled on."""
        own = walltime.read(self.victim.status.startTime, self.victim.spec.activeDeadlineSeconds)
        bound = walltime.tightest((own, self.job_walltime), now)
        return replace(
            observed_target(self.victim),
            walltime=bound,
            evicted_as_a_unit=self.evicted_as_a_unit or self.takes_whole_gang,
        )


class ReviewContextReader:
    """Finds out what is known of pods; raises `ApiError`."""

    def __init__(self, pods: GuardReader, facts: FactsReader) -> None:
        self._reader, self._facts = pods, facts

    async def read(
        self, victim: GuardedPod, namespace: str, request_kind: RequestKind
    ) -> ReviewContext:
        """Return the case of a pod."""
        facts = await self.facts_of(victim, namespace)
        is_bounded = (
            request_kind is RequestKind.PREEMPTION and facts.settings.near_completion_seconds > 0
        )
        job = await self._reader.job_walltime(victim, namespace) if is_bounded else None
        return ReviewContext(
            victim,
            namespace,
            request_kind,
            facts,
            job,
            await self._reader.find_pod_group(victim, namespace, request_kind),
        )

    async def facts_of(self, pod: Pod, namespace: str) -> Facts:
        """Return the facts that hold for a pod."""
        resource = Resource(kind="Pod", metadata=pod.metadata, spec=pod.spec)
        kind = review.GroupVersionKind("Pod")
        # As of an update that changes nothing: no right is newly claimed, and nothing is inherited.
        asked = review.AdmissionRequest(
            uid="",
            operation="UPDATE",
            kind=kind,
            namespace=namespace,
            object=resource,
            old_object=resource,
        )
        return await self._facts.facts_for(asked, resource)


def observed_target(victim: GuardedPod) -> TargetPod:
    """Return what a pod says by itself."""
    return TargetPod(
        view=victim.view,
        state=victim.state,
        is_marked=victim.has_pending_mark,
        is_terminating=victim.is_terminating,
        has_started=victim.status.phase != "Pending",
    )
