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
from .eligibility import Eligibility
from .node_capacity import CombinedDemand
from .node_status import WAITING_IS_ENOUGH, DryRunStatus
from .select_victims import Selection
from .snapshot import PodDemand, ScheduledPod
from .victim_units import SortKey, VictimUnit

_FEASIBLE = WAITING_IS_ENOUGH | {DryRunStatus.ROOM_MAY_BE_RELEASED}
_MAX_INT32 = 2**31 - 1
NO_VICTIMS: SortKey = (0, -_MAX_INT32 - 2)
"""The rank of no victims at all: before any other."""


class NodeDryRun:
    """Of all nodes, for pods that ask for the same."""

    def __init__(self, guest: PodDemand, court: Eligibility) -> None:
        self._guest, self._court = guest, court
        self._load = CombinedDemand().plus(guest)
        self._found: dict[str, Selection | DryRunStatus] = {}

    def has_same_demand(self, guest: PodDemand) -> bool:
        """True for a pod that asks for the same."""
        own = self._guest
        return (own.amounts, own.ports, own.constraints) == (
            guest.amounts,
            guest.ports,
            guest.constraints,
        )

    def result_for(self, node: str) -> Selection | DryRunStatus:
        """Return whom the node would take, if nobody were taken elsewhere."""
        if node not in self._found:
            self._found[node] = self._dry_run(node)
        return self._found[node]

    def satisfies_constraints(self, node: str) -> bool:
        """True where such a pod may run on the node at all."""
        room = self._court.scene.nodes.get(node)
        return room is not None and node_fit.satisfies_constraints(self._guest.constraints, room)

    def feasible_nodes(self, is_over: Callable[[], bool]) -> dict[str, Selection | DryRunStatus]:
        """Return all nodes of the scene on which such a pod has room, or could have; once it is over, those seen so far."""
        found = {
            node: self.result_for(node)
            for node in takewhile(lambda _: not is_over(), self._court.scene.nodes)
        }
        return {node: selection for node, selection in found.items() if is_feasible(selection)}

    def _dry_run(self, node: str) -> Selection | DryRunStatus:
        room = self._court.scene.nodes.get(node)
        if room is None:
            return DryRunStatus.UNKNOWN_NODE
        if not node_fit.satisfies_constraints(self._guest.constraints, room):
            return DryRunStatus.UNSUITABLE
        return select_victims.select(room, self._load, self._court)


def is_feasible(found: Selection | DryRunStatus) -> bool:
    """True where a pod has room, or will have."""
    return isinstance(found, Selection) or found in _FEASIBLE


@dataclass(frozen=True, slots=True)
class VictimRanking:
    """By what sets of victims are ranked against each other."""

    now: datetime
    states_preferences: bool
    """Some of all those that are compared say something."""

    def rank_result(self, found: Selection | DryRunStatus) -> SortKey:
        """Rank what a node takes."""
        return (
            self.rank(found.units, found.violations) if isinstance(found, Selection) else NO_VICTIMS
        )

    def rank(self, victims: Iterable[VictimUnit], violations: int) -> SortKey:
        """Rank victims, the best first."""
        everyone = [member for unit in victims for member in unit.members]
        if not everyone:
            return NO_VICTIMS
        highest = max([victim.preemption_priority for victim in everyone])
        # As upstream: every victim counts, those of negative priority too.
        priorities = sum([victim.preemption_priority + _MAX_INT32 + 1 for victim in everyone])
        oldest = victim_units.earliest_start(
            [victim for victim in everyone if victim.preemption_priority == highest], self.now
        )
        return (
            violations,
            highest,
            priorities,
            len(everyone),
            *self._preference_keys(everyone),
            -oldest.timestamp(),
        )

    def _preference_keys(self, everyone: Sequence[ScheduledPod]) -> tuple[float, ...]:
        if not self.states_preferences:
            return ()
        return max([victim.preemption_class for victim in everyone]), *victim_units.total_cost(
            everyone, self.now
        )


def ranking_for(found: Iterable[Selection | DryRunStatus], now: datetime) -> VictimRanking:
    """Return what these can be compared by."""
    taken = (
        unit for selection in found if isinstance(selection, Selection) for unit in selection.units
    )
    return VictimRanking(
        now, any(member.states_preferences for unit in taken for member in unit.members)
    )
