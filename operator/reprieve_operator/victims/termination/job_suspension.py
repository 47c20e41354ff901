"""A victim whose Job decides how it ends: the Job is suspended once all of its pods must go."""

from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy.kube.objects import controller_of
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.lifecycle.termination import EvictionMethod
from reprieve_runtime.backoff import Backoff
from reprieve_runtime.client.api import ApiError

_FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 2.4, 15.0
"""Between two reads of the other pods of a Job, which may save for long."""


class JobSuspension:
    """Suspends the Job of one victim, or waits until its other pods are as far."""

    def __init__(
        self,
        jobs: OwnerJobs,
        policy: PolicySource,
        recorder: EventRecorder,
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._jobs = jobs
        self._policy = policy
        self._recorder = recorder
        self._reporter = reporter
        self._clock = clock
        self._waits_for_job = False
        self._poll = Backoff(_FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS, jitter=1 / 3)

    async def decide_method(self, pod: VictimPod, state: Eviction) -> EvictionMethod:
        """Return how the victim is evicted now; reads its Job only where that matters."""
        settings = self._policy.current
        is_asked = termination.depends_on_job(state, settings) and self._seconds_left(state) > 0
        job = await self._jobs.get(pod) if is_asked else None
        return termination.decide_method(state, job, settings, self._clock.now())

    async def suspend(self, pod: VictimPod, state: Eviction) -> float:
        """Suspend the Job; its controller deletes the pods. Return the seconds until the next try.

        Raises `ApiError`.
        """
        backoff = timedelta(seconds=self._policy.current.suspended_job_backoff_seconds)
        try:
            until = await self._jobs.suspend(pod, backoff)
        except ApiError as error:
            # Its controller may delete the pod before the next try.
            self._waits_for_job |= error.is_unanswered
            raise
        if until is not None:
            owner = controller_of(pod.metadata)
            assert owner is not None
            job = ObjectReference(
                "Job", pod.metadata.namespace or "", owner.name, owner.uid, "batch/v1"
            )
            self._recorder.event(job, *event_messages.job_suspended(until))
        return self.wait(state)

    def wait(self, state: Eviction) -> float:
        """Wait for the Job's other pods; return the seconds until they are read again."""
        self._waits_for_job = True
        # At its ceiling, the victim goes whatever its Job's other pods do.
        return min(self._poll.next_delay(), max(self._seconds_left(state), _FIRST_POLL_SECONDS))

    def forget(self) -> None:
        """Note that the pod is deleted, so that no suspension is what deletes it."""
        self._waits_for_job = False
        self._poll.reset()

    def report_deletion(self, pod: VictimPod, state: Eviction) -> None:
        """Report, once, that the Job's suspension has deleted the pod."""
        if self._waits_for_job:
            self._waits_for_job = False
            self._reporter.report_suspended(pod, state)

    def _seconds_left(self, state: Eviction) -> float:
        """Return the seconds until the victim's ceiling; negative beyond it."""
        ceiling = termination.ceiling_of(state, self._policy.current)
        return (ceiling - self._clock.now()).total_seconds()
