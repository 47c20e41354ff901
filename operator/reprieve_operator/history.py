"""What happened to victims, for the page `/ui`.

Kept in memory, and bounded. A new leader counts anew; `past_steps` gives it the steps of earlier
leaders, as far as the API server still has their Events.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta, annotations_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction
from reprieve_runtime.bounded_dict import BoundedDict

from .clock import Clock

WINDOW = timedelta(hours=24)
_MAX_VICTIMS = 2_000
"""Victims whose steps are kept: some 4 KB each."""
_MAX_STEPS = 40
_MAX_ENDED = 50_000
"""Victims that are counted in the last 24 hours: some 200 bytes each."""
MAX_NOTE = 500
"""Characters of a step's note."""
_HOUR_SECONDS = 3600.0
_OF_OTHER_PODS = frozenset(
    {
        "GangDiverges",
        "GangHeldBack",
        "GangIncomplete",
        "GangNotReplaced",
        "GangReleased",
        "GangWaiting",
        "GangWaitingForRoom",
        "LentNodeReclaimed",
        "ProtectionUnchecked",
        "SoftEvictionLeftOver",
        "SoftEvictionUnreadable",
    }
)
"""Reasons of Events about pods that are no victims. Without this, the page would show such pods as
victims that have ended, and the unchecked pods of a large cluster would push out the real ones."""


class PastSteps(StrEnum):
    """What is known of the steps before this replica led."""

    NOT_YET = "not-yet"
    READ = "read"
    PARTLY = "partly"
    """There are more Events than are read, or they could not all be read."""
    FORBIDDEN = "forbidden"
    """The operator may not list Events."""


@dataclass(frozen=True, slots=True)
class Step:
    """One Event of Reprieve about a victim."""

    at: datetime
    reason: str
    note: str
    is_from_event: bool = False
    """It was read from an Event, which other clients may write as well."""


@dataclass(frozen=True, slots=True)
class PastStep:
    """A step before this replica led, with its pod."""

    namespace: str
    name: str
    uid: str
    step: Step


@dataclass(slots=True)
class VictimHistory:
    """The steps of one victim, oldest first."""

    namespace: str
    name: str
    uid: str
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_MAX_STEPS))


@dataclass(frozen=True, slots=True)
class _EndedVictim:
    at: datetime
    namespace: str
    outcome: CheckpointOutcome | None
    work_hours: float
    """Since the pod's start, or its last save before the eviction."""
    cost_hours: float


@dataclass(slots=True)
class NamespaceTotals:
    """What happened to the victims of one Namespace; hours are those of a pod, cost of devices."""

    namespace: str
    victims: int = 0
    saved: int = 0
    unsaved: int = 0
    kept_hours: float = 0.0
    """The work that saved victims would have lost without notice."""
    lost_hours: float = 0.0
    """The work that victims lost that should have saved."""
    cost_hours: float = 0.0


class History:
    """The steps of victims, and what their ends cost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.since = clock.now()
        self.past = PastSteps.NOT_YET
        self._victims: BoundedDict[str, VictimHistory] = BoundedDict(_MAX_VICTIMS)
        self._work_since: BoundedDict[str, datetime] = BoundedDict(_MAX_VICTIMS)
        self._ended: deque[_EndedVictim] = deque(maxlen=_MAX_ENDED)

    def begin(self) -> None:
        """Forget what an earlier term saw: between two terms, another replica led."""
        self.since = self._clock.now()
        self.past = PastSteps.NOT_YET
        self._victims.clear()
        self._work_since.clear()
        self._ended.clear()

    def add_step(self, namespace: str, name: str, uid: str, reason: str, note: str) -> None:
        """Keep an Event about a pod, if its reason is one of victims."""
        if not is_of_victim(reason):
            return
        known = self._victims.get(uid) or VictimHistory(namespace, name, uid)
        known.steps.append(Step(self._clock.now(), reason, note[:MAX_NOTE]))
        self._victims[uid] = known

    def add_past(self, steps: Sequence[PastStep], known: PastSteps) -> None:
        """Take over the steps of earlier leaders; they change no total.

        A user who may write Events could write such steps. Without the order below, they would push
        out those that this operator has seen itself.
        """
        self.past = known
        current = dict(self._victims)
        self._victims.clear()
        earlier = [each for each in steps if each.step.at < self.since]
        for each in sorted(earlier, key=lambda each: each.step.at):
            victim = self._victims.get(each.uid) or VictimHistory(
                each.namespace, each.name, each.uid
            )
            victim.steps.append(each.step)
            self._victims[each.uid] = victim
        for uid, victim in current.items():
            before = self._victims.get(uid)
            if before is not None:
                victim.steps = deque([*before.steps, *victim.steps], _MAX_STEPS)
            self._victims[uid] = victim

    def note_work(self, metadata: VersionedMeta, start_time: str | None) -> None:
        """Keep since when a pod has done work that nothing saved, as its eviction begins.

        Later, its annotations have the save that the eviction itself brought.
        """
        uid = metadata.uid or ""
        started_at = timestamp.parse(start_time)
        if uid in self._work_since or started_at is None:
            return
        saved_at = timestamp.parse(annotations_of(metadata).get(keys.LAST_CHECKPOINT_AT))
        self._work_since[uid] = max(started_at, saved_at or started_at)

    def add_end(self, metadata: VersionedMeta, state: Eviction) -> None:
        """Count a victim that is deleted."""
        now = self._clock.now()
        saved_at = None if state.checkpoint is None else state.checkpoint.saved_at
        since = self._work_since.get(metadata.uid or "")
        seconds = 0.0 if since is None else ((saved_at or now) - since).total_seconds()
        self._ended.append(
            _EndedVictim(
                at=now,
                namespace=metadata.namespace or "",
                outcome=state.outcome,
                work_hours=max(0.0, seconds) / _HOUR_SECONDS,
                cost_hours=0.0 if state.cost is None else state.cost.hours,
            )
        )

    def steps_of(self, uid: str) -> tuple[Step, ...]:
        """Return what happened to a victim, oldest first."""
        known = self._victims.get(uid)
        return () if known is None else tuple(known.steps)

    def steps_since(self) -> datetime:
        """Return since when steps are known: the oldest, or the begin of the term."""
        oldest = (each.steps[0].at for each in self._victims.values())
        return min([self.since, *oldest])

    def newest_first(self) -> Iterator[VictimHistory]:
        """Yield the victims, the one with the newest step first."""
        yield from reversed(self._victims.values())

    def totals(self) -> list[NamespaceTotals]:
        """Return the totals of the last 24 hours, by Namespace; most victims first."""
        begin = self._clock.now() - WINDOW
        while self._ended and self._ended[0].at < begin:
            self._ended.popleft()
        found: dict[str, NamespaceTotals] = {}
        for ended in self._ended:
            _add(found.setdefault(ended.namespace, NamespaceTotals(ended.namespace)), ended)
        return sorted(found.values(), key=lambda each: (-each.victims, each.namespace))


def is_of_victim(reason: str) -> bool:
    """True if Events with this reason, about a pod, are about a victim."""
    return reason not in _OF_OTHER_PODS


def _add(totals: NamespaceTotals, ended: _EndedVictim) -> None:
    totals.victims += 1
    totals.cost_hours += ended.cost_hours
    if ended.outcome is CheckpointOutcome.SAVED:
        totals.saved += 1
        totals.kept_hours += ended.work_hours
    elif ended.outcome is not None and ended.outcome.is_failure:
        totals.unsaved += 1
        totals.lost_hours += ended.work_hours
