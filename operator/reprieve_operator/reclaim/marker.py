"""Begins a round: marks the borrowers that leave, and says so on the node, the pod and the victims.

The marks are those of a preemption. All else follows as for any victim: the reconcilers check each
pod's protection once more, and give it notice. A pod that has no room for the mark is deleted
without notice, as is any victim without room for a state.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod, metadata_without_version
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.retries import GONE_OR_CHANGED, is_permanent
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.kube.pods import own_grace_seconds
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import grace_period
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase, PreemptionCause
from reprieve_policy.preemption import reclaim
from reprieve_policy.preemption.automatic_reclaim import ReclaimRound
from reprieve_policy.preemption.selection.snapshot import ScheduledPod
from reprieve_runtime.client.api import ApiError

from .lent_nodes import LentNode
from .reader import LentNodePod, reread

_log = logging.getLogger(__name__)

EVENT = "LentNodeReclaimed"
_ATTEMPTS = 3
"""A kubelet's update of the status between the read and the mark is no reason to give up, nor is an
API server that is busy for a moment."""
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 1, 5
_REFUSED_SECONDS, _FAILED_SECONDS = 3600.0, 600.0
"""For so long a pod is not chosen again: one that another policy bars the operator from, which may
be repaired, and one where the API server, or a webhook, did not answer."""

MayLeave = Callable[[LentNodePod], Awaitable[bool]]
"""Whether a borrower that has changed may still be a victim."""
_Write = Callable[[LentNodePod, VersionedMeta], Awaitable[None]]
"""Marks or deletes a borrower, of which these are the metadata now."""


class BorrowerMarker:
    """Marks pods; reports what was marked, or deleted because it has no room for a mark."""

    def __init__(
        self,
        writes: Writes,
        policy: PolicySource,
        recorder: EventRecorder,
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._writes, self._policy, self._clock = writes, policy, clock
        self._recorder, self._reporter = recorder, reporter
        self._stays_until: dict[str, float] = {}
        """Until when a pod that could not be written to is left alone, by its uid, on the monotonic
        clock."""

    def unmarkable(self) -> Collection[str]:
        """Return the uids of pods that could not be marked, or deleted: they stay for a while.

        Without this, each round would choose them again, and a borrower whose webhook hangs would
        keep its node, and those of others, for ever.
        """
        now = self._clock.monotonic()
        self._stays_until = {uid: at for uid, at in self._stays_until.items() if at > now}
        return self._stays_until.keys()

    async def begin(
        self,
        chosen: ReclaimRound,
        waiting: LentNodePod,
        pods: Mapping[str, LentNodePod],
        nodes: Mapping[str, LentNode],
        may_leave: MayLeave,
    ) -> None:
        """Mark the victims of a round; raises `ApiError` if one cannot be written now.

        `waiting` is the pod that begins it; `nodes` are the lent nodes by name.
        """
        marked: Counter[str] = Counter()
        text = reclaim.build_mark(self._clock.now())

        async def mark(pod: LentNodePod, metadata: VersionedMeta) -> None:
            await self._writes.mark(metadata, text, chosen.pod.uid)
            self._report_victim(pod, nodes, EVENT, "the pod is asked to leave")

        async def delete(pod: LentNodePod, metadata: VersionedMeta) -> None:
            await self._delete_without_notice(pod, metadata, nodes)

        async def write_each(victims: Iterable[ScheduledPod], write: _Write) -> list[ScheduledPod]:
            """Write to the victims; return those that have no room for it."""
            full = []
            for victim in victims:
                try:
                    if await self._write(pods[victim.uid], write, may_leave):
                        marked[victim.node] += 1
                except ApiError as error:
                    if error.is_object_too_large:
                        full.append(victim)
                    else:
                        is_refused = is_permanent(error)
                        self._leave_alone(
                            victim.uid, _REFUSED_SECONDS if is_refused else _FAILED_SECONDS
                        )
                        if not is_refused:
                            raise
            return full

        try:
            # Deleted once all others are marked: without this, a pod would go in vain where a mark
            # fails for the moment.
            full = await write_each(chosen.victims, mark)
            for victim in await write_each(full, delete):
                self._leave_alone(victim.uid, _REFUSED_SECONDS)
        finally:
            self._report(chosen, waiting, marked, nodes)

    def _leave_alone(self, uid: str, seconds: float) -> None:
        self._stays_until[uid] = self._clock.monotonic() + seconds

    async def _write(self, pod: LentNodePod, write: _Write, may_leave: MayLeave) -> bool:
        """Write to the pod; `False` if it is gone, or may be no victim any more."""
        metadata = pod.metadata
        for attempt in range(1, _ATTEMPTS + 1):
            if attempt == _ATTEMPTS:
                # Without this, an owner that writes to the pod all the time would keep the mark off
                # (`cluster.writes`).
                metadata = metadata_without_version(metadata)
            try:
                await write(pod, metadata)
            except ApiError as error:
                if error.status in GONE_OR_CHANGED:
                    found = await self._reread(pod, may_leave)
                    if found is None:
                        break
                    metadata = found.metadata
                elif attempt == _ATTEMPTS or is_permanent(error):
                    extra = {"pod": pod.metadata.key, "error": str(error)}
                    _log.warning("could not write to a borrower", extra=extra)
                    raise
                else:
                    seconds = error.retry_after_seconds or _RETRY_SECONDS
                    await asyncio.sleep(min(seconds, _MOST_RETRY_SECONDS))
            else:
                return True
        _log.info("borrower has changed, and is not marked", extra={"pod": pod.metadata.key})
        return False

    async def _delete_without_notice(
        self, pod: LentNodePod, metadata: VersionedMeta, nodes: Mapping[str, LentNode]
    ) -> None:
        """Delete a pod, with the condition by which Jobs know a disruption if it has room for that.

        It is reported as any victim that is deleted.
        """
        now, victim = self._clock.now(), VictimPod(metadata=metadata)
        own_seconds = own_grace_seconds(pod.spec.terminationGracePeriodSeconds)
        state = Eviction(
            eviction_id=f"{pod.uid}-{int(now.timestamp() * 1000)}",
            phase=Phase.TERMINATING,
            requested_at=now,
            cause=PreemptionCause.RECLAIM,
            outcome=CheckpointOutcome.SKIPPED,
            grace_seconds=grace_period.usual_grace_seconds(own_seconds, self._policy.current),
        )
        try:
            victim = await self._writes.write_disruption_target(victim, None)
        except ApiError as error:
            if not error.is_object_too_large:
                raise
        if await self._writes.delete_pod(victim, state):
            what = "the pod has no room for a mark, and is deleted without notice"
            self._report_victim(pod, nodes, "SoftEvictionWithoutNotice", what)
            self._reporter.report_deleted(victim, state)

    async def _reread(self, pod: LentNodePod, may_leave: MayLeave) -> LentNodePod | None:
        current = await reread(self._writes, pod)
        if current is None or not current.occupies_node:
            return None
        is_leaving = current.metadata.deletionTimestamp is not None
        return None if is_leaving or not await may_leave(current) else current

    def _report_victim(
        self, pod: LentNodePod, nodes: Mapping[str, LentNode], reason: str, what: str
    ) -> None:
        is_on_lent_node = pod.spec.nodeName in nodes
        where = "its node was" if is_on_lent_node else "the node of another pod of its gang was"
        note = f"{where} lent by another namespace, which wants it back: {what}"
        self._recorder.event(ObjectReference.for_pod(pod.metadata), reason, note)

    def _report(
        self,
        chosen: ReclaimRound,
        waiting: LentNodePod,
        marked: Mapping[str, int],
        nodes: Mapping[str, LentNode],
    ) -> None:
        assert chosen.pod.turned_away_at is not None
        since = timestamp.render(chosen.pod.turned_away_at)
        for name, count in marked.items():
            node = nodes.get(name)
            if node is None:
                continue
            note = (
                f'{_format_pods(count)} asked to leave: namespace "{node.home}" lent the node, '
                f"and a pod of it has found no node since {since}"
            )
            self._recorder.event(node.reference, EVENT, note)
            note = (
                f'{_format_pods(count)} asked to leave node "{name}", which this namespace lent: '
                f"the pod has found no node since {since}"
            )
            self._recorder.event(ObjectReference.for_pod(waiting.metadata), EVENT, note)


def _format_pods(count: int) -> str:
    return "1 pod is" if count == 1 else f"{count} pods are"
