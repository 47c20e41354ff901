"""The wait for a deleted victim to go: which finalizers hold it, since when, and when ours ends."""

from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.cleaner_report import CleanerReport
from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.cleanup import HeldVictim, ReleaseReason
from reprieve_policy.lifecycle.eviction import Eviction

_CEILING_TEXTS = {
    ReleaseReason.CEILING: "the pod's containers have not ended",
    ReleaseReason.WRITES_REFUSED: "what its replacement inherits could not be written",
}
_STUCK_AFTER = timedelta(seconds=60)


class DeletionWait:
    """What this process has seen of the deletion of one victim."""

    def __init__(
        self,
        recorder: EventRecorder,
        cleaner_report: CleanerReport,
        clock: Clock,
        *,
        reread_seconds: float,
        cleanup_ceiling_seconds: float,
    ) -> None:
        self._recorder = recorder
        self._cleaner_report = cleaner_report
        self._clock = clock
        self._reread_seconds = reread_seconds
        self._cleanup_ceiling_seconds = cleanup_ceiling_seconds
        self._is_ceiling_reported = False

    def report_finalizers(self, pod: VictimPod, state: Eviction) -> float:
        """Report the finalizers that hold a victim whose containers have ended.

        Return the seconds until there is more to report or to do.
        """
        pause = self._reread_seconds
        if pod_state.has_cleanup_finalizer(pod.metadata):
            left = self._cleanup_ceiling_seconds - self._overdue(pod).total_seconds()
            pause = min(pause, max(0.1, left))
        due = self._cleaner_report.after_containers_ended(pod, state)
        return pause if due is None else min(pause, due)

    def may_remove_finalizer(self, pod: VictimPod) -> bool:
        """True if our finalizer is on the pod and no longer needed, or has reached its ceiling."""
        if not pod_state.has_cleanup_finalizer(pod.metadata):
            return False
        return self._reported(pod, cleanup.decide_release(self._held(pod)))

    def may_remove_unwritten(self, pod: VictimPod, refused_for: timedelta) -> bool:
        """True if our finalizer has reached its ceiling, and every write before it is refused."""
        if not pod_state.has_cleanup_finalizer(pod.metadata):
            return False
        return self._reported(pod, cleanup.decide_release_unwritten(self._held(pod), refused_for))

    def _held(self, pod: VictimPod) -> HeldVictim:
        return HeldVictim(
            have_containers_ended=pod_state.have_containers_ended(pod),
            is_forced=pod_state.is_force_deleted(pod.metadata),
            overdue=self._overdue(pod),
            ceiling_seconds=self._cleanup_ceiling_seconds,
        )

    def _reported(self, pod: VictimPod, reason: ReleaseReason | None) -> bool:
        """Report, once, that the ceiling was reached; return whether there is a reason."""
        if reason in _CEILING_TEXTS and not self._is_ceiling_reported:
            self._is_ceiling_reported = True
            note = f"{_CEILING_TEXTS[reason]} in time; Reprieve no longer holds the object"
            self._recorder.event(
                ObjectReference.for_pod(pod.metadata), "CleanupCeilingReached", note
            )
        return reason is not None

    def is_stuck(self, pod: VictimPod | None) -> bool:
        """True if the grace period ended long ago."""
        return pod is not None and self._overdue(pod) > _STUCK_AFTER

    def _overdue(self, pod: VictimPod) -> timedelta:
        """Return since when the grace period is over; negative before that."""
        grace_ends_at = pod_state.grace_ends_at(pod)
        return timedelta(0) if grace_ends_at is None else self._clock.now() - grace_ends_at
