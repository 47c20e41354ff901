"""The result of `reprieve explain` as text and as a document for programs. No I/O."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption.eviction_preview import EvictionPreview
from reprieve_policy.preemption.selection import Refusal, RefusalReason
from reprieve_policy.preemption.selection.explain import VictimExplanation


def build_text(
    name: str,
    explanation: VictimExplanation,
    eviction: EvictionPreview,
    current: Sequence[str] = (),
    refusal: Refusal | None = None,
) -> Iterator[str]:
    """Yield the lines for a user. `refusal`: why the pod, which is pending, takes no victims.

    `current` has the lines about the eviction of a pod that is a victim. They replace those about
    possible preemptors: without this, a pod that is leaving would read as one that is not chosen.
    """
    priority = explanation.preemption_priority
    yield f"{name}: class {explanation.preemption_class}, preemption priority {priority}"
    before: tuple[tuple[str, Iterator[str]], ...] = (
        ("possible preemptors", _possible_preemptors(explanation)),
        ("earliest preemption", _earliest_preemption(explanation)),
    )
    sections: tuple[tuple[str, Iterator[str]], ...] = (
        *((("it is a victim now", iter(current)),) if current else before),
        *((("as a preemptor", _as_preemptor(refusal)),) if refusal else ()),
        ("cost of an eviction", _cost_lines(eviction)),
        ("expected loss of work", _loss_lines(eviction)),
        ("steps of an eviction", (f"{i}. {step}" for i, step in enumerate(eviction.steps, 1))),
    )
    for title, lines in sections:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def build_document(
    explanation: VictimExplanation, eviction: EvictionPreview, refusal: Refusal | None = None
) -> dict[str, object]:
    """Return the document for programs, without empty fields; times are RFC 3339."""
    protected, tolerated, cost = explanation.protected_by, explanation.tolerated, eviction.cost
    until = _optional_time(explanation.until)
    document = {
        "preemptionClass": explanation.preemption_class,
        "preemptorClasses": list(explanation.preemptor_classes),
        "preemptionPriority": explanation.preemption_priority,
        "protected": protected
        and {"reason": protected.reason, "detail": protected.detail, "until": until},
        "takesNoVictims": refusal and {"reason": refusal.reason, "detail": refusal.detail},
        "tolerated": tolerated
        and {"below": tolerated.minimum, "until": _optional_time(tolerated.until)},
        "cost": {
            "hours": cost.recorded.hours,
            "device": cost.device,
            "checkpoint": cost.checkpoint,
            "recompute": cost.recompute,
            "walltime": cost.walltime,
            "stated": cost.stated,
        },
        "lossSeconds": round(eviction.loss_seconds),
        "steps": list(eviction.steps),
    }
    return {key: value for key, value in document.items() if value is not None}


def _possible_preemptors(explanation: VictimExplanation) -> Iterator[str]:
    if explanation.preemptor_classes:
        classes = ClassSet(frozenset(explanation.preemptor_classes))
        yield f"a pod of class {classes} whose priority is above {explanation.preemption_priority}"
    else:
        yield "none: no pod may preempt it"
    yield "a user who may delete it may evict it softly, whatever its class: it gets notice first"


def _earliest_preemption(explanation: VictimExplanation) -> Iterator[str]:
    protected, tolerated = explanation.protected_by, explanation.tolerated
    if protected is not None:
        is_permanent = protected.reason is RefusalReason.NON_PREEMPTIBLE
        time = (
            _until(explanation.until)
            if explanation.until is not None or is_permanent
            else "not as long as this applies"
        )
        yield f"{time}: {protected.reason}: {protected.detail}"
    else:
        yield "now"
    if tolerated is not None:
        preemptors = f"by a preemptor with a priority below {tolerated.minimum}"
        yield f"{_until(tolerated.until)} {preemptors}: its PriorityClass tolerates those"


def _as_preemptor(refusal: Refusal) -> Iterator[str]:
    yield f"it takes no victims: {refusal.reason}: {refusal.detail}"


def _cost_lines(eviction: EvictionPreview) -> Iterator[str]:
    cost = eviction.cost
    parts = (
        f"checkpoint {cost.checkpoint:.3g}, recompute {cost.recompute:.3g}, "
        f"walltime {cost.walltime:.3g}"
    )
    yield f"{cost.hours:.4g} {cost.device.upper()}-hours: {parts}"
    if cost.stated:
        yield f"{keys.EVICTION_COST} is {cost.stated}: pods with a lower value are evicted first"


def _loss_lines(eviction: EvictionPreview) -> Iterator[str]:
    yield f"{eviction.loss_seconds:,.0f} {eviction.cost.device.upper()}-seconds"


def _until(moment: datetime | None) -> str:
    return "never" if moment is None else f"not before {timestamp.render(moment)}"


def _optional_time(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp.render(moment)
