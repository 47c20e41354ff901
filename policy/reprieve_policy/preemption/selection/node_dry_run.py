"""What each node would take for one kind of pod, looked at once; and by what nodes are told apart.

Order between nodes as kube-scheduler's `pickOneNodeForPreemption`: fewest violated budgets, lowest highest priority,
lowest sum of priorities, fewest victims. Then, where anybody says anything, the lowest class and the cheapest (document
001); then whose victims started last.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from . import node_fit, select_victims, victim_units
from .eligibility import Court
from .node_capacity import Load
from .node_status import WAITING_IS_ENOUGH, Obstacle
from .select_victims import Selection
from .snapshot import Guest, Tenant
from .victim_units import Rank, Unit

_HELPFUL = WAITING_IS_ENOUGH | {Obstacle.CLEARING}
_MAX_INT32 = 2**31 - 1
NOBODY: Rank = (0, -_MAX_INT32 - 2)
"""The rank of no victims at all: before any other."""


class Survey:
    """Of all nodes, for pods that ask for the same."""

    def __init__(self, guest: Guest, court: Court) -> None:
        self._guest, self._court = guest, court
        self._load = Load().plus(guest)
        self._found: dict[str, Selection | Obstacle] = {}

    def is_for(self, guest: Guest) -> bool:
        """True for a pod that asks for the same."""
        own = self._guest
        return (own.amounts, own.ports, own.wish) == (guest.amounts, guest.ports, guest.wish)

    def on(self, node: str) -> Selection | Obstacle:
        """Return whom the node would take, if nobody were taken elsewhere."""
        if node not in self._found:
            self._found[node] = self._look(node)
        return self._found[node]

    def suits(self, node: str) -> bool:
        """True where such a pod may run on the node at all."""
        room = self._court.scene.rooms.get(node)
        return room is not None and node_fit.suits(self._guest.wish, room)

    def all_that_help(self, is_over: Callable[[], bool]) -> dict[str, Selection | Obstacle]:
        """Return all nodes of the scene on which such a pod has room, or could have; once it is over, those seen so far."""
        found = {node: self.on(node) for node in takewhile(lambda _: not is_over(), self._court.scene.rooms)}
        return {node: selection for node, selection in found.items() if helps(selection)}

    def _look(self, node: str) -> Selection | Obstacle:
        room = self._court.scene.rooms.get(node)
        if room is None:
            return Obstacle.UNKNOWN_NODE
        if not node_fit.suits(self._guest.wish, room):
            return Obstacle.UNSUITABLE
        return select_victims.select(room, self._load, self._court)


def helps(found: Selection | Obstacle) -> bool:
    """True where a pod has room, or will have."""
    return isinstance(found, Selection) or found in _HELPFUL


@dataclass(frozen=True, slots=True)
class Scale:
    """By what sets of victims are ranked against each other."""

    now: datetime
    speaks: bool
    """Some of all those that are compared say something."""

    def weigh(self, found: Selection | Obstacle) -> Rank:
        """Rank what a node takes."""
        return self.rank(found.units, found.violations) if isinstance(found, Selection) else NOBODY

    def rank(self, victims: Iterable[Unit], violations: int) -> Rank:
        """Rank victims, the best first."""
        everyone = [member for unit in victims for member in unit.members]
        if not everyone:
            return NOBODY
        highest = max([victim.defence for victim in everyone])
        # As upstream: every victim counts, those of negative priority too.
        priorities = sum([victim.defence + _MAX_INT32 + 1 for victim in everyone])
        oldest = victim_units.age([victim for victim in everyone if victim.defence == highest], self.now)
        return violations, highest, priorities, len(everyone), *self._said(everyone), -oldest.timestamp()

    def _said(self, everyone: Sequence[Tenant]) -> tuple[float, ...]:
        if not self.speaks:
            return ()
        return max([victim.preemption_class for victim in everyone]), *victim_units.cost_of(everyone, self.now)


def scale_for(found: Iterable[Selection | Obstacle], now: datetime) -> Scale:
    """Return what these can be compared by."""
    taken = (unit for selection in found if isinstance(selection, Selection) for unit in selection.units)
    return Scale(now, any(member.speaks for unit in taken for member in unit.members))
