"""What `reprieve simulate` says: who would be chosen, from whom, and why not the others; for a person and for programs. No I/O."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click

from reprieve_cli.output.finding import printable
from reprieve_policy.kube import quantity, timestamp
from reprieve_policy.preemption.selection import (
    REASON_MESSAGES,
    STATUS_MESSAGES,
    WAITING_IS_ENOUGH,
    PreemptionCandidate,
    PreemptionDecision,
    Refusal,
)
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod, Snapshot

_MAX_ROWS = 20
"""Rows of a section: what follows is counted. `-o json` has all."""


class UnchosenPod(NamedTuple):
    """A pod on a candidate node that is not chosen; without a refusal it may be, and its room is not needed."""

    pod: ScheduledPod
    refusal: Refusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One decision, and what it was made from."""

    preemptor: Preemptor
    snapshot: Snapshot
    nodes: Sequence[str]
    decision: PreemptionDecision

    @property
    def has_room(self) -> bool:
        """True where the preemptor would get room."""
        return self.decision.best is not None or bool(self.free_nodes)

    @property
    def free_nodes(self) -> Sequence[str]:
        """The nodes on which nobody has to go, or nobody more than was told to."""
        return [
            node
            for node, found in self.decision.node_statuses.items()
            if found in WAITING_IS_ENOUGH
        ]

    def unchosen_pods(self) -> Iterator[UnchosenPod]:
        """Yield who is not chosen on the node that holds, and everybody on all others."""
        best = self.decision.best
        chosen = (
            set()
            if best is None
            else {victim.uid for victim in (*best.all_pods, *best.other_victims)}
        )
        court = Eligibility(self.preemptor, self.snapshot)
        for node in self.nodes:
            room = self.snapshot.nodes.get(node)
            for tenant in () if room is None else room.pods:
                if tenant.uid not in chosen:
                    yield UnchosenPod(tenant, court.refusal(tenant))


def build_text(found: Simulation) -> Iterator[str]:
    """Yield the lines for a person."""
    yield from _header(found)
    yield from _choices(found)
    rows = [
        (f"node/{node}", obstacle, STATUS_MESSAGES[obstacle])
        for node, obstacle in found.decision.node_statuses.items()
    ]
    yield from _section("nodes that are no choice", rows)
    others = list(found.unchosen_pods())
    refused = [
        (_name_and_node(tenant), refusal.reason, refusal.detail)
        for tenant, refusal in others
        if refusal is not None
    ]
    yield from _section("pods that are no victims", refused)
    spared = [
        (_name_and_node(tenant), "spared", _reason_spared(tenant, found))
        for tenant, refusal in others
        if refusal is None
    ]
    yield from _section("pods that might be, and stay", spared)


def build_document(found: Simulation) -> dict[str, object]:
    """Return the same for programs; times are RFC 3339."""
    preemptor, decision = found.preemptor, found.decision
    others = list(found.unchosen_pods())
    return {
        "version": 1,
        "at": timestamp.render(found.snapshot.now),
        "preemptor": {
            "namespace": preemptor.namespace,
            "name": preemptor.name,
            "preemptionClass": preemptor.preemption_class,
            "priority": preemptor.demand.priority,
            "requests": _amounts(preemptor.demand.amounts),
            "gang": None if preemptor.gang is None else preemptor.gang.identity,
            "restOfGang": len(preemptor.pending_members),
        },
        "ground": decision.reason,
        "choices": [_choice_fields(choice, found.snapshot) for choice in decision.candidates],
        "nodes": dict(decision.node_statuses),
        "refused": [
            {**_pod_fields(tenant), "ground": refusal.reason, "detail": refusal.detail}
            for tenant, refusal in others
            if refusal is not None
        ],
        "spared": [_pod_fields(tenant) for tenant, refusal in others if refusal is None],
    }


def _reason_spared(pod: ScheduledPod, found: Simulation) -> str:
    best = found.decision.best
    if best is None:
        return "nobody's room is needed" if found.free_nodes else "its room would not be enough"
    return (
        "its room is not needed" if pod.node == best.node else "another node is the better choice"
    )


def _header(found: Simulation) -> Iterator[str]:
    preemptor = found.preemptor
    asked = (
        ", ".join(
            f"{printable(name)} {amount}"
            for name, amount in _amounts(preemptor.demand.amounts).items()
        )
        or "nothing"
    )
    name = click.style(f"{printable(preemptor.namespace)}/{printable(preemptor.name)}", bold=True)
    yield f"{name}: class {preemptor.preemption_class}, priority {preemptor.demand.priority}, asks for {asked}"
    if preemptor.gang is not None:
        more = len(preemptor.pending_members)
        yield f'of gang "{printable(preemptor.gang.identity)}": {more} more of it must find room, or none is worth a victim'
    pods = sum(
        len(found.snapshot.nodes[node].pods) for node in found.nodes if node in found.snapshot.nodes
    )
    yield f"judged at {timestamp.render(found.snapshot.now)}, of {_counted(len(found.nodes), 'node')} with {_counted(pods, 'pod')}"
    if preemptor.depends_on_other_pods:
        yield "which pods may be near it is not judged here: its affinities, its spread and its claims"


def _choices(found: Simulation) -> Iterator[str]:
    decision = found.decision
    yield ""
    if decision.reason is not None:
        yield f"no victims: {decision.reason}: {REASON_MESSAGES[decision.reason]}"
        return
    if found.free_nodes:
        node = found.free_nodes[0]
        yield f"no victims are needed: node/{printable(node)}: {STATUS_MESSAGES[decision.node_statuses[node]]}"
        return
    if decision.best is None:
        yield "no victims: on no node would they help"
        return
    yield f"victims on {_summary(decision.best)}:"
    yield from _victims(decision.best.all_pods, found.snapshot)
    if decision.best.other_victims:
        yield "\nand for the rest of its gang:"
        yield from _victims(decision.best.other_victims, found.snapshot)
    if len(decision.candidates) > 1:
        yield "\nworse choices, the best first:"
        yield from (f"  {_summary(choice)}" for choice in decision.candidates[1 : _MAX_ROWS + 1])
        yield from _more(["choice"] * (len(decision.candidates) - _MAX_ROWS - 1))


def _victims(victims: Iterable[ScheduledPod], snapshot: Snapshot) -> Iterator[str]:
    for victim in victims:
        remark = f"class {victim.preemption_class}, defended with {victim.preemption_priority}, {_hours(victim, snapshot)}"
        yield f"  {click.style(_name_and_node(victim), fg='yellow')}  {remark}"


def _summary(victim_set: PreemptionCandidate) -> str:
    count = len(victim_set.all_pods) + len(victim_set.other_victims)
    victims = _counted(len(victim_set.all_pods), "pod") + (
        f" and {len(victim_set.other_victims)} for the rest of its gang"
        if victim_set.other_victims
        else ""
    )
    units = f" that count as {victim_set.victim_count}" if victim_set.victim_count != count else ""
    budgets = (
        f", {_counted(victim_set.pdb_violations, 'disruption budget')} violated"
        if victim_set.pdb_violations
        else ""
    )
    return f"node/{printable(victim_set.node)}: {victims}{units}, {victim_set.cost_hours:.3g} device-hours{budgets}"


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"\n{title}:"
    # Names, and sentences with names in them, are anybody's.
    shown = [(printable(name), word, printable(detail)) for name, word, detail in rows[:_MAX_ROWS]]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    for name, word, detail in shown:
        yield f"  {name:{widths[0]}}  {click.style(f'{word:{widths[1]}}', fg='cyan')}  {detail}"
    yield from _more([word for _, word, _ in rows[_MAX_ROWS:]])


def _more(words: Iterable[str]) -> Iterator[str]:
    """Say how many rows are not shown, and of which kinds they are."""
    counted = Counter(words).most_common()
    if counted:
        kinds = ", ".join(f"{number} {word}" for word, number in counted)
        yield f"  and {kinds}: --node narrows it, -o json has all"


def _name_and_node(pod: ScheduledPod) -> str:
    return printable(f"{pod.namespace}/{pod.name} on {pod.node}")


def _hours(pod: ScheduledPod, snapshot: Snapshot) -> str:
    price = pod.cost(snapshot.now)
    return f"{price.hours:.3g} {price.device.upper()}-hours"


def _choice_fields(victim_set: PreemptionCandidate, snapshot: Snapshot) -> dict[str, object]:
    return {
        "node": victim_set.node,
        "budgetsViolated": victim_set.pdb_violations,
        "counted": victim_set.victim_count,
        "hours": victim_set.cost_hours,
        "victims": [_victim_fields(victim, snapshot) for victim in victim_set.all_pods],
        "later": [_victim_fields(victim, snapshot) for victim in victim_set.other_victims],
    }


def _victim_fields(victim: ScheduledPod, snapshot: Snapshot) -> dict[str, object]:
    return {
        **_pod_fields(victim),
        "uid": victim.uid,
        "preemptionClass": victim.preemption_class,
        "preemptionPriority": victim.preemption_priority,
        "hours": victim.cost(snapshot.now).recorded.hours,
    }


def _pod_fields(pod: ScheduledPod) -> dict[str, str]:
    return {"namespace": pod.namespace, "name": pod.name, "node": pod.node}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity.render(amount) for name, amount in sorted(amounts.items()) if amount}


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
