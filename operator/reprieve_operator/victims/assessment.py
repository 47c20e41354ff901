"""What a victim is as its eviction begins: what protects it, what it costs, what preempts it. `policy` decides each.

Its Job is read, once, where its walltime could matter: only a preemption is refused because the pod is nearly complete.
"""

import logging
from dataclasses import replace
from datetime import datetime

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy import keys
from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Job, Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import annotations_of, controller_of
from reprieve_policy.lifecycle import cause
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.preemption import cost, protection
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.protection import Protection
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .context import Tools

_log = logging.getLogger(__name__)

_FORBIDDEN = 403


class VictimAssessor:
    """Of one victim, and what this process has read for it."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._has_read_job = False
        self._job_walltime: Walltime | None = None

    async def assess(self, pod: VictimPod, state: Eviction) -> tuple[Eviction, Protection | None]:
        """Return the state with cost and cause, and what protects the pod; raises `ApiError`."""
        may_be_refused = state.source.is_preemption and not pod_state.is_requested_by_label(
            pod.metadata
        )
        if may_be_refused and state.refused_on is None:
            await self._read_job(pod)
        tools, now = self._tools, self._tools.clock.now()
        facts = Facts(
            settings=tools.policy.current, namespace=tools.namespaces.get(pod.metadata.namespace)
        )
        own = walltime.read(pod.status.startTime, pod.spec.activeDeadlineSeconds)
        bound = walltime.tightest((own, self._job_walltime), now)
        assessed = self._with_cost_and_cause(pod, state, facts, bound, now)
        return assessed, protection.decide_protection(
            pod_state.view_of(pod), facts, bound, now
        ) if may_be_refused else None

    def _with_cost_and_cause(
        self, pod: VictimPod, state: Eviction, facts: Facts, bound: Walltime | None, now: datetime
    ) -> Eviction:
        """Return the state with what it lacks of cost and cause; both are as they were when it was asked for."""
        if state.cost is None:
            work = WorkProgress(
                started_at=timestamp.parse(pod.status.startTime),
                saved_at=timestamp.parse(annotations_of(pod.metadata).get(keys.LAST_CHECKPOINT_AT)),
                walltime=bound,
            )
            plan, workload_type = (
                pod_state.plan_of(pod, facts.settings),
                facts.namespace.workload_type,
            )
            found = cost.decide_cost(
                pod_state.view_of(pod), plan, work, facts.settings, now, workload_type=workload_type
            )
            state = replace(state, cost=found.recorded)
        if state.cause is None:
            preemptor = self._tools.namespaces.get(cause.preemptor_namespace(state))
            state = replace(
                state, cause=cause.decide_cause(state, is_for_sensitive=preemptor.is_sensitive)
            )
        return state

    async def _read_job(self, pod: VictimPod) -> None:
        owner = controller_of(pod.metadata)
        is_job = owner is not None and owner.kind == "Job" and owner.apiVersion.startswith("batch/")
        if (
            self._has_read_job
            or owner is None
            or not is_job
            or not self._tools.policy.current.near_completion_seconds
        ):
            return
        try:
            path = object_path("jobs", pod.metadata.namespace, owner.name)
            job = await self._tools.effects.get(path, Job, CallPriority.NOTIFY)
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            _log.error("job not read", extra={"pod": pod.metadata.key, "error": str(error)})
            job = None
        self._has_read_job = True
        if job is not None and job.metadata.uid == owner.uid:
            self._job_walltime = job.walltime
