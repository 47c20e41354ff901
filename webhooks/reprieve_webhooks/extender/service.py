"""One call of a scheduler: what it asks, against what the watches know, to what `policy.choosing` decides, in bounded time.

kube-scheduler weighs the nodes of an answer by criteria of its own, in which no cost and no gang counts. So the answer is
one node, ours, or none. What cannot be known in time is not guessed: any status but 200 leaves the scheduler to its own choice.

The decision runs in a thread, so that reviews are answered meanwhile, on a scene that no event changes.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus, PreemptionDecision
from reprieve_policy.preemption.selection.snapshot import GangKey, Preemptor, ScheduledPod, Snapshot
from reprieve_webhooks.admission.review import Malformed
from reprieve_webhooks.snapshot.recent_choices import PodIdentity, RecentVictimSets, VictimSet

from . import api
from .api import PreemptionArgs, PreemptionResult
from .free_nodes import ReportedFreeNodes
from .metrics import CallOutcome, ExtenderMetrics

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_CONCURRENT_CALLS = 2
"""A scheduler makes one call at a time: two schedulers."""
_MAX_CONCURRENT_READS = 8
"""Bodies that are on their way, each as large as is allowed. Whoever sends slowest makes way: a scheduler's comes at once."""
_WATCH_LAG_SECONDS = 0.5
"""For a watch to see what the scheduler's own has seen already; milliseconds where all is well."""
_POLL_SECONDS = 0.01
_ANSWER_GRACE_SECONDS = 0.5
"""After the deadline: what is found by then is rendered and sent, before the scheduler's own timeout a second after it."""
_STATUS = {
    CallOutcome.CHOSEN: 200,
    CallOutcome.PARTIAL: 200,
    CallOutcome.NOTHING: 200,
    CallOutcome.MALFORMED: 400,
    CallOutcome.ERROR: 500,
}
_UNAVAILABLE = 503
_MESSAGES = {
    CallOutcome.BUSY: "calls are under way; one scheduler makes one at a time",
    CallOutcome.BEHIND: "the watches have not seen what this call is about",
    CallOutcome.EXEMPT: "what is needed to run a cluster takes whom the scheduler chooses",
    CallOutcome.LATE: "nothing was found in time",
    CallOutcome.ERROR: "internal error; see the log",
}


class ClusterView(Protocol):
    """What the watches know; see `roster` and `watches`."""

    @property
    def is_stale(self) -> bool:
        """True before the first complete lists, and once nothing was heard for too long."""

    @property
    def is_up_to_date(self) -> bool:
        """True where every pod is judged by the policy that holds now."""

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return a pod that waits for a node; `None` where no watch has such a one."""

    def has_seen(self, node: str, uids: Iterable[str]) -> bool:
        """True where all these pods are seen on that node or in a gang that is, or were seen to leave."""

    def assume(self, preemptor: Preemptor, node: str, victims: Iterable[ScheduledPod]) -> None:
        """Take for granted that a scheduler does as it was told, until the watches say so themselves."""

    def snapshot(self) -> Snapshot:
        """Return all that is known, as it is now; no later event changes it."""

    def observed_snapshot(self) -> Snapshot:
        """Return the same, with the gangs as the watches have seen them, whatever is expected."""


class ExtenderResponse(NamedTuple):
    """The answer to a call."""

    outcome: CallOutcome
    body: bytes

    @property
    def status(self) -> int:
        """Of HTTP."""
        return _STATUS.get(self.outcome, _UNAVAILABLE)


@dataclass(slots=True)
class _Deadline:
    """A point in time, and whether work was left when it came."""

    at: float
    monotonic: Callable[[], float]
    cut_short: bool = False

    @property
    def is_over(self) -> bool:
        return self.monotonic() >= self.at

    @property
    def is_missed(self) -> bool:
        """True where the scheduler may have stopped waiting for the answer."""
        return self.monotonic() >= self.at + _ANSWER_GRACE_SECONDS

    def stops_work(self) -> bool:
        """Return whether it is over, where that leaves work undone."""
        self.cut_short = self.cut_short or self.is_over
        return self.is_over

    def halfway(self) -> "_Deadline":
        """Return one for the first half of the time that is left."""
        return replace(self, at=(self.at + self.monotonic()) / 2)

    def until_over(self, nodes: Iterable[str]) -> Iterator[str]:
        """Yield nodes for as long as there is time."""
        for node in nodes:
            if self.is_over:
                self.cut_short = True
                return
            yield node


class Extender:
    """Answers calls."""

    def __init__(
        self,
        cluster_view: ClusterView,
        victim_sets: RecentVictimSets,
        metrics: ExtenderMetrics,
        *,
        timeout_seconds: float,
        schedulers: Collection[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schedulers`: names of those whose pods are answered for; none: any."""
        self._cluster_view, self._victim_sets, self._metrics = cluster_view, victim_sets, metrics
        self._reported_free_nodes = ReportedFreeNodes(monotonic=monotonic)
        self._schedulers = schedulers
        self._timeout_seconds, self._monotonic = timeout_seconds, monotonic
        self._in_flight = 0
        self._body_reads: list[asyncio.Timeout] = []
        self._decision_lock = asyncio.Lock()

    async def answer(
        self, read: Callable[[], Awaitable[bytes | T]], hung_up: Callable[[], bool] = lambda: False
    ) -> ExtenderResponse | T:
        """Answer one call, whose body `read` returns; what else that returns is passed on.

        `hung_up` says whether its scheduler no longer waits for the answer.
        """
        # Before the body, which costs most.
        if self._cluster_view.is_stale:
            return self._respond(CallOutcome.BEHIND)
        started = self._monotonic()
        body = await self._read_body(read)
        if body is None or (isinstance(body, bytes) and self._in_flight >= _MAX_CONCURRENT_CALLS):
            return self._respond(CallOutcome.BUSY)
        if not isinstance(body, bytes):
            self._metrics.count_call(CallOutcome.MALFORMED)
            return body
        self._in_flight += 1
        try:
            return await self._answer_one(body, started, hung_up)
        finally:
            self._in_flight -= 1

    async def _read_body(self, read: Callable[[], Awaitable[bytes | T]]) -> bytes | T | None:
        """Return what `read` returns; `None` where too many came after it."""
        # Without this, two posts that trickle would keep every scheduler out.
        if len(self._body_reads) >= _MAX_CONCURRENT_READS:
            self._body_reads.pop(0).reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(None) as patience:
                self._body_reads.append(patience)
                try:
                    return await read()
                finally:
                    if patience in self._body_reads:
                        self._body_reads.remove(patience)
        except TimeoutError:
            return None

    async def _answer_one(
        self, body: bytes, started: float, hung_up: Callable[[], bool]
    ) -> ExtenderResponse:
        deadline = _Deadline(started + self._timeout_seconds, self._monotonic)
        try:
            said = await self._decide(body, deadline, hung_up)
        except Exception:  # noqa: BLE001 - whatever it was is our fault, and the process lives
            _LOG.exception("call of a scheduler failed")
            said = self._respond(CallOutcome.ERROR)
        self._metrics.observe_duration(self._monotonic() - started)
        return said

    async def _decide(
        self, body: bytes, deadline: "_Deadline", hung_up: Callable[[], bool]
    ) -> ExtenderResponse:
        asked = await asyncio.to_thread(api.parse, body)
        if isinstance(asked, Malformed):
            return self._respond(CallOutcome.MALFORMED, asked.detail)
        self._metrics.observe_candidates(len(asked.candidates))
        nodes = await self._wait_until_seen(asked, deadline)
        # One after the other: what the first was told, the second has to know.
        async with self._decision_lock:
            # This process stood still, say: its scheduler has chosen by itself, and the preemptor may wait no more.
            if hung_up():
                return self._respond(CallOutcome.LATE)
            preemptor = self._find_preemptor(asked.preemptor_uid)
            if (
                preemptor is None
                or (asked.candidates and not nodes)
                or not self._cluster_view.is_up_to_date
            ):
                return self._respond(CallOutcome.BEHIND)
            if preemptor.is_exempt:
                return self._respond(CallOutcome.EXEMPT)
            # Placing the rest of a gang takes time, too.
            looking = deadline.halfway() if preemptor.pending_members else deadline
            decision = await asyncio.to_thread(
                selection.decide,
                preemptor,
                self._cluster_view.snapshot(),
                looking.until_over(nodes),
                asked.candidates,
                deadline.stops_work,
                reported_room=self._reported_free_nodes.filter(asked.preemptor_uid, nodes),
            )
            # Nobody acts on it any more: neither is it expected, nor remembered.
            if deadline.is_missed or hung_up():
                return self._respond(CallOutcome.LATE)
            return self._accept(
                preemptor, decision, cut_short=deadline.cut_short or looking.cut_short
            )

    def _find_preemptor(self, uid: str) -> Preemptor | None:
        """Return the pod for which a scheduler of ours may ask now."""
        found = self._cluster_view.preemptor(uid)
        if (
            found is None
            or found.is_gated
            or (self._schedulers and found.scheduler not in self._schedulers)
        ):
            return None
        return found

    async def _wait_until_seen(self, asked: PreemptionArgs, deadline: "_Deadline") -> list[str]:
        """Wait a little for the watches; return the nodes on which they have seen all that the scheduler has."""
        patience = _Deadline(
            min(self._monotonic() + _WATCH_LAG_SECONDS, deadline.at), self._monotonic
        )
        unknown = dict(asked.candidates)
        while True:
            is_there = self._find_preemptor(asked.preemptor_uid) is not None
            # Without this, whoever makes up a preemptor would have every node looked at in each pass.
            if is_there or patience.is_over:
                unknown = {
                    node: uids
                    for node, uids in unknown.items()
                    if not self._cluster_view.has_seen(node, uids)
                }
                if (
                    is_there and not unknown and self._cluster_view.is_up_to_date
                ) or patience.is_over:
                    return [node for node in asked.candidates if node not in unknown]
            await asyncio.sleep(_POLL_SECONDS)

    def _accept(
        self, preemptor: Preemptor, decision: PreemptionDecision, *, cut_short: bool
    ) -> ExtenderResponse:
        self._metrics.count_rejected_nodes(Counter(decision.node_statuses.values()))
        best = decision.best
        if best is None and cut_short:
            return self._respond(CallOutcome.LATE)
        with_room = (
            node
            for node, obstacle in decision.node_statuses.items()
            if obstacle is DryRunStatus.HAS_ROOM
        )
        self._reported_free_nodes.record(preemptor.demand.uid, with_room)
        if best is None:
            return self._respond(CallOutcome.NOTHING, _EMPTY_RESULT)
        uids = tuple(_uids_to_delete(best.victims))
        extra = {
            "preemptor": preemptor.demand.uid,
            "node": best.node,
            "victims": uids,
            "all": len(best.all_pods),
        }
        _LOG.info("victims chosen", extra=extra)
        by = PodIdentity(preemptor.demand.uid, preemptor.namespace, preemptor.name)
        self._cluster_view.assume(preemptor, best.node, best.all_pods)
        elsewhere = [
            one
            for one in best.gang_members_elsewhere
            if one.disruption_mode is not DisruptionMode.ALL
        ]
        gangs = {one.gang for one in elsewhere}
        self._victim_sets.record(
            VictimSet(
                by,
                best.node,
                tuple(map(_reference_to, best.victims)),
                tuple(map(_reference_to, elsewhere)),
                frozenset(one.uid for one in best.all_pods if one.gang in gangs),
            )
        )
        answer = PreemptionResult(best.node, uids, best.pdb_violations)
        return self._respond(
            CallOutcome.PARTIAL if cut_short else CallOutcome.CHOSEN, api.render(answer)
        )

    def _respond(self, outcome: CallOutcome, body: bytes | str = "") -> ExtenderResponse:
        self._metrics.count_call(outcome)
        text = body or _MESSAGES[outcome]
        return ExtenderResponse(outcome, text.encode() if isinstance(text, str) else text)


_EMPTY_RESULT = api.render(None)


def _uids_to_delete(victims: Iterable[ScheduledPod]) -> Iterator[str]:
    """Yield whom the scheduler is to delete: of a gang that goes as a whole one pod, for which the operator takes them all.

    But all of it that are on the node where nobody asks the guard first, or where it does not go as a whole by its own word.

    Of several victims kube-scheduler 1.37 waits for each but the last before it looks at its preemptor again, and hears of
    no deletion meanwhile. Without this, a preemptor whose victims the operator has deleted would wait for some other event.

    What a budget holds was told already, and the operator does no more than evict it: nobody takes it with another. Without
    this, a preemption would take of such a gang one pod a round.
    """
    taken: set[GangKey] = set()
    for victim in victims:
        is_taken_with_others = (
            victim.disruption_mode is DisruptionMode.ALL
            and victim.is_guarded
            and not (victim.release is not None and victim.release.is_held_by_budget)
        )
        if victim.gang is None or not is_taken_with_others:
            yield victim.uid
        elif victim.gang not in taken:
            taken.add(victim.gang)
            yield victim.uid


def _reference_to(pod: ScheduledPod) -> PodIdentity:
    return PodIdentity(pod.uid, pod.namespace, pod.name)
