"""The exchange with one victim's workload: the request, the answer, and when to poll again.

The request goes to the endpoint that `endpoints` resolves, or into an annotation. An answer is
accepted from either, whatever carried the request.
"""

import math
from collections.abc import Callable

from reprieve_operator.checkpointing import endpoints
from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import AddressRefusal, Endpoint, SignalEndpoint
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.settings import OperatorSettings
from reprieve_policy import keys
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.verdict import Violation
from reprieve_runtime.backoff import jittered

_CANCEL_TIMEOUT_SECONDS = 2.0
_SHORTEST_PAUSE_SECONDS = 0.01
_ANSWER_ERROR_INTERVAL_SECONDS = 60.0
"""Without it, a workload that alternates two unreadable answers would have an Event at each poll,
and so fill the queue that all namespaces share."""


class CheckpointSession:
    """The exchange between one reconciler and one workload."""

    def __init__(
        self,
        poller: CheckpointPoller,
        client: CheckpointClient,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        recorder: EventRecorder,
        *,
        settings: OperatorSettings,
        clock: Clock,
        refusal_of: AddressRefusal,
        gang_size: Callable[[], int],
    ) -> None:
        self._refusal_of = refusal_of
        self._gang_size = gang_size
        self.poller = poller
        self._client = client
        self._policy = policy
        self._namespaces = namespaces
        self._recorder = recorder
        self._settings = settings
        self._clock = clock
        self._reported_answer_error = ""
        self._next_error_report_at = -math.inf

    def current_answer(self, pod: VictimPod, state: Eviction) -> CheckpointAnswer | None:
        """Return what the workload says: in reply to a call, else in its annotation."""
        self._report_answer_error(pod, self.poller.answer_error)
        if self.poller.undeliverable_reason:
            self.report_annotation_fallback(pod, self.poller.undeliverable_reason)
            self.poller.undeliverable_reason = ""
        reply = self.poller.answer
        # A reply "delivered" says nothing about the checkpoint. Without this, it would hide, at
        # each poll, what the workload itself writes into the annotation.
        if reply is not None and reply.state is not AnswerState.DELIVERED:
            return reply
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

    def reserve_call(self, pod: VictimPod) -> bool:
        """Reserve the call of the first hint; `False` while it waits for other calls."""
        is_called = isinstance(self.endpoint(pod), Endpoint)
        return not is_called or self.poller.reserve_call(pod.metadata.namespace or "")

    def needs_final_poll(
        self, pod: VictimPod, state: Eviction, seen: machine.ObservedVictim
    ) -> bool:
        """True if the deadline has come and the workload was not polled since.

        An earlier answer that it saves may not be written yet: it may have saved since.
        """
        if not machine.awaits_workload(state.phase) or machine.is_hint_queued(state):
            return False
        if (
            not seen.is_marked
            or seen.is_being_deleted
            or seen.containers_ended
            or not (seen.answer is None or machine.is_acknowledgement(seen.answer))
            or seen.hint_lost
        ):
            return False
        now = self._clock.now()
        if (
            state.deadline is None
            or now < state.deadline
            or not isinstance(self.endpoint(pod), Endpoint)
        ):
            return False
        return self.poller.is_calling or self.poller.is_final_poll_due(state, now)

    def endpoint(self, pod: VictimPod) -> Endpoint | str | None:
        """Return where the workload is called.

        A string is the reason why it cannot be called; `None`: it wants an annotation.
        """
        hint = pod_state.plan_of(pod, self._policy.current).hint
        return endpoints.resolve(
            pod,
            hint,
            allow_loopback=self._settings.allow_loopback_pod_ips,
            refusal_of=self._refusal_of,
        )

    def annotation_request(self, pod: VictimPod, state: Eviction) -> CheckpointRequest | None:
        """Return the request to write into the annotation; `None` if a call carries it, or none."""
        endpoint = self.endpoint(pod)
        # A signal carries no content.
        is_carried = isinstance(endpoint, Endpoint) and not isinstance(endpoint, SignalEndpoint)
        return (
            None
            if is_carried
            or not machine.awaits_workload(state.phase)
            or machine.is_hint_queued(state)
            else self._build_request(pod, state)
        )

    def report_annotation_fallback(self, pod: VictimPod, why: str) -> None:
        """Report, once, that only the annotation carries the request: the workload must poll it."""
        note = f"{why}, so the hint is in annotation {keys.CHECKPOINT_REQUEST} instead"
        self._recorder.event(
            ObjectReference.for_pod(pod.metadata), "CheckpointHintByAnnotation", note, once=True
        )

    def poll(self, pod: VictimPod, state: Eviction) -> float:
        """Call the workload if it has an endpoint; return the seconds until there is more to do."""
        resync = jittered(self._settings.resync_interval_seconds, 0.2)
        now = self._clock.now()
        wake = machine.next_wake(state)
        until_deadline = resync if wake is None else (wake - now).total_seconds()
        endpoint = self.endpoint(pod)
        if machine.is_hint_queued(state):
            return max(_SHORTEST_PAUSE_SECONDS, min(resync, until_deadline))
        if not isinstance(endpoint, Endpoint) or not machine.awaits_workload(state.phase):
            self.poller.release_call()
            return max(_SHORTEST_PAUSE_SECONDS, min(resync, until_deadline))
        pause = self.poller.poll(
            endpoint,
            state,
            self._build_request(pod, state),
            now,
            pod.metadata.namespace or "",
            expected_end=pod_state.expected_save_end(pod, state, self._policy.current),
        )
        if self.poller.is_calling:
            return resync
        return max(_SHORTEST_PAUSE_SECONDS, min(resync, pause, until_deadline))

    async def cancel(self, pod: VictimPod, state: Eviction) -> None:
        """Tell a workload that got a hint that its pod stays; once: the pod says so, too."""
        endpoint = self.endpoint(pod)
        if state.hinted_at is None or not isinstance(endpoint, Endpoint):
            return
        # The workload must not receive the call that is under way after this one.
        await self.poller.close()
        namespace = pod.metadata.namespace or ""
        await self._client.cancel(
            endpoint, state.eviction_id, _CANCEL_TIMEOUT_SECONDS, namespace=namespace
        )

    def _build_request(self, pod: VictimPod, state: Eviction) -> CheckpointRequest:
        policy = self._namespaces.get(pod.metadata.namespace)
        return pod_state.request_of(pod, state, self._policy.current, policy, self._gang_size())

    def _report_answer_error(self, pod: VictimPod, error: str) -> None:
        now = self._clock.monotonic()
        if error in ("", self._reported_answer_error) or now < self._next_error_report_at:
            return
        self._reported_answer_error = error
        self._next_error_report_at = now + _ANSWER_ERROR_INTERVAL_SECONDS
        note = f"the workload's answer cannot be read: {error}"
        self._recorder.event(
            ObjectReference.for_pod(pod.metadata), "CheckpointAnswerUnreadable", note
        )
