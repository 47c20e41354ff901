"""The assessment of a victim as its eviction begins: its protection, cost, loss and cause.

`reprieve_policy` decides each. The victim's Job is read once, where its walltime could matter: only
a preemption is refused because the pod is nearly complete.
"""

import logging
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.jobs import Job, owning_job_of
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import cause
from reprieve_policy.lifecycle.eviction import Eviction, Protection
from reprieve_policy.lifecycle.grace_period import usual_grace_seconds
from reprieve_policy.preemption import cost, first_refusal, loss, protection
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assessment:
    """A victim as its eviction begins."""

    state: Eviction
    """With its cost and its cause."""
    protection: Protection | None = None
    """What protects the pod from preemption."""
    loses_less_at_once: bool = False
    """By ending at once it loses less than by a save."""


class VictimAssessor:
    """Assesses one victim; reads its Job once."""

    def __init__(
        self, writes: Writes, policy: PolicySource, namespaces: NamespacePolicies, clock: Clock
    ) -> None:
        self._writes = writes
        self._policy = policy
        self._namespaces = namespaces
        self._clock = clock
        self._has_read_job = False
        self._job_walltime: Walltime | None = None

    async def assess(self, pod: VictimPod, state: Eviction) -> Assessment:
        """Assess the pod; raises `ApiError`."""
        protected_by = await self.protection_of(pod, state)
        now, facts = self._clock.now(), self._facts_of(pod)
        work = WorkProgress(
            started_at=timestamp.parse(pod.status.startTime),
            saved_at=timestamp.parse(annotations_of(pod.metadata).get(keys.LAST_CHECKPOINT_AT)),
            walltime=self._walltime_of(pod, now),
        )
        view, plan = pod_state.view_of(pod), pod_state.plan_of(pod, facts.settings)
        assessed = self._with_cost_and_cause(pod, state, facts, plan, work, now)
        if not _may_be_refused(pod, state):
            return Assessment(assessed)
        inputs = loss.loss_inputs_of(view, plan, facts.settings)
        return Assessment(
            assessed,
            protected_by,
            loss.loses_less_at_once(
                inputs,
                work,
                now,
                grace_seconds=usual_grace_seconds(pod_state.grace_seconds_of(pod), facts.settings),
            ),
        )

    async def protection_of(self, pod: VictimPod, state: Eviction) -> Protection | None:
        """Return what protects the pod, without its cost and loss; raises `ApiError`."""
        if not _may_be_refused(pod, state):
            return None
        if state.refused_on is None:
            await self._read_job(pod)
        now = self._clock.now()
        return protection.decide_protection(
            pod_state.view_of(pod),
            self._facts_of(pod),
            self._walltime_of(pod, now),
            now,
            refused_since=_refused_since(pod),
        )

    def _facts_of(self, pod: VictimPod) -> Facts:
        namespace = self._namespaces.get(pod.metadata.namespace)
        return Facts(settings=self._policy.current, namespace=namespace)

    def _walltime_of(self, pod: VictimPod, now: datetime) -> Walltime | None:
        return walltime.tightest((walltime.read(pod), self._job_walltime), now)

    def _with_cost_and_cause(
        self,
        pod: VictimPod,
        state: Eviction,
        facts: Facts,
        plan: CheckpointPlan,
        work: WorkProgress,
        now: datetime,
    ) -> Eviction:
        """Return the state with cost and cause; both stay as they were at the first request."""
        if state.cost is None:
            view, workload_type = pod_state.view_of(pod), facts.namespace.workload_type
            estimate = cost.decide_cost(
                view, plan, work, facts.settings, now, workload_type=workload_type
            )
            state = replace(state, cost=estimate.recorded)
        if state.cause is None:
            preemptor = self._namespaces.get(cause.preemptor_namespace(state))
            state = replace(
                state, cause=cause.decide_cause(state, is_for_sensitive=preemptor.is_sensitive)
            )
        return state

    async def _read_job(self, pod: VictimPod) -> None:
        owner = owning_job_of(pod.metadata)
        if self._has_read_job or owner is None or not self._policy.current.near_completion_seconds:
            return
        try:
            path = object_path("jobs", pod.metadata.namespace, owner.name)
            job = await self._writes.get(path, Job, CallPriority.NOTIFY)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            _log.error(
                "could not read the Job", extra={"pod": pod.metadata.key, "error": str(error)}
            )
            job = None
        self._has_read_job = True
        if job is not None and job.metadata.uid == owner.uid:
            self._job_walltime = walltime.read(job)


def _may_be_refused(pod: VictimPod, state: Eviction) -> bool:
    return state.source.is_preemption and not pod_state.is_requested_by_label(pod.metadata)


def _refused_since(pod: VictimPod) -> datetime | None:
    """Return since when the guard refused the pod. Without this, it would be spared once more."""
    return first_refusal.read(annotations_of(pod.metadata), pod.metadata.uid or "")
