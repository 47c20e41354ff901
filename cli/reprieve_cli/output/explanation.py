"""What `reprieve explain` says, as lines for a person and as a document for programs. No I/O."""

from collections.abc import Iterator
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.kube import timestamp
from reprieve_policy.preemption.eviction_preview import EvictionPreview
from reprieve_policy.preemption.selection import RefusalReason
from reprieve_policy.preemption.selection.explain import VictimExplanation


def build_text(
    name: str, prospect: VictimExplanation, outlook: EvictionPreview, current: str
) -> Iterator[str]:
    """Yield the lines for a person."""
    yield f"{name}: class {prospect.preemption_class}, defended with priority {prospect.preemption_priority}"
    if current:
        yield current
    sections: tuple[tuple[str, Iterator[str]], ...] = (
        ("who may preempt it", _possible_preemptors(prospect)),
        ("from when", _earliest_preemption(prospect)),
        ("what it would cost", _cost_lines(outlook)),
        ("what would happen", (f"{i}. {step}" for i, step in enumerate(outlook.steps, 1))),
    )
    for title, lines in sections:
        yield f"\n{title}:"
        yield from (f"  {line}" for line in lines)


def build_document(prospect: VictimExplanation, outlook: EvictionPreview) -> dict[str, object]:
    """Return the same for programs; what says nothing is left out, times are RFC 3339."""
    protected, tolerated, price = prospect.protected_by, prospect.tolerated, outlook.cost
    until = _optional_time(prospect.until)
    document = {
        "preemptionClass": prospect.preemption_class,
        "preemptorClasses": list(prospect.preemptor_classes),
        "preemptionPriority": prospect.preemption_priority,
        "protected": protected
        and {"ground": protected.reason, "detail": protected.detail, "until": until},
        "tolerated": tolerated
        and {"below": tolerated.minimum, "until": _optional_time(tolerated.until)},
        "cost": {
            "hours": price.recorded.hours,
            "device": price.device,
            "checkpoint": price.checkpoint,
            "recompute": price.recompute,
            "walltime": price.walltime,
            "stated": price.stated,
        },
        "steps": list(outlook.steps),
    }
    return {key: value for key, value in document.items() if value is not None}


def _possible_preemptors(prospect: VictimExplanation) -> Iterator[str]:
    if prospect.preemptor_classes:
        classes = ClassSet(frozenset(prospect.preemptor_classes))
        yield f"a pod of class {classes} whose priority is above {prospect.preemption_priority}"
    else:
        yield "nobody"
    yield "whoever may delete it may also ask it to go, whatever its class: it is given notice"


def _earliest_preemption(prospect: VictimExplanation) -> Iterator[str]:
    protected, tolerated = prospect.protected_by, prospect.tolerated
    if protected is not None:
        is_for_good = protected.reason is RefusalReason.NON_PREEMPTIBLE
        holds = (
            _until(prospect.until)
            if prospect.until is not None or is_for_good
            else "not while this holds"
        )
        yield f"{holds}: {protected.reason}: {protected.detail}"
    else:
        yield "now"
    if tolerated is not None:
        yield f"{_until(tolerated.until)} where the preemptor's priority is below {tolerated.minimum}: its PriorityClass tolerates that"


def _cost_lines(outlook: EvictionPreview) -> Iterator[str]:
    cost = outlook.cost
    parts = f"checkpoint {cost.checkpoint:.3g}, recompute {cost.recompute:.3g}, walltime {cost.walltime:.3g}"
    yield f"{cost.hours:.4g} {cost.device.upper()}-hours: {parts}"
    if cost.stated:
        yield f"and says {keys.EVICTION_COST} {cost.stated}: those that say less go first"


def _until(moment: datetime | None) -> str:
    return "never" if moment is None else f"not before {timestamp.render(moment)}"


def _optional_time(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp.render(moment)
