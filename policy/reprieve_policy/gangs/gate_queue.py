"""In which order gangs are released to the scheduler, and which of them now.

The order is that of QueueSort in document 004: priority; gangs of one priority by when they failed
last, or by the creation of their first pod if that is later; then by its uid. So a gang that failed
is behind all that wait by then. A gang that finds no room keeps no other from starting: it may need
more than the cluster has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 10, 1800
"""How long a gang waits after its first failure; each further failure doubles it, up to the
maximum: three times the default timeout. Without this, a gang that is never placed would keep its
room from others for half of the time."""
_MAX_DOUBLINGS = 8

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class GangFailure:
    """How often a gang failed to start, and when it did last."""

    count: int
    at: datetime

    @property
    def retry_at(self) -> datetime:
        """When it may be released again."""
        doublings = min(self.count - 1, _MAX_DOUBLINGS)
        return self.at + timedelta(seconds=min(BACKOFF_SECONDS * 2**doublings, MAX_BACKOFF_SECONDS))

    @classmethod
    def after(cls, before: "GangFailure | None", now: datetime) -> "GangFailure":
        """Return the record of one more failure."""
        return cls(1 if before is None else before.count + 1, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedGang(Generic[K]):
    """A gang with as many members as it needs, which waits for room."""

    key: K
    """What identifies it."""
    priority: int
    created_at: datetime
    """The creation of its first pod."""
    uid: str
    """The uid of its first pod."""


class Room(Protocol[K_contra]):
    """The room of the cluster beside the gangs that were released and are not placed yet."""

    def has_room(self, key: K_contra) -> bool:
        """True if the gang may be released beside those."""

    def reserve(self, key: K_contra) -> None:
        """Count a gang as released."""


def releases(
    queue: Iterable[QueuedGang[K]], failures: Mapping[K, GangFailure], room: Room[K], now: datetime
) -> Iterator[K]:
    """Yield the gangs to release now, the first first; each is reserved its room."""
    for gang in in_order(queue, failures):
        failure = failures.get(gang.key)
        if (failure is None or now >= failure.retry_at) and room.has_room(gang.key):
            room.reserve(gang.key)
            yield gang.key


def in_order(
    queue: Iterable[QueuedGang[K]], failures: Mapping[K, GangFailure]
) -> list[QueuedGang[K]]:
    """Return the gangs in the order in which they are tried."""

    def rank(gang: QueuedGang[K]) -> tuple[int, datetime, str]:
        failure = failures.get(gang.key)
        since = gang.created_at if failure is None else max(failure.at, gang.created_at)
        return -gang.priority, since, gang.uid

    return sorted(queue, key=rank)
