"""What is told and counted of each move, once it is written."""

from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.namespace_policies import NamespacePolicies
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.checkpointing.contract import CheckpointAnswer
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase, PreemptionCause
from reprieve_policy.lifecycle.machine import LifecycleDecision


class Reporter:
    """Events and metrics of the victims' lives."""

    def __init__(
        self, announcer: EventRecorder, metrics: OperatorMetrics, namespaces: NamespacePolicies
    ) -> None:
        self._announcer = announcer
        self._namespaces = namespaces
        self._metrics = metrics

    def report_transitions(
        self, pod: VictimPod, decision: LifecycleDecision, answer: CheckpointAnswer | None = None
    ) -> None:
        """Tell and count the moves that led to the decision's state; `answer`: what the workload said then."""
        state = decision.eviction
        counters = {
            Phase.EXTENDED: self._metrics.extensions,
            Phase.DEFERRED: self._metrics.deferrals,
            Phase.CANCELLED: self._metrics.cancellations,
        }
        for move in decision.transitions:
            told = event_messages.transition(move, state, answer)
            # A wait that was over as it began (an operator that comes back late) has no Event of its own.
            is_passing = machine.awaits_workload(move.to) and move.to is not state.phase
            if told is not None and not is_passing:
                # A scheduler that marks a protected pod again and again is answered each time, and told once.
                self._announcer.event(
                    ObjectReference.for_pod(pod.metadata), *told, once=move.to is Phase.SPARED
                )
            if move.to in counters and not (is_passing or move.resends_hint):
                counters[move.to].inc()
            if move.to is Phase.REQUEUED:
                self._metrics.requeues.labels(pod.metadata.namespace or "", "owner").inc()
            if move.to is Phase.SAVED:
                self._observe_checkpoint_duration(state)
            if move.to in (Phase.REPRIEVED, Phase.SPARED) and state.refused_on is not None:
                self._metrics.refusals.labels(state.refused_on.value).inc()

    def report_suspended(self, pod: VictimPod, state: Eviction) -> None:
        """Tell and count the end of a victim whose Job was suspended."""
        self._report_end(pod, state, event_messages.deleted_by_suspension())

    def report_deleted(self, pod: VictimPod, state: Eviction) -> None:
        """Tell and count a DELETE."""
        self._report_end(pod, state, event_messages.deleting(state))

    def _report_end(self, pod: VictimPod, state: Eviction, event: tuple[str, str]) -> None:
        namespace, outcome = (
            pod.metadata.namespace or "",
            "unknown" if state.outcome is None else state.outcome.value,
        )
        self._announcer.event(ObjectReference.for_pod(pod.metadata), *event)
        self._metrics.preemptions.labels(namespace, state.cause or PreemptionCause.REQUEST).inc()
        self._metrics.outcomes.labels(outcome).inc()
        if state.cost is not None:
            workload_type = self._namespaces.get(namespace).workload_type or "unsaid"
            self._metrics.cost.labels(workload_type).observe(state.cost.hours)
        if state.outcome is CheckpointOutcome.UNRESPONSIVE:
            self._metrics.escalations.inc()
        if state.outcome is not None and state.outcome.is_failure:
            self._metrics.failed_checkpoints.labels(namespace, outcome).inc()

    def _observe_checkpoint_duration(self, state: Eviction) -> None:
        if state.checkpoint is not None and state.hinted_at is not None:
            took = state.checkpoint.saved_at - state.hinted_at
            self._metrics.checkpoint_seconds.observe(took.total_seconds())
