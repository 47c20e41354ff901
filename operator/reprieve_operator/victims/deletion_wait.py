"""Waiting for a deleted victim to go: who still holds it, since when, and when our own hold ends."""

from datetime import timedelta

from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VictimPod

from .context import Tools

_FIRST_REPORT_SECONDS = 3.0
"""Controllers (a Job's) take their finalizers away within this, without anybody needing to be told."""
_REPORT_INTERVAL_SECONDS = 60.0
_STUCK_AFTER = timedelta(seconds=60)


class DeletionWait:
    """What this process has seen of one victim's end."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._containers_ended_at: float | None = None
        self._reported_at: float | None = None
        self._is_ceiling_reported = False

    def report_finalizers(self, pod: VictimPod) -> float:
        """Say who holds a victim whose containers have ended; return the seconds until there is more to say or do."""
        resync = self._tools.settings.resync_interval_seconds
        pause = (
            min(resync, max(0.1, self._seconds_until_ceiling(pod)))
            if pod_state.has_cleanup_finalizer(pod.metadata)
            else resync
        )
        others = pod_state.other_finalizers(pod)
        if not others or not pod_state.have_containers_ended(pod):
            return pause
        now = self._tools.clock.monotonic()
        self._containers_ended_at = (
            now if self._containers_ended_at is None else self._containers_ended_at
        )
        due = (
            self._containers_ended_at + _FIRST_REPORT_SECONDS
            if self._reported_at is None
            else self._reported_at + _REPORT_INTERVAL_SECONDS
        )
        if now >= due:
            self._reported_at, due = now, now + _REPORT_INTERVAL_SECONDS
            self._tools.announcer.event(
                ObjectReference.for_pod(pod.metadata),
                *event_messages.waiting_for_finalizers(others),
            )
        return min(pause, due - now)

    def may_remove_finalizer(self, pod: VictimPod) -> bool:
        """True where we hold a victim that needs no holding, or have held it for as long as is allowed."""
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
            self._tools.announcer.event(
                ObjectReference.for_pod(pod.metadata), "CleanupCeilingReached", note
            )
        return True

    def is_stuck(self, pod: VictimPod | None) -> bool:
        """True long after the grace was over."""
        over_at = None if pod is None else pod_state.grace_ends_at(pod)
        return over_at is not None and self._tools.clock.now() > over_at + _STUCK_AFTER

    def _seconds_until_ceiling(self, pod: VictimPod) -> float:
        over_at = pod_state.grace_ends_at(pod)
        held = timedelta(0) if over_at is None else self._tools.clock.now() - over_at
        return self._tools.settings.cleanup_ceiling_seconds - held.total_seconds()
