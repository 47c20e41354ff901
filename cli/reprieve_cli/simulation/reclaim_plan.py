"""What `reprieve reclaim` is about to do, as lines for a person. No I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from reprieve_cli.cluster.cluster_policy import Known
from reprieve_cli.cluster.node_pods import Party
from reprieve_cli.output.finding import printable
from reprieve_policy import facts as known_facts
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.kube import timestamp
from reprieve_policy.preemption import cost, reclaim
from reprieve_policy.preemption.cost import Cost
from reprieve_policy.preemption.reclaim import Fate, Lot

_COLOURS = {Fate.GOES: "yellow", Fate.GOING: "cyan", Fate.STAYS: "green"}
_ORDER = tuple(_COLOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pod, what becomes of it, and what that costs."""

    party: Party
    lot: Lot
    preemption_class: int
    cost: Cost

    @property
    def name(self) -> str:
        """With its namespace."""
        metadata = self.party.pod.metadata
        return f"{metadata.namespace}/{metadata.name}"


def decide_rows(parties: Iterable[Party], home: str, known: Known, now: datetime) -> list[Row]:
    """Decide about each pod; those that go first, of these the cheapest."""
    rows = [_decide(party, home, known, now) for party in parties]
    return sorted(rows, key=lambda row: (_ORDER.index(row.lot.fate), row.cost.order, row.name))


def build_plan(node: str, home: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the plan."""
    yield f"node/{node} belongs to namespace {printable(home)}"
    if not rows:
        yield "no pods are on it"
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        fate = click.style(f"{row.lot.fate.name.lower():5}", fg=_COLOURS[row.lot.fate])
        yield f"  {fate}  {row.name:{width}}  {', '.join(_remarks(row))}".rstrip()


def _decide(party: Party, home: str, known: Known, now: datetime) -> Row:
    facts, view = known.facts_for(party.pod.metadata.namespace or ""), party.pod.view
    plan = checkpoint_plan.read_leniently(view.annotations, facts.settings)
    work = party.pod.work(party.lodger.walltime)
    workload_type = facts.namespace.workload_type
    return Row(
        party=party,
        lot=reclaim.draw_lot(party.lodger, party.others, home, facts, now),
        preemption_class=known_facts.effective_class(view, facts),
        cost=cost.decide_cost(view, plan, work, facts.settings, now, workload_type=workload_type),
    )


def _remarks(row: Row) -> Iterator[str]:
    if row.lot.fate is not Fate.GOES:
        yield row.lot.why or "it is on its way"
        return
    yield f"class {row.preemption_class}"
    yield f"{row.cost.hours:.3g} {row.cost.device.upper()}-hours"
    if row.party.gang:
        yield f'with all {len(row.party.others) + 1} of its gang "{row.party.gang}"'
    if row.lot.until is not None:
        yield f"not before {timestamp.render(row.lot.until)}: {row.lot.why}"
