"""The decision: of the candidate nodes, those on which victims help, the best first; for a gang all of it or nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from . import select_victims
from .eligibility import Court
from .gang_planner import Plan, Planner, alone
from .node_dry_run import Scale, Survey, scale_for
from .node_status import WAITING_IS_ENOUGH, Obstacle
from .reason_messages import SENTENCES, Refusal
from .reasons import Ground
from .release import SOMEBODY
from .select_victims import Selection
from .snapshot import Preemptor, Room, Scene, Tenant
from .victim_units import cost_of

_ROOM = (Obstacle.HAS_ROOM, Obstacle.WILL_HAVE_ROOM)
_ATTEMPTS = 4
"""Nodes from which a gang is planned in each of two orders: a plan costs as much as its gang has pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Victims that make room on one node."""

    node: str
    victims: tuple[Tenant, ...]
    """On that node, the most important first."""
    elsewhere: tuple[Tenant, ...] = ()
    """The rest of their gangs, which go with them."""
    later: tuple[Tenant, ...] = ()
    """Whom the rest of the preemptor's gang will need beside them, on other nodes."""
    violations: int = 0
    """Of PodDisruptionBudgets."""
    units: int = 0
    """Victims as a decision counts them: a gang that goes as a whole is one. Those for the rest of its gang count."""
    hours: float = 0.0
    """Of devices: what all of it costs."""

    @property
    def everyone(self) -> tuple[Tenant, ...]:
        """All who go: the victims, and those who go with them."""
        return (*self.victims, *self.elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was found for one preemptor."""

    choices: tuple[Choice, ...] = ()
    """The best first. Only that holds: a scheduler that is given several would choose by fewer criteria."""
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    """Of the nodes that are no choice. One of `WAITING_IS_ENOUGH` on any of them: there is none."""
    ground: Ground | None = None
    """Where the preemptor takes no victims at all."""

    @property
    def best(self) -> Choice | None:
        """The one that holds, where there is any."""
        return self.choices[0] if self.choices else None


def decide(
    preemptor: Preemptor,
    scene: Scene,
    nodes: Iterable[str],
    proposed: Mapping[str, Collection[str]] | None = None,
    is_over: Callable[[], bool] = lambda: False,
    *,
    told_of_room: Collection[str] = (),
) -> Decision:
    """Choose victims for the preemptor on the nodes, by name; `proposed` are the scheduler's own by node, as uids.

    `told_of_room`: nodes of which its scheduler was told lately that they have room for it.

    Once `is_over` says so, nobody waits for more than was found: a gang that was not placed by then is not placed.

    Where only the scheduler can tell what fits, its victims are taken, if they may all be victims: where it matters who is
    near whom (pod affinity, topology spread, claims of devices), and where it has been told of room and wants victims again
    (limits of volumes, a resize, a filter of its own). Of its victims some may be gone: it has yet to see that, and is not
    followed.
    """
    court = Court(preemptor, scene)
    ground = court.grounds.of_preemptor() or (Ground.UNFINISHED if court.grounds.is_unfinished() else None)
    if ground is not None:
        return Decision(ground=ground)
    survey = Survey(preemptor.guest, court)
    found = {node: _on(node, survey, court, proposed or {}) for node in nodes}
    insisted = _insisted(found, told_of_room, court, proposed or {})
    found |= insisted
    obstacles = {node: one for node, one in found.items() if isinstance(one, Obstacle)} | _coming(survey, court, found)
    # Document 001: preemption is the last resort. But where one node's room is none to the scheduler, others' may be none either.
    is_insisting = any(isinstance(one, Selection) for one in insisted.values())
    enough = WAITING_IS_ENOUGH - {Obstacle.HAS_ROOM} if is_insisting else WAITING_IS_ENOUGH
    if not enough.isdisjoint(obstacles.values()):
        return Decision(obstacles=obstacles)
    helping = {node: one for node, one in found.items() if isinstance(one, Selection)}
    plans, more = _plans(helping, Planner(survey, court, is_over), court)
    return Decision(choices=tuple(_choice(plan, scene) for plan in plans), obstacles=obstacles | more)


def why_not(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> Refusal | None:
    """Return why the tenant is no victim of the preemptor, `None` where it may be one.

    That others go already for the preemptor is none: it may be of the same round. For Kubernetes' own there is never any.
    """
    if preemptor.is_exempt:
        return None
    court = Court(preemptor, scene)
    ground = court.grounds.of_preemptor()
    return court.why_not(tenant) if ground is None else Refusal(ground, SENTENCES[ground])


def worth_hours(preemptor: Preemptor, scene: Scene) -> float | None:
    """Return what a preemptor is worth, in hours of its devices; `None`: no bound is set.

    Never more than it may use: it would be over before. Nothing that its pod says makes it worth more.
    """
    seconds = scene.settings.preemptor_worth_seconds
    if seconds is None:
        return None
    longest = preemptor.walltime_seconds
    return preemptor.devices * (seconds if longest is None else min(seconds, longest)) / 3600


def _on(node: str, survey: Survey, court: Court, proposed: Mapping[str, Collection[str]]) -> Selection | Obstacle:
    room = court.scene.rooms.get(node)
    if room is None or not proposed.get(node):
        return survey.on(node)
    if select_victims.depends_on_pods(room, court):
        return _beside(room, survey, court, proposed[node]) if survey.suits(node) else Obstacle.UNSUITABLE
    found = survey.on(node)
    # A scheduler that has not seen who left does not insist, and whoever insists on another node waits for this one's room.
    is_outdated = found is Obstacle.HAS_ROOM and select_victims.has_left(room, proposed[node], court)
    return Obstacle.OUTDATED if is_outdated else found


def _beside(room: Room, survey: Survey, court: Court, proposed: Collection[str]) -> Selection | Obstacle:
    found = select_victims.as_proposed(room, proposed, court)
    if found is not Obstacle.OUTDATED or survey.on(room.name) in _ROOM:
        return found
    # Others go elsewhere. Without this, each pod that ends, of the many that a scheduler names, would end the whole decision.
    return Obstacle.BESIDE_OTHERS


def _insisted(
    found: Mapping[str, Selection | Obstacle],
    told: Collection[str],
    court: Court,
    proposed: Mapping[str, Collection[str]],
) -> dict[str, Selection | Obstacle]:
    """Return the scheduler's own victims on nodes whose room it was told of: it knows of limits that nobody judges here.

    Not when it first asks: where a pod has ended since it looked, somebody would go for nothing.
    """
    # A mate that is nominated elsewhere may be the one that the scheduler has just placed here, where nobody sees it yet: what
    # goes for it elsewhere is then the preemptor's. Without this, a second gang would go.
    if court.preemptor.mates_nominated_to:
        return {}
    rooms = court.scene.rooms
    nodes = [node for node, one in found.items() if one is Obstacle.HAS_ROOM and node in told and proposed.get(node)]
    return {node: select_victims.as_proposed(rooms[node], proposed[node], court) for node in nodes}


def _coming(survey: Survey, court: Court, seen: Collection[str]) -> dict[str, Obstacle]:
    """Return other nodes where waiting is enough for a gang's pod: of many nodes, a scheduler names only some.

    Without this, a gang's second pod would take others, where it happens not to be asked about those that go for the first.
    """
    if court.preemptor.group is None or court.preemptor.depends_on_pods:
        return {}
    rooms = court.scene.rooms.values()
    clearing = (room.name for room in rooms if room.name not in seen and any(one.is_going for one in room.tenants))
    return {node: found for node in clearing if (found := survey.on(node)) is Obstacle.WILL_HAVE_ROOM}


def _plans(helping: Mapping[str, Selection], planner: Planner, court: Court) -> tuple[list[Plan], dict[str, Obstacle]]:
    """Return a plan for each node from which there is one, the best first, and what stands against the others."""
    scale = scale_for(helping.values(), court.scene.now)
    tried = _promising(helping, scale) if court.preemptor.rest else list(helping)
    plans: list[Plan] = []
    obstacles: dict[str, Obstacle] = dict.fromkeys(helping.keys() - set(tried), Obstacle.GANG)
    for node in tried:
        plan = planner.plan(node, helping[node]) if court.preemptor.rest else alone(node, helping[node])
        if plan is None:
            obstacles[node] = Obstacle.GANG
        elif (bound := _bound(plan, court)) is not None:
            obstacles[node] = bound
        else:
            plans.append(plan)
    plans.sort(key=lambda plan: (scale.rank(plan.units, plan.violations), plan.node))
    return plans, obstacles


def _promising(helping: Mapping[str, Selection], scale: Scale) -> list[str]:
    """Return the nodes that a gang is planned from: the best, and those where few victims free most."""
    best = sorted(helping, key=lambda node: (scale.weigh(helping[node]), node))[:_ATTEMPTS]
    largest = sorted(helping, key=lambda node: (_largest(helping[node]), scale.weigh(helping[node]), node))[:_ATTEMPTS]
    return list(dict.fromkeys([*best, *largest]))


def _largest(selection: Selection) -> tuple[int, int, int, int]:
    highest = max(unit.priority for unit in selection.units)
    members = sum(len(unit.members) for unit in selection.units)
    return selection.violations, highest, len(selection.units), -members


def _bound(plan: Plan, court: Court) -> Obstacle | None:
    """Return what document 001 sets against so many victims, or such dear ones."""
    if len(plan.units) > court.scene.settings.max_victims - _spent(court):
        return Obstacle.TOO_MANY
    worth = worth_hours(court.preemptor, court.scene)
    return None if worth is None or _hours(plan, court.scene) < worth else Obstacle.TOO_DEAR


def _spent(court: Court) -> int:
    """Count the victims that are going for others of its gang: they are of the same decision.

    Without this, whoever deletes or marks small pods of his own where one of a gang is to run would have the rest take nobody.
    """
    rooms = (court.scene.rooms.get(node) for node in court.preemptor.mates_nominated_to)
    tenants = (tenant for room in rooms if room is not None for tenant in room.tenants)
    asked_by = {*court.preemptor.mates, SOMEBODY}
    going = [one for one in tenants if one.goes_for in asked_by and court.grounds.is_under_way(one)]
    return len({tenant.uid if court.whole(tenant) is None else tenant.group for tenant in going})


def _hours(plan: Plan, scene: Scene) -> float:
    return cost_of([member for unit in plan.units for member in unit.members], scene.now)[1] / 3600


def _choice(plan: Plan, scene: Scene) -> Choice:
    return Choice(
        node=plan.node,
        victims=tuple(tenant for unit in plan.here for tenant in unit.here),
        elsewhere=tuple(member for unit in plan.here for member in unit.members if member.node != plan.node),
        later=tuple(member for unit in plan.others for member in unit.members),
        violations=plan.violations,
        units=len(plan.units),
        hours=_hours(plan, scene),
    )
