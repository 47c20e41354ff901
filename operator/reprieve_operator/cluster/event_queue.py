"""Events that wait to be written; in a burst, those that are alike are put together. No I/O.

Outside of a burst, each Event is written as it is. In a burst (`bursts`), three rules save most of
the calls, and nothing that was reported is lost:

- An Event about a pod waits for a few seconds and takes in those that the pod has meanwhile: one
  Event then has the reason of the last step and quotes the others.
- Reasons that have no Event of their own for this are counted, in one Event with a series on the
  pods' controller, or on the Namespace for pods without one.
- So are the Events that an object, like a Job, has for many pods with the same reason.

A warning about a pod does not wait.

Namespaces take turns, and none has more Events in the queue than it leaves room for. Without this,
one whose Events cannot be written would hold up, or drop, those of all others.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from typing import NamedTuple

from .bursts import Bursts
from .events import ObjectReference, QueuedEvent

QUEUE_SIZE, QUEUE_SIZE_FOR_NORMAL = 20_000, 16_000
"""The most Events that wait, half of them of one Namespace; the difference is reserved for
warnings. Events beyond it are only counted, by Namespace and reason."""
HOLD_SECONDS = 10.0
"""How long an Event waits in a burst: a short save begins and ends within one Event."""

_MAX_QUOTED = 8
"""Steps that one Event quotes; more would not fit into its note."""


class _HeldEvent(NamedTuple):
    due: float
    event: QueuedEvent


class EventQueue:
    """What waits: of each Namespace, in the order in which it is due."""

    def __init__(self, bursts: Bursts, on_drop: Callable[[], None] = lambda: None) -> None:
        """`on_drop` is called for each Event that is not taken because too many wait."""
        self._bursts = bursts
        self._on_drop = on_drop
        self._dropped = Counter[tuple[str, str]]()
        self._ready: dict[str, deque[QueuedEvent]] = {}
        """By Namespace; the one whose turn was last is the last."""
        self._held: dict[Hashable, _HeldEvent] = {}
        """In the order in which they are due: all are held for the same time."""
        self._waiting = Counter[str]()
        """How many are ready or held, by Namespace."""
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def add(self, event: QueuedEvent, now: float) -> None:
        """Take an Event, or drop and count it; `now` is in monotonic seconds."""
        if event.once:
            self._add_ready(event)
        elif event.regarding.kind == "Pod":
            self._add_of_pod(event, now)
        elif self._bursts.note(_key(event.regarding, event), event.note):
            self._count(event, event.regarding, event.note, now)
        else:
            self._add_ready(event)

    def pop(self, now: float, busy: Collection[str] = ()) -> QueuedEvent | None:
        """Return the next Event that is due, of a Namespace that is not busy; `None`: none is."""
        while (due := self.next_due()) is not None and due <= now:
            event = self._held.pop(next(iter(self._held))).event
            self._ready.setdefault(event.namespace, deque()).append(event)
        name = next((name for name in self._ready if name not in busy), None)
        return None if name is None else self._pop_ready(name)

    def put_back(self, event: QueuedEvent) -> None:
        """Have an Event that was popped, and not written, be the next one of its Namespace."""
        self._ready.setdefault(event.namespace, deque()).appendleft(event)
        self._count_waiting(event.namespace, 1)

    def next_due(self) -> float | None:
        """Return when the next Event that is held is due; `None` if none is held."""
        return next((held.due for held in self._held.values()), None)

    def take_dropped(self) -> Counter[tuple[str, str]]:
        """Return how many were dropped since the last call, by Namespace and reason.

        Those of a Namespace are left out while others of it wait, and all while the queue is half
        full. Without this, the Event that says how many were dropped would be dropped as well.
        """
        if self._total > QUEUE_SIZE_FOR_NORMAL // 2:
            return Counter()
        taken = {key: count for key, count in self._dropped.items() if key[0] not in self._waiting}
        for key in taken:
            del self._dropped[key]
        return Counter(taken)

    def _pop_ready(self, name: str) -> QueuedEvent:
        events = self._ready.pop(name)
        event = events.popleft()
        if events:
            self._ready[name] = events
        self._count_waiting(name, -1)
        return event

    def _add_of_pod(self, event: QueuedEvent, now: float) -> None:
        uid = event.regarding.uid
        is_burst = self._bursts.note(event.namespace, uid)
        before = self._held.get(uid)
        if before is not None:
            earlier = (before.event.reason, before.event.note), *before.event.earlier
            event = replace(event, earlier=earlier[:_MAX_QUOTED])
            self._count_superseded(before.event, now)
        if not (is_burst and event.is_normal):
            if before is not None:
                del self._held[uid]
                self._count_waiting(event.namespace, -1)
            self._add_ready(event)
        elif before is not None:
            self._held[uid] = before._replace(event=event)
        elif self._has_room(event):
            self._hold(uid, event, now)

    def _count_superseded(self, event: QueuedEvent, now: float) -> None:
        pod = event.regarding
        about = pod.controller or ObjectReference.for_namespace(event.namespace)
        self._count(event, about, f"pod {pod.name}: {event.note}", now)

    def _count(self, event: QueuedEvent, about: ObjectReference, note: str, now: float) -> None:
        """Add an Event to those like it about an object; the last one's note stands for all."""
        key = _key(about, event)
        before = self._held.get(key)
        if before is None:
            if self._has_room(event):
                self._hold(key, QueuedEvent(about, event.reason, note, event.event_time), now)
            return
        counted = replace(
            before.event,
            note=note,
            event_time=event.event_time,
            count=before.event.count + 1,
            first_time=before.event.first_time or before.event.event_time,
        )
        self._held[key] = before._replace(event=counted)

    def _add_ready(self, event: QueuedEvent) -> None:
        if self._has_room(event):
            self._ready.setdefault(event.namespace, deque()).append(event)
            self._count_waiting(event.namespace, 1)

    def _hold(self, key: Hashable, event: QueuedEvent, now: float) -> None:
        self._held[key] = _HeldEvent(now + HOLD_SECONDS, event)
        self._count_waiting(event.namespace, 1)

    def _count_waiting(self, name: str, change: int) -> None:
        self._total += change
        self._waiting[name] += change
        if not self._waiting[name]:
            del self._waiting[name]

    def _has_room(self, event: QueuedEvent) -> bool:
        """True if the Event may wait; without room, it is counted as dropped."""
        room = (QUEUE_SIZE_FOR_NORMAL if event.is_normal else QUEUE_SIZE) - self._total
        has_room = self._waiting[event.namespace] < room
        if not has_room:
            self._dropped[event.namespace, event.reason] += 1
            self._on_drop()
        return has_room


def _key(about: ObjectReference, event: QueuedEvent) -> tuple[str, str, str, str]:
    """Return what Events have in common that are alike; a Namespace's reference has no uid."""
    return about.kind, event.namespace, about.uid or about.name, event.reason
