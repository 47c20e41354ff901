"""Releases the pods that the gang gate holds, and replaces those of gangs that are not placed.

A watch selects the pods with Reprieve's label: those that the gate holds, and those of gangs that
are being placed. So the work grows with the gangs that start. Nodes and all pods are watched only
while a gang waits for room (`room_watch`). No state is lost in a restart, but for how often a gang
has failed.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial

from reprieve_operator.background import run_until_one_ends
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import NotLeading
from reprieve_operator.cluster.pods import WRITABLE
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.gangs import gate_steps, start_requirements
from reprieve_policy.gangs.gate_steps import GateDecision, GateReleaseReason, GateStep
from reprieve_policy.keys import GANG_GATE_LABEL
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.waiting import wait_at_most

from . import gate_pods
from .coscheduling_groups import CoschedulingGroups
from .gang_counts import CountedGang, GangCounts
from .gang_tasks import GangTasks
from .gate_pods import GatePod, LabelledPod, uids_of
from .gate_release import RETRY_SECONDS, GateWriter
from .gate_reports import GateReports
from .gate_status import GateStatus, status_of
from .gate_turns import POLL_SECONDS, GangKey, GateTurns, WatchedGang
from .room_watch import RoomKnowledge, RoomWatch

_log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.05
"""Changes within this time are reconciled together: one pass reads all pods that wait."""
_HELD_BACK = "GangHeldBack"
_UNSEEN_SECONDS = 0.2
"""Until it is looked again whether the watch of all pods has seen the pods of a gang."""

_PodsByGang = dict[GangKey, list[LabelledPod]]


class GateController:
    """Releases gated pods during one leader's term."""

    def __init__(
        self,
        api: Api,
        writes: Writes,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        recorder: EventRecorder,
        metrics: OperatorMetrics,
        clock: Clock,
        *,
        recount_seconds: float,
    ) -> None:
        self._policy, self._clock = policy, clock
        self._recount_seconds = recount_seconds
        self._changed = asyncio.Event()
        self._room = RoomWatch(api, policy, namespaces, clock, on_list=self._changed.set)
        self._turns = GateTurns(self._room, policy, clock)
        self._groups = CoschedulingGroups(api)
        self._counts = GangCounts(api, clock, recount_seconds=recount_seconds)
        self._counted: dict[GangKey, CountedGang] = {}
        self._tasks = GangTasks(on_late=self._changed.set)
        self._gangs: Sequence[WatchedGang] = ()
        self._writer = GateWriter(writes, clock)
        self._reports = GateReports(recorder, metrics, policy)
        self._is_room_reported = False
        self._reflector: Reflector[GatePod, LabelledPod] = Reflector(
            api,
            object_path("pods"),
            GatePod,
            self._on_pod,
            on_delete=self._writer.forget,
            params={"labelSelector": GANG_GATE_LABEL, **WRITABLE},
        )
        self._steps: Mapping[GateStep, Callable[[WatchedGang], Coroutine[None, None, float]]] = {
            GateStep.WAIT: self._wait,
            GateStep.QUEUE: self._queue,
            GateStep.RELEASE: self._release,
            GateStep.STARTED: self._let_go,
            GateStep.INCOMPLETE: self._report_incomplete,
            GateStep.HOLD_BACK: self._hold_back,
        }

    def count_gated(self) -> int:
        """Return how many pods the gate holds."""
        return sum(pod.member.is_gated for pod in self._reflector.items.values())

    def statuses(self) -> list[GateStatus]:
        """Return what the gate waited for with each gang, when it last looked."""
        gangs = [one for one in self._gangs if one.pods and one.gang.minimum]
        turns = {key: place for place, key in enumerate(self._turns.order(gangs), 1)}
        retries, ceiling_seconds = self._turns.retries(), self._policy.current.ceiling_seconds
        return [status_of(one, turns, retries, ceiling_seconds) for one in gangs]

    async def run(self) -> None:
        """Release pods until cancelled; restart after unexpected errors."""
        while True:
            try:
                await run_until_one_ends(
                    self._reflector.run,
                    self._groups.reflector.run,
                    self._room.run,
                    self._reconcile_loop,
                )
            except NotLeading:
                _log.debug("not the leader: no pods are released")
            except Exception:  # noqa: BLE001 - for the reason below
                # Pods wait for this controller: an unexpected error must not end it.
                _log.exception("gate controller failed; restarting")
            await asyncio.sleep(RETRY_SECONDS)

    async def _reconcile_loop(self) -> None:
        # With half of the pods, a gang that is being placed would not be known, and another one
        # would be released beside it.
        await self._reflector.wait_synced(float("inf"))
        self._turns.decide_soon()
        try:
            while True:
                seconds = await self._reconcile_all()
                await wait_at_most(self._changed, seconds)
                await asyncio.sleep(_BATCH_SECONDS)
                self._changed.clear()
        finally:
            await self._tasks.end()

    async def _reconcile_all(self) -> float:
        """Reconcile all labelled gangs; return the seconds until the next pass without changes."""
        pods_by_gang, strays = self._group_by_gang()
        self._counts.begin_pass()
        self._tasks.begin_pass()
        self._counted = {
            key: self._counted.get(key) or self._counts.new_gang() for key in pods_by_gang
        }
        waits, gangs = await self._reconcile_each(pods_by_gang, strays)
        self._gangs = gangs
        turn = await self._turns.next_turn(gangs)
        # One after another, in the order of their turns.
        self._tasks.restart_time()
        for one in turn.released:
            self._tasks.start(one.key, partial(self._release, one))
            waits += await self._tasks.wait()
        for one in turn.expanded:
            self._tasks.start(one.key_of_pods, partial(self._expand, one))
            waits += await self._tasks.wait()
        for one in turn.refused:
            self._reports.waits_for_room(one.pods, one.gang, one.counted)
        self._report_room()
        seconds = min([*waits, self._recount_seconds])
        # As calls end that are under way, the next pass begins.
        return max(seconds, POLL_SECONDS) if self._tasks.are_running else seconds

    async def _reconcile_each(
        self, pods_by_gang: _PodsByGang, strays: _PodsByGang
    ) -> tuple[list[float], list[WatchedGang]]:
        """Reconcile the gangs that have no calls under way; return when to look again, and all."""
        looked_at: dict[GangKey, WatchedGang] = {}

        async def reconcile(key: GangKey, pods: list[LabelledPod]) -> float:
            looked_at[key] = one = await self._observe(key, pods)
            return await self._steps[one.decision.step](one)

        # Of each namespace, few gangs are listed in a pass: others in each.
        for key in sorted(pods_by_gang, key=lambda key: self._counted[key].last_list):
            self._tasks.start(key, partial(reconcile, key, pods_by_gang[key]))
        for key, pods in strays.items():
            self._tasks.start(key, partial(self._let_strays_go, pods))
        waits = await self._tasks.wait()
        gangs = [
            looked_at.get(key) or self._left_as_it_is(key, pods)
            for key, pods in pods_by_gang.items()
        ]
        return waits, gangs

    def _group_by_gang(self) -> tuple[_PodsByGang, _PodsByGang]:
        """Return the living members by gang, and by namespace pods that have the label for nothing.

        The pods of a namespace have a gang's key without a gang.
        """
        gangs: _PodsByGang = defaultdict(list)
        strays: _PodsByGang = defaultdict(list)
        for key, watched in self._reflector.items.items():
            pod = self._writer.observe(watched)
            if pod is None or not pod.is_living:
                continue
            if pod.is_stray or pod.gang is None:
                strays[key[0], ()].append(pod)
            else:
                gangs[key[0], pod.gang.key].append(pod)
        return gangs, strays

    async def _observe(self, key: GangKey, pods: list[LabelledPod]) -> WatchedGang:
        """Return the gang and what is done with it."""
        counted, settings = self._counted[key], self._policy.current
        requirements = self._groups.find(key[0], pods[0].gang)
        timeout_seconds = requirements.timeout_under(settings)
        gang = await self._counts.observe(counted, pods, requirements, timeout_seconds)
        is_room_known = self._room.knowledge is not RoomKnowledge.FORBIDDEN
        decision = gate_steps.decide_step(
            gang, settings, self._clock.now(), is_room_known=is_room_known
        )
        if decision.step is GateStep.HOLD_BACK:
            # Without this, the new pods of a gang that runs, and pods that another user adds to it,
            # would have the pods leave that run.
            if await self._counts.count(counted, pods[0]):
                gang = self._counts.last_known(counted, pods, requirements, timeout_seconds)
                decision = gate_steps.decide_step(gang, settings, self._clock.now())
            else:
                decision = GateDecision(GateStep.WAIT)
        rest = counted.still_to_replace(gang, self._clock.monotonic())
        if rest and decision.step in (GateStep.RELEASE, GateStep.WAIT):
            decision = GateDecision(GateStep.HOLD_BACK, rest)
        if not gang.minimum and settings.gang_gate and self._may_have_group(counted, pods):
            decision = GateDecision(GateStep.WAIT)
        counted.note_step(gang, decision.step, self._clock.monotonic())
        return WatchedGang(key, pods, counted, requirements, gang, decision)

    def _left_as_it_is(self, key: GangKey, pods: list[LabelledPod]) -> WatchedGang:
        """Return a gang for which calls are under way: it keeps its room, and has no turn."""
        counted = self._counted[key]
        requirements = self._groups.find(key[0], pods[0].gang)
        timeout_seconds = requirements.timeout_under(self._policy.current)
        gang = self._counts.last_known(counted, pods, requirements, timeout_seconds)
        step = GateStep.STARTED if counted.step is GateStep.STARTED else GateStep.WAIT
        counted.note_step(gang, step, self._clock.monotonic())
        return WatchedGang(key, pods, counted, requirements, gang, GateDecision(step))

    def _may_have_group(self, counted: CountedGang, pods: Sequence[LabelledPod]) -> bool:
        """True if the PodGroup of a new gang may only not be known yet."""
        is_named = start_requirements.group_name_of(pods[0].gang) is not None
        is_new = not self._counts.is_settled(counted)
        return is_named and (is_new or not self._groups.reflector.is_synced)

    async def _wait(self, one: WatchedGang) -> float:
        """Wait for pods to be created, or for those released to be placed."""
        now, end = self._clock.now(), one.gang.placed_until(self._policy.current.ceiling_seconds)
        if one.gang.released:
            left = self._recount_seconds if end is None else _seconds_between(now, end)
            return max(left, self._counts.retry_seconds(one.counted))
        if 0 < one.gang.minimum <= one.gang.count:
            # Other controllers hold its pods, too: the watch shows when they no longer do.
            return self._recount_seconds
        if self._counts.is_settled(one.counted):
            self._reports.waits_for_pods(one.pods, one.gang, one.counted)
        left = _seconds_between(now, one.gang.waits_until())
        return min(left, self._counts.next_count_seconds(one.counted))

    async def _queue(self, _: WatchedGang) -> float:
        """Wait for room, and for the gangs before it."""
        return POLL_SECONDS

    async def _release(self, one: WatchedGang) -> float:
        """Remove the gates of as many pods as the gang needs."""
        released = await self._writer.release(one.chosen)
        if released:
            one.counted.reported.clear()
            self._reports.released(released, one.gang, GateReleaseReason.COMPLETE)
        one.counted.count_again()
        if len(released) < len(one.chosen):
            self._turns.decide_soon(RETRY_SECONDS)
        return self._retry_seconds(released, one.chosen)

    async def _expand(self, one: WatchedGang) -> float:
        """Remove the gate of a pod that its gang does not need: it has room now."""
        return self._retry_seconds(await self._writer.release(one.chosen), one.chosen)

    async def _let_strays_go(self, pods: Sequence[LabelledPod]) -> float:
        """Remove the gates and labels of pods that have them for nothing."""
        return self._retry_seconds(await self._writer.let_go(pods), pods)

    async def _let_go(self, one: WatchedGang) -> float:
        """Remove the labels of a gang that has started, and the gates of pods that it needs."""
        done = one.among(one.decision.done)
        # Until the watch of all pods has seen them, the label keeps their room from other gangs.
        is_unseen = self._room.is_watching and any(self._is_unseen(pod) for pod in done)
        gated = await self._writer.let_go(one.chosen)
        if gated:
            reason = one.decision.reason or GateReleaseReason.COMPLETE
            self._reports.released(gated, one.gang, reason.value)
        if one.decision.reason is not GateReleaseReason.TIMED_OUT:
            self._turns.started(one.key)
        if gated or done:
            one.counted.count_again()
        if is_unseen:
            return _UNSEEN_SECONDS
        freed = await self._writer.let_go(done)
        seconds = self._retry_seconds([*gated, *freed], [*one.chosen, *done])
        return min(seconds, self._wait_expanding(one))

    def _wait_expanding(self, one: WatchedGang) -> float:
        """Return when to look again at a gang that runs while more of its pods wait for room."""
        if one.decision.surplus:
            return POLL_SECONDS
        end = one.gang.placed_until(self._policy.current.ceiling_seconds)
        left = 0.0 if end is None else _seconds_between(self._clock.now(), end)
        return left or self._recount_seconds

    async def _report_incomplete(self, one: WatchedGang) -> float:
        """Keep a gang waiting that has too few pods."""
        if self._reports.incomplete(one.pods, one.gang, one.counted):
            self._turns.failed(one.key)
        return self._counts.next_count_seconds(one.counted)

    async def _hold_back(self, one: WatchedGang) -> float:
        """Replace the released pods of a gang that was not placed in time."""
        replaced = [pod for pod in one.chosen if pod.has_controller]
        bare = [pod for pod in one.chosen if not pod.has_controller]
        # A pod that no controller replaces exempts itself, not its gang.
        if bare and await self._writer.let_go(bare):
            self._reports.not_replaced(bare, one.gang)
        if not replaced:
            return RETRY_SECONDS
        if _HELD_BACK not in one.counted.reported:
            one.counted.reported.add(_HELD_BACK)
            self._reports.held_back(replaced, one.gang, self._turns.failed(one.key))
        written = await self._writer.replace(replaced)
        rest = uids_of([pod.member for pod in replaced]) - uids_of([pod.member for pod in written])
        one.counted.note_unreplaced(rest, self._clock.monotonic())
        one.counted.forget_members()
        return RETRY_SECONDS

    def _is_unseen(self, pod: LabelledPod) -> bool:
        if self._room.knowledge is RoomKnowledge.FORBIDDEN or not pod.node:
            return False
        return not self._room.store.is_on_node(pod.member.uid)

    def _retry_seconds(self, written: Sequence[LabelledPod], tried: Sequence[LabelledPod]) -> float:
        return self._recount_seconds if len(written) == len(tried) else RETRY_SECONDS

    def _report_room(self) -> None:
        is_forbidden = self._room.knowledge is RoomKnowledge.FORBIDDEN
        if is_forbidden and not self._is_room_reported:
            self._reports.room_is_unknown()
        self._is_room_reported = is_forbidden

    def _on_pod(self, pod: GatePod) -> LabelledPod:
        self._changed.set()
        facts = self._room.facts_of(pod.metadata.namespace)
        return gate_pods.to_labelled_pod(pod, facts, self._clock.now())


def _seconds_between(now: datetime, end: datetime) -> float:
    return max(0.0, (end - now).total_seconds())
