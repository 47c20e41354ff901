"""The plan of `reprieve reclaim` as text. No I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_cli.cluster.node_pods import ReclaimCandidate
from reprieve_cli.cluster.pods import progress_of
from reprieve_cli.output.finding import printable
from reprieve_policy import facts as known_facts
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import cost, reclaim
from reprieve_policy.preemption.cost import Cost
from reprieve_policy.preemption.reclaim import ReclaimAction, ReclaimResult

_COLOURS = {
    ReclaimAction.EVICT: "yellow",
    ReclaimAction.LEAVING: "cyan",
    ReclaimAction.STAYS: "green",
}
_ORDER = tuple(_COLOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One pod, the decision about it, and the cost of evicting it."""

    candidate: ReclaimCandidate
    decision: ReclaimResult
    preemption_class: int
    cost: Cost

    @property
    def name(self) -> str:
        """The pod's namespace and name, as they are shown."""
        metadata = self.candidate.pod.metadata
        return printable(f"{metadata.namespace}/{metadata.name}")


def decide_rows(
    candidates: Iterable[ReclaimCandidate], home: str, policy: ClusterPolicy, now: datetime
) -> list[PlanRow]:
    """Decide about each pod; return the pods to evict first, cheapest first, then the others."""
    rows = [_decide(candidate, home, policy, now) for candidate in candidates]
    return sorted(
        rows, key=lambda row: (_ORDER.index(row.decision.action), row.cost.sort_key, row.name)
    )


def build_plan(node: str, home: str, rows: Sequence[PlanRow]) -> Iterator[str]:
    """Yield the lines of the plan."""
    yield f"node/{node} belongs to namespace {printable(home)}"
    if not rows:
        yield "no pods run on it"
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        action = click.style(
            f"{row.decision.action.name.lower():7}", fg=_COLOURS[row.decision.action]
        )
        yield f"  {action}  {row.name:{width}}  {printable(', '.join(_remarks(row)))}".rstrip()


def _decide(
    candidate: ReclaimCandidate, home: str, policy: ClusterPolicy, now: datetime
) -> PlanRow:
    facts, view = (
        policy.facts_as_enforced(candidate.pod.metadata.namespace or ""),
        candidate.pod.view,
    )
    plan = checkpoint_plan.read_leniently(view.annotations, facts.settings)
    work = progress_of(candidate.pod, candidate.node_pod.walltime)
    workload_type = facts.namespace.workload_type
    return PlanRow(
        candidate=candidate,
        decision=reclaim.decide_reclaim(
            candidate.node_pod, candidate.other_members, home, facts, now
        ),
        preemption_class=known_facts.effective_class(view, facts),
        cost=cost.decide_cost(view, plan, work, facts.settings, now, workload_type=workload_type),
    )


def _remarks(row: PlanRow) -> Iterator[str]:
    if row.decision.action is not ReclaimAction.EVICT:
        yield row.decision.reason or "it is already being evicted"
        return
    yield f"class {row.preemption_class}"
    yield f"{row.cost.hours:.3g} {row.cost.device.upper()}-hours"
    if row.candidate.gang:
        size = len(row.candidate.other_members) + 1
        yield f'with all {size} pods of its gang "{row.candidate.gang}"'
    if row.decision.until is not None:
        yield f"not before {timestamp.render(row.decision.until)}: {row.decision.reason}"
