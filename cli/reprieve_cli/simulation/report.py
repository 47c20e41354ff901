"""What `reprieve simulate` says: who would be chosen, from whom, and why not the others; for a person and for programs. No I/O."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click

from reprieve_cli.output.finding import printable
from reprieve_policy.kube import quantity, timestamp
from reprieve_policy.preemption.selection import OBSTACLES, SENTENCES, WAITING_IS_ENOUGH, Choice, Decision, Refusal
from reprieve_policy.preemption.selection.eligibility import Court
from reprieve_policy.preemption.selection.snapshot import Preemptor, Scene, Tenant

_SHOWN = 20
"""Rows of a section: what follows is counted. `-o json` has all."""


class Other(NamedTuple):
    """A pod on a candidate node that is not chosen; without a refusal it may be, and its room is not needed."""

    tenant: Tenant
    refusal: Refusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One decision, and what it was made from."""

    preemptor: Preemptor
    scene: Scene
    nodes: Sequence[str]
    decision: Decision

    @property
    def is_of_use(self) -> bool:
        """True where the preemptor would get room."""
        return self.decision.best is not None or bool(self.with_room)

    @property
    def with_room(self) -> Sequence[str]:
        """The nodes on which nobody has to go, or nobody more than was told to."""
        return [node for node, found in self.decision.obstacles.items() if found in WAITING_IS_ENOUGH]

    def others(self) -> Iterator[Other]:
        """Yield who is not chosen on the node that holds, and everybody on all others."""
        best = self.decision.best
        chosen = set() if best is None else {victim.uid for victim in (*best.everyone, *best.later)}
        court = Court(self.preemptor, self.scene)
        for node in self.nodes:
            room = self.scene.rooms.get(node)
            for tenant in () if room is None else room.tenants:
                if tenant.uid not in chosen:
                    yield Other(tenant, court.why_not(tenant))


def build_text(found: Simulation) -> Iterator[str]:
    """Yield the lines for a person."""
    yield from _head(found)
    yield from _choices(found)
    rows = [(f"node/{node}", obstacle, OBSTACLES[obstacle]) for node, obstacle in found.decision.obstacles.items()]
    yield from _section("nodes that are no choice", rows)
    others = list(found.others())
    refused = [(_where(tenant), refusal.ground, refusal.detail) for tenant, refusal in others if refusal is not None]
    yield from _section("pods that are no victims", refused)
    spared = [(_where(tenant), "spared", _why_spared(tenant, found)) for tenant, refusal in others if refusal is None]
    yield from _section("pods that might be, and stay", spared)


def build_document(found: Simulation) -> dict[str, object]:
    """Return the same for programs; times are RFC 3339."""
    preemptor, decision = found.preemptor, found.decision
    others = list(found.others())
    return {
        "version": 1,
        "at": timestamp.render(found.scene.now),
        "preemptor": {
            "namespace": preemptor.namespace,
            "name": preemptor.name,
            "preemptionClass": preemptor.preemption_class,
            "priority": preemptor.guest.priority,
            "requests": _amounts(preemptor.guest.amounts),
            "gang": None if preemptor.group is None else preemptor.group.identity,
            "restOfGang": len(preemptor.rest),
        },
        "ground": decision.ground,
        "choices": [_choice_fields(choice, found.scene) for choice in decision.choices],
        "nodes": dict(decision.obstacles),
        "refused": [
            {**_tenant_name(tenant), "ground": refusal.ground, "detail": refusal.detail}
            for tenant, refusal in others
            if refusal is not None
        ],
        "spared": [_tenant_name(tenant) for tenant, refusal in others if refusal is None],
    }


def _why_spared(tenant: Tenant, found: Simulation) -> str:
    best = found.decision.best
    if best is None:
        return "nobody's room is needed" if found.with_room else "its room would not be enough"
    return "its room is not needed" if tenant.node == best.node else "another node is the better choice"


def _head(found: Simulation) -> Iterator[str]:
    preemptor = found.preemptor
    asked = (
        ", ".join(f"{printable(name)} {amount}" for name, amount in _amounts(preemptor.guest.amounts).items())
        or "nothing"
    )
    name = click.style(f"{printable(preemptor.namespace)}/{printable(preemptor.name)}", bold=True)
    yield f"{name}: class {preemptor.preemption_class}, priority {preemptor.guest.priority}, asks for {asked}"
    if preemptor.group is not None:
        more = len(preemptor.rest)
        yield f'of gang "{printable(preemptor.group.identity)}": {more} more of it must find room, or none is worth a victim'
    pods = sum(len(found.scene.rooms[node].tenants) for node in found.nodes if node in found.scene.rooms)
    yield f"judged at {timestamp.render(found.scene.now)}, of {_counted(len(found.nodes), 'node')} with {_counted(pods, 'pod')}"
    if preemptor.depends_on_pods:
        yield "which pods may be near it is not judged here: its affinities, its spread and its claims"


def _choices(found: Simulation) -> Iterator[str]:
    decision = found.decision
    yield ""
    if decision.ground is not None:
        yield f"no victims: {decision.ground}: {SENTENCES[decision.ground]}"
        return
    if found.with_room:
        node = found.with_room[0]
        yield f"no victims are needed: node/{printable(node)}: {OBSTACLES[decision.obstacles[node]]}"
        return
    if decision.best is None:
        yield "no victims: on no node would they help"
        return
    yield f"victims on {_summary(decision.best)}:"
    yield from _victims(decision.best.everyone, found.scene)
    if decision.best.later:
        yield "\nand for the rest of its gang:"
        yield from _victims(decision.best.later, found.scene)
    if len(decision.choices) > 1:
        yield "\nworse choices, the best first:"
        yield from (f"  {_summary(choice)}" for choice in decision.choices[1 : _SHOWN + 1])
        yield from _more(["choice"] * (len(decision.choices) - _SHOWN - 1))


def _victims(victims: Iterable[Tenant], scene: Scene) -> Iterator[str]:
    for victim in victims:
        remark = f"class {victim.preemption_class}, defended with {victim.defence}, {_hours(victim, scene)}"
        yield f"  {click.style(_where(victim), fg='yellow')}  {remark}"


def _summary(choice: Choice) -> str:
    count = len(choice.everyone) + len(choice.later)
    victims = _counted(len(choice.everyone), "pod") + (
        f" and {len(choice.later)} for the rest of its gang" if choice.later else ""
    )
    units = f" that count as {choice.units}" if choice.units != count else ""
    budgets = f", {_counted(choice.violations, 'disruption budget')} violated" if choice.violations else ""
    return f"node/{printable(choice.node)}: {victims}{units}, {choice.hours:.3g} device-hours{budgets}"


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"\n{title}:"
    # Names, and sentences with names in them, are anybody's.
    shown = [(printable(name), word, printable(detail)) for name, word, detail in rows[:_SHOWN]]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    for name, word, detail in shown:
        yield f"  {name:{widths[0]}}  {click.style(f'{word:{widths[1]}}', fg='cyan')}  {detail}"
    yield from _more([word for _, word, _ in rows[_SHOWN:]])


def _more(words: Iterable[str]) -> Iterator[str]:
    """Say how many rows are not shown, and of which kinds they are."""
    counted = Counter(words).most_common()
    if counted:
        kinds = ", ".join(f"{number} {word}" for word, number in counted)
        yield f"  and {kinds}: --node narrows it, -o json has all"


def _where(tenant: Tenant) -> str:
    return printable(f"{tenant.namespace}/{tenant.name} on {tenant.node}")


def _hours(tenant: Tenant, scene: Scene) -> str:
    price = tenant.cost(scene.now)
    return f"{price.hours:.3g} {price.device.upper()}-hours"


def _choice_fields(choice: Choice, scene: Scene) -> dict[str, object]:
    return {
        "node": choice.node,
        "budgetsViolated": choice.violations,
        "counted": choice.units,
        "hours": choice.hours,
        "victims": [_victim_fields(victim, scene) for victim in choice.everyone],
        "later": [_victim_fields(victim, scene) for victim in choice.later],
    }


def _victim_fields(victim: Tenant, scene: Scene) -> dict[str, object]:
    return {
        **_tenant_name(victim),
        "uid": victim.uid,
        "preemptionClass": victim.preemption_class,
        "preemptionPriority": victim.defence,
        "hours": victim.cost(scene.now).price.hours,
    }


def _tenant_name(tenant: Tenant) -> dict[str, str]:
    return {"namespace": tenant.namespace, "name": tenant.name, "node": tenant.node}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity.render(amount) for name, amount in sorted(amounts.items()) if amount}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
