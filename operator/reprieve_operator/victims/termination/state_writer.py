"""The last writes to one victim: its state from TERMINATING on, and `DisruptionTarget`.

A pod may have no room for a state: the eviction continues without it.
"""

import logging
from collections.abc import Awaitable, Callable

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.retries import OptionalWriteDeadline
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.lifecycle import eviction, termination
from reprieve_policy.lifecycle.cleanup import GIVE_UP_AFTER
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_runtime.client.api import ApiError

_log = logging.getLogger(__name__)


class TerminationStateWriter:
    """Writes the states of one victim, and remembers one that the pod cannot carry."""

    def __init__(
        self,
        writes: Writes,
        policy: PolicySource,
        clock: Clock,
        *,
        adds_finalizer: Callable[[VictimPod, Eviction], bool],
        on_pod_written: Callable[[VictimPod], None],
        on_state_written: Callable[[VictimPod, LifecycleDecision], None],
    ) -> None:
        self.unpersisted_state: Eviction | None = None
        """The state, if the pod has no room for it."""
        self._writes = writes
        self._policy = policy
        self._clock = clock
        self._deadline = OptionalWriteDeadline(clock)
        self._adds_finalizer = adds_finalizer
        self._on_pod_written = on_pod_written
        self._on_state_written = on_state_written

    async def write_terminating(
        self, pod: VictimPod, decision: LifecycleDecision, *, sets_condition: bool
    ) -> VictimPod:
        """Write the state, and the condition if `sets_condition`, unless the pod shows them."""
        state = decision.eviction
        is_written = self.unpersisted_state is not None or pod_state.state_of(pod.metadata) == state
        if is_written and not (sets_condition and not pod_state.has_disruption_target(pod)):
            return pod
        pod = await self._write_state_and_condition(pod, state, sets_condition=sets_condition)
        self._on_pod_written(pod)
        self._on_state_written(pod, decision)
        return pod

    async def write_deleted_by_others(
        self, pod: VictimPod, decision: LifecycleDecision
    ) -> VictimPod:
        """Write the state of a pod that another client has deleted."""
        try:
            pod = await self._writes.write_state(pod, decision.eviction, None, begins=False)
        except ApiError as error:
            if not error.is_object_too_large:
                raise
            self.unpersisted_state = decision.eviction
        self._on_pod_written(pod)
        self._on_state_written(pod, decision)
        return pod

    async def write_finished(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that ended by itself."""
        return await self._write_terminal(self._writes.write_finished, pod, state)

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        """Write the last state of a pod that stays."""
        return await self._write_terminal(self._writes.write_cancelled, pod, state)

    async def _write_terminal(
        self, write: Callable[..., Awaitable[VictimPod]], pod: VictimPod, state: Eviction
    ) -> VictimPod:
        """Write a state that ends the eviction: a short one, or none, if the pod is full."""
        written = (
            await _unless_full(write(pod, state))
            or await _unless_full(write(pod, eviction.shortened(state)))
            or await write(pod, state, has_room=False)
        )
        # Without this, a state that never fitted would be acted on again and again.
        self.unpersisted_state = None
        return written

    async def _write_state_and_condition(
        self, pod: VictimPod, state: Eviction, *, sets_condition: bool
    ) -> VictimPod:
        if self.unpersisted_state is None:
            try:
                adds_finalizer = self._adds_finalizer(pod, state)
                if not sets_condition:
                    return await self._writes.write_state(
                        pod, state, None, begins=False, adds_finalizer=adds_finalizer
                    )
                return await self._writes.write_disruption_target(
                    pod, state, adds_finalizer=adds_finalizer
                )
            except ApiError as error:
                self._continue_unpersisted(pod, state, error)
            self.unpersisted_state = state
        if sets_condition:
            try:
                return await self._writes.write_disruption_target(pod, None)
            except ApiError as error:
                self._continue_unpersisted(pod, state, error)
        return pod

    def _continue_unpersisted(self, pod: VictimPod, state: Eviction, error: ApiError) -> None:
        """Continue without a write if the pod is full, or refused it a minute past the ceiling.

        In all other cases, raise the error. A conflict is a refusal like any other, and so is a
        call without an answer for a minute: without this, an owner that writes to the pod all the
        time would keep it, or one whose webhook does not answer.
        """
        until = termination.ceiling_of(state, self._policy.current) + GIVE_UP_AFTER
        # After an outage, a first call without an answer says little.
        is_refused = self._deadline.has_passed(error) or not error.is_unreachable
        is_late = is_refused and self._clock.now() >= until
        if not (is_late or error.is_object_too_large):
            raise error
        _log.warning(
            "could not write the terminating state; the eviction continues",
            extra={"pod": pod.metadata.key, "error": str(error)},
        )


async def _unless_full(write: Awaitable[VictimPod]) -> VictimPod | None:
    """Return the written pod; `None` if its annotations have no room for that."""
    try:
        return await write
    except ApiError as error:
        if not error.is_object_too_large:
            raise
        return None
