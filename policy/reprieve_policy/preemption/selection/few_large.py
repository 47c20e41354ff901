"""Few large victims on one node, where the usual choice takes more than `maxVictims`.

Without this, a few more small pods on a node would keep every preemptor from a large one, though
that alone is enough. As many as possible are reprieved, the smallest first; the size of a pod is
how much it releases of what is missing. The victims are those whose costliest costs the least, and
they violate budgets only where none else are few enough.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from . import pdb_usage, victim_units
from .eligibility import Eligibility
from .node_fit import RemainingCapacity
from .snapshot import GangKey, ScheduledPod
from .victim_units import Selection, VictimUnit


def select(
    possible: Sequence[ScheduledPod],
    spare: Mapping[GangKey, int],
    capacity: RemainingCapacity,
    eligibility: Eligibility,
    cost_of: Callable[[VictimUnit], int],
) -> Selection | None:
    """Return at most `maxVictims` victims; `None` if none are found.

    No possible victim is counted in `capacity`, which changes. `spare`: how many pods each gang can
    lose. `cost_of`: their priority, or what they lose.
    """
    uses = eligibility.budget_uses
    importance = partial(victim_units.scheduler_order, now=eligibility.snapshot.now)
    sizes = victim_units.sizes_of(possible, capacity)

    def size_of(unit: VictimUnit) -> float:
        return sum([sizes[pod.uid] for pod in unit.on_node])

    kept = victim_units.keep_needed_members(
        possible, spare, capacity, lambda pod: (sizes[pod.uid], pod.uid)
    )
    if kept is None:
        return None
    rest = victim_units.without(possible, kept)
    by_importance = sorted(victim_units.units_of(rest, eligibility), key=importance)
    violating = pdb_usage.violations_by_unit(by_importance, uses).keys()
    by_size = sorted(by_importance, key=size_of)
    most = eligibility.snapshot.settings.max_victims
    for protected in (violating, ()) if violating else ((),):
        found = _select_cheapest(by_size, protected, capacity, most, cost_of)
        if found:
            found.sort(key=importance)
            return Selection(tuple(found), pdb_usage.violations_of(found, uses))
    return None


def _select_cheapest(
    units: Sequence[VictimUnit],
    protected: Collection[int],
    capacity: RemainingCapacity,
    most: int,
    cost_of: Callable[[VictimUnit], int],
) -> list[VictimUnit]:
    """Return the victims of the lowest cost with which few are enough; none if there is none.

    `units`: the smallest first. `protected`: the ids of those that are reprieved first.
    """

    def up_to(cost: int) -> list[VictimUnit]:
        ranked = sorted(units, key=lambda unit: (id(unit) not in protected, cost_of(unit) <= cost))
        left = capacity.copy()
        victims = [unit for unit in ranked if not left.try_add(unit.on_node)]
        is_within = len(victims) <= most and all(cost_of(unit) <= cost for unit in victims)
        return victims if is_within else []

    costs = sorted({cost_of(unit) for unit in units})
    place = bisect_left(costs, True, key=lambda cost: bool(up_to(cost)))  # noqa: FBT003 - found, not a flag
    return up_to(costs[place]) if place < len(costs) else []
