"""One victim's calls of the Eviction API: repeated at growing intervals while they are blocked."""

from http import HTTPStatus

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.lifecycle import termination
from reprieve_policy.lifecycle.cleanup import GIVE_UP_AFTER
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.backoff import Backoff
from reprieve_runtime.client.api import ApiError

_REPORT_INTERVAL_SECONDS = 60.0
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 1.0, 30.0
_BUDGET_CAUSE = "DisruptionBudget"
"""The API server's name of the cause."""
_BLOCKING_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
)
"""429: a budget allows no disruption. 500: a budget is broken, or the pod has two. The others:
another admission plugin refuses; it may choose any of the three."""


class EvictionRetry:
    """What this process has tried; the victim's ceiling ends the wait, and the calls with it."""

    def __init__(
        self, writes: Writes, policy: PolicySource, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._writes = writes
        self._policy = policy
        self._recorder = recorder
        self._clock = clock
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS)
        self.reset()

    def reset(self) -> None:
        """Forget all tries: the pod stays, and may be evicted again later."""
        self.is_blocked = False
        """True if something that may last blocked the last try, not a busy or absent API server."""
        self._backoff.reset()
        self._next_try_at: float | None = None
        self._reported_at: float | None = None

    async def evict(self, pod: VictimPod, state: Eviction) -> float | None:
        """Evict the pod; return the seconds to wait if that is blocked, `None` if it succeeded."""
        now = self._clock.monotonic()
        if self._next_try_at is not None and now < self._next_try_at:
            return self._next_try_at - now
        self.is_blocked = False
        try:
            await self._writes.evict_pod(pod, state)
        except ApiError as error:
            if error.status not in _BLOCKING_STATUSES and not self._is_past_ceiling(state, error):
                raise
            return self._schedule_retry(pod, state, error)
        return None

    def _is_past_ceiling(self, state: Eviction, error: ApiError) -> bool:
        """True a minute past the ceiling, whatever the API server answers.

        Without an end, a webhook that refuses with a status of its own, or says that it is busy,
        would hold a victim forever.
        """
        end = termination.ceiling_of(state, self._policy.current) + GIVE_UP_AFTER
        is_undecided = error.is_unreachable or error.is_not_found
        return state.must_evict and not is_undecided and self._clock.now() >= end

    def _schedule_retry(self, pod: VictimPod, state: Eviction, error: ApiError) -> float:
        now = self._clock.monotonic()
        pause = max(error.retry_after_seconds or 0, self._backoff.next_delay())
        until = termination.ceiling_of(state, self._policy.current)
        if self._reported_at is None or now >= self._reported_at + _REPORT_INTERVAL_SECONDS:
            self._reported_at = now
            message = event_messages.waiting_for_budget(
                _refusal_message(error), until, stays=state.must_evict
            )
            self._recorder.event(ObjectReference.for_pod(pod.metadata), *message)
        is_busy = error.status == HTTPStatus.TOO_MANY_REQUESTS and _BUDGET_CAUSE not in dict(
            error.causes
        )
        end = until + GIVE_UP_AFTER if is_busy and state.must_evict else until
        left = (end - self._clock.now()).total_seconds()
        self.is_blocked = not is_busy or left <= 0
        self._next_try_at = now + min(pause, max(0.0, left))
        return self._next_try_at - now


def _refusal_message(error: ApiError) -> str:
    """Return what the API server says of the budget, else its whole message."""
    return next((text for cause, text in error.causes if cause == _BUDGET_CAUSE), error.message)
