"""One victim's side of the story: what its workload says, wherever it says it, and when it is asked again.

Hints go where `targets` says, or into an annotation; answers come either way.
"""

import random
from collections.abc import Callable

from reprieve_operator.checkpointing import endpoints
from reprieve_operator.checkpointing.endpoints import SignalTarget, Target
from reprieve_operator.checkpointing.poller import Asking
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.event_recorder import Regarding
from reprieve_operator.cluster.pods import Pod
from reprieve_policy import keys
from reprieve_policy.checkpointing.contract import Answer, AnswerState, Request
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.verdict import Violation

from .context import Tools

_TAKE_BACK_SECONDS = 2.0
_SHORTEST_PAUSE_SECONDS = 0.01


class Conversation:
    """Between one keeper and one workload."""

    def __init__(self, tools: Tools, wake: Callable[[], None]) -> None:
        self.asking = Asking(tools.lines, tools.settings, tools.clock, wake)
        self._tools = tools
        self._complaint = ""

    def answer(self, pod: Pod, state: Eviction) -> Answer | None:
        """Return what the workload says: in reply to a call, else in its annotation."""
        self._complain(pod, self.asking.complaint)
        if self.asking.obstacle:
            self.fall_back(pod, self.asking.obstacle)
            self.asking.obstacle = ""
        told = self.asking.answer
        # That it was delivered says nothing. Without this, it would hide at each poll what the workload itself writes.
        if told is not None and told.state is not AnswerState.DELIVERED:
            return told
        written = pod_state.answer_of(pod)
        if isinstance(written, Violation):
            self._complain(pod, f"{written.path}: {written.detail}")
            return None
        if written is None or written.state is AnswerState.IDLE or not written.is_about(state.eviction_id):
            return None
        return written

    def is_owed_the_last_word(self, pod: Pod, state: Eviction, seen: machine.Seen) -> bool:
        """True where the deadline has come, but the workload was not asked since."""
        if not machine.is_waiting(state.phase):
            return False
        if not seen.is_marked or seen.is_being_deleted or seen.containers_ended or seen.answer or seen.hint_was_lost:
            return False
        now = self._tools.clock.now()
        if state.deadline is None or now < state.deadline or not isinstance(self.target(pod), Target):
            return False
        return self.asking.is_calling or self.asking.is_last_word_due(state, now)

    def target(self, pod: Pod) -> Target | str | None:
        """Return where the workload is called; a reason where it cannot be; `None` where it wants an annotation."""
        hint = pod_state.plan_of(pod, self._tools.policy.current).hint
        return endpoints.find(pod, hint, allow_loopback=self._tools.settings.allow_loopback_pod_ips)

    def written_request(self, pod: Pod, state: Eviction) -> Request | None:
        """Return the request to write into the annotation; `None` where a call carries it, or nobody is asked."""
        target = self.target(pod)
        # A signal carries nothing.
        is_carried = isinstance(target, Target) and not isinstance(target, SignalTarget)
        return None if is_carried or not machine.is_waiting(state.phase) else self._request(pod, state)

    def fall_back(self, pod: Pod, why: str) -> None:
        """Say, once, that the request is only where whoever polls will find it."""
        note = f"{why}, so the hint is in annotation {keys.CHECKPOINT_REQUEST} instead"
        self._tools.announcer.announce(Regarding.pod(pod.metadata), "CheckpointHintByAnnotation", note, once=True)

    def proceed(self, pod: Pod, state: Eviction) -> float:
        """Call the workload where it is called, and return how long there is nothing else to do."""
        resync = self._tools.settings.resync_interval_seconds * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        now = self._tools.clock.now()
        wake = machine.next_wake(state)
        until_deadline = resync if wake is None else (wake - now).total_seconds()
        target = self.target(pod)
        if not isinstance(target, Target) or not machine.is_waiting(state.phase):
            return max(_SHORTEST_PAUSE_SECONDS, min(resync, until_deadline))
        pause = self.asking.proceed(target, state, self._request(pod, state), now, pod.metadata.namespace or "")
        if self.asking.is_calling:
            return resync
        return max(_SHORTEST_PAUSE_SECONDS, min(resync, pause, until_deadline))

    async def take_back(self, pod: Pod, state: Eviction) -> None:
        """Tell a workload that was asked that it may stay: once, because that it may also stands on the pod."""
        target = self.target(pod)
        if state.hinted_at is None or not isinstance(target, Target):
            return
        # A call that is under way must not be heard after this one.
        await self.asking.close()
        tenant = pod.metadata.namespace or ""
        await self._tools.lines.take_back(target, state.eviction_id, _TAKE_BACK_SECONDS, tenant=tenant)

    def _request(self, pod: Pod, state: Eviction) -> Request:
        policy = self._tools.namespaces.of(pod.metadata.namespace)
        return pod_state.request_of(pod, state, self._tools.policy.current, policy)

    def _complain(self, pod: Pod, complaint: str) -> None:
        if complaint and complaint != self._complaint:
            self._complaint = complaint
            note = f"the workload's answer cannot be read: {complaint}"
            self._tools.announcer.announce(Regarding.pod(pod.metadata), "CheckpointAnswerUnreadable", note)
