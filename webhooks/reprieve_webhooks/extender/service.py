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

from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import Decision, Obstacle
from reprieve_policy.preemption.selection.snapshot import GroupKey, Preemptor, Scene, Tenant
from reprieve_webhooks.admission.review import Malformed
from reprieve_webhooks.snapshot.recent_choices import Choice, Named, RememberedChoices

from . import api
from .api import Answer, Asked
from .free_nodes import RoomsTold
from .metrics import ExtenderMetrics, Outcome

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_AT_ONCE = 2
"""A scheduler makes one call at a time: two schedulers."""
_MOST_READ = 8
"""Bodies that are on their way, each as large as is allowed. Whoever sends slowest makes way: a scheduler's comes at once."""
_PATIENCE_SECONDS = 0.5
"""For a watch to see what the scheduler's own has seen already; milliseconds where all is well."""
_PAUSE_SECONDS = 0.01
_LATEST_SECONDS = 0.5
"""After the deadline: what is found by then is rendered and sent, before the scheduler's own timeout a second after it."""
_STATUS = {
    Outcome.CHOSEN: 200,
    Outcome.PARTIAL: 200,
    Outcome.NOTHING: 200,
    Outcome.MALFORMED: 400,
    Outcome.ERROR: 500,
}
_UNAVAILABLE = 503
_SENTENCES = {
    Outcome.BUSY: "calls are under way; one scheduler makes one at a time",
    Outcome.BEHIND: "the watches have not seen what this call is about",
    Outcome.EXEMPT: "what is needed to run a cluster takes whom the scheduler chooses",
    Outcome.LATE: "nothing was found in time",
    Outcome.ERROR: "internal error; see the log",
}


class Stage(Protocol):
    """What the watches know; see `roster` and `watches`."""

    @property
    def is_behind(self) -> bool:
        """True before the first complete lists, and once nothing was heard for too long."""

    @property
    def is_settled(self) -> bool:
        """True where every pod is judged by the policy that holds now."""

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return a pod that waits for a node; `None` where no watch has such a one."""

    def knows(self, node: str, uids: Iterable[str]) -> bool:
        """True where all these pods are seen on that node or in a gang that is, or were seen to leave."""

    def expect(self, preemptor: Preemptor, node: str, victims: Iterable[Tenant]) -> None:
        """Take for granted that a scheduler does as it was told, until the watches say so themselves."""

    def scene(self) -> Scene:
        """Return all that is known, as it is now; no later event changes it."""

    def scene_as_seen(self) -> Scene:
        """Return the same, with the gangs as the watches have seen them, whatever is expected."""


class Said(NamedTuple):
    """The answer to a call."""

    outcome: Outcome
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
        return self.monotonic() >= self.at + _LATEST_SECONDS

    def cuts(self) -> bool:
        """Return whether it is over, where that leaves work undone."""
        self.cut_short = self.cut_short or self.is_over
        return self.is_over

    def halfway(self) -> "_Deadline":
        """Return one for the first half of the time that is left."""
        return replace(self, at=(self.at + self.monotonic()) / 2)

    def within(self, nodes: Iterable[str]) -> Iterator[str]:
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
        stage: Stage,
        choices: RememberedChoices,
        metrics: ExtenderMetrics,
        *,
        timeout_seconds: float,
        schedulers: Collection[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schedulers`: names of those whose pods are answered for; none: any."""
        self._stage, self._choices, self._metrics = stage, choices, metrics
        self._rooms_told = RoomsTold(monotonic=monotonic)
        self._schedulers = schedulers
        self._timeout_seconds, self._monotonic = timeout_seconds, monotonic
        self._under_way = 0
        self._read: list[asyncio.Timeout] = []
        self._turn = asyncio.Lock()

    async def answer(
        self, read: Callable[[], Awaitable[bytes | T]], hung_up: Callable[[], bool] = lambda: False
    ) -> Said | T:
        """Answer one call, whose body `read` returns; what else that returns is passed on.

        `hung_up` says whether its scheduler no longer waits for the answer.
        """
        # Before the body, which costs most.
        if self._stage.is_behind:
            return self._say(Outcome.BEHIND)
        started = self._monotonic()
        body = await self._read_in_turn(read)
        if body is None or (isinstance(body, bytes) and self._under_way >= _MOST_AT_ONCE):
            return self._say(Outcome.BUSY)
        if not isinstance(body, bytes):
            self._metrics.count_call(Outcome.MALFORMED)
            return body
        self._under_way += 1
        try:
            return await self._answer_one(body, started, hung_up)
        finally:
            self._under_way -= 1

    async def _read_in_turn(self, read: Callable[[], Awaitable[bytes | T]]) -> bytes | T | None:
        """Return what `read` returns; `None` where too many came after it."""
        # Without this, two posts that trickle would keep every scheduler out.
        if len(self._read) >= _MOST_READ:
            self._read.pop(0).reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(None) as patience:
                self._read.append(patience)
                try:
                    return await read()
                finally:
                    if patience in self._read:
                        self._read.remove(patience)
        except TimeoutError:
            return None

    async def _answer_one(self, body: bytes, started: float, hung_up: Callable[[], bool]) -> Said:
        deadline = _Deadline(started + self._timeout_seconds, self._monotonic)
        try:
            said = await self._decide(body, deadline, hung_up)
        except Exception:  # noqa: BLE001 - whatever it was is our fault, and the process lives
            _LOG.exception("call of a scheduler failed")
            said = self._say(Outcome.ERROR)
        self._metrics.observe_duration(self._monotonic() - started)
        return said

    async def _decide(self, body: bytes, deadline: "_Deadline", hung_up: Callable[[], bool]) -> Said:
        asked = await asyncio.to_thread(api.parse, body)
        if isinstance(asked, Malformed):
            return self._say(Outcome.MALFORMED, asked.detail)
        self._metrics.observe_candidates(len(asked.proposed))
        nodes = await self._wait_known(asked, deadline)
        # One after the other: what the first was told, the second has to know.
        async with self._turn:
            # This process stood still, say: its scheduler has chosen by itself, and the preemptor may wait no more.
            if hung_up():
                return self._say(Outcome.LATE)
            preemptor = self._preemptor(asked.preemptor_uid)
            if preemptor is None or (asked.proposed and not nodes) or not self._stage.is_settled:
                return self._say(Outcome.BEHIND)
            if preemptor.is_exempt:
                return self._say(Outcome.EXEMPT)
            # Placing the rest of a gang takes time, too.
            looking = deadline.halfway() if preemptor.rest else deadline
            decision = await asyncio.to_thread(
                selection.decide,
                preemptor,
                self._stage.scene(),
                looking.within(nodes),
                asked.proposed,
                deadline.cuts,
                told_of_room=self._rooms_told.of(asked.preemptor_uid, nodes),
            )
            # Nobody acts on it any more: neither is it expected, nor remembered.
            if deadline.is_missed or hung_up():
                return self._say(Outcome.LATE)
            return self._take(preemptor, decision, cut_short=deadline.cut_short or looking.cut_short)

    def _preemptor(self, uid: str) -> Preemptor | None:
        """Return the pod for which a scheduler of ours may ask now."""
        found = self._stage.preemptor(uid)
        if found is None or found.is_gated or (self._schedulers and found.scheduler not in self._schedulers):
            return None
        return found

    async def _wait_known(self, asked: Asked, deadline: "_Deadline") -> list[str]:
        """Wait a little for the watches; return the nodes on which they have seen all that the scheduler has."""
        patience = _Deadline(min(self._monotonic() + _PATIENCE_SECONDS, deadline.at), self._monotonic)
        unknown = dict(asked.proposed)
        while True:
            is_there = self._preemptor(asked.preemptor_uid) is not None
            # Without this, whoever makes up a preemptor would have every node looked at in each pass.
            if is_there or patience.is_over:
                unknown = {node: uids for node, uids in unknown.items() if not self._stage.knows(node, uids)}
                if (is_there and not unknown and self._stage.is_settled) or patience.is_over:
                    return [node for node in asked.proposed if node not in unknown]
            await asyncio.sleep(_PAUSE_SECONDS)

    def _take(self, preemptor: Preemptor, decision: Decision, *, cut_short: bool) -> Said:
        self._metrics.count_obstacles(Counter(decision.obstacles.values()))
        best = decision.best
        if best is None and cut_short:
            return self._say(Outcome.LATE)
        with_room = (node for node, obstacle in decision.obstacles.items() if obstacle is Obstacle.HAS_ROOM)
        self._rooms_told.remember(preemptor.guest.uid, with_room)
        if best is None:
            return self._say(Outcome.NOTHING, _NO_NODE)
        uids = tuple(_uids_to_delete(best.victims))
        extra = {"preemptor": preemptor.guest.uid, "node": best.node, "victims": uids, "all": len(best.everyone)}
        _LOG.info("victims chosen", extra=extra)
        by = Named(preemptor.guest.uid, preemptor.namespace, preemptor.name)
        self._stage.expect(preemptor, best.node, best.everyone)
        elsewhere = [one for one in best.elsewhere if one.mode is not Mode.ALL]
        gangs = {one.group for one in elsewhere}
        self._choices.remember(
            Choice(
                by,
                best.node,
                tuple(map(_named, best.victims)),
                tuple(map(_named, elsewhere)),
                frozenset(one.uid for one in best.everyone if one.group in gangs),
            )
        )
        answer = Answer(best.node, uids, best.violations)
        return self._say(Outcome.PARTIAL if cut_short else Outcome.CHOSEN, api.render(answer))

    def _say(self, outcome: Outcome, body: bytes | str = "") -> Said:
        self._metrics.count_call(outcome)
        text = body or _SENTENCES[outcome]
        return Said(outcome, text.encode() if isinstance(text, str) else text)


_NO_NODE = api.render(None)


def _uids_to_delete(victims: Iterable[Tenant]) -> Iterator[str]:
    """Yield whom the scheduler is to delete: of a gang that goes as a whole one pod, for which the operator takes them all.

    But all of it that are on the node where nobody asks the guard first, or where it does not go as a whole by its own word.

    Of several victims kube-scheduler 1.37 waits for each but the last before it looks at its preemptor again, and hears of
    no deletion meanwhile. Without this, a preemptor whose victims the operator has deleted would wait for some other event.

    What a budget holds was told already, and the operator does no more than evict it: nobody takes it with another. Without
    this, a preemption would take of such a gang one pod a round.
    """
    taken: set[GroupKey] = set()
    for victim in victims:
        is_taken_with_others = victim.mode is Mode.ALL and victim.is_guarded and not victim.is_held
        if victim.group is None or not is_taken_with_others:
            yield victim.uid
        elif victim.group not in taken:
            taken.add(victim.group)
            yield victim.uid


def _named(tenant: Tenant) -> Named:
    return Named(tenant.uid, tenant.namespace, tenant.name)
