"""The victims on one node, or why there are none: which pods stay, leave, or may be victims.

Which of the possible victims go is decided by `least_loss` or `priority_order`, as the setting
`victimOrder` says.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprieve_policy.config.settings import PRIORITY

from . import (
    alike_pods,
    anti_affinity,
    least_loss,
    pdb_usage,
    priority_order,
    victim_units,
)
from .eligibility import Eligibility
from .least_loss import BestSoFar
from .node_fit import CombinedDemand, RemainingCapacity
from .node_status import WAITING_IS_ENOUGH, DryRunStatus
from .reasons import RefusalReason
from .release import ReleaseCertainty
from .snapshot import GangKey, NodeInfo, Repelling, ScheduledPod
from .victim_units import Selection


@dataclass(frozen=True, slots=True)
class AlreadySelected:
    """The victims that one decision has selected already, on other nodes."""

    gangs: frozenset[GangKey] = frozenset()
    """Gangs evicted as a unit: their pods leave everywhere."""
    lost_members: Mapping[GangKey, int] = field(default_factory=Counter)
    """How many pods each gang that is disrupted one by one loses."""


NOTHING_SELECTED = AlreadySelected()


# The least certain first: each certainty's pods count as staying, and if the demand then no longer
# fits, their release is waited for.
_STATUS_BY_CERTAINTY: Mapping[ReleaseCertainty, DryRunStatus] = {
    ReleaseCertainty.HELD_BY_BUDGET: DryRunStatus.ROOM_MAY_BE_RELEASED,
    ReleaseCertainty.BEING_DELETED: DryRunStatus.ROOM_MAY_BE_RELEASED,
    ReleaseCertainty.NOTIFIED: DryRunStatus.ROOM_BEING_RELEASED,
}
_STATUS_BESIDE_NOMINATED_PODS = dict.fromkeys(
    _STATUS_BY_CERTAINTY, DryRunStatus.ROOM_MAY_BE_RELEASED
)


def select(
    node_info: NodeInfo,
    demand: CombinedDemand,
    eligibility: Eligibility,
    selected: AlreadySelected = NOTHING_SELECTED,
    *,
    best: BestSoFar | None = None,
) -> Selection | DryRunStatus:
    """Return the victims that make room for the demand on the node.

    Pods that keep the preemptor away leave, if they may be victims. `best`: victims that are worse,
    or more than a decision allows, are of no use.
    """
    repelling = repelling_pods(node_info, eligibility)
    first = _repelling_victims(repelling, node_info, eligibility, selected) if repelling else []
    if not first:
        return _select(node_info, demand, eligibility, selected, best)
    if _spare_members(first, eligibility, selected):
        return DryRunStatus.NO_VICTIMS
    uids = {pod.uid for pod in first}
    lost = Counter(selected.lost_members)
    lost.update(pod.gang for pod in first if pod.gang is not None)
    rest = _select(
        replace(node_info, pods=[pod for pod in node_info.pods if pod.uid not in uids]),
        demand,
        eligibility,
        AlreadySelected(selected.gangs, lost),
    )
    if isinstance(rest, DryRunStatus):
        return _selection_of(first, eligibility) if rest in WAITING_IS_ENOUGH else rest
    further = [pod for unit in rest.units for pod in unit.on_node]
    return _selection_of([*first, *further], eligibility)


def _repelling_victims(
    repelling: Collection[ScheduledPod],
    node_info: NodeInfo,
    eligibility: Eligibility,
    selected: AlreadySelected,
) -> list[ScheduledPod]:
    """Return the pods that must leave, and may: those that keep the preemptor away, and gangs."""
    found = [
        pod
        for pod in repelling
        if pod.gang not in selected.gangs and eligibility.reason(pod) is None
    ]
    gangs = {pod.gang for pod in found if eligibility.evicted_gang(pod) is not None}
    uids = {pod.uid for pod in found}
    return [
        pod
        for pod in node_info.pods
        if pod.uid in uids or (pod.gang in gangs and eligibility.reason(pod) is None)
    ]


def _select(
    node_info: NodeInfo,
    demand: CombinedDemand,
    eligibility: Eligibility,
    selected: AlreadySelected,
    best: BestSoFar | None = None,
) -> Selection | DryRunStatus:
    capacity = RemainingCapacity(node_info, demand, eligibility.preemptor.demand.priority)
    possible: list[Sequence[ScheduledPod]] = []
    leaving: list[tuple[ReleaseCertainty, ScheduledPod]] = []
    for pods in _groups_on(node_info, eligibility):
        pod = pods[0]
        if pod.gang is not None and pod.gang in selected.gangs:
            continue
        reason = eligibility.reason(pod)
        if reason is None:
            possible.append(pods)
        elif reason is RefusalReason.NO_PRIORITY_CLASS:
            return DryRunStatus.NO_PRIORITY_CLASS
        elif (certainty := eligibility.release_certainty(pod)) is ReleaseCertainty.NOT_SOON:
            capacity.add_alike(pods)
        else:
            leaving.append((certainty, pod))
    spare = _spare_members([pods[0] for pods in possible], eligibility, selected)
    if eligibility.snapshot.settings.victim_order == PRIORITY:
        every = [pod for pods in possible for pod in pods]
        found = priority_order.select(every, spare, demand, capacity, eligibility)
    else:
        found = least_loss.select(possible, spare, demand, capacity, eligibility, best)
    if found is not None:
        return found
    return _status_after_releases(leaving, capacity, _statuses(node_info, eligibility))


def _groups_on(node_info: NodeInfo, eligibility: Eligibility) -> Sequence[Sequence[ScheduledPod]]:
    """Return the node's pods in groups, all of which may be victims, or none."""
    if eligibility.preemptor.takes_back_nodes:
        # It also takes pods of its own priority, which even a default toleration may protect.
        return [(pod,) for pod in node_info.pods]
    return alike_pods.on(node_info).groups


def select_proposed(
    node_info: NodeInfo, uids: Collection[str], eligibility: Eligibility
) -> Selection | DryRunStatus:
    """Return the scheduler's own victims, all or none: only it knows what fits."""
    if is_proposal_outdated(node_info, uids, eligibility):
        return DryRunStatus.PROPOSAL_OUTDATED
    named = [pod for pod in node_info.pods if pod.uid in uids]
    proposed = [
        pod for pod in named if eligibility.reason(pod) is not RefusalReason.ALREADY_LEAVING
    ]
    certainties = [
        eligibility.release_certainty(pod)
        for pod in named
        if eligibility.reason(pod) is RefusalReason.ALREADY_LEAVING
    ]
    is_refused = ReleaseCertainty.NOT_SOON in certainties or any(
        eligibility.reason(pod) is not None for pod in proposed
    )
    if is_refused or _spare_members(proposed, eligibility, NOTHING_SELECTED):
        return DryRunStatus.PROPOSAL_REJECTED
    if not proposed:
        return _statuses(node_info, eligibility)[min(certainties)]
    return _selection_of(proposed, eligibility)


def _selection_of(pods: Collection[ScheduledPod], eligibility: Eligibility) -> Selection:
    """Return these pods of one node as victims."""
    now = eligibility.snapshot.now
    found = sorted(
        victim_units.units_of(pods, eligibility),
        key=lambda unit: victim_units.scheduler_order(unit, now),
    )
    return Selection(tuple(found), pdb_usage.violations_of(found, eligibility.budget_uses))


def is_proposal_outdated(
    node_info: NodeInfo, uids: Collection[str], eligibility: Eligibility
) -> bool:
    """True if one of these pods has left the node, and the scheduler has not seen that yet.

    Of a native gang evicted as a unit, a scheduler also names the pods on other nodes.
    """
    missing = set(uids).difference(pod.uid for pod in node_info.pods)
    if not missing:
        return False
    # Once for each gang: without this, many pods of one large gang would take quadratic time.
    pod_by_gang = {pod.gang: pod for pod in node_info.pods}
    gangs = filter(None, map(eligibility.evicted_gang, pod_by_gang.values()))
    return not missing <= {member.uid for gang in gangs for member in gang.members}


def depends_on_other_pods(node_info: NodeInfo, eligibility: Eligibility) -> bool:
    """True if whether the preemptor fits depends on other pods there that may not be victims.

    Pods that may be are selected (`select`). Without this, any small pod with an anti-affinity
    would end victim selection on its node.
    """
    if eligibility.preemptor.depends_on_other_pods:
        return True
    repelling = repelling_pods(node_info, eligibility)
    return bool(repelling) and any(eligibility.reason(pod) is not None for pod in repelling)


def repelling_pods(node_info: NodeInfo, eligibility: Eligibility) -> list[ScheduledPod]:
    """Return the pods of the node that keep the preemptor away from it by their anti-affinity."""
    places = {place for place, _ in _repelling(node_info, eligibility)}
    return [node_info.pods[place] for place in sorted(places)]


def repelling_domains(eligibility: Eligibility) -> Mapping[str, Collection[str]]:
    """Return the nodes from which some pod keeps the preemptor away: by label, its values."""
    domains: dict[str, set[str]] = {}
    for node_info in eligibility.snapshot.nodes.values():
        for key in {key for _, key in _repelling(node_info, eligibility)}:
            if key in node_info.labels:
                domains.setdefault(key, set()).add(node_info.labels[key])
    return domains


def _repelling(node_info: NodeInfo, eligibility: Eligibility) -> Collection[Repelling]:
    """Return the node's pods with anti-affinities that match the preemptor."""
    index = alike_pods.on(node_info).anti_affinity
    # Nearly all nodes: without this, a decision would make 8 % more calls.
    return () if index is None else anti_affinity.matching(index, eligibility.labels)


def _statuses(
    node_info: NodeInfo, eligibility: Eligibility
) -> Mapping[ReleaseCertainty, DryRunStatus]:
    """Return what waiting for each kind of release means on the node.

    Where a pod that is not of the preemptor's gang is nominated, no release is certainly for the
    preemptor. Without this, two preemptors would wait for the same room, and the second would have
    waited in vain.
    """
    preemptor = eligibility.preemptor
    own = preemptor.nominated_member_uids
    is_shared = any(
        demand.uid not in own and demand.uid != preemptor.demand.uid
        for demand in node_info.nominated_pods
    )
    return _STATUS_BESIDE_NOMINATED_PODS if is_shared else _STATUS_BY_CERTAINTY


def _status_after_releases(
    leaving: Sequence[tuple[ReleaseCertainty, ScheduledPod]],
    capacity: RemainingCapacity,
    statuses: Mapping[ReleaseCertainty, DryRunStatus],
) -> DryRunStatus:
    """Return which releases to wait for, with all staying pods counted."""
    for certainty, status in statuses.items():
        for pod in (pod for its, pod in leaving if its is certainty):
            capacity.add_pod(pod)
        if not capacity.fits:
            return status
    return DryRunStatus.HAS_ROOM


def _spare_members(
    possible: Sequence[ScheduledPod], eligibility: Eligibility, selected: AlreadySelected
) -> Mapping[GangKey, int]:
    """Return how many pods each gang can lose that is disrupted one by one.

    Only gangs with more possible victims on the node than that.
    """
    gangs = [
        pod.gang
        for pod in possible
        if pod.gang is not None and eligibility.evicted_gang(pod) is None
    ]
    if not gangs:
        return {}
    counts = Counter(gangs)
    spare = {
        key: max(0, eligibility.spare_members(key) - selected.lost_members.get(key, 0))
        for key in counts
    }
    return {key: number for key, number in spare.items() if number < counts[key]}
