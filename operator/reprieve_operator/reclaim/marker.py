"""Begins a round: marks the borrowers that leave, and says so on the node, the pod and the victims.

The marks are those of a preemption. All else follows as for any victim: the reconcilers check each
pod's protection once more, and give it notice.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import metadata_without_version
from reprieve_operator.cluster.retries import GONE_OR_CHANGED, is_permanent
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import reclaim
from reprieve_policy.preemption.automatic_reclaim import ReclaimRound
from reprieve_runtime.client.api import ApiError

from .lent_nodes import LentNode
from .reader import LentNodePod, reread

_log = logging.getLogger(__name__)

EVENT = "LentNodeReclaimed"
_ATTEMPTS = 3
"""A kubelet's update of the status between the read and the mark is no reason to give up, nor is an
API server that is busy for a moment."""
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 1, 5

MayLeave = Callable[[LentNodePod], Awaitable[bool]]
"""Whether a borrower that has changed may still be a victim."""


class BorrowerMarker:
    """Marks pods; reports what was marked."""

    def __init__(self, writes: Writes, recorder: EventRecorder, clock: Clock) -> None:
        self._writes, self._recorder, self._clock = writes, recorder, clock
        self.unmarkable: set[str] = set()
        """Uids of pods that the API server refuses to change for good, as one whose annotations are
        full. They count as non-preemptible. Without this, each round would choose them again."""

    async def begin(
        self,
        chosen: ReclaimRound,
        waiting: LentNodePod,
        pods: Mapping[str, LentNodePod],
        nodes: Mapping[str, LentNode],
        may_leave: MayLeave,
    ) -> None:
        """Mark the victims of a round; raises `ApiError` if one cannot be written.

        `waiting` is the pod that begins it; `nodes` are the lent nodes by name.
        """
        marked: Counter[str] = Counter()
        try:
            for victim in chosen.victims:
                if await self._mark(pods[victim.uid], chosen.pod.uid, may_leave):
                    marked[victim.node] += 1
                    self._report_victim(pods[victim.uid], is_on_lent_node=victim.node in nodes)
        finally:
            self._report(chosen, waiting, marked, nodes)

    async def _mark(self, pod: LentNodePod, preemptor_uid: str, may_leave: MayLeave) -> bool:
        """Mark the pod; `False` if it is gone, or may be no victim any more."""
        text = reclaim.build_mark(self._clock.now())
        metadata = pod.metadata
        for attempt in range(1, _ATTEMPTS + 1):
            if attempt == _ATTEMPTS:
                # Without this, an owner that writes to the pod all the time would keep the mark off
                # (`cluster.writes`).
                metadata = metadata_without_version(metadata)
            try:
                await self._writes.mark(metadata, text, preemptor_uid)
            except ApiError as error:
                if error.status in GONE_OR_CHANGED:
                    found = await self._reread(pod, may_leave)
                    if found is None:
                        break
                    metadata = found.metadata
                elif attempt == _ATTEMPTS or is_permanent(error):
                    if is_permanent(error):
                        self.unmarkable.add(pod.uid)
                    raise
                else:
                    seconds = error.retry_after_seconds or _RETRY_SECONDS
                    await asyncio.sleep(min(seconds, _MOST_RETRY_SECONDS))
            else:
                return True
        _log.info("borrower has changed, and is not marked", extra={"pod": pod.metadata.key})
        return False

    async def _reread(self, pod: LentNodePod, may_leave: MayLeave) -> LentNodePod | None:
        current = await reread(self._writes, pod)
        if current is None or not current.occupies_node:
            return None
        is_leaving = current.metadata.deletionTimestamp is not None
        return None if is_leaving or not await may_leave(current) else current

    def _report_victim(self, pod: LentNodePod, *, is_on_lent_node: bool) -> None:
        where = "its node was" if is_on_lent_node else "the node of another pod of its gang was"
        note = f"{where} lent by another namespace, which wants it back: the pod is asked to leave"
        self._recorder.event(ObjectReference.for_pod(pod.metadata), EVENT, note)

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
