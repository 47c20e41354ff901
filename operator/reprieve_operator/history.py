"""What happened to victims since this replica leads, for the page `/ui`.

Kept in memory, and bounded. A new leader begins anew.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
_MAX_NOTE = 500
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


@dataclass(frozen=True, slots=True)
class Step:
    """One Event of Reprieve about a victim."""

    at: datetime
    reason: str
    note: str


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
        self._victims: BoundedDict[str, VictimHistory] = BoundedDict(_MAX_VICTIMS)
        self._work_since: BoundedDict[str, datetime] = BoundedDict(_MAX_VICTIMS)
        self._ended: deque[_EndedVictim] = deque(maxlen=_MAX_ENDED)

    def begin(self) -> None:
        """Forget what an earlier term saw: between two terms, another replica led."""
        self.since = self._clock.now()
        self._victims.clear()
        self._work_since.clear()
        self._ended.clear()

    def add_step(self, namespace: str, name: str, uid: str, reason: str, note: str) -> None:
        """Keep an Event about a pod, if its reason is one of victims."""
        if reason in _OF_OTHER_PODS:
            return
        known = self._victims.get(uid) or VictimHistory(namespace, name, uid)
        known.steps.append(Step(self._clock.now(), reason, note[:_MAX_NOTE]))
        self._victims[uid] = known

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


def _add(totals: NamespaceTotals, ended: _EndedVictim) -> None:
    totals.victims += 1
    totals.cost_hours += ended.cost_hours
    if ended.outcome is CheckpointOutcome.SAVED:
        totals.saved += 1
        totals.kept_hours += ended.work_hours
    elif ended.outcome is not None and ended.outcome.is_failure:
        totals.unsaved += 1
        totals.lost_hours += ended.work_hours
