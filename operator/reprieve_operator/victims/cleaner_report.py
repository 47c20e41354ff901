"""Events that name the finalizers which hold one victim, each with how long it has held."""

from datetime import datetime

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_policy.lifecycle.eviction import Eviction

_FIRST_REPORT_SECONDS = 3.0
"""Controllers (of Jobs, say) remove their finalizers within this time; no Event is needed then."""
_REPORT_INTERVAL_SECONDS = 60.0


class CleanerReport:
    """Reports on one victim, once a minute; what it knows may be lost at any time."""

    def __init__(self, recorder: EventRecorder, policy: PolicySource, clock: Clock) -> None:
        self._recorder = recorder
        self._policy = policy
        self._clock = clock
        self._waits: dict[str, float] = {}
        """When the next Event is due, by its reason."""
        self._ended_at: datetime | None = None

    def before_sigterm(self, pod: VictimPod, state: Eviction) -> float:
        """Report the cleaners that SIGTERM waits for; return the seconds until the next report."""
        assert state.cleaners_until is not None
        asked_at = pod_state.asked_at(state)
        held = [(name, asked_at) for name in self._pending(pod)]
        return self._report(
            pod, event_messages.waiting_for_cleaners(held, state.cleaners_until, self._clock.now())
        )

    def report_overdue(self, pod: VictimPod, state: Eviction) -> None:
        """Report the cleaners whose time is over: SIGTERM waits for them no longer."""
        held = [(name, pod_state.asked_at(state)) for name in self._pending(pod)]
        if held:
            message = event_messages.cleaners_not_done(held, self._clock.now())
            self._recorder.event(ObjectReference.for_pod(pod.metadata), *message)

    def after_containers_ended(self, pod: VictimPod, state: Eviction) -> float | None:
        """Report the finalizers that hold the object of a victim whose containers have ended.

        Return the seconds until the next report; `None` if no other finalizer holds it.
        """
        others = pod_state.other_finalizers(pod)
        if not others or not pod_state.have_containers_ended(pod):
            return None
        now = self._clock.now()
        self._ended_at = pod_state.containers_ended_at(pod) or self._ended_at or now
        ended_at, asked = self._ended_at, self._pending(pod)
        held = [
            (name, min(ended_at, pod_state.asked_at(state)) if name in asked else ended_at)
            for name in others
        ]
        return self._report(pod, event_messages.waiting_for_finalizers(held, now))

    def _pending(self, pod: VictimPod) -> tuple[str, ...]:
        return pod_state.pending_cleaners(pod, pod_state.plan_of(pod, self._policy.current))

    def _report(self, pod: VictimPod, message: tuple[str, str]) -> float:
        now, reason = self._clock.monotonic(), message[0]
        due = self._waits.setdefault(reason, now + _FIRST_REPORT_SECONDS)
        if now >= due:
            self._recorder.event(ObjectReference.for_pod(pod.metadata), *message)
            due = self._waits[reason] = now + _REPORT_INTERVAL_SECONDS
        return due - now
