"""The decision: the nodes on which victims help, best first; for a gang all or nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest

from . import nodes_not_offered, patience, room_claim, select_victims
from .eligibility import Eligibility
from .gangs.planner import GangPlanner, PreemptionPlan, single_pod_plan
from .node_dry_run import NodeDryRun, VictimRanking, ranking_for
from .node_status import WAITING_IS_ENOUGH, DryRunStatus
from .reasons import REASON_MESSAGES, Refusal, RefusalReason
from .release import UNKNOWN_PREEMPTOR
from .room_claim import RoomClaim
from .snapshot import GangInfo, NodeInfo, Preemptor, ScheduledPod, Snapshot
from .victim_units import Selection, total_cost

_HAS_OR_GETS_ROOM = (DryRunStatus.HAS_ROOM, DryRunStatus.ROOM_BEING_RELEASED)
_ATTEMPTS = 4
"""Nodes that a gang is planned from, in each of two orders: a plan costs one step per pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionCandidate:
    """Victims that make room on one node."""

    node: str
    victims: tuple[ScheduledPod, ...]
    """On that node, the most important first."""
    gang_members_elsewhere: tuple[ScheduledPod, ...] = ()
    """The rest of their gangs, evicted with them."""
    other_victims: tuple[ScheduledPod, ...] = ()
    """Further victims, on other nodes, for the rest of the preemptor's gang."""
    pdb_violations: int = 0
    """How many victims violate a PodDisruptionBudget."""
    victim_count: int = 0
    """A gang evicted as a unit counts as one victim; those for the preemptor's gang count, too."""
    cost_hours: float = 0.0
    """The cost of all victims, in device-hours."""

    @property
    def all_pods(self) -> tuple[ScheduledPod, ...]:
        """The victims on the node, and the gang members evicted with them."""
        return (*self.victims, *self.gang_members_elsewhere)

    def loss(self, now: datetime) -> float:
        """Return the work that all victims are expected to lose now, in device-seconds."""
        return sum(pod.loss(now) for pod in (*self.all_pods, *self.other_victims))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionDecision:
    """The result for one preemptor."""

    candidates: tuple[PreemptionCandidate, ...] = ()
    """The best first. Only the best holds: a scheduler with several would use fewer criteria."""
    node_statuses: Mapping[str, DryRunStatus] = field(default_factory=dict)
    """Of the rejected nodes. With one of `WAITING_IS_ENOUGH` there are no candidates."""
    reason: RefusalReason | None = None
    """Set if the preemptor takes no victims at all."""
    claim: RoomClaim | None = None
    """Set if waiting is enough, and the preemptor should be nominated to the node meanwhile."""

    @property
    def best(self) -> PreemptionCandidate | None:
        """The candidate that holds, if there is one."""
        return self.candidates[0] if self.candidates else None


def decide(
    preemptor: Preemptor,
    snapshot: Snapshot,
    nodes: Iterable[str],
    proposed: Mapping[str, Collection[str]] | None = None,
    is_expired: Callable[[], bool] = lambda: False,
    *,
    other_nodes: Iterable[str] = (),
    reported_room: Collection[str] = (),
    is_only_best_wanted: bool = False,
    may_wait: bool = False,
) -> PreemptionDecision:
    """Choose victims for the preemptor on the nodes, by name.

    `other_nodes`: nodes that a scheduler has not offered, where victims may be better.

    `proposed` are the scheduler's own victims by node, as uids. With them, room on the node that
    the preemptor is nominated to counts also if that was not offered. `reported_room`: nodes that
    were recently reported to the scheduler as having room for the preemptor. Once `is_expired`
    returns true, the decision ends with what was found: a gang that is not placed by then is not
    placed. `may_wait`: the preemptor comes again by itself, and may wait for room (`patience`).

    If only the scheduler can tell what fits, its own victims are taken, provided that all of them
    may be victims. That is so with pod affinity, topology spread or device claims, and on a node in
    `reported_room` on which the scheduler wants victims again (volume limits, a resize, a filter of
    its own). If some of its victims are gone, the proposal is outdated and not followed.
    """
    eligibility = Eligibility(preemptor, snapshot)
    reason = eligibility.pod_eligibility.preemptor_reason() or (
        RefusalReason.VICTIMS_LEAVING if eligibility.pod_eligibility.has_leaving_victims() else None
    )
    if reason is not None:
        return PreemptionDecision(reason=reason)
    dry_run = NodeDryRun(
        preemptor.demand,
        eligibility,
        # A gang may need another node than the best, and limits may reject the best.
        is_only_best_wanted=is_only_best_wanted
        and preemptor.gang is None
        and worth_hours(preemptor, snapshot) is None
        and eligibility.pod_eligibility.quota_limit.admits_after(()),
    )
    results = {node: _dry_run_node(node, dry_run, eligibility, proposed or {}) for node in nodes}
    proposed_again = _proposed_again(results, reported_room, eligibility, proposed or {})
    results |= proposed_again
    nominated = (
        None
        if proposed is None
        else nodes_not_offered.nominated_with_room(dry_run, preemptor, results)
    )
    if nominated is not None and nominated not in reported_room:
        # Its victims may have ended since the scheduler looked.
        results[nominated] = DryRunStatus.HAS_ROOM
    others = (
        nodes_not_offered.with_victims_or_room_to_come(other_nodes, dry_run, eligibility)
        if other_nodes and not (proposed_again or nominated or _needs_its_scheduler(preemptor))
        else {}
    )
    results |= others
    statuses = {
        node: one for node, one in results.items() if isinstance(one, DryRunStatus)
    } | nodes_not_offered.being_released_for_gang(dry_run, eligibility, results)
    # Document 001: preemption is the last resort. But if the scheduler cannot use the room on one
    # node, it may not be able to use that on others.
    is_proposed_again = any(isinstance(one, Selection) for one in proposed_again.values())
    enough = WAITING_IS_ENOUGH - {DryRunStatus.HAS_ROOM} if is_proposed_again else WAITING_IS_ENOUGH
    if not enough.isdisjoint(statuses.values()):
        return PreemptionDecision(
            node_statuses=statuses,
            claim=_claim(statuses, eligibility, {*filter((proposed or {}).get, statuses), *others}),
        )
    selections = {node: one for node, one in results.items() if isinstance(one, Selection)}
    plans, rejected = _plans(selections, GangPlanner(dry_run, eligibility, is_expired), eligibility)
    if plans and may_wait and patience.is_waiting(preemptor, _victims_of(plans[0]), snapshot):
        waiting = dict.fromkeys((plan.node for plan in plans), DryRunStatus.LOSES_MUCH)
        return PreemptionDecision(node_statuses=statuses | rejected | waiting)
    return PreemptionDecision(
        candidates=tuple(_candidate(plan, snapshot) for plan in plans),
        node_statuses=statuses | rejected,
    )


def refusal_for(preemptor: Preemptor, pod: ScheduledPod, snapshot: Snapshot) -> Refusal | None:
    """Return why the pod is no victim of the preemptor, `None` if it may be one.

    The preemptor's other victims do not count: they may be of the same round. A system-critical
    preemptor is never refused.
    """
    if preemptor.is_exempt:
        return None
    eligibility = Eligibility(preemptor, snapshot)
    reason = eligibility.pod_eligibility.preemptor_reason()
    return eligibility.refusal(pod) if reason is None else Refusal(reason, REASON_MESSAGES[reason])


def gang_evicted_with(
    preemptor: Preemptor, pod: ScheduledPod, snapshot: Snapshot
) -> GangInfo | None:
    """Return the gang that is evicted with the pod, `None` for a pod that is evicted alone."""
    return Eligibility(preemptor, snapshot).evicted_gang(pod)


def renewably_refused(
    preemptor: Preemptor, snapshot: Snapshot, nodes: Iterable[str], limit: int
) -> tuple[ScheduledPod, ...]:
    """Return pods of these nodes that are refused on a ground that their owner can renew.

    At most `limit`, and only those whose first refusal is not recorded (`first_refusal`). The
    oldest come first. Without this, a user who keeps creating such pods would keep an older one
    from being recorded.
    """
    eligibility = Eligibility(preemptor, snapshot)
    if eligibility.pod_eligibility.preemptor_reason() is not None:
        return ()
    found = (
        pod
        for node in nodes
        for pod in (snapshot.nodes[node].pods if node in snapshot.nodes else ())
        # Every such ground needs a walltime, or a gang that pods leave: most pods have neither.
        if (pod.progress.walltime is not None or eligibility.has_leaving_members(pod.gang))
        and pod.refused_since is None
        and eligibility.is_renewable(pod)
    )
    return tuple(nsmallest(limit, found, key=lambda pod: pod.progress.started_at or snapshot.now))


def worth_hours(preemptor: Preemptor, snapshot: Snapshot) -> float | None:
    """Return what a preemptor is worth, in hours of its devices; `None`: no bound is set.

    Never more than it may use: it would have ended before. No field that its user sets raises it.
    """
    seconds = snapshot.settings.preemptor_worth_seconds
    if seconds is None:
        return None
    max_seconds = preemptor.walltime_seconds
    return (
        preemptor.devices * (seconds if max_seconds is None else min(seconds, max_seconds)) / 3600
    )


def _dry_run_node(
    node: str,
    dry_run: NodeDryRun,
    eligibility: Eligibility,
    proposed: Mapping[str, Collection[str]],
) -> Selection | DryRunStatus:
    node_info = eligibility.snapshot.nodes.get(node)
    if node_info is None or not proposed.get(node):
        return dry_run.candidate_on(node)
    if select_victims.depends_on_other_pods(node_info, eligibility):
        return (
            _check_proposal(node_info, dry_run, eligibility, proposed[node])
            if dry_run.satisfies_constraints(node)
            else DryRunStatus.UNSUITABLE
        )
    result = dry_run.candidate_on(node)
    # A scheduler with an outdated cache does not insist, and one that insists elsewhere waits here.
    is_outdated = result is DryRunStatus.HAS_ROOM and select_victims.is_proposal_outdated(
        node_info, proposed[node], eligibility
    )
    return DryRunStatus.PROPOSAL_OUTDATED if is_outdated else result


def _needs_its_scheduler(preemptor: Preemptor) -> bool:
    """True if only its scheduler can tell on which nodes with room the preemptor fits."""
    return preemptor.depends_on_other_pods or preemptor.volumes_limit_nodes


def _check_proposal(
    node_info: NodeInfo, dry_run: NodeDryRun, eligibility: Eligibility, proposed: Collection[str]
) -> Selection | DryRunStatus:
    result = select_victims.select_proposed(node_info, proposed, eligibility)
    if (
        result is not DryRunStatus.PROPOSAL_OUTDATED
        or dry_run.result_for(node_info.name) in _HAS_OR_GETS_ROOM
    ):
        return result
    # Waiting would not give the preemptor room here. Without this, each ended pod among the many
    # that a scheduler names would end the whole decision.
    return DryRunStatus.PROPOSAL_REJECTED


def _proposed_again(
    results: Mapping[str, Selection | DryRunStatus],
    reported_room: Collection[str],
    eligibility: Eligibility,
    proposed: Mapping[str, Collection[str]],
) -> dict[str, Selection | DryRunStatus]:
    """Return the scheduler's own victims on nodes that were reported to it as having room.

    The scheduler knows limits that are not evaluated here. This does not hold for its first call:
    if a pod has ended since the scheduler looked, a victim would be evicted for nothing.
    """
    # A gang member nominated elsewhere may be the one that the scheduler has just placed here,
    # which the snapshot does not show yet: the victims elsewhere are then the preemptor's. Without
    # this, a second gang would be evicted.
    if eligibility.preemptor.member_nominated_nodes:
        return {}
    node_infos = eligibility.snapshot.nodes
    nodes = [
        node
        for node, one in results.items()
        if one is DryRunStatus.HAS_ROOM and node in reported_room and proposed.get(node)
    ]
    return {
        node: select_victims.select_proposed(node_infos[node], proposed[node], eligibility)
        for node in nodes
    }


def _claim(
    statuses: Mapping[str, DryRunStatus],
    eligibility: Eligibility,
    may_be_named: Collection[str],
) -> RoomClaim | None:
    """Return the room to nominate the preemptor to, on a node that may be named to the scheduler.

    `None` if it is nominated to such a node already.
    """
    released = [
        node for node, status in statuses.items() if status is DryRunStatus.ROOM_BEING_RELEASED
    ]
    if eligibility.preemptor.nominated_node in released:
        return None
    return room_claim.find((node for node in released if node in may_be_named), eligibility)


def _plans(
    selections: Mapping[str, Selection], planner: GangPlanner, eligibility: Eligibility
) -> tuple[list[PreemptionPlan], dict[str, DryRunStatus]]:
    """Return a plan for each node that allows one, the best first, and why the others do not."""
    ranking = ranking_for(selections.values(), eligibility.snapshot)
    attempted = (
        _promising(selections, ranking)
        if eligibility.preemptor.pending_members
        else list(selections)
    )
    plans: list[PreemptionPlan] = []
    statuses: dict[str, DryRunStatus] = dict.fromkeys(
        selections.keys() - set(attempted), DryRunStatus.GANG_NOT_PLACED
    )
    for node in attempted:
        plan = (
            planner.plan(node, selections[node])
            if eligibility.preemptor.pending_members
            else single_pod_plan(node, selections[node])
        )
        if plan is None:
            statuses[node] = DryRunStatus.GANG_NOT_PLACED
        elif (limit := _limit_exceeded(plan, eligibility)) is not None:
            statuses[node] = limit
        else:
            plans.append(plan)
    plans.sort(key=lambda plan: (ranking.rank(plan.units, plan.violations), plan.node))
    return plans, statuses


def _promising(selections: Mapping[str, Selection], ranking: VictimRanking) -> list[str]:
    """Return the nodes to plan a gang from: the best, and those where few victims free most."""
    best = sorted(selections, key=lambda node: (ranking.rank_result(selections[node]), node))[
        :_ATTEMPTS
    ]
    largest = sorted(
        selections,
        key=lambda node: (_largest(selections[node]), ranking.rank_result(selections[node]), node),
    )[:_ATTEMPTS]
    return list(dict.fromkeys([*best, *largest]))


def _largest(selection: Selection) -> tuple[int, int, int, int]:
    highest = max(unit.priority for unit in selection.units)
    members = sum(len(unit.members) for unit in selection.units)
    return selection.violations, highest, len(selection.units), -members


def _limit_exceeded(plan: PreemptionPlan, eligibility: Eligibility) -> DryRunStatus | None:
    """Return the limit that the plan exceeds: number of victims or cost (001), or quota (000)."""
    if len(plan.units) > eligibility.snapshot.settings.max_victims - _count_victims_in_progress(
        eligibility
    ):
        return DryRunStatus.TOO_MANY_VICTIMS
    if not eligibility.pod_eligibility.quota_limit.admits_after(_victims_of(plan)):
        return DryRunStatus.QUOTA_EXCEEDED
    worth = worth_hours(eligibility.preemptor, eligibility.snapshot)
    return (
        None
        if worth is None or _hours(plan, eligibility.snapshot) < worth
        else DryRunStatus.TOO_EXPENSIVE
    )


def _count_victims_in_progress(eligibility: Eligibility) -> int:
    """Count the victims leaving for other members of its gang: they are of the same decision.

    Without this, a user who deletes or marks small pods on a node where one of a gang is to run
    would keep the rest from taking any victims.
    """
    node_infos = (
        eligibility.snapshot.nodes.get(node)
        for node in eligibility.preemptor.member_nominated_nodes
    )
    pods = (pod for node_info in node_infos if node_info is not None for pod in node_info.pods)
    preemptor_uids = {*eligibility.preemptor.nominated_member_uids, UNKNOWN_PREEMPTOR}
    leaving = [
        one
        for one in pods
        if one.release is not None
        and one.release.preemptor_uid in preemptor_uids
        and eligibility.pod_eligibility.is_current_victim(one)
    ]
    return len({pod.uid if eligibility.evicted_gang(pod) is None else pod.gang for pod in leaving})


def _victims_of(plan: PreemptionPlan) -> list[ScheduledPod]:
    return [member for unit in plan.units for member in unit.members]


def _hours(plan: PreemptionPlan, snapshot: Snapshot) -> float:
    return total_cost(plan.units, snapshot.now)[1] / 3600


def _candidate(plan: PreemptionPlan, snapshot: Snapshot) -> PreemptionCandidate:
    return PreemptionCandidate(
        node=plan.node,
        victims=tuple(pod for unit in plan.on_node for pod in unit.on_node),
        gang_members_elsewhere=tuple(
            member for unit in plan.on_node for member in unit.members if member.node != plan.node
        ),
        other_victims=tuple(member for unit in plan.elsewhere for member in unit.members),
        pdb_violations=plan.violations,
        victim_count=len(plan.units),
        cost_hours=_hours(plan, snapshot),
    )
