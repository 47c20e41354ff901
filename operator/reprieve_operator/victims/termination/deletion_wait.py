"""The wait for a deleted victim to go: which finalizers hold it, since when, and when ours ends."""

from datetime import timedelta

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod

_FIRST_REPORT_SECONDS = 3.0
"""Controllers (of Jobs, say) remove their finalizers within this time; no Event is needed then."""
_REPORT_INTERVAL_SECONDS = 60.0
_STUCK_AFTER = timedelta(seconds=60)


class DeletionWait:
    """What this process has seen of the deletion of one victim."""

    def __init__(
        self,
        recorder: EventRecorder,
        clock: Clock,
        *,
        reread_seconds: float,
        cleanup_ceiling_seconds: float,
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._reread_seconds = reread_seconds
        self._cleanup_ceiling_seconds = cleanup_ceiling_seconds
        self._containers_ended_at: float | None = None
        self._reported_at: float | None = None
        self._is_ceiling_reported = False

    def report_finalizers(self, pod: VictimPod) -> float:
        """Report the finalizers that hold a victim whose containers have ended.

        Return the seconds until there is more to report or to do.
        """
        pause = self._reread_seconds
        if pod_state.has_cleanup_finalizer(pod.metadata):
            pause = min(pause, max(0.1, self._seconds_until_ceiling(pod)))
        others = pod_state.other_finalizers(pod)
        if not others or not pod_state.have_containers_ended(pod):
            return pause
        now = self._clock.monotonic()
        if self._containers_ended_at is None:
            self._containers_ended_at = now
        due = (
            self._containers_ended_at + _FIRST_REPORT_SECONDS
            if self._reported_at is None
            else self._reported_at + _REPORT_INTERVAL_SECONDS
        )
        if now >= due:
            self._reported_at, due = now, now + _REPORT_INTERVAL_SECONDS
            self._recorder.event(
                ObjectReference.for_pod(pod.metadata),
                *event_messages.waiting_for_finalizers(others),
            )
        return min(pause, due - now)

    def may_remove_finalizer(self, pod: VictimPod) -> bool:
        """True if our finalizer is on the pod and no longer needed, or has reached its ceiling."""
        if not pod_state.has_cleanup_finalizer(pod.metadata):
            return False
        if pod_state.have_containers_ended(pod) or pod_state.is_force_deleted(pod.metadata):
            return True
        if self._seconds_until_ceiling(pod) > 0:
            return False
        if not self._is_ceiling_reported:
            self._is_ceiling_reported = True
            note = (
                "the pod's containers have not ended in time; Reprieve no longer holds the object"
            )
            self._recorder.event(
                ObjectReference.for_pod(pod.metadata), "CleanupCeilingReached", note
            )
        return True

    def is_stuck(self, pod: VictimPod | None) -> bool:
        """True if the grace period ended long ago."""
        grace_ends_at = None if pod is None else pod_state.grace_ends_at(pod)
        return grace_ends_at is not None and self._clock.now() > grace_ends_at + _STUCK_AFTER

    def _seconds_until_ceiling(self, pod: VictimPod) -> float:
        grace_ends_at = pod_state.grace_ends_at(pod)
        held = timedelta(0) if grace_ends_at is None else self._clock.now() - grace_ends_at
        return self._cleanup_ceiling_seconds - held.total_seconds()
