"""A PriorityClass's right to refuse preemption (document 002), as the shipped plugin reads it.

If scheduler-plugins `pkg/preemptiontoleration` and the document differ, this follows the plugin.
The expiry's boundary is exclusive. A pod whose `PodScheduled` is not True tolerates. An unreadable
policy means no toleration. A preemptor with `preemptionPolicy: Never` is tolerated. Only the
`x-k8s.io` prefix is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reprieve_policy.keys import (
    MINIMUM_PREEMPTABLE_PRIORITY,
    OLD_TOLERATION_PREFIX,
    TOLERATION_PREFIX,
    TOLERATION_SECONDS,
)
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path

from .annotation_values import INT64, WholeNumber

MAX_SECONDS = 9_223_372_036
"""int64 nanoseconds hold 9,223,372,036.85 s. From 9223372037 up, upstream's `time.Duration`
overflows into the past."""

MINIMUM = WholeNumber(-(2**31), 2**31 - 1)
"""A priority is an int32."""

SECONDS = WholeNumber(
    INT64.start,
    MAX_SECONDS,
    detail='must be whole seconds, like "3600"; "-1" tolerates forever',
    too_high=f'must be at most {MAX_SECONDS} seconds; "-1" tolerates forever',
)


@dataclass(frozen=True, slots=True)
class PreemptionToleration:
    """Refuse preemptors below `minimum_preemptable_priority`, for `seconds` after scheduling.

    Negative seconds: for ever.
    """

    minimum_preemptable_priority: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimToleration:
    """What the decision needs to know of a possible victim."""

    has_priority_class: bool
    policy: PreemptionToleration | None
    """`None`: its PriorityClass's annotations cannot be read."""
    scheduled_at: datetime | None
    """When `PodScheduled` became True; `None`: it is not True."""


def parse(
    annotations: Mapping[str, str], value: int
) -> PreemptionToleration | tuple[Violation, ...]:
    """Read the policy of a PriorityClass of priority `value`.

    The defaults are upstream's: the minimum is `value` + 1, the seconds are 0 (no toleration).
    """
    minimum_key, seconds_key = annotation_keys(TOLERATION_PREFIX)
    minimum = _read(MINIMUM, annotations, minimum_key, value + 1)
    seconds = _read(SECONDS, annotations, seconds_key, 0)
    if isinstance(minimum, Violation) or isinstance(seconds, Violation):
        return tuple(value for value in (minimum, seconds) if isinstance(value, Violation))
    return PreemptionToleration(minimum, seconds)


def tolerates(
    victim: VictimToleration,
    preemptor_priority: int,
    *,
    preemptor_never_preempts: bool,
    now: datetime,
) -> bool:
    """True if the victim is protected from this preemptor at `now` (aware UTC)."""
    if not victim.has_priority_class:
        return False
    if preemptor_never_preempts:
        return True
    if victim.policy is None or preemptor_priority >= victim.policy.minimum_preemptable_priority:
        return False
    if victim.policy.seconds < 0 or victim.scheduled_at is None:
        return True
    return now - victim.scheduled_at < timedelta(seconds=victim.policy.seconds)


def annotation_keys(prefix: str) -> tuple[str, str]:
    """Return the keys of the minimum priority and of the seconds under `prefix`."""
    return prefix + MINIMUM_PREEMPTABLE_PRIORITY, prefix + TOLERATION_SECONDS


def check_prefixes(annotations: Mapping[str, str]) -> tuple[tuple[Violation, ...], tuple[str, ...]]:
    """Check the annotations under the older prefix, which schedulers do not read.

    Return violations if one is unreadable or contradicts its newer form, and a warning for each
    one.
    """
    violations: list[Violation] = []
    warnings: list[str] = []
    for new, old in zip(
        annotation_keys(TOLERATION_PREFIX), annotation_keys(OLD_TOLERATION_PREFIX), strict=True
    ):
        text, path = annotations.get(old), annotation_path("", old)
        if text is None:
            continue
        violation = _check_older(text, annotations.get(new), new, path)
        if violation is not None:
            violations.append(violation)
        warnings.append(f"{path}: unread; use *.x-k8s.io")
    return tuple(violations), tuple(warnings)


def _check_older(text: str, newer: str | None, new: str, path: str) -> Violation | None:
    if newer is not None and newer != text:
        detail = f"differs from {new}; remove this one, schedulers read only the other"
        return Violation(path, ViolationKind.INVALID, text, detail)
    return (MINIMUM if new.endswith(MINIMUM_PREEMPTABLE_PRIORITY) else SECONDS).check(text, path)


def _read(
    number: WholeNumber, annotations: Mapping[str, str], key: str, default: int
) -> int | Violation:
    text = annotations.get(key)
    return default if text is None else number.parse(text, annotation_path("", key))
