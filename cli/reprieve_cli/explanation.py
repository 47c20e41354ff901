"""What `reprieve explain` says, as lines for a person and as a document for programs. No I/O."""

from collections.abc import Callable, Iterator
from datetime import datetime

from reprieve_policy import keys, timestamp
from reprieve_policy.outlook import Outlook
from reprieve_policy.preemption_class import ClassSet


def build_text(name: str, outlook: Outlook, current: str) -> Iterator[str]:
    """Yield the lines for a person."""
    yield f"{name}: class {outlook.preemption_class}, defended with priority {outlook.preemption_priority}"
    if current:
        yield current
    sections: tuple[tuple[str, Callable[[Outlook], Iterator[str]]], ...] = (
        ("who may preempt it", _who),
        ("from when", _when),
        ("what it would cost", _what),
        ("what would happen", lambda found: (f"{i}. {step}" for i, step in enumerate(found.steps, 1))),
    )
    for title, lines in sections:
        yield f"\n{title}:"
        yield from (f"  {line}" for line in lines(outlook))


def build_document(outlook: Outlook) -> dict[str, object]:
    """Return the same for programs; what says nothing is left out, times are RFC 3339."""
    protected, tolerated, price = outlook.protected, outlook.tolerated, outlook.cost
    document = {
        "preemptionClass": outlook.preemption_class,
        "preemptorClasses": list(outlook.preemptor_classes),
        "preemptionPriority": outlook.preemption_priority,
        "protected": protected and {"ground": protected.ground, "until": _optional(protected.until)},
        "tolerated": tolerated and {"below": tolerated.minimum, "until": _optional(tolerated.until)},
        "cost": {
            "hours": price.price.hours,
            "device": price.device,
            "checkpoint": price.checkpoint,
            "recompute": price.recompute,
            "walltime": price.walltime,
            "stated": price.stated,
        },
        "steps": list(outlook.steps),
    }
    return {key: value for key, value in document.items() if value is not None}


def _who(outlook: Outlook) -> Iterator[str]:
    if outlook.preemptor_classes:
        classes = ClassSet(frozenset(outlook.preemptor_classes))
        yield f"a pod of class {classes} whose priority is above {outlook.preemption_priority}"
    else:
        yield "nobody: class 10 is never preempted"
    yield "whoever may delete it may also ask it to go, whatever its class: it is given notice"


def _when(outlook: Outlook) -> Iterator[str]:
    protected, tolerated = outlook.protected, outlook.tolerated
    if protected is not None:
        yield f"{_until(protected.until)}: {protected.ground}"
    else:
        yield "now"
    if tolerated is not None:
        yield f"{_until(tolerated.until)} where the preemptor's priority is below {tolerated.minimum}: its PriorityClass tolerates that"


def _what(outlook: Outlook) -> Iterator[str]:
    cost = outlook.cost
    parts = f"checkpoint {cost.checkpoint:.3g}, recompute {cost.recompute:.3g}, walltime {cost.walltime:.3g}"
    yield f"{cost.hours:.4g} {cost.device.upper()}-hours: {parts}"
    if cost.stated:
        yield f"and says {keys.EVICTION_COST} {cost.stated}: those that say less go first"


def _until(moment: datetime | None) -> str:
    return "never" if moment is None else f"not before {timestamp.render(moment)}"


def _optional(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp.render(moment)
