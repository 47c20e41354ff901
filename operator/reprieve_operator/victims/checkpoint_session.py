"""One victim's side of the story: what its workload says, wherever it says it, and when it is asked again.

Hints go where `targets` says, or into an annotation; answers come either way.
"""

import random
from collections.abc import Callable

from reprieve_operator.checkpointing import endpoints
from reprieve_operator.checkpointing.endpoints import Endpoint, SignalEndpoint
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy import keys
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.verdict import Violation

from .context import Tools

_CANCEL_TIMEOUT_SECONDS = 2.0
_SHORTEST_PAUSE_SECONDS = 0.01


class CheckpointSession:
    """Between one keeper and one workload."""

    def __init__(self, tools: Tools, wake: Callable[[], None]) -> None:
        self.poller = CheckpointPoller(tools.lines, tools.settings, tools.clock, wake)
        self._tools = tools
        self._reported_answer_error = ""

    def current_answer(self, pod: VictimPod, state: Eviction) -> CheckpointAnswer | None:
        """Return what the workload says: in reply to a call, else in its annotation."""
        self._report_answer_error(pod, self.poller.answer_error)
        if self.poller.undeliverable_reason:
            self.report_annotation_fallback(pod, self.poller.undeliverable_reason)
            self.poller.undeliverable_reason = ""
        told = self.poller.answer
        # That it was delivered says nothing. Without this, it would hide at each poll what the workload itself writes.
        if told is not None and told.state is not AnswerState.DELIVERED:
            return told
        written = pod_state.answer_of(pod)
        if isinstance(written, Violation):
            self._report_answer_error(pod, f"{written.path}: {written.detail}")
            return None
        if (
            written is None
            or written.state is AnswerState.IDLE
            or not written.may_belong_to(state.eviction_id)
        ):
            return None
        return written

    def needs_final_poll(
        self, pod: VictimPod, state: Eviction, seen: machine.ObservedVictim
    ) -> bool:
        """True where the deadline has come, but the workload was not asked since."""
        if not machine.awaits_workload(state.phase):
            return False
        if (
            not seen.is_marked
            or seen.is_being_deleted
            or seen.containers_ended
            or seen.answer
            or seen.hint_lost
        ):
            return False
        now = self._tools.clock.now()
        if (
            state.deadline is None
            or now < state.deadline
            or not isinstance(self.endpoint(pod), Endpoint)
        ):
            return False
        return self.poller.is_calling or self.poller.is_final_poll_due(state, now)

    def endpoint(self, pod: VictimPod) -> Endpoint | str | None:
        """Return where the workload is called; a reason where it cannot be; `None` where it wants an annotation."""
        hint = pod_state.plan_of(pod, self._tools.policy.current).hint
        return endpoints.resolve(
            pod, hint, allow_loopback=self._tools.settings.allow_loopback_pod_ips
        )

    def annotation_request(self, pod: VictimPod, state: Eviction) -> CheckpointRequest | None:
        """Return the request to write into the annotation; `None` where a call carries it, or nobody is asked."""
        target = self.endpoint(pod)
        # A signal carries nothing.
        is_carried = isinstance(target, Endpoint) and not isinstance(target, SignalEndpoint)
        return (
            None
            if is_carried or not machine.awaits_workload(state.phase)
            else self._build_request(pod, state)
        )

    def report_annotation_fallback(self, pod: VictimPod, why: str) -> None:
        """Say, once, that the request is only where whoever polls will find it."""
        note = f"{why}, so the hint is in annotation {keys.CHECKPOINT_REQUEST} instead"
        self._tools.announcer.event(
            ObjectReference.for_pod(pod.metadata), "CheckpointHintByAnnotation", note, once=True
        )

    def poll(self, pod: VictimPod, state: Eviction) -> float:
        """Call the workload where it is called, and return how long there is nothing else to do."""
        resync = self._tools.settings.resync_interval_seconds * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        now = self._tools.clock.now()
        wake = machine.next_wake(state)
        until_deadline = resync if wake is None else (wake - now).total_seconds()
        target = self.endpoint(pod)
        if not isinstance(target, Endpoint) or not machine.awaits_workload(state.phase):
            return max(_SHORTEST_PAUSE_SECONDS, min(resync, until_deadline))
        pause = self.poller.poll(
            target, state, self._build_request(pod, state), now, pod.metadata.namespace or ""
        )
        if self.poller.is_calling:
            return resync
        return max(_SHORTEST_PAUSE_SECONDS, min(resync, pause, until_deadline))

    async def cancel(self, pod: VictimPod, state: Eviction) -> None:
        """Tell a workload that was asked that it may stay: once, because that it may also stands on the pod."""
        target = self.endpoint(pod)
        if state.hinted_at is None or not isinstance(target, Endpoint):
            return
        # A call that is under way must not be heard after this one.
        await self.poller.close()
        tenant = pod.metadata.namespace or ""
        await self._tools.lines.cancel(
            target, state.eviction_id, _CANCEL_TIMEOUT_SECONDS, namespace=tenant
        )

    def _build_request(self, pod: VictimPod, state: Eviction) -> CheckpointRequest:
        policy = self._tools.namespaces.get(pod.metadata.namespace)
        return pod_state.request_of(pod, state, self._tools.policy.current, policy)

    def _report_answer_error(self, pod: VictimPod, complaint: str) -> None:
        if complaint and complaint != self._reported_answer_error:
            self._reported_answer_error = complaint
            note = f"the workload's answer cannot be read: {complaint}"
            self._tools.announcer.event(
                ObjectReference.for_pod(pod.metadata), "CheckpointAnswerUnreadable", note
            )
