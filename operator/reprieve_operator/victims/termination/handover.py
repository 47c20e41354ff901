"""What one victim leaves to its replacement: the ledger on its owner, the checkpoint, its record.

These writes are about other objects than the victim. Each is tried for about a minute at most
(`OptionalWriteDeadline`), then the eviction continues without it.
"""

import logging
from collections.abc import Awaitable

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.retries import OptionalWriteDeadline, is_permanent
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_operator.replacements.ledger_writer import LedgerWriter
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import ApiError

_log = logging.getLogger(__name__)


class ReplacementHandover:
    """Hands one victim's state over, each part once; what it knows may be lost at any time."""

    def __init__(
        self,
        ledger: LedgerWriter,
        bare_pods: BarePodController,
        policy: PolicySource,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._bare_pods = bare_pods
        self._policy = policy
        self._recorder = recorder
        self._clock = clock
        self._optional_write_deadline = OptionalWriteDeadline(clock)
        self._is_in_ledger = False
        self._is_checkpoint_published = False
        self._is_replacement_stored = False
        self.is_retracted = False
        """True if the ledger entry was taken back: the pod was to stay."""

    def reset(self) -> None:
        """Forget what was written: the pod stays, and may be evicted and save again later."""
        self._is_in_ledger = self._is_checkpoint_published = self._is_replacement_stored = False
        self.is_retracted = False

    async def record(self, pod: VictimPod, state: Eviction, *, is_inherited: bool = True) -> None:
        """Record on the owner what the replacement inherits; without one, only the checkpoint."""
        if not (is_inherited and self._may_be_recreated(pod)):
            await self.publish_checkpoint(pod, state)
            return
        if self._is_in_ledger:
            return
        record = self._ledger.record(pod, state)
        error = await self._write_optional("could not write the ledger", pod, record)
        if error is not None:
            self._recorder.event(
                ObjectReference.for_pod(pod.metadata),
                *event_messages.ledger_not_written(error.message),
            )
        self._is_in_ledger = self._is_checkpoint_published = _is_resolved(error)
        self.is_retracted &= not self._is_in_ledger

    async def publish_checkpoint(self, pod: VictimPod, state: Eviction) -> None:
        """Write on the owner when the pod saved a checkpoint.

        This comes before the pod's last write, so that an operator that is killed between the two
        does it again.
        """
        if self._is_checkpoint_published or state.checkpoint is None:
            return
        try:
            await self._ledger.publish_checkpoint(pod, state.checkpoint.saved_at)
        except ApiError as error:
            may_retry = error.is_unreachable or error.is_conflict
            if may_retry and not self._optional_write_deadline.has_passed(error):
                raise
            # The pod carries the time, too. Without this, a broken webhook for owners would
            # prevent the cancellation of an eviction.
            _log.warning(
                "could not publish the checkpoint on the owner",
                extra={"pod": pod.metadata.key, "error": str(error)},
            )
        self._is_checkpoint_published = True

    async def retract(self, pod: VictimPod, state: Eviction) -> None:
        """Take the ledger entry back: the pod stays."""
        await self._write_optional(
            "could not take the ledger entry back", pod, self._ledger.retract(pod, state)
        )
        self._is_in_ledger, self.is_retracted = False, True

    async def store_replacement(self, pod: VictimPod, state: Eviction) -> None:
        """Store the replacement of a pod that has no owner."""
        if self._is_replacement_stored or not self._may_be_recreated(pod):
            return
        error = await self._write_optional(
            "could not store the bare pod", pod, self._bare_pods.store_replacement(pod, state)
        )
        if error is not None:
            self._recorder.event(
                ObjectReference.for_pod(pod.metadata), *event_messages.not_requeued(error.message)
            )
        self._is_replacement_stored = _is_resolved(error)

    async def forget_replacement(self, pod: VictimPod) -> None:
        """Delete the stored replacement of a pod that has completed its work."""
        await self._write_optional(
            "could not delete the record of the bare pod",
            pod,
            self._bare_pods.forget_replacement(pod.metadata.uid or ""),
        )

    def on_victim_gone(self, uid: str, *, has_finished: bool = False) -> None:
        """Note that the pod is gone, or no longer a victim."""
        self._bare_pods.on_victim_gone(uid, has_finished=has_finished)

    async def _write_optional(
        self, failure: str, pod: VictimPod, call: Awaitable[None]
    ) -> ApiError | None:
        """Make a call that the eviction can do without; return the error once it is given up."""
        begun_at = self._clock.monotonic()
        try:
            await call
        except ApiError as error:
            if not self._optional_write_deadline.has_passed(error, begun_at):
                raise
            _log.error(failure, extra={"pod": pod.metadata.key, "error": str(error)})
            return error
        self._optional_write_deadline.reset()
        return None

    def _may_be_recreated(self, pod: VictimPod) -> bool:
        plan = pod_state.plan_of(pod, self._policy.current)
        return plan.requeue is not checkpoint_plan.Requeue.NEVER


def _is_resolved(error: ApiError | None) -> bool:
    """True if the call is done, or refused for good.

    A call that was given up for another reason is made again at each reconciliation. Without this,
    the replacement would inherit nothing after an outage of the API server.
    """
    return error is None or is_permanent(error)
