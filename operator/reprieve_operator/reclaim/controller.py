"""Gives lent nodes back to their home Namespaces, with `reclaim: auto` in the policy.

`preemption.automatic_reclaim` makes all decisions. This controller lists, in each pass, the pending
pods of each Namespace that has lent nodes; more only if one of them is due. What it remembers of a
pod may be lost: when its last round began, and which nodes pods leave for it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from reprieve_operator.background import background
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy.config.settings import AUTO
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_policy.preemption import automatic_reclaim
from reprieve_policy.preemption.automatic_reclaim import ReclaimTurn, WaitingPod
from reprieve_runtime.client.api import Api, ApiError

from .lent_nodes import LentNode, LentNodes
from .marker import BorrowerMarker
from .reader import LentNodePod, ReclaimReader

_log = logging.getLogger(__name__)

_POLICY_SECONDS = 5.0
"""Between two looks at whether the policy says `auto`."""
_SYNC_SECONDS = 60.0
_NEXT_ROUND_SECONDS = 1.0
"""From the begin of a round until the next pass: other pods may be due. Its victims have their
notice by then."""
_MISSING_RIGHT_NOTE = (
    "the operator may not read what it needs (ClusterRole reprieve:reclaim-nodes is not bound to "
    "it): it gives no lent node back by itself"
)


@dataclass(frozen=True, slots=True)
class _Round:
    """The last round of a pod that still waits."""

    home: str
    began_at: datetime
    nodes: frozenset[str]
    """Where pods leave for it alone."""


@dataclass(frozen=True, slots=True)
class _Tries:
    """Decisions in a row that began no round for the same pods and nodes of a home Namespace."""

    due: frozenset[str]
    nodes: frozenset[str]
    count: int
    first: int
    """How many pods the next decision passes over at first."""
    next_at: float

    def pauses(self, due: frozenset[str], nodes: frozenset[str], now: float) -> bool:
        """True if there is no new pod and no new node, and it is too early to try again."""
        return due <= self.due and nodes <= self.nodes and now < self.next_at


class ReclaimController:
    """Reclaims lent nodes during one leader's term."""

    def __init__(
        self,
        api: Api,
        writes: Writes,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        recorder: EventRecorder,
        reporter: Reporter,
        clock: Clock,
        *,
        on_left: Callable[[VictimSetKey], None],
        interval_seconds: float,
    ) -> None:
        """`on_left` is called once a pod does not wait any more for which pods leave a node."""
        self._api, self._writes = api, writes
        self._policy, self._namespaces = policy, namespaces
        self._clock = clock
        self._marker = BorrowerMarker(writes, policy, recorder, reporter, clock)
        self._on_left = on_left
        self._interval_seconds = interval_seconds
        self._rounds: dict[str, _Round] = {}
        self._tries: dict[str, _Tries] = {}
        self._is_reported = False

    @property
    def _is_automatic(self) -> bool:
        return self._policy.current.reclaim == AUTO

    async def run(self) -> None:
        """Reclaim nodes while the policy says so, until cancelled."""
        while True:
            if self._is_automatic:
                await self._reclaim_while_automatic()
            await asyncio.sleep(_POLICY_SECONDS)

    async def _reclaim_while_automatic(self) -> None:
        nodes = LentNodes(self._api)
        async with background(nodes.reflector.run):
            with contextlib.suppress(TimeoutError):
                await nodes.reflector.wait_synced(_SYNC_SECONDS)
            while self._is_automatic:
                pause = await self._pass(nodes)
                await asyncio.sleep(pause)

    async def _pass(self, nodes: LentNodes) -> float:
        """Begin at most one round for each home Namespace; return the seconds until the next pass.

        The next round of a Namespace depends on the room that this one releases.
        """
        pause = min(self._interval_seconds, max(1.0, self._policy.current.reclaim_after_seconds))
        if not nodes.may_be_read:
            if nodes.reflector.is_synced:
                self._report_missing_right(is_missing=True)
            return pause
        reader = ReclaimReader(
            self._writes,
            self._policy,
            self._namespaces,
            self._clock.now(),
            self._marker.unmarkable(),
        )
        homes = nodes.by_home()
        self._rounds = {uid: each for uid, each in self._rounds.items() if each.home in homes}
        self._tries = {home: each for home, each in self._tries.items() if home in homes}
        is_missing = False
        for home, its_nodes in homes.items():
            try:
                if await self._reclaim_for(home, its_nodes, reader):
                    pause = min(pause, _NEXT_ROUND_SECONDS)
            except ApiError as error:
                # Retried in the next pass: a failure in one Namespace must not hold up the others.
                is_missing |= error.status == HTTPStatus.FORBIDDEN
                extra = {"namespace": home, "error": str(error)}
                _log.warning("could not reclaim the lent nodes of a namespace", extra=extra)
        self._report_missing_right(is_missing=is_missing)
        return pause

    async def _reclaim_for(
        self, home: str, nodes: Sequence[LentNode], reader: ReclaimReader
    ) -> bool:
        """Begin a round of a home Namespace if one is due; return whether one began."""
        pods = {pod.uid: pod for pod in await reader.pending_pods(home)}
        self._end_rounds(home, pods)
        due = frozenset(uid for uid, pod in pods.items() if self._is_due(pod))
        names = frozenset(node.info.name for node in nodes)
        before = self._tries.get(home)
        if not due or (before is not None and before.pauses(due, names, self._clock.monotonic())):
            return False
        first = 0 if before is None else before.first
        has_begun, next_first = await self._try_round(home, nodes, reader, pods, due, first)
        if has_begun or self._is_round_under_way(home):
            self._tries.pop(home, None)
            return has_begun
        count = 1 if before is None else before.count + 1
        pause = automatic_reclaim.pause_seconds(count, self._interval_seconds)
        next_at = self._clock.monotonic() + pause
        self._tries[home] = _Tries(due, names, count, next_first, next_at)
        return False

    def _is_round_under_way(self, home: str) -> bool:
        """True while borrowers may be leaving: the next round depends on the room they release."""
        ceiling = timedelta(seconds=self._policy.current.ceiling_seconds)
        oldest = self._clock.now() - ceiling
        return any(each.home == home and each.began_at >= oldest for each in self._rounds.values())

    async def _try_round(
        self,
        home: str,
        nodes: Sequence[LentNode],
        reader: ReclaimReader,
        pods: Mapping[str, LentNodePod],
        due: frozenset[str],
        first: int,
    ) -> tuple[bool, int]:
        """Return whether a round began, and else how many pods the next decision passes over."""
        waiting = [
            WaitingPod(
                preemptor=await reader.preemptor_of(pod),
                turned_away_at=automatic_reclaim.turned_away_at(pod),
                is_due=uid in due,
            )
            for uid, pod in pods.items()
        ]
        # In threads: a decision about many pods and nodes would delay the victims of others.
        turn = await asyncio.to_thread(ReclaimTurn, waiting, first)
        usable = await asyncio.to_thread(
            lambda: [node for node in nodes if turn.may_run_on(node.info)]
        )
        if not usable:
            return False, turn.next_first()
        read = await reader.lent_nodes(home, usable)
        decided = await asyncio.to_thread(automatic_reclaim.decide_round, turn, read.snapshot)
        chosen = decided.round
        if chosen is None or not await reader.still_waits(pods[chosen.pod.uid]):
            return False, decided.next_first
        # Before the first mark: a round of which some marks fail is not repeated at once.
        # Other pods of a gang may need the room that pods leave for one of them.
        is_single = chosen.pod.preemptor.gang is None
        nodes_left = frozenset(victim.node for victim in chosen.victims if is_single)
        self._rounds[chosen.pod.uid] = _Round(home, self._clock.now(), nodes_left)
        by_name = {node.info.name: node for node in nodes}
        await self._marker.begin(
            chosen,
            pods[chosen.pod.uid],
            read.pods,
            by_name,
            lambda pod: reader.may_leave(pod, chosen, read.snapshot),
        )
        return True, 0

    def _is_due(self, pod: LentNodePod) -> bool:
        last = self._rounds.get(pod.uid)
        return automatic_reclaim.is_due(
            automatic_reclaim.turned_away_at(pod),
            None if last is None else last.began_at,
            self._policy.current,
            self._clock.now(),
        )

    def _end_rounds(self, home: str, pending: Mapping[str, LentNodePod]) -> None:
        """Have victims stay that a pod does not need any more: it was placed, or is gone."""
        ended = [
            uid for uid, each in self._rounds.items() if each.home == home and uid not in pending
        ]
        for uid in ended:
            for node in self._rounds.pop(uid).nodes:
                self._on_left(VictimSetKey(uid, node))

    def _report_missing_right(self, *, is_missing: bool) -> None:
        if is_missing and not self._is_reported:
            _log.warning("the operator may not read what it needs to give lent nodes back")
            self._policy.record_warning("LentNodesUnreadable", _MISSING_RIGHT_NOTE)
        self._is_reported = is_missing
