"""One pod that somebody wants gone, and what is known of it before it is ruled on."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import disruption, membership, pod_group
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.gangs.pod_group import NativeGroup
from reprieve_policy.kube.objects import Resource
from reprieve_policy.preemption.guard import Door, Sought
from reprieve_policy.preemption.nominated_pods import Vacancy
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_policy.preemption.selection.snapshot import GroupKey
from reprieve_webhooks.admission import review

from .objects import Victim
from .reader import Pods


class Knowledge(Protocol):
    """The facts of a running cluster."""

    async def facts_for(self, request: review.Request, resource: Resource) -> Facts:
        """Return what the policy may know of this object."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pod, who asks for it, and the facts that hold for it."""

    victim: Victim
    namespace: str
    door: Door
    facts: Facts
    job: Walltime | None
    """Of the Job that the pod belongs to."""
    native: NativeGroup | None
    """The PodGroup that the pod names."""
    is_inseparable: bool = False
    """It was chosen with all of its gang, which does not go as a whole by its own word."""

    @property
    def goes_whole(self) -> bool:
        """True for one of a gang of which all go."""
        return snapshot_builder.goes_whole(self.victim, self.native)

    @property
    def gang(self) -> GroupKey | None:
        """The gang that goes with it; `None` for one that goes alone."""
        found = membership.read(self.victim.view) if self.goes_whole else None
        return None if found is None else GroupKey(self.namespace, disruption.identity_of(found))

    @property
    def least_priority(self) -> int:
        """Whoever's priority is not above this preempts it by no scheduler's reckoning: not all go by the PodGroup's."""
        own = self.victim.spec.priority or 0
        return min(own, pod_group.priority_of(own, self.native))

    @property
    def vacancy(self) -> Vacancy:
        """Where its preemptor is to be looked for."""
        is_anywhere = self.native is not None and self.native.mode is Mode.ALL
        return Vacancy(node=self.victim.node, priority=self.least_priority, is_anywhere=is_anywhere)

    def sought(self, now: datetime) -> Sought:
        """Return the pod as it is ruled on."""
        own = walltime.read(self.victim.status.startTime, self.victim.spec.activeDeadlineSeconds)
        bound = walltime.tightest((own, self.job), now)
        return replace(seen(self.victim), walltime=bound, goes_whole=self.goes_whole or self.is_inseparable)


class Cases:
    """Finds out what is known of pods; raises `ApiError`."""

    def __init__(self, pods: Pods, facts: Knowledge) -> None:
        self._pods, self._facts = pods, facts

    async def of(self, victim: Victim, namespace: str, door: Door) -> Case:
        """Return the case of a pod."""
        facts = await self.facts_of(victim, namespace)
        is_bounded = door is Door.PREEMPTION and facts.settings.near_completion_seconds > 0
        job = await self._pods.job_walltime(victim, namespace) if is_bounded else None
        return Case(victim, namespace, door, facts, job, await self._pods.native_group(victim, namespace, door))

    async def facts_of(self, pod: Pod, namespace: str) -> Facts:
        """Return the facts that hold for a pod."""
        resource = Resource(kind="Pod", metadata=pod.metadata, spec=pod.spec)
        kind = review.GroupVersionKind("Pod")
        # As of an update that changes nothing: no right is newly claimed, and nothing is inherited.
        asked = review.Request(
            uid="", operation="UPDATE", kind=kind, namespace=namespace, object=resource, old_object=resource
        )
        return await self._facts.facts_for(asked, resource)


def seen(victim: Victim) -> Sought:
    """Return what a pod says by itself."""
    return Sought(
        view=victim.view,
        state=victim.state,
        is_asked=victim.is_asked,
        is_leaving=victim.is_leaving,
        has_started=victim.status.phase != "Pending",
    )
