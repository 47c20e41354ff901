"""The pods that the scheduler has to place, by kind, and how many places each kind has beyond them.

Equal pods of several gangs are one kind: the time to compare all kinds with each other grows with
the kinds that differ, not with the gangs.
"""

from collections.abc import Collection
from dataclasses import replace

from . import kinds as gang_kinds
from .kinds import KindOnNodes


class PlacingKinds:
    """All kinds that are being placed; each is compared with each other once."""

    def __init__(self) -> None:
        self._kinds: dict[object, KindOnNodes] = {}
        self._lost: dict[object, int] = {}
        """How many places of a kind the others take, at the worst, as far as it was asked for."""

    @property
    def all(self) -> Collection[KindOnNodes]:
        """The kinds, each with the pods of all gangs."""
        return self._kinds.values()

    def add(self, kind: KindOnNodes) -> None:
        """Add the pods of one more gang."""
        identity = kind.kind.identity
        before = self._kinds.get(identity)
        if before is not None:
            count = before.kind.count + kind.kind.count
            kind = replace(before, kind=replace(before.kind, count=count))
        self._kinds[identity] = kind
        for other in self._lost.keys() - {identity}:
            lost = gang_kinds.places_lost(self._kinds[other], [kind])
            if before is not None:
                lost -= gang_kinds.places_lost(self._kinds[other], [before])
            self._lost[other] += lost

    def margin(self, identity: object, own: Collection[KindOnNodes]) -> int:
        """Return how many places no pod of a kind can need, beside those of a waiting gang too."""
        kind = self._kinds[identity]
        if identity not in self._lost:
            self._lost[identity] = gang_kinds.places_lost(kind, self._kinds.values())
        return kind.spare - self._lost[identity] - gang_kinds.places_lost(kind, own)
