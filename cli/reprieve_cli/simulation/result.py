"""The result of `reprieve simulate` as text and as a document for programs. No I/O."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import click

from reprieve_cli.output.finding import counted, printable
from reprieve_policy.kube.values import quantity, timestamp
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
"""Rows of a section; the rest is counted. `-o json` has all."""


class UnchosenPod(NamedTuple):
    """A pod on an evaluated node that is not chosen; without a refusal it could be a victim."""

    pod: ScheduledPod
    refusal: Refusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A decision and its input."""

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
        """The nodes with room without new victims, if need be once present victims are gone."""
        return [
            node
            for node, status in self.decision.node_statuses.items()
            if status in WAITING_IS_ENOUGH
        ]

    def unchosen_pods(self) -> Iterator[UnchosenPod]:
        """Yield the pods of all evaluated nodes that are not victims of the best candidate."""
        best = self.decision.best
        chosen = (
            set()
            if best is None
            else {victim.uid for victim in (*best.all_pods, *best.other_victims)}
        )
        eligibility = Eligibility(self.preemptor, self.snapshot)
        for node in self.nodes:
            node_info = self.snapshot.nodes.get(node)
            for pod in () if node_info is None else node_info.pods:
                if pod.uid not in chosen:
                    yield UnchosenPod(pod, eligibility.refusal(pod))


def build_text(simulation: Simulation) -> Iterator[str]:
    """Yield the lines for a user."""
    yield from _header(simulation)
    yield from _candidates(simulation)
    rows = [
        (f"node/{node}", status, STATUS_MESSAGES[status])
        for node, status in simulation.decision.node_statuses.items()
    ]
    yield from _section("nodes rejected", rows)
    others = list(simulation.unchosen_pods())
    refused = [
        (_name_and_node(pod), refusal.reason, refusal.detail)
        for pod, refusal in others
        if refusal is not None
    ]
    yield from _section("pods that cannot be victims", refused)
    spared = [
        (_name_and_node(pod), "spared", _reason_spared(pod, simulation))
        for pod, refusal in others
        if refusal is None
    ]
    yield from _section("pods that could be victims, but stay", spared)


def build_document(simulation: Simulation) -> dict[str, object]:
    """Return the document for programs; times are RFC 3339."""
    preemptor, decision = simulation.preemptor, simulation.decision
    others = list(simulation.unchosen_pods())
    return {
        "version": 1,
        "at": timestamp.render(simulation.snapshot.now),
        "preemptor": {
            "namespace": preemptor.namespace,
            "name": preemptor.name,
            "preemptionClass": preemptor.preemption_class,
            "priority": preemptor.demand.priority,
            "requests": _amounts(preemptor.demand.amounts),
            "gang": None if preemptor.gang is None else preemptor.gang.identity,
            "restOfGang": len(preemptor.pending_members),
        },
        "reason": decision.reason,
        "candidates": [
            _candidate_fields(each, simulation.snapshot) for each in decision.candidates
        ],
        "nodes": dict(decision.node_statuses),
        "refused": [
            {**_pod_fields(pod), "reason": refusal.reason, "detail": refusal.detail}
            for pod, refusal in others
            if refusal is not None
        ],
        "spared": [_pod_fields(pod) for pod, refusal in others if refusal is None],
    }


def _reason_spared(pod: ScheduledPod, simulation: Simulation) -> str:
    best = simulation.decision.best
    if best is None:
        return (
            "no victims are needed" if simulation.free_nodes else "its resources would not suffice"
        )
    return (
        "its resources are not needed"
        if pod.node == best.node
        else "another node is the better candidate"
    )


def _header(simulation: Simulation) -> Iterator[str]:
    preemptor = simulation.preemptor
    requests = (
        ", ".join(
            f"{printable(name)} {amount}"
            for name, amount in _amounts(preemptor.demand.amounts).items()
        )
        or "nothing"
    )
    name = click.style(f"{printable(preemptor.namespace)}/{printable(preemptor.name)}", bold=True)
    ranks = f"class {preemptor.preemption_class}, priority {preemptor.demand.priority}"
    yield f"{name}: {ranks}, requests {requests}"
    if preemptor.gang is not None:
        gang = printable(preemptor.gang.identity)
        others = counted(len(preemptor.pending_members), "other pod")
        yield f'gang "{gang}": {others} must find room too, or no pod is preempted for it'
    snapshot, nodes = simulation.snapshot, counted(len(simulation.nodes), "node")
    pods = sum(
        len(snapshot.nodes[node].pods) for node in simulation.nodes if node in snapshot.nodes
    )
    yield f"evaluated at {timestamp.render(snapshot.now)}: {nodes} with {counted(pods, 'pod')}"
    if preemptor.depends_on_other_pods:
        yield "not evaluated: its pod affinities, topology spread and resource claims"


def _candidates(simulation: Simulation) -> Iterator[str]:
    decision = simulation.decision
    yield ""
    if decision.reason is not None:
        yield f"no victims: {decision.reason}: {REASON_MESSAGES[decision.reason]}"
        return
    if simulation.free_nodes:
        node = simulation.free_nodes[0]
        message = STATUS_MESSAGES[decision.node_statuses[node]]
        yield f"no victims are needed: node/{printable(node)}: {message}"
        return
    if decision.best is None:
        yield "no victims: preemption helps on no node"
        return
    now = simulation.snapshot.now
    yield f"victims on {_summary(decision.best, now)}:"
    yield from _victims(decision.best.all_pods, simulation.snapshot)
    if decision.best.other_victims:
        yield ""
        yield "for the rest of its gang:"
        yield from _victims(decision.best.other_victims, simulation.snapshot)
    if len(decision.candidates) > 1:
        shown = decision.candidates[1 : _MAX_ROWS + 1]
        yield ""
        yield "other candidates, best first:"
        yield from (f"  {_summary(candidate, now)}" for candidate in shown)
        yield from _more(["candidate"] * (len(decision.candidates) - _MAX_ROWS - 1))


def _victims(victims: Iterable[ScheduledPod], snapshot: Snapshot) -> Iterator[str]:
    for victim in victims:
        ranks = f"class {victim.preemption_class}, preemption priority {victim.preemption_priority}"
        name = click.style(_name_and_node(victim), fg="yellow")
        figures = f"{_hours(victim, snapshot)}, {_loss(victim, snapshot)}"
        yield f"  {name}  {ranks}, {figures}"


def _summary(candidate: PreemptionCandidate, now: datetime) -> str:
    count = len(candidate.all_pods) + len(candidate.other_victims)
    victims = counted(len(candidate.all_pods), "pod") + (
        f" and {len(candidate.other_victims)} for the rest of its gang"
        if candidate.other_victims
        else ""
    )
    units = f" that count as {candidate.victim_count}" if candidate.victim_count != count else ""
    budgets = (
        f", {counted(candidate.pdb_violations, 'disruption budget')} violated"
        if candidate.pdb_violations
        else ""
    )
    figures = (
        f"cost {candidate.cost_hours:.3g} device-hours, "
        f"loss {candidate.loss(now):,.0f} device-seconds"
    )
    return f"node/{printable(candidate.node)}: {victims}{units}, {figures}{budgets}"


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"{title}:"
    # Users choose names, and details contain names: without this, one could drive the terminal.
    shown = [(printable(name), word, printable(detail)) for name, word, detail in rows[:_MAX_ROWS]]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    for name, word, detail in shown:
        yield f"  {name:{widths[0]}}  {click.style(f'{word:{widths[1]}}', fg='cyan')}  {detail}"
    yield from _more([word for _, word, _ in rows[_MAX_ROWS:]])


def _more(words: Iterable[str]) -> Iterator[str]:
    """Yield a line with the number of rows that are not shown, by their reason."""
    numbers = Counter(words).most_common()
    if numbers:
        kinds = ", ".join(f"{number} {word}" for word, number in numbers)
        yield f"  and {kinds}: --node selects nodes, -o json lists all"


def _name_and_node(pod: ScheduledPod) -> str:
    return printable(f"{pod.namespace}/{pod.name} on {pod.node}")


def _hours(pod: ScheduledPod, snapshot: Snapshot) -> str:
    cost = pod.cost(snapshot.now)
    return f"cost {cost.hours:.3g} {cost.device.upper()}-hours"


def _loss(pod: ScheduledPod, snapshot: Snapshot) -> str:
    device = pod.cost_inputs.device.upper()
    return f"loss {pod.loss(snapshot.now):,.0f} {device}-seconds"


def _candidate_fields(candidate: PreemptionCandidate, snapshot: Snapshot) -> dict[str, object]:
    return {
        "node": candidate.node,
        "budgetsViolated": candidate.pdb_violations,
        "victimCount": candidate.victim_count,
        "hours": candidate.cost_hours,
        "lossSeconds": round(candidate.loss(snapshot.now)),
        "victims": [_victim_fields(victim, snapshot) for victim in candidate.all_pods],
        "victimsForRestOfGang": [
            _victim_fields(victim, snapshot) for victim in candidate.other_victims
        ],
    }


def _victim_fields(victim: ScheduledPod, snapshot: Snapshot) -> dict[str, object]:
    return {
        **_pod_fields(victim),
        "uid": victim.uid,
        "preemptionClass": victim.preemption_class,
        "preemptionPriority": victim.preemption_priority,
        "hours": victim.cost(snapshot.now).recorded.hours,
        "lossSeconds": round(victim.loss(snapshot.now)),
    }


def _pod_fields(pod: ScheduledPod) -> dict[str, str]:
    return {"namespace": pod.namespace, "name": pod.name, "node": pod.node}


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity.render(amount) for name, amount in sorted(amounts.items()) if amount}
