"""Waiting for a deleted victim to go: who still holds it, since when, and when our own hold ends."""

from datetime import timedelta

from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import Regarding
from reprieve_operator.cluster.pods import Pod

from .context import Tools

_PATIENCE_SECONDS = 3.0
"""Controllers (a Job's) take their finalizers away within this, without anybody needing to be told."""
_REPEAT_SECONDS = 60.0
_STUCK_AFTER = timedelta(seconds=60)


class Ending:
    """What this process has seen of one victim's end."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._ended_at: float | None = None
        self._said_at: float | None = None
        self._said_ceiling = False

    def wait(self, pod: Pod) -> float:
        """Say who holds a victim whose containers have ended; return the seconds until there is more to say or do."""
        resync = self._tools.settings.resync_interval_seconds
        pause = (
            min(resync, max(0.1, self._until_ceiling(pod))) if pod_state.has_cleanup_finalizer(pod.metadata) else resync
        )
        others = pod_state.other_finalizers(pod)
        if not others or not pod_state.have_containers_ended(pod):
            return pause
        now = self._tools.clock.monotonic()
        self._ended_at = now if self._ended_at is None else self._ended_at
        due = self._ended_at + _PATIENCE_SECONDS if self._said_at is None else self._said_at + _REPEAT_SECONDS
        if now >= due:
            self._said_at, due = now, now + _REPEAT_SECONDS
            self._tools.announcer.announce(Regarding.pod(pod.metadata), *event_messages.waiting_for(others))
        return min(pause, due - now)

    def may_let_go(self, pod: Pod) -> bool:
        """True where we hold a victim that needs no holding, or have held it for as long as is allowed."""
        if not pod_state.has_cleanup_finalizer(pod.metadata):
            return False
        if pod_state.have_containers_ended(pod) or pod_state.is_forced(pod.metadata):
            return True
        if self._until_ceiling(pod) > 0:
            return False
        if not self._said_ceiling:
            self._said_ceiling = True
            note = "the pod's containers have not ended in time; Reprieve no longer holds the object"
            self._tools.announcer.announce(Regarding.pod(pod.metadata), "CleanupCeilingReached", note)
        return True

    def is_stuck(self, pod: Pod | None) -> bool:
        """True long after the grace was over."""
        over_at = None if pod is None else pod_state.deleted_at(pod)
        return over_at is not None and self._tools.clock.now() > over_at + _STUCK_AFTER

    def _until_ceiling(self, pod: Pod) -> float:
        over_at = pod_state.deleted_at(pod)
        held = timedelta(0) if over_at is None else self._tools.clock.now() - over_at
        return self._tools.settings.cleanup_ceiling_seconds - held.total_seconds()
