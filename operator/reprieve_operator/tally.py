"""What is told and counted of each move, once it is written."""

from reprieve_policy import life
from reprieve_policy.eviction import Eviction, Phase
from reprieve_policy.life import Decision

from . import story
from .announce import Announcer, Regarding
from .metrics import Metrics
from .pods import Pod


class Tally:
    """Events and metrics of the victims' lives."""

    def __init__(self, announcer: Announcer, metrics: Metrics) -> None:
        self._announcer = announcer
        self._metrics = metrics

    def moved(self, pod: Pod, decision: Decision) -> None:
        """Tell and count the moves that led to the decision's state."""
        counters = {
            Phase.EXTENDED: self._metrics.extensions,
            Phase.DEFERRED: self._metrics.deferrals,
            Phase.CANCELLED: self._metrics.cancellations,
        }
        for move in decision.moves:
            told = story.tell(move, decision.eviction)
            # A wait that was over as it began (an operator that comes back late) has no Event of its own.
            is_passing = life.is_waiting(move.to) and move.to is not decision.eviction.phase
            if told is not None and not is_passing:
                self._announcer.announce(Regarding.pod(pod.metadata), *told)
            if move.to in counters:
                counters[move.to].inc()
            if move.to is Phase.SAVED:
                self._saved(decision.eviction)

    def deleted(self, pod: Pod, state: Eviction) -> None:
        """Tell and count a DELETE."""
        namespace, outcome = pod.metadata.namespace or "", "unknown" if state.outcome is None else state.outcome.value
        self._announcer.announce(Regarding.pod(pod.metadata), *story.deleting(state))
        self._metrics.preemptions.labels(namespace, outcome).inc()
        if state.outcome is not None and state.outcome.is_failure:
            self._metrics.failed_checkpoints.labels(namespace, outcome).inc()

    def _saved(self, state: Eviction) -> None:
        if state.checkpoint is not None and state.hinted_at is not None:
            took = state.checkpoint.saved_at - state.hinted_at
            self._metrics.checkpoint_seconds.observe(took.total_seconds())
