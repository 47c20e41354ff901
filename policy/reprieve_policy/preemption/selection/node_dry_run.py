"""The victims that each node needs for one demand, and the order between nodes.

With `victimOrder: priority`, the order is that of kube-scheduler's `pickOneNodeForPreemption`:
fewest violated budgets, lowest highest priority, lowest sum of priorities, fewest victims. Then, if
any pod states preferences, the lowest class and the cheapest (document 001); then the victims that
started last. With `victimOrder: loss`, the least expected loss comes after the budgets, and then
this order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from reprieve_policy.config.settings import LOSS

from . import node_fit, select_victims, victim_units
from .eligibility import Eligibility
from .least_loss import BestSoFar
from .node_fit import CombinedDemand
from .node_status import WAITING_IS_ENOUGH, DryRunStatus
from .snapshot import PodDemand, Snapshot
from .victim_units import Selection, SortKey, VictimUnit

_FEASIBLE = WAITING_IS_ENOUGH | {DryRunStatus.ROOM_MAY_BE_RELEASED}
_MAX_INT32 = 2**31 - 1
NO_VICTIMS: SortKey = (0, -_MAX_INT32 - 2)
"""The rank of no victims: before all others."""


class NodeDryRun:
    """Dry runs of all nodes, for pods with the same demand."""

    def __init__(
        self, demand: PodDemand, eligibility: Eligibility, *, is_only_best_wanted: bool = False
    ) -> None:
        """Keep the results.

        `is_only_best_wanted`: a node that is worse than a candidate needs no victims. Only for a
        preemptor that takes the best candidate, whatever it costs.
        """
        self._demand, self._eligibility = demand, eligibility
        self._best = BestSoFar() if is_only_best_wanted else None
        self._load = CombinedDemand().plus(demand)
        self._results: dict[str, Selection | DryRunStatus] = {}

    def has_same_demand(self, demand: PodDemand) -> bool:
        """True for a pod with the same demand."""
        own = self._demand
        return (own.amounts, own.ports, own.constraints) == (
            demand.amounts,
            demand.ports,
            demand.constraints,
        )

    def result_for(self, node: str) -> Selection | DryRunStatus:
        """Return the victims on the node if there were none elsewhere."""
        if node not in self._results:
            self._results[node] = self._dry_run(node)
        return self._results[node]

    def candidate_on(self, node: str) -> Selection | DryRunStatus:
        """Return the result for the node, and note it as one that a worse node cannot replace.

        One with more victims than a decision allows is not noted: it is rejected.
        """
        result = self.result_for(node)
        best, most = self._best, self._eligibility.snapshot.settings.max_victims
        if (
            best is not None
            and isinstance(result, Selection)
            and result.violations == 0
            and len(result.units) <= most
            and (best.loss is None or result.loss < best.loss)
        ):
            best.loss = result.loss
        return result

    def satisfies_constraints(self, node: str) -> bool:
        """True if such a pod may run on the node at all."""
        node_info = self._eligibility.snapshot.nodes.get(node)
        return node_info is not None and node_fit.satisfies_constraints(
            self._demand.constraints, node_info
        )

    def feasible_nodes(self, is_expired: Callable[[], bool]) -> dict[str, Selection | DryRunStatus]:
        """Return all feasible nodes; once the search time has expired, those seen so far."""
        results = {
            node: self.result_for(node)
            for node in takewhile(lambda _: not is_expired(), self._eligibility.snapshot.nodes)
        }
        return {node: result for node, result in results.items() if is_feasible(result)}

    def _dry_run(self, node: str) -> Selection | DryRunStatus:
        node_info = self._eligibility.snapshot.nodes.get(node)
        if node_info is None:
            return DryRunStatus.UNKNOWN_NODE
        if not node_fit.satisfies_constraints(self._demand.constraints, node_info):
            return DryRunStatus.UNSUITABLE
        return select_victims.select(node_info, self._load, self._eligibility, best=self._best)


def is_feasible(result: Selection | DryRunStatus) -> bool:
    """True if a pod has room, will have, or could have with victims."""
    return isinstance(result, Selection) or result in _FEASIBLE


@dataclass(frozen=True, slots=True)
class VictimRanking:
    """Ranks sets of victims against each other."""

    now: datetime
    states_preferences: bool
    """At least one of the compared pods states preferences."""
    victim_order: str = LOSS

    def rank_result(self, result: Selection | DryRunStatus) -> SortKey:
        """Rank the victims of a node."""
        return (
            self.rank(result.units, result.violations)
            if isinstance(result, Selection)
            else NO_VICTIMS
        )

    def rank(self, victims: Iterable[VictimUnit], violations: int) -> SortKey:
        """Rank victims, the best set first."""
        units = list(victims)
        if not units:
            return NO_VICTIMS
        pods = sum([len(unit.members) for unit in units])
        highest = max([unit.priority for unit in units])
        priorities = sum([victim_units.sum_of_priorities(unit) for unit in units])
        oldest = min(
            [
                victim_units.earliest_start_of_highest(unit, self.now)
                for unit in units
                if unit.priority == highest
            ]
        )
        return (
            violations,
            *([sum([unit.loss for unit in units])] if self.victim_order == LOSS else ()),
            highest,
            # As upstream: every victim counts, those of negative priority too.
            priorities + pods * (_MAX_INT32 + 1),
            pods,
            *self._preference_keys(units),
            -oldest.timestamp(),
        )

    def _preference_keys(self, units: Sequence[VictimUnit]) -> tuple[float, ...]:
        if not self.states_preferences:
            return ()
        return max([victim_units.preemption_class(unit) for unit in units]), *(
            victim_units.total_cost(units, self.now)
        )


def ranking_for(results: Iterable[Selection | DryRunStatus], snapshot: Snapshot) -> VictimRanking:
    """Return the ranking for these results."""
    units = (unit for result in results if isinstance(result, Selection) for unit in result.units)
    return VictimRanking(
        snapshot.now,
        any(
            unit.members[0].states_preferences
            if unit.totals is None
            else unit.totals.states_preferences
            for unit in units
        ),
        snapshot.settings.victim_order,
    )
