"""Handles a call of a scheduler, in bounded time: decode, wait for the watches, decide, encode.

`reprieve_policy.preemption.selection` decides. kube-scheduler weighs the nodes of a result by
criteria of its own, in which neither cost nor gangs count. So the result names one node, the best
one, or none. It may be a node that the scheduler has not offered, because that offers a sample.
What cannot be known in time is not guessed: any status but 200 leaves the scheduler to its own
choice.

The decision runs in a thread, on a snapshot that no event changes, so that reviews are answered
meanwhile.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import (
    DryRunStatus,
    PreemptionDecision,
    RefusalReason,
    RoomClaim,
)
from reprieve_policy.preemption.selection.snapshot import GangKey, Preemptor, ScheduledPod, Snapshot
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_webhooks.admission.review import Malformed
from reprieve_webhooks.snapshot.cluster_view import ClusterView
from reprieve_webhooks.snapshot.recent_choices import PodIdentity, RecentVictimSets, VictimSet
from reprieve_webhooks.snapshot.refusal_recorder import RefusalRecorder

from . import api
from .api import PreemptionArgs, PreemptionResult
from .failed_gang_plans import FailedGangPlans
from .free_nodes import ReportedFreeNodes
from .metrics import CallOutcome, ExtenderMetrics

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

_MAX_CONCURRENT_CALLS = 2
"""A scheduler makes one call at a time: two schedulers."""
_MAX_WAITING_CALLS = 8
"""Calls that wait for the rest of their body, each as large as allowed, or for a pod that no watch
shows yet. Beyond that, the call that came first is dropped: the body of a scheduler comes at once,
and its pod is known."""
_WATCH_LAG_SECONDS = 0.5
"""For a watch to see what the scheduler's own watch has seen already; normally milliseconds."""
_POLL_SECONDS = 0.01
_MAX_WAITED_FOR = 5_000
"""Nodes and pods that a wait was spent on; some 1 MB."""
_MAX_RECORDED_REFUSALS = 16
"""Pods whose first refusal is recorded after one call; a scheduler asks again."""
_MAX_WAITING_RECORDINGS = 16
"""Calls whose refusals are to be recorded; beyond that, those of a call are left out."""
_ANSWER_GRACE_SECONDS = 0.5
"""After the deadline, to encode and send what was found by then. The scheduler's own timeout is a
second after the deadline."""
_STATUS = {
    CallOutcome.CHOSEN: HTTPStatus.OK,
    CallOutcome.PARTIAL: HTTPStatus.OK,
    CallOutcome.NOTHING: HTTPStatus.OK,
    CallOutcome.QUOTA_EXCEEDED: HTTPStatus.OK,
    CallOutcome.CLAIMED: HTTPStatus.OK,
    CallOutcome.MALFORMED: HTTPStatus.BAD_REQUEST,
    CallOutcome.ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_MESSAGES = {
    CallOutcome.BUSY: "too many calls at once; a scheduler makes one at a time",
    CallOutcome.BEHIND: "the watches have not seen this preemptor or these victims yet",
    CallOutcome.EXEMPT: "system-critical preemptor: the scheduler's own choice stands",
    CallOutcome.LATE: "no victims were found in time",
    CallOutcome.ERROR: "internal error; see the log",
}


class ExtenderResponse(NamedTuple):
    """The response to a call."""

    outcome: CallOutcome
    body: bytes

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status."""
        return _STATUS.get(self.outcome, HTTPStatus.SERVICE_UNAVAILABLE)


class _UnknownPreemptor(NamedTuple):
    """The pod of a call, where no watch shows it as one that may preempt."""

    uid: str


@dataclass(slots=True)
class _Deadline:
    """A point in time, and whether it cut work short."""

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
        """Return whether it is over, and remember that it cut work short."""
        self.cut_short = self.cut_short or self.is_over
        return self.is_over

    def halfway(self) -> "_Deadline":
        """Return a deadline after half of the remaining time."""
        return replace(self, at=(self.at + self.monotonic()) / 2)

    def until_over(self, nodes: Iterable[str]) -> Iterator[str]:
        """Yield nodes until the deadline."""
        for node in nodes:
            if self.is_over:
                self.cut_short = True
                return
            yield node


class Extender:
    """Answers the calls of schedulers."""

    def __init__(
        self,
        cluster_view: ClusterView,
        victim_sets: RecentVictimSets,
        metrics: ExtenderMetrics,
        *,
        timeout_seconds: float,
        schedulers: Collection[str] = (),
        searches_all_nodes: bool = True,
        refusal_recorder: RefusalRecorder | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schedulers`: the `schedulerName`s of pods that calls are answered for; empty: any.

        `searches_all_nodes`: victims are also chosen on nodes that a scheduler has not offered.
        """
        self._refusal_recorder = refusal_recorder
        self._cluster_view, self._victim_sets, self._metrics = cluster_view, victim_sets, metrics
        self._reported_free_nodes = ReportedFreeNodes(monotonic=monotonic)
        self._failed_gang_plans = FailedGangPlans(monotonic=monotonic)
        self._waited_for: BoundedDict[tuple[str, str], None] = BoundedDict(_MAX_WAITED_FOR)
        """The nodes and pods that a call has waited for already, and no watch has shown."""
        self._schedulers = schedulers
        self._searches_all_nodes = searches_all_nodes
        self._timeout_seconds, self._monotonic = timeout_seconds, monotonic
        self._in_flight = 0
        self._waits: list[asyncio.Timeout] = []
        """Those of the calls that wait, the first first."""
        self._decision_lock = asyncio.Lock()
        self._recordings: set[asyncio.Task[None]] = set()
        self._recording_lock = asyncio.Lock()

    async def answer(
        self,
        read: Callable[[], Awaitable[bytes | T]],
        is_disconnected: Callable[[], bool] = lambda: False,
    ) -> ExtenderResponse | T:
        """Answer one call. `read` returns its body, or a response that is passed on.

        `is_disconnected` returns whether the scheduler no longer waits for the response.
        """
        # Before the body, whose decoding costs most.
        if self._cluster_view.is_stale:
            return self._respond(CallOutcome.BEHIND)
        started = self._monotonic()
        body = await self._wait_among_newest(read())
        if body is None:
            return self._respond(CallOutcome.BUSY)
        if not isinstance(body, bytes):
            self._metrics.count_call(CallOutcome.MALFORMED)
            return body
        found = await self._answer_in_place(body, started, is_disconnected)
        if isinstance(found, _UnknownPreemptor):
            is_known = await self._wait_among_newest(self._wait_for_preemptor(found.uid))
            if is_known is None:
                return self._respond(CallOutcome.BUSY)
            if is_known:
                found = await self._answer_in_place(body, started, is_disconnected)
        if isinstance(found, _UnknownPreemptor):
            found = self._respond(CallOutcome.LATE if is_disconnected() else CallOutcome.BEHIND)
        if found.outcome is not CallOutcome.BUSY:
            self._metrics.observe_duration(self._monotonic() - started)
        return found

    async def _wait_among_newest(self, awaited: Awaitable[U]) -> U | None:
        """Return the result of what a call waits for; `None` if too many calls came after it."""
        # Without this, a few clients that send slowly, or that ask for pods that do not exist,
        # would keep every scheduler out.
        if len(self._waits) >= _MAX_WAITING_CALLS:
            self._waits.pop(0).reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(None) as timeout:
                self._waits.append(timeout)
                try:
                    return await awaited
                finally:
                    if timeout in self._waits:
                        self._waits.remove(timeout)
        except TimeoutError:
            return None

    async def _wait_for_preemptor(self, uid: str) -> bool:
        """Wait a little for the watch of pods; return whether it shows the pod."""
        wait = _Deadline(self._monotonic() + _WATCH_LAG_SECONDS, self._monotonic)
        while True:
            is_known = self._is_preemptor(uid)
            if is_known or wait.is_over:
                return is_known
            await asyncio.sleep(_POLL_SECONDS)

    async def _answer_in_place(
        self, body: bytes, started: float, is_disconnected: Callable[[], bool]
    ) -> "ExtenderResponse | _UnknownPreemptor":
        """Decide in one of the few places for calls, which each takes from its decoding on."""
        if self._in_flight >= _MAX_CONCURRENT_CALLS:
            return self._respond(CallOutcome.BUSY)
        self._in_flight += 1
        try:
            return await self._answer_one(body, started, is_disconnected)
        finally:
            self._in_flight -= 1

    async def _answer_one(
        self, body: bytes, started: float, is_disconnected: Callable[[], bool]
    ) -> "ExtenderResponse | _UnknownPreemptor":
        deadline = _Deadline(started + self._timeout_seconds, self._monotonic)
        try:
            return await self._decide(body, deadline, is_disconnected)
        except Exception:  # noqa: BLE001 - our own fault, which must not end the process
            _LOG.exception("call of a scheduler failed")
            return self._respond(CallOutcome.ERROR)

    async def _decide(
        self, body: bytes, deadline: "_Deadline", is_disconnected: Callable[[], bool]
    ) -> "ExtenderResponse | _UnknownPreemptor":
        args = await self._read_args(body)
        if not isinstance(args, PreemptionArgs):
            return args
        nodes = await self._wait_until_seen(args, deadline)
        # One at a time: the second decision must know the result of the first.
        async with self._decision_lock:
            # For example after this process was stopped for a while: the scheduler has made its own
            # choice, and the preemptor may no longer wait.
            if is_disconnected():
                return self._respond(CallOutcome.LATE)
            preemptor = self._find_preemptor(args.preemptor_uid)
            if (
                preemptor is None
                or (args.candidates and not nodes)
                or not self._cluster_view.is_up_to_date
            ):
                return self._respond(CallOutcome.BEHIND)
            at_once = self._answer_at_once(preemptor)
            if at_once is not None:
                return at_once
            began_at = self._failed_gang_plans.now()
            # Placing the rest of a gang takes time, too.
            search_deadline = deadline.halfway() if preemptor.pending_members else deadline
            # Its own: without victims there, what was offered is searched all the same.
            others_deadline = replace(search_deadline)
            snapshot = self._cluster_view.snapshot()
            others = self._other_nodes(snapshot, args)
            decision = await asyncio.to_thread(
                selection.decide,
                preemptor,
                snapshot,
                search_deadline.until_over(nodes),
                args.candidates,
                deadline.stops_work,
                other_nodes=others_deadline.until_over(others) if others else (),
                reported_room=self._reported_free_nodes.filter(
                    args.preemptor_uid, {*nodes, preemptor.nominated_node or ""}
                ),
                is_only_best_wanted=True,
                may_wait=True,
            )
            gang = _gang_to_place(preemptor)
            if gang is not None and not search_deadline.cut_short and _is_planned_in_vain(decision):
                self._failed_gang_plans.record(gang, began_at)
            # No scheduler will act on the result: do not assume it, and do not remember it.
            if deadline.is_missed or is_disconnected():
                return self._respond(CallOutcome.LATE)
            if decision.best is None and decision.claim is None and decision.reason is None:
                self._record_refusals_in_background(preemptor, nodes)
            return self._accept(
                preemptor,
                decision,
                search_cut_short=search_deadline.cut_short,
                cut_short=deadline.cut_short or others_deadline.cut_short,
                operator_is_live=snapshot.operator_is_live,
            )

    async def _read_args(
        self, body: bytes
    ) -> "PreemptionArgs | ExtenderResponse | _UnknownPreemptor":
        """Decode a call; return the answer to one that cannot be decoded."""
        args = await asyncio.to_thread(api.parse, body)
        if isinstance(args, Malformed):
            return self._respond(CallOutcome.MALFORMED, args.detail)
        # Without this, a client that invents a preemptor would have every node checked, and hold a
        # place meanwhile.
        if not self._is_preemptor(args.preemptor_uid):
            return _UnknownPreemptor(args.preemptor_uid)
        self._metrics.observe_candidates(len(args.candidates))
        return args

    def _answer_at_once(self, preemptor: Preemptor) -> ExtenderResponse | None:
        """Return the answer where no victims are looked for; `None` where they are."""
        if preemptor.is_exempt:
            return self._respond(CallOutcome.EXEMPT)
        gang = _gang_to_place(preemptor)
        if gang is not None and self._failed_gang_plans.has(gang):
            return self._respond(CallOutcome.NOTHING, _EMPTY_RESULT)
        return None

    def _other_nodes(self, snapshot: Snapshot, args: PreemptionArgs) -> list[str]:
        """Return the nodes that a scheduler has not offered; none if they are not searched."""
        if not (self._searches_all_nodes and args.candidates):
            return []
        return [node for node in snapshot.nodes if node not in args.candidates]

    def _record_refusals_in_background(self, preemptor: Preemptor, nodes: Iterable[str]) -> None:
        """Record which pods are refused on a ground that their owners can renew.

        The guard records those that a scheduler deletes. Without this, a pod that is never offered
        to a scheduler would be protected for as long as its owner renews the ground.
        """
        recorder = self._refusal_recorder
        if recorder is not None and len(self._recordings) < _MAX_WAITING_RECORDINGS:
            snapshot = self._cluster_view.observed_snapshot()
            # No answer waits for it.
            task = asyncio.create_task(self._record_refusals(recorder, preemptor, snapshot, nodes))
            self._recordings.add(task)
            task.add_done_callback(self._recordings.discard)

    async def _record_refusals(
        self,
        recorder: RefusalRecorder,
        preemptor: Preemptor,
        snapshot: Snapshot,
        nodes: Iterable[str],
    ) -> None:
        # One at a time: together they would slow down the decisions.
        async with self._recording_lock:
            # A time of its own: the search for victims may have taken all of the call's.
            deadline = _Deadline(self._monotonic() + self._timeout_seconds, self._monotonic)
            try:
                pods = await asyncio.to_thread(
                    selection.renewably_refused,
                    preemptor,
                    snapshot,
                    deadline.until_over(nodes),
                    _MAX_RECORDED_REFUSALS,
                )
            except Exception:  # noqa: BLE001 - our own fault, which must not end the others
                _LOG.exception("search for refused pods failed")
                return
            recorder.record_in_background(map(PodIdentity.of, pods))

    def _find_preemptor(self, uid: str) -> Preemptor | None:
        """Return the pod with its gang; `None` if no preemption for it may happen now."""
        return self._cluster_view.preemptor(uid) if self._is_preemptor(uid) else None

    def _is_preemptor(self, uid: str) -> bool:
        """True if one of the configured schedulers may preempt for the pod now."""
        found = self._cluster_view.pending_pod(uid)
        return (
            found is not None
            and not found.is_gated
            and (not self._schedulers or found.scheduler in self._schedulers)
        )

    async def _wait_until_seen(self, args: PreemptionArgs, deadline: "_Deadline") -> list[str]:
        """Wait a little for the watches; return the nodes whose victims they have seen.

        Not for a pod that an earlier call has waited for: it may stay with its scheduler for long
        before it is bound to its node.
        """
        began_at = self._monotonic()
        wait = _Deadline(min(began_at + _WATCH_LAG_SECONDS, deadline.at), self._monotonic)
        unseen = dict.fromkeys(args.candidates, "")
        while True:
            unseen = self._find_unseen(unseen, args)
            to_wait_for = unseen.items() - self._waited_for.keys()
            is_seen = not to_wait_for and self._cluster_view.is_up_to_date
            if is_seen or wait.is_over:
                if to_wait_for and self._monotonic() >= began_at + _WATCH_LAG_SECONDS:
                    self._waited_for.update(dict.fromkeys(to_wait_for))
                return [node for node in args.candidates if node not in unseen]
            await asyncio.sleep(_POLL_SECONDS)

    def _find_unseen(self, nodes: Iterable[str], args: PreemptionArgs) -> dict[str, str]:
        """Return the nodes with a proposed victim that no watch has seen, and that pod."""
        found = (
            (node, self._cluster_view.find_unseen(node, args.candidates[node])) for node in nodes
        )
        return {node: uid for node, uid in found if uid is not None}

    def _accept(
        self,
        preemptor: Preemptor,
        decision: PreemptionDecision,
        *,
        search_cut_short: bool,
        cut_short: bool,
        operator_is_live: bool,
    ) -> ExtenderResponse:
        """Respond with the decision, and remember it.

        `search_cut_short`: not all nodes that were offered were searched. `cut_short`: not all
        others, or there was not enough time to place the rest of the gang from each of them.
        """
        self._metrics.count_rejected_nodes(Counter(decision.node_statuses.values()))
        best = decision.best
        # Not where only the rest of a gang was not placed in time: the scheduler's own victims
        # would make room for one of its pods.
        if best is None and search_cut_short:
            return self._respond(CallOutcome.LATE)
        free_nodes = (
            node
            for node, status in decision.node_statuses.items()
            if status is DryRunStatus.HAS_ROOM
        )
        self._reported_free_nodes.record(preemptor.demand.uid, free_nodes)
        if decision.claim is not None:
            return self._nominate(preemptor, decision.claim)
        if best is None:
            exceeds_quota = decision.reason is RefusalReason.QUOTA_EXCEEDED
            outcome = CallOutcome.QUOTA_EXCEEDED if exceeds_quota else CallOutcome.NOTHING
            return self._respond(outcome, _EMPTY_RESULT)
        uids = tuple(_uids_to_delete(best.victims, operator_is_live=operator_is_live))
        extra = {
            "preemptor": preemptor.demand.uid,
            "node": best.node,
            "victims": uids,
            "all": len(best.all_pods),
        }
        _LOG.info("victims chosen", extra=extra)
        identity = PodIdentity(preemptor.demand.uid, preemptor.namespace, preemptor.name)
        self._cluster_view.assume(preemptor, best.node, best.all_pods)
        # The operator takes the members of a gang in mode ALL itself.
        elsewhere = [
            pod
            for pod in best.gang_members_elsewhere
            if pod.disruption_mode is not DisruptionMode.ALL
        ]
        gangs = {pod.gang for pod in elsewhere}
        self._victim_sets.record(
            VictimSet(
                identity,
                best.node,
                tuple(map(PodIdentity.of, best.victims)),
                tuple(map(PodIdentity.of, elsewhere)),
                frozenset(pod.uid for pod in best.all_pods if pod.gang in gangs),
            )
        )
        result = PreemptionResult(best.node, uids, best.pdb_violations)
        return self._respond(
            CallOutcome.PARTIAL if search_cut_short or cut_short else CallOutcome.CHOSEN,
            api.render(result),
        )

    def _nominate(self, preemptor: Preemptor, claim: RoomClaim) -> ExtenderResponse:
        """Respond with a node that pods are leaving already; none is chosen, so none is marked."""
        uid = claim.leaving_pod.uid
        extra = {"preemptor": preemptor.demand.uid, "node": claim.node, "leaving": uid}
        _LOG.info("room claimed that is being released", extra=extra)
        self._cluster_view.assume(preemptor, claim.node, ())
        return self._respond(
            CallOutcome.CLAIMED, api.render(PreemptionResult(claim.node, (uid,), 0))
        )

    def _respond(self, outcome: CallOutcome, body: bytes | str = "") -> ExtenderResponse:
        self._metrics.count_call(outcome)
        text = body or _MESSAGES[outcome]
        return ExtenderResponse(outcome, text.encode() if isinstance(text, str) else text)


_EMPTY_RESULT = api.render(None)


def _uids_to_delete(victims: Iterable[ScheduledPod], *, operator_is_live: bool) -> Iterator[str]:
    """Yield the victims that the scheduler deletes itself.

    Of a gang that is evicted as a unit, this is one pod, for which the operator evicts all of them.
    But it is every pod of the gang on the node if no guard reviews the deletion, if no operator
    leads, or if the gang does not ask to be evicted as a unit.

    Of several victims kube-scheduler 1.37 waits for each but the last before it looks at its
    preemptor again, and hears of no deletion meanwhile. Without this, a preemptor whose victims the
    operator has deleted would wait for some other event.

    A pod that a budget holds has been notified already, and the operator only tries to evict it:
    it does not leave together with another pod, so it is yielded too. Without this, a preemption
    would take one pod of such a gang a round.
    """
    taken: set[GangKey] = set()
    for victim in victims:
        evicted_with_its_gang = (
            victim.disruption_mode is DisruptionMode.ALL
            and victim.is_guarded
            and operator_is_live
            and not (victim.release is not None and victim.release.is_held_by_budget)
        )
        if victim.gang is None or not evicted_with_its_gang:
            yield victim.uid
        elif victim.gang not in taken:
            taken.add(victim.gang)
            yield victim.uid


def _gang_to_place(preemptor: Preemptor) -> GangKey | None:
    """Return the gang of the preemptor, if other pods of it need room, too."""
    return preemptor.gang if preemptor.pending_members else None


def _is_planned_in_vain(decision: PreemptionDecision) -> bool:
    statuses = decision.node_statuses.values()
    return decision.best is None and not selection.PLANNED_IN_VAIN.isdisjoint(statuses)
