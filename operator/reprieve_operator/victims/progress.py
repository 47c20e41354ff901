"""How far one victim has come: the last written state, and what is reported of it."""

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_policy.lifecycle.machine import LifecycleDecision

from .cleaner_report import CleanerReport
from .gang_eviction.member import GangMember
from .reporter import Reporter


class Progress:
    """Events, metrics and the gang learn only of states that are written."""

    def __init__(
        self,
        gang_member: GangMember,
        reporter: Reporter,
        recorder: EventRecorder,
        cleaner_report: CleanerReport,
        policy: PolicySource,
        clock: Clock,
    ) -> None:
        self.phase = Phase.REQUESTED
        self._gang_member = gang_member
        self._reporter = reporter
        self._recorder = recorder
        self._cleaner_report = cleaner_report
        self._policy = policy
        self._clock = clock
        self._last_state: Eviction | None = None
        self._last_answer: CheckpointAnswer | None = None
        self._unconfirmed: LifecycleDecision | None = None
        """The decision whose state is written, while it is not known whether it was."""
        self._started_at = clock.monotonic()
        self._is_first_write_done = False

    @property
    def state(self) -> Eviction | None:
        """The state that was last written or read; `None` before that."""
        return self._last_state

    @property
    def waiting_seconds(self) -> float:
        """How long the first write has been due; 0 once it is made."""
        return 0.0 if self._is_first_write_done else self._clock.monotonic() - self._started_at

    @property
    def read_priority(self) -> CallPriority:
        """The priority of reads: before the first write, the notice waits for them."""
        return CallPriority.RECORD if self._is_first_write_done else CallPriority.NOTIFY

    def on_state_read(self, state: Eviction) -> None:
        """Take over the state that the pod carries."""
        self._last_state, self.phase = state, state.phase
        self._is_first_write_done |= state.phase is not Phase.REQUESTED

    def on_write(self, decision: LifecycleDecision) -> None:
        """Keep a decision until it is known whether its state was written."""
        self._unconfirmed = decision

    def confirm(self, pod: VictimPod, state: Eviction) -> bool:
        """Report the state that the pod carries if its write got no answer; return whether it is.

        The gang learns of the state in any case. Without this, its other pods would wait for a pod
        that has saved, or go though one was cancelled.
        """
        unconfirmed = self._unconfirmed
        if unconfirmed is None or unconfirmed.eviction != state:
            self._gang_member.on_state_read(state)
            return False
        self.on_state_written(pod, unconfirmed)
        return True

    def on_answer(self, state: Eviction, answer: CheckpointAnswer | None) -> None:
        """Keep the workload's answer for the Event of the next state."""
        is_current = answer is not None and answer.may_belong_to(state.eviction_id)
        self._last_answer = answer if is_current else None

    def on_state_written(self, pod: VictimPod, decision: LifecycleDecision) -> None:
        """Report a state that was written, to users and to the gang."""
        self._unconfirmed = None
        self._last_state, self.phase = decision.eviction, decision.eviction.phase
        self._is_first_write_done = True
        self._reporter.report_transitions(pod, decision, self._last_answer)
        if decision.gives_up_cleaners:
            self._cleaner_report.report_overdue(pod, decision.eviction)
        self._gang_member.on_state_written(pod, decision.eviction)

    def report_gone(self, pod: VictimPod) -> None:
        """Report the end of a victim that is gone; `pod` is its last known version."""
        if self._last_state is None:
            return
        settings = self._policy.current
        plan = pod_state.plan_of(pod, settings)
        gone = machine.ObservedVictim(
            is_gone=True, is_replaced=pod_state.is_replaced(pod, self._last_state, plan)
        )
        decision = machine.decide(self._last_state, gone, plan, settings, self._clock.now())
        self.on_state_written(pod, decision)
        self._recorder.event(
            ObjectReference.for_pod(pod.metadata), *event_messages.completed(decision.eviction)
        )
