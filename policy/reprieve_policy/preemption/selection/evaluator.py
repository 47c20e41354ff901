"""The decision: of the candidate nodes, those on which victims help, the best first; for a gang all of it or nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from . import select_victims
from .eligibility import Eligibility
from .gang_planner import GangPlanner, PreemptionPlan, single_pod_plan
from .node_dry_run import NodeDryRun, VictimRanking, ranking_for
from .node_status import WAITING_IS_ENOUGH, DryRunStatus
from .reason_messages import REASON_MESSAGES, Refusal
from .reasons import RefusalReason
from .release import UNKNOWN_PREEMPTOR
from .select_victims import Selection
from .snapshot import NodeInfo, Preemptor, ScheduledPod, Snapshot
from .victim_units import total_cost

_HAS_OR_GETS_ROOM = (DryRunStatus.HAS_ROOM, DryRunStatus.ROOM_BEING_RELEASED)
_ATTEMPTS = 4
"""Nodes from which a gang is planned in each of two orders: a plan costs as much as its gang has pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionCandidate:
    """Victims that make room on one node."""

    node: str
    victims: tuple[ScheduledPod, ...]
    """On that node, the most important first."""
    gang_members_elsewhere: tuple[ScheduledPod, ...] = ()
    """The rest of their gangs, which go with them."""
    other_victims: tuple[ScheduledPod, ...] = ()
    """Whom the rest of the preemptor's gang will need beside them, on other nodes."""
    pdb_violations: int = 0
    """Of PodDisruptionBudgets."""
    victim_count: int = 0
    """Victims as a decision counts them: a gang that goes as a whole is one. Those for the rest of its gang count."""
    cost_hours: float = 0.0
    """Of devices: what all of it costs."""

    @property
    def all_pods(self) -> tuple[ScheduledPod, ...]:
        """All who go: the victims, and those who go with them."""
        return (*self.victims, *self.gang_members_elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionDecision:
    """What was found for one preemptor."""

    candidates: tuple[PreemptionCandidate, ...] = ()
    """The best first. Only that holds: a scheduler that is given several would choose by fewer criteria."""
    node_statuses: Mapping[str, DryRunStatus] = field(default_factory=dict)
    """Of the nodes that are no choice. One of `WAITING_IS_ENOUGH` on any of them: there is none."""
    reason: RefusalReason | None = None
    """Where the preemptor takes no victims at all."""

    @property
    def best(self) -> PreemptionCandidate | None:
        """The one that holds, where there is any."""
        return self.candidates[0] if self.candidates else None


def decide(
    preemptor: Preemptor,
    scene: Snapshot,
    nodes: Iterable[str],
    proposed: Mapping[str, Collection[str]] | None = None,
    is_over: Callable[[], bool] = lambda: False,
    *,
    told_of_room: Collection[str] = (),
) -> PreemptionDecision:
    """Choose victims for the preemptor on the nodes, by name; `proposed` are the scheduler's own by node, as uids.

    `told_of_room`: nodes of which its scheduler was told lately that they have room for it.

    Once `is_over` says so, nobody waits for more than was found: a gang that was not placed by then is not placed.

    Where only the scheduler can tell what fits, its victims are taken, if they may all be victims: where it matters who is
    near whom (pod affinity, topology spread, claims of devices), and where it has been told of room and wants victims again
    (limits of volumes, a resize, a filter of its own). Of its victims some may be gone: it has yet to see that, and is not
    followed.
    """
    court = Eligibility(preemptor, scene)
    ground = court.pod_eligibility.preemptor_reason() or (
        RefusalReason.VICTIMS_LEAVING if court.pod_eligibility.has_leaving_victims() else None
    )
    if ground is not None:
        return PreemptionDecision(reason=ground)
    survey = NodeDryRun(preemptor.demand, court)
    found = {node: _dry_run_node(node, survey, court, proposed or {}) for node in nodes}
    insisted = _proposed_again(found, told_of_room, court, proposed or {})
    found |= insisted
    obstacles = {
        node: one for node, one in found.items() if isinstance(one, DryRunStatus)
    } | _nodes_being_released(survey, court, found)
    # Document 001: preemption is the last resort. But where one node's room is none to the scheduler, others' may be none either.
    is_insisting = any(isinstance(one, Selection) for one in insisted.values())
    enough = WAITING_IS_ENOUGH - {DryRunStatus.HAS_ROOM} if is_insisting else WAITING_IS_ENOUGH
    if not enough.isdisjoint(obstacles.values()):
        return PreemptionDecision(node_statuses=obstacles)
    helping = {node: one for node, one in found.items() if isinstance(one, Selection)}
    plans, more = _plans(helping, GangPlanner(survey, court, is_over), court)
    return PreemptionDecision(
        candidates=tuple(_candidate(plan, scene) for plan in plans), node_statuses=obstacles | more
    )


def refusal_for(preemptor: Preemptor, tenant: ScheduledPod, scene: Snapshot) -> Refusal | None:
    """Return why the tenant is no victim of the preemptor, `None` where it may be one.

    That others go already for the preemptor is none: it may be of the same round. For Kubernetes' own there is never any.
    """
    if preemptor.is_exempt:
        return None
    court = Eligibility(preemptor, scene)
    ground = court.pod_eligibility.preemptor_reason()
    return court.refusal(tenant) if ground is None else Refusal(ground, REASON_MESSAGES[ground])


def worth_hours(preemptor: Preemptor, scene: Snapshot) -> float | None:
    """Return what a preemptor is worth, in hours of its devices; `None`: no bound is set.

    Never more than it may use: it would be over before. Nothing that its pod says makes it worth more.
    """
    seconds = scene.settings.preemptor_worth_seconds
    if seconds is None:
        return None
    longest = preemptor.walltime_seconds
    return preemptor.devices * (seconds if longest is None else min(seconds, longest)) / 3600


def _dry_run_node(
    node: str, survey: NodeDryRun, court: Eligibility, proposed: Mapping[str, Collection[str]]
) -> Selection | DryRunStatus:
    room = court.scene.nodes.get(node)
    if room is None or not proposed.get(node):
        return survey.result_for(node)
    if select_victims.depends_on_other_pods(room, court):
        return (
            _check_proposal(room, survey, court, proposed[node])
            if survey.satisfies_constraints(node)
            else DryRunStatus.UNSUITABLE
        )
    found = survey.result_for(node)
    # A scheduler that has not seen who left does not insist, and whoever insists on another node waits for this one's room.
    is_outdated = found is DryRunStatus.HAS_ROOM and select_victims.is_proposal_outdated(
        room, proposed[node], court
    )
    return DryRunStatus.PROPOSAL_OUTDATED if is_outdated else found


def _check_proposal(
    room: NodeInfo, survey: NodeDryRun, court: Eligibility, proposed: Collection[str]
) -> Selection | DryRunStatus:
    found = select_victims.select_proposed(room, proposed, court)
    if (
        found is not DryRunStatus.PROPOSAL_OUTDATED
        or survey.result_for(room.name) in _HAS_OR_GETS_ROOM
    ):
        return found
    # Others go elsewhere. Without this, each pod that ends, of the many that a scheduler names, would end the whole decision.
    return DryRunStatus.PROPOSAL_REJECTED


def _proposed_again(
    found: Mapping[str, Selection | DryRunStatus],
    told: Collection[str],
    court: Eligibility,
    proposed: Mapping[str, Collection[str]],
) -> dict[str, Selection | DryRunStatus]:
    """Return the scheduler's own victims on nodes whose room it was told of: it knows of limits that nobody judges here.

    Not when it first asks: where a pod has ended since it looked, somebody would go for nothing.
    """
    # A mate that is nominated elsewhere may be the one that the scheduler has just placed here, where nobody sees it yet: what
    # goes for it elsewhere is then the preemptor's. Without this, a second gang would go.
    if court.preemptor.member_nominated_nodes:
        return {}
    rooms = court.scene.nodes
    nodes = [
        node
        for node, one in found.items()
        if one is DryRunStatus.HAS_ROOM and node in told and proposed.get(node)
    ]
    return {
        node: select_victims.select_proposed(rooms[node], proposed[node], court) for node in nodes
    }


def _nodes_being_released(
    survey: NodeDryRun, court: Eligibility, seen: Collection[str]
) -> dict[str, DryRunStatus]:
    """Return other nodes where waiting is enough for a gang's pod: of many nodes, a scheduler names only some.

    Without this, a gang's second pod would take others, where it happens not to be asked about those that go for the first.
    """
    if court.preemptor.gang is None or court.preemptor.depends_on_other_pods:
        return {}
    rooms = court.scene.nodes.values()
    clearing = (
        room.name
        for room in rooms
        if room.name not in seen and any(one.is_leaving for one in room.pods)
    )
    return {
        node: found
        for node in clearing
        if (found := survey.result_for(node)) is DryRunStatus.ROOM_BEING_RELEASED
    }


def _plans(
    helping: Mapping[str, Selection], planner: GangPlanner, court: Eligibility
) -> tuple[list[PreemptionPlan], dict[str, DryRunStatus]]:
    """Return a plan for each node from which there is one, the best first, and what stands against the others."""
    scale = ranking_for(helping.values(), court.scene.now)
    tried = _promising(helping, scale) if court.preemptor.pending_members else list(helping)
    plans: list[PreemptionPlan] = []
    obstacles: dict[str, DryRunStatus] = dict.fromkeys(
        helping.keys() - set(tried), DryRunStatus.GANG_NOT_PLACED
    )
    for node in tried:
        plan = (
            planner.plan(node, helping[node])
            if court.preemptor.pending_members
            else single_pod_plan(node, helping[node])
        )
        if plan is None:
            obstacles[node] = DryRunStatus.GANG_NOT_PLACED
        elif (bound := _limit_exceeded(plan, court)) is not None:
            obstacles[node] = bound
        else:
            plans.append(plan)
    plans.sort(key=lambda plan: (scale.rank(plan.units, plan.violations), plan.node))
    return plans, obstacles


def _promising(helping: Mapping[str, Selection], scale: VictimRanking) -> list[str]:
    """Return the nodes that a gang is planned from: the best, and those where few victims free most."""
    best = sorted(helping, key=lambda node: (scale.rank_result(helping[node]), node))[:_ATTEMPTS]
    largest = sorted(
        helping, key=lambda node: (_largest(helping[node]), scale.rank_result(helping[node]), node)
    )[:_ATTEMPTS]
    return list(dict.fromkeys([*best, *largest]))


def _largest(selection: Selection) -> tuple[int, int, int, int]:
    highest = max(unit.priority for unit in selection.units)
    members = sum(len(unit.members) for unit in selection.units)
    return selection.violations, highest, len(selection.units), -members


def _limit_exceeded(plan: PreemptionPlan, court: Eligibility) -> DryRunStatus | None:
    """Return what document 001 sets against so many victims, or such dear ones."""
    if len(plan.units) > court.scene.settings.max_victims - _count_victims_in_progress(court):
        return DryRunStatus.TOO_MANY_VICTIMS
    worth = worth_hours(court.preemptor, court.scene)
    return (
        None if worth is None or _hours(plan, court.scene) < worth else DryRunStatus.TOO_EXPENSIVE
    )


def _count_victims_in_progress(court: Eligibility) -> int:
    """Count the victims that are going for others of its gang: they are of the same decision.

    Without this, whoever deletes or marks small pods of his own where one of a gang is to run would have the rest take nobody.
    """
    rooms = (court.scene.nodes.get(node) for node in court.preemptor.member_nominated_nodes)
    tenants = (tenant for room in rooms if room is not None for tenant in room.pods)
    asked_by = {*court.preemptor.nominated_member_uids, UNKNOWN_PREEMPTOR}
    going = [
        one
        for one in tenants
        if one.preemptor_uid in asked_by and court.pod_eligibility.is_current_victim(one)
    ]
    return len(
        {tenant.uid if court.evicted_gang(tenant) is None else tenant.gang for tenant in going}
    )


def _hours(plan: PreemptionPlan, scene: Snapshot) -> float:
    return (
        total_cost([member for unit in plan.units for member in unit.members], scene.now)[1] / 3600
    )


def _candidate(plan: PreemptionPlan, scene: Snapshot) -> PreemptionCandidate:
    return PreemptionCandidate(
        node=plan.node,
        victims=tuple(tenant for unit in plan.on_node for tenant in unit.on_node),
        gang_members_elsewhere=tuple(
            member for unit in plan.on_node for member in unit.members if member.node != plan.node
        ),
        other_victims=tuple(member for unit in plan.elsewhere for member in unit.members),
        pdb_violations=plan.violations,
        victim_count=len(plan.units),
        cost_hours=_hours(plan, scene),
    )
