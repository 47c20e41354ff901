"""A PriorityClass's toleration of preemption is readable, and protects from some preemptor.

Checked: both annotations are whole numbers in range, under either prefix; the minimum priority is
not below the class's own value; the older prefix does not contradict the newer. Warned of: a
minimum that no preemptor is below, because only a priority above the class's own preempts it; the
older prefix.

Why: the scheduler's plugin ignores what it cannot parse, so that an admin relies on a protection
that does not exist.

Source: document 002, and scheduler-plugins `pkg/preemptiontoleration` where it differs from it.

Setting: none; what the annotations say is the admin's policy.
"""

from collections.abc import Iterator

from reprieve_policy.config import toleration
from reprieve_policy.config.toleration import MINIMUM, PreemptionToleration
from reprieve_policy.facts import Facts
from reprieve_policy.keys import TOLERATION_PREFIX
from reprieve_policy.kube.objects import Resource, annotations_of
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check both annotations under both prefixes."""
    annotations, value = annotations_of(resource.metadata), resource.value or 0
    older, warnings = toleration.check_prefixes(annotations)
    parsed = toleration.parse(annotations, value)
    too_low = tuple(_below(annotations.get(_KEY), value))
    unreadable = () if isinstance(parsed, PreemptionToleration) else parsed
    if (
        isinstance(parsed, PreemptionToleration)
        and not too_low
        and _KEY in annotations
        and _refuses_no_preemptor(parsed, value)
    ):
        warnings = (*warnings, f"{_PATH}: tolerates no preemptor")
    found = (*too_low, *unreadable, *older)
    return Verdict(violations=found, warnings=warnings) if found or warnings else NO_FINDINGS


def _below(text: str | None, value: int) -> Iterator[Violation]:
    minimum = None if text is None else MINIMUM.parse(text, _PATH)
    if isinstance(minimum, int) and minimum < value:
        detail = (
            f"must not be below the class's own value {value}: only a higher priority preempts it"
        )
        yield Violation(_PATH, ViolationKind.INVALID, text, detail)


def _refuses_no_preemptor(parsed: PreemptionToleration, value: int) -> bool:
    """Return whether the toleration refuses no preemptor.

    Upstream assumes the value + 1 without seconds for a class without a toleration.
    """
    return parsed.minimum_preemptable_priority <= value + (parsed.seconds != 0)


_KEY, _ = toleration.annotation_keys(TOLERATION_PREFIX)
_PATH = annotation_path("", _KEY)
