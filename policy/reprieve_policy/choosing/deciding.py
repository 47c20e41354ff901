"""The decision: of the candidate nodes, those on which victims help, the best first.

Order between nodes as kube-scheduler's `pickOneNodeForPreemption`: fewest violated budgets, lowest highest priority,
lowest sum of priorities, fewest victims. Then the cheapest, where anybody says what it costs; then whose victims started last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from . import fitting, selecting
from .court import Court
from .grounds import Ground, Refusal
from .scene import Preemptor, Scene, Tenant
from .selecting import Load, Obstacle, Selection

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Victims that make room on one node."""

    node: str
    victims: tuple[Tenant, ...]
    """On that node, the most important first."""
    elsewhere: tuple[Tenant, ...]
    """The rest of their gangs, which go with them."""
    violations: int
    """Of PodDisruptionBudgets."""
    units: int
    """Victims as a decision counts them: a gang that goes as a whole is one."""
    hours: float
    """Of devices: what it costs."""

    @property
    def everyone(self) -> tuple[Tenant, ...]:
        """All who go."""
        return (*self.victims, *self.elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was found for one preemptor."""

    choices: tuple[Choice, ...] = ()
    """The best first."""
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    """Of the nodes that are no choice."""
    ground: Ground | None = None
    """Where the preemptor takes no victims at all."""

    @property
    def best(self) -> Choice | None:
        """The one that holds, where there is any."""
        return self.choices[0] if self.choices else None


def decide(preemptor: Preemptor, scene: Scene, nodes: Iterable[str]) -> Decision:
    """Choose victims for the preemptor on the nodes, by name."""
    ground = _ground_of(preemptor)
    if ground is not None:
        return Decision(ground=ground)
    court = Court(preemptor, scene)
    choices: list[Choice] = []
    obstacles: dict[str, Obstacle] = {}
    for node in nodes:
        found = _on_node(node, court)
        if isinstance(found, Obstacle):
            obstacles[node] = found
        else:
            choices.append(_choice(node, found, court))
    return Decision(choices=tuple(_ordered(choices, scene)), obstacles=obstacles)


def why_not(preemptor: Preemptor, tenant: Tenant, scene: Scene) -> Refusal | None:
    """Return why the tenant is no victim of the preemptor, `None` where it may be one."""
    return Court(preemptor, scene).why_not(tenant)


def _ground_of(preemptor: Preemptor) -> Ground | None:
    if preemptor.never_preempts:
        return Ground.NEVER_PREEMPTS
    return None if preemptor.can_preempt else Ground.MAY_NOT_PREEMPT


def _on_node(node: str, court: Court) -> Selection | Obstacle:
    room, guest = court.scene.rooms.get(node), court.preemptor.guest
    if room is None:
        return Obstacle.UNKNOWN_NODE
    if not fitting.suits(guest.wish, room):
        return Obstacle.UNSUITABLE
    found = selecting.select(room, Load().plus(guest), court)
    return found if isinstance(found, Obstacle) else _bounded(found, court)


def _bounded(selection: Selection, court: Court) -> Selection | Obstacle:
    """Return the selection, if it takes no more than one decision may (document 001)."""
    if len(selection.units) > court.scene.settings.max_victims:
        return Obstacle.TOO_MANY
    worth = worth_hours(court.preemptor, court.scene)
    return selection if worth is None or _hours(selection, court) < worth else Obstacle.TOO_DEAR


def worth_hours(preemptor: Preemptor, scene: Scene) -> float | None:
    """Return what a preemptor is worth, in hours of its devices; `None`: no bound is set.

    Never more than it may use: it would be over before. Nothing that its pod says makes it worth more.
    """
    seconds = scene.settings.preemptor_worth_seconds
    if seconds is None:
        return None
    longest = preemptor.walltime_seconds
    return preemptor.devices * (seconds if longest is None else min(seconds, longest)) / 3600


def _hours(selection: Selection, court: Court) -> float:
    return sum(cost.hours for cost in selecting.cost_of(selection.units, court.scene.now))


def _choice(node: str, selection: Selection, court: Court) -> Choice:
    units = selection.units
    return Choice(
        node=node,
        victims=tuple(tenant for unit in units for tenant in unit.here),
        elsewhere=tuple(member for unit in units for member in unit.members if member.node != node),
        violations=selection.violations,
        units=len(units),
        hours=_hours(selection, court),
    )


def _ordered(choices: list[Choice], scene: Scene) -> list[Choice]:
    speaks = any(victim.speaks for choice in choices for victim in choice.everyone)

    def key(choice: Choice) -> tuple[float, ...]:
        everyone = choice.everyone
        highest = max(victim.defence for victim in everyone)
        latest = selecting.started_at((victim for victim in everyone if victim.defence == highest), scene.now)
        return (
            choice.violations,
            highest,
            # As upstream: every victim counts, those of negative priority too.
            sum(victim.defence + _MAX_INT32 + 1 for victim in everyone),
            len(everyone),
            sum(victim.stake.stated for victim in everyone) if speaks else 0,
            choice.hours if speaks else 0,
            -latest.timestamp(),
        )

    return sorted(choices, key=lambda choice: (key(choice), choice.node))
