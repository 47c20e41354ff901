"""The Events and metrics of each transition, once it is written."""

from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies
from reprieve_operator.history import History
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase, PreemptionCause
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.transitions import Transition


class Reporter:
    """Reports what happens to victims."""

    def __init__(
        self,
        recorder: EventRecorder,
        metrics: OperatorMetrics,
        namespaces: NamespacePolicies,
        history: History | None = None,
    ) -> None:
        self._recorder = recorder
        self._namespaces = namespaces
        self._metrics = metrics
        self._history = history

    def report_transitions(
        self, pod: VictimPod, decision: LifecycleDecision, answer: CheckpointAnswer | None = None
    ) -> None:
        """Report the transitions that led to the decision's state.

        `answer` is what the workload answered.
        """
        state = decision.eviction
        if self._history is not None:
            self._history.note_work(pod.metadata, pod.status.startTime)
        counters = {
            Phase.EXTENDED: self._metrics.extensions,
            Phase.DEFERRED: self._metrics.deferrals,
            Phase.CANCELLED: self._metrics.cancellations,
        }
        for move in decision.transitions:
            message = event_messages.transition(move, state, answer)
            # A wait that ended as it began (the operator was down meanwhile) has no Event.
            is_passing = machine.awaits_workload(move.to) and move.to is not state.phase
            if message is not None and not is_passing:
                # A scheduler may mark a protected pod again and again: each mark is answered,
                # but there is one Event.
                self._recorder.event(
                    ObjectReference.for_pod(pod.metadata), *message, once=move.to is Phase.SPARED
                )
            if _ends_without_delete(pod, move, state):
                self._record_for_owner(pod, state)
            if move.to in counters and not (is_passing or move.resends_hint):
                counters[move.to].inc()
            if move.to is Phase.REQUEUED:
                self._metrics.requeues.labels(pod.metadata.namespace or "", "owner").inc()
            if move.to is Phase.SAVED and not move.ends_cleaning:
                self._observe_checkpoint_duration(state)
            if move.to in (Phase.REPRIEVED, Phase.SPARED) and state.refused_on is not None:
                self._metrics.refusals.labels(state.refused_on.value).inc()

    def report_suspended(self, pod: VictimPod, state: Eviction) -> None:
        """Report the deletion of a victim whose Job was suspended."""
        self._report_end(pod, state, event_messages.deleted_by_suspension())

    def report_deleted(self, pod: VictimPod, state: Eviction) -> None:
        """Report a DELETE."""
        self._report_end(pod, state, event_messages.deleting(state))

    def _report_end(self, pod: VictimPod, state: Eviction, event: tuple[str, str]) -> None:
        namespace = pod.metadata.namespace or ""
        outcome = "unknown" if state.outcome is None else state.outcome.value
        self._recorder.event(ObjectReference.for_pod(pod.metadata), *event)
        self._record_for_owner(pod, state)
        if self._history is not None:
            self._history.add_end(pod.metadata, state)
        self._metrics.preemptions.labels(namespace, state.cause or PreemptionCause.REQUEST).inc()
        self._metrics.outcomes.labels(outcome).inc()
        if state.cost is not None:
            workload_type = self._namespaces.get(namespace).workload_type or "unset"
            self._metrics.cost.labels(workload_type).observe(state.cost.hours)
        # A workload that was not called is not unresponsive.
        if state.outcome is CheckpointOutcome.UNRESPONSIVE and state.hinted_at is not None:
            self._metrics.escalations.inc()
        if state.outcome is not None and state.outcome.is_failure:
            self._metrics.failed_checkpoints.labels(namespace, outcome).inc()

    def _record_for_owner(self, pod: VictimPod, state: Eviction) -> None:
        """Record an Event on the pod's controller, which a user looks at after the pod is gone."""
        owner = ObjectReference.for_controller(pod.metadata)
        if owner is not None:
            message = event_messages.ended_of_owner(pod.metadata.name or "", state)
            self._recorder.event(owner, *message)

    def _observe_checkpoint_duration(self, state: Eviction) -> None:
        if state.checkpoint is not None and state.hinted_at is not None:
            took = state.checkpoint.saved_at - state.hinted_at
            self._metrics.checkpoint_seconds.observe(took.total_seconds())


def _ends_without_delete(pod: VictimPod, move: Transition, state: Eviction) -> bool:
    """True if the pod ends without a DELETE of its own: no later report tells its owner.

    Another client deleted it, or another victim of its Job suspended the Job.
    """
    if move.to is Phase.TERMINATING:
        return state.phase is Phase.TERMINATING and pod.metadata.deletionTimestamp is not None
    # A pod that is gone after its DELETE has the outcome that was decided before.
    return move.to is Phase.GONE and move.outcome is not None
