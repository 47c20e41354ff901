"""What is told and counted of each move, once it is written."""

from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import Announcer, Regarding
from reprieve_operator.cluster.namespace_policies import NamespacePolicies
from reprieve_operator.cluster.pods import Pod
from reprieve_operator.metrics import Metrics
from reprieve_policy.checkpointing.contract import Answer
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import Cause, Eviction, Outcome, Phase
from reprieve_policy.lifecycle.machine import Decision


class Tally:
    """Events and metrics of the victims' lives."""

    def __init__(self, announcer: Announcer, metrics: Metrics, namespaces: NamespacePolicies) -> None:
        self._announcer = announcer
        self._namespaces = namespaces
        self._metrics = metrics

    def moved(self, pod: Pod, decision: Decision, answer: Answer | None = None) -> None:
        """Tell and count the moves that led to the decision's state; `answer`: what the workload said then."""
        state = decision.eviction
        counters = {
            Phase.EXTENDED: self._metrics.extensions,
            Phase.DEFERRED: self._metrics.deferrals,
            Phase.CANCELLED: self._metrics.cancellations,
        }
        for move in decision.moves:
            told = event_messages.tell(move, state, answer)
            # A wait that was over as it began (an operator that comes back late) has no Event of its own.
            is_passing = machine.is_waiting(move.to) and move.to is not state.phase
            if told is not None and not is_passing:
                # A scheduler that marks a protected pod again and again is answered each time, and told once.
                self._announcer.announce(Regarding.pod(pod.metadata), *told, once=move.to is Phase.SPARED)
            if move.to in counters and not (is_passing or move.asks_again):
                counters[move.to].inc()
            if move.to is Phase.REQUEUED:
                self._metrics.requeues.labels(pod.metadata.namespace or "", "owner").inc()
            if move.to is Phase.SAVED:
                self._saved(state)
            if move.to in (Phase.REPRIEVED, Phase.SPARED) and state.refused_on is not None:
                self._metrics.refusals.labels(state.refused_on.value).inc()

    def suspended(self, pod: Pod, state: Eviction) -> None:
        """Tell and count the end of a victim whose Job was suspended."""
        self._ended(pod, state, event_messages.suspended())

    def deleted(self, pod: Pod, state: Eviction) -> None:
        """Tell and count a DELETE."""
        self._ended(pod, state, event_messages.deleting(state))

    def _ended(self, pod: Pod, state: Eviction, told: tuple[str, str]) -> None:
        namespace, outcome = pod.metadata.namespace or "", "unknown" if state.outcome is None else state.outcome.value
        self._announcer.announce(Regarding.pod(pod.metadata), *told)
        self._metrics.preemptions.labels(namespace, state.cause or Cause.REQUEST).inc()
        self._metrics.outcomes.labels(outcome).inc()
        if state.cost is not None:
            workload_type = self._namespaces.of(namespace).workload_type or "unsaid"
            self._metrics.cost.labels(workload_type).observe(state.cost.hours)
        if state.outcome is Outcome.UNRESPONSIVE:
            self._metrics.escalations.inc()
        if state.outcome is not None and state.outcome.is_failure:
            self._metrics.failed_checkpoints.labels(namespace, outcome).inc()

    def _saved(self, state: Eviction) -> None:
        if state.checkpoint is not None and state.hinted_at is not None:
            took = state.checkpoint.saved_at - state.hinted_at
            self._metrics.checkpoint_seconds.observe(took.total_seconds())
